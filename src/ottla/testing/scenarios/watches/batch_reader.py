"""Reads the batches of files that grow, and are cut now and then: each batch once."""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.log import names
from ottla.records.batch import BatchHeader, iter_headers
from ottla.records.errors import RecordsError

T = TypeVar("T")


class Extent(NamedTuple):
    """The offsets of a batch, and its leader epoch."""

    base_offset: int
    last_offset: int
    epoch: int


def extent(_data: bytes, _at: int, header: BatchHeader) -> Extent:
    """Make the extent of a batch, for a reader."""
    return Extent(header.base_offset, header.last_offset, header.partition_leader_epoch)


def segments_of(files: Mapping[str, bytes]) -> dict[int, bytes]:
    """Return the content of the segments among the files of a directory, by base offset."""
    parsed = ((names.parse_segment_name(name), data) for name, data in files.items())
    return {name[0]: data for name, data in parsed if name is not None and name[1] == names.LOG}


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
