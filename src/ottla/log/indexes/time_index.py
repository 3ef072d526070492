"""The sparse index from timestamps to offsets of a segment.

An entry is 12 bytes: a timestamp in milliseconds (int64) and an offset relative to the segment's
base offset (int32). No record up to this offset has a larger timestamp, and the batch that ends
there has exactly this one. Timestamps strictly grow. The last entry of a sealed segment is its
largest timestamp, which retention.ms uses.

Source: TimeIndex.
"""

import struct
from typing import Final, NamedTuple

from ottla.base.ports import File, Readable
from ottla.log.indexes.sparse_index import Pair, SparseIndex, last_of_file, search_file
from ottla.records.batch import BatchHeader

ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = ENTRY.size
NO_TIMESTAMP: Final = -1


class TimestampOffset(NamedTuple):
    """An index entry, its offset absolute."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """An index in memory: its keys are timestamps, its values relative offsets."""

    NAME = "time index"
    FORMAT = ENTRY
    VALUE_STEP = 0

    __slots__ = ()

    def __init__(self, base_offset: int, size_max: int) -> None:
        super().__init__(base_offset, size_max)
        self._offsets = self._values

    @property
    def is_full(self) -> bool:
        # One entry is kept back for the largest timestamp at the segment's end.
        return len(self._keys) >= self.entries_max - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) where there is none."""
        return _absolute(self._last(), self.base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp exceeds the last one's."""
        if timestamp <= (self._keys[-1] if self._keys else NO_TIMESTAMP):
            return
        relative = self._relative(offset)
        assert not self._values or relative >= self._values[-1]
        self._append(timestamp, relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the entry with the largest timestamp not above `timestamp`."""
        return _absolute(self._lookup(timestamp), self.base_offset)


def larger(largest: TimestampOffset, header: BatchHeader) -> TimestampOffset:
    """Return the largest timestamp up to and including a batch.

    A batch that compaction has emptied keeps its timestamp, which no record has any more: nothing
    would be found by it.
    """
    if header.record_count and header.max_timestamp > largest.timestamp:
        return TimestampOffset(header.max_timestamp, header.last_offset)
    return largest


def search(file: Readable, base_offset: int, timestamp: int) -> TimestampOffset:
    """Return the entry with the largest timestamp not above `timestamp`, from an index file."""
    return _absolute(search_file(file, ENTRY, timestamp), base_offset)


def last_entry(file: File, base_offset: int) -> TimestampOffset:
    """Return the last entry of an index file: the segment's largest timestamp, or -1."""
    return _absolute(last_of_file(file, ENTRY), base_offset)


def _absolute(entry: Pair | None, base_offset: int) -> TimestampOffset:
    timestamp, relative = entry or (NO_TIMESTAMP, 0)
    return TimestampOffset(timestamp, base_offset + relative)
