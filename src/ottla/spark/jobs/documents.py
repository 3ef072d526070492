"""What jobs record of their runs: JSON documents with a version, and ranges of offsets in them."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class JournalError(Exception):
    """A document cannot be read, or does not follow the one before it."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def encode_document(document: dict[str, Any]) -> bytes:
    """Return a document as JSON."""
    return json.dumps(document, separators=(",", ":")).encode()


def decode_document(name: str, data: bytes, version: int, make: Callable[[Any], T]) -> T:
    """Return what `make` makes of a document of this version. Raises: JournalError."""
    try:
        document: Any = json.loads(data)
        found = document["version"]
        if found != version:
            raise JournalError(
                f"{name} has the version {found}: this version of Ottla reads {version}"
            )
        return make(document)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise JournalError(f"{name} cannot be read: {error!r}") from None


def encode_ranges(ranges: Iterable[OffsetRange]) -> list[list[int]]:
    """Return ranges as a document has them."""
    return [[each.partition, each.start, each.end] for each in ranges]


def decode_ranges(found: Any) -> tuple[OffsetRange, ...]:
    """Return the ranges of a document. Raises: ValueError, TypeError."""
    return tuple(OffsetRange(*map(int, each)) for each in found)
