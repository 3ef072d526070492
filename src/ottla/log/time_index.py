"""The sparse index from timestamps to offsets of a segment.

An entry is 12 bytes: a timestamp in milliseconds (int64) and an offset relative to the segment's
base offset (int32). No record up to this offset has a larger timestamp, and the batch that ends
there has exactly this one. Timestamps strictly grow. The last entry of a sealed segment is its
largest timestamp, which retention.ms uses.

In memory and on disk as the offset index. Source: TimeIndex.
"""

import struct
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from ottla.base.ports import File, Readable
from ottla.log.offset_index import RELATIVE_OFFSET_MAX

ENTRY: Final = struct.Struct(">qi")
ENTRY_SIZE: Final = ENTRY.size
NO_TIMESTAMP: Final = -1


class TimestampOffset(NamedTuple):
    """An index entry, its offset absolute."""

    timestamp: int
    offset: int


class TimeIndex:
    """An index in memory, of the segment that starts at `base_offset`."""

    __slots__ = ("_offsets", "_timestamps", "_written", "base_offset", "entries_max")

    def __init__(self, base_offset: int, size_max: int) -> None:
        self.base_offset = base_offset
        self.entries_max = size_max // ENTRY_SIZE
        self._timestamps = array("q")
        self._offsets = array("i")
        self._written = 0

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def is_full(self) -> bool:
        # One entry is kept back for the largest timestamp at the segment's end.
        return len(self._timestamps) >= self.entries_max - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) where there is none."""
        if not self._timestamps:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self._timestamps[-1], self.base_offset + self._offsets[-1])

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp exceeds the last one's."""
        if timestamp <= self.last.timestamp:
            return
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX
        assert not self._offsets or relative >= self._offsets[-1]
        self._timestamps.append(timestamp)
        self._offsets.append(relative)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the entry with the largest timestamp not above `timestamp`."""
        slot = bisect_right(self._timestamps, timestamp)
        if slot == 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(
            self._timestamps[slot - 1], self.base_offset + self._offsets[slot - 1]
        )

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        keep = bisect_right(self._offsets, offset - 1 - self.base_offset)
        del self._timestamps[keep:], self._offsets[keep:]
        self._written = min(self._written, keep)

    def encode(self, first: int = 0) -> bytes:
        """Return the content of the file, from an entry on."""
        pairs = zip(self._timestamps[first:], self._offsets[first:], strict=True)
        return b"".join(ENTRY.pack(*pair) for pair in pairs)

    def write(self, file: File) -> None:
        """Bring the file up to date. Raises: OSError; it can be retried."""
        count = len(self._timestamps)
        start = self._written * ENTRY_SIZE
        if start < count * ENTRY_SIZE:
            file.write_at(start, self.encode(self._written))
            self._written = count
        if file.size() != count * ENTRY_SIZE:
            file.truncate(count * ENTRY_SIZE)

    @staticmethod
    def load(data: bytes, base_offset: int, size_max: int) -> "TimeIndex":
        """Return the index in a file's content. Raises: ValueError where it is corrupt."""
        if len(data) % ENTRY_SIZE:
            raise ValueError(f"a time index of {len(data)} bytes is not whole entries")
        index = TimeIndex(base_offset, size_max)
        before = (NO_TIMESTAMP, 0)
        for entry in ENTRY.iter_unpack(data):
            if entry[0] <= before[0] or entry[1] < before[1]:
                raise ValueError(f"time index entry {entry} follows {before}")
            before = entry
            index._timestamps.append(entry[0])
            index._offsets.append(entry[1])
        index._written = len(index)
        return index


def search(file: Readable, base_offset: int, timestamp: int) -> TimestampOffset:
    """Return the entry with the largest timestamp not above `timestamp`, from an index file."""
    low, high = 0, file.size() // ENTRY_SIZE
    found = (NO_TIMESTAMP, 0)
    while low < high:
        middle = (low + high) // 2
        data = file.read_at(middle * ENTRY_SIZE, ENTRY_SIZE)
        if len(data) < ENTRY_SIZE:
            high = middle
            continue
        entry = ENTRY.unpack(data)
        if entry[0] <= timestamp:
            found = entry
            low = middle + 1
        else:
            high = middle
    return TimestampOffset(found[0], base_offset + found[1])


def last_entry(file: File, base_offset: int) -> TimestampOffset:
    """Return the last entry of an index file: the segment's largest timestamp, or -1."""
    count = file.size() // ENTRY_SIZE
    if count == 0:
        return TimestampOffset(NO_TIMESTAMP, base_offset)
    timestamp, relative = ENTRY.unpack(file.read_at((count - 1) * ENTRY_SIZE, ENTRY_SIZE))
    return TimestampOffset(timestamp, base_offset + relative)
