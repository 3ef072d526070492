"""Reads the batches of files that grow, and are cut now and then: each batch once."""

from collections.abc import Callable
from typing import Generic, TypeVar

from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.errors import RecordsError

T = TypeVar("T")


class BatchReader(Generic[T]):
    """`read`: makes of a batch, at a position, what is wanted of it. Raises: RecordsError."""

    def __init__(self, read: Callable[[bytes, int, BatchHeader], T]) -> None:
        self._read = read
        self._known: dict[str, tuple[bytes, list[tuple[int, T]]]] = {}
        """By path, what a file held last, and its batches."""

    def batches(self, path: str, data: bytes) -> list[tuple[int, T]]:
        """Return where each whole batch ends in the file, and what was made of it.

        They end at the first that is damaged: other checkers look for that.
        """
        before, batches = self._known.get(path, (b"", []))
        if data is before:
            return batches
        while batches and data[: batches[-1][0]] != before[: batches[-1][0]]:
            batches.pop()
        try:
            start = batches[-1][0] if batches else 0
            for at, header in iter_headers(data, start, allow_partial=True):
                batches.append((at + header.size_in_bytes, self._read(data, at, header)))
        except RecordsError:
            pass
        self._known[path] = (data, batches)
        return batches
