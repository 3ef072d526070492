"""The sparse index from offsets to positions in a segment's file.

An entry is 8 bytes: the offset of a batch's last record, relative to the segment's base offset
(int32), and the position of that batch (int32). Offsets and positions strictly grow. A lookup
returns the entry with the largest offset not above the target: a scan from its position finds the
target, if the segment has it.

The active segment's index is in memory, 8 bytes an entry, and is written to its file when the log
is flushed or rolled; it is not read from there before. Indexes of other segments stay on disk.

Source: OffsetIndex, AbstractIndex.
"""

import struct
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from ottla.base.ports import File, Readable

ENTRY: Final = struct.Struct(">ii")
ENTRY_SIZE: Final = ENTRY.size
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetPosition(NamedTuple):
    """An index entry, its offset absolute."""

    offset: int
    position: int


class OffsetIndex:
    """An index in memory, of the segment that starts at `base_offset`."""

    __slots__ = ("_offsets", "_positions", "_written", "base_offset", "entries_max")

    def __init__(self, base_offset: int, size_max: int) -> None:
        self.base_offset = base_offset
        self.entries_max = size_max // ENTRY_SIZE
        self._offsets = array("i")
        self._positions = array("i")
        self._written = 0
        """How many entries the file is known to hold; further bytes are stale."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self.entries_max

    @property
    def last(self) -> OffsetPosition:
        """The last entry; the segment's start where there is none."""
        if not self._offsets:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[-1], self._positions[-1])

    def append(self, offset: int, position: int) -> None:
        """Add an entry; both must exceed the last one's."""
        relative = offset - self.base_offset
        assert 0 <= relative <= RELATIVE_OFFSET_MAX
        assert not self._offsets or relative > self._offsets[-1]
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the entry to scan from for `offset`: see the module."""
        slot = bisect_right(self._offsets, offset - self.base_offset)
        if slot == 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + self._offsets[slot - 1], self._positions[slot - 1])

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        keep = bisect_right(self._offsets, offset - 1 - self.base_offset)
        del self._offsets[keep:], self._positions[keep:]
        self._written = min(self._written, keep)

    def encode(self, first: int = 0) -> bytes:
        """Return the content of the file, from an entry on."""
        pairs = zip(self._offsets[first:], self._positions[first:], strict=True)
        return b"".join(ENTRY.pack(*pair) for pair in pairs)

    def write(self, file: File) -> None:
        """Bring the file up to date. Raises: OSError; it can be retried."""
        count = len(self._offsets)
        start = self._written * ENTRY_SIZE
        if start < count * ENTRY_SIZE:
            file.write_at(start, self.encode(self._written))
            self._written = count
        if file.size() != count * ENTRY_SIZE:
            file.truncate(count * ENTRY_SIZE)

    @staticmethod
    def load(data: bytes, base_offset: int, size_max: int) -> "OffsetIndex":
        """Return the index in a file's content. Raises: ValueError where it is corrupt."""
        if len(data) % ENTRY_SIZE:
            raise ValueError(f"an offset index of {len(data)} bytes is not whole entries")
        index = OffsetIndex(base_offset, size_max)
        before = (-1, -1)
        for entry in ENTRY.iter_unpack(data):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                raise ValueError(f"offset index entry {entry} follows {before}")
            before = entry
            index._offsets.append(entry[0])
            index._positions.append(entry[1])
        index._written = len(index)
        return index


def search(file: Readable, base_offset: int, offset: int) -> OffsetPosition:
    """Return the entry to scan from for `offset`, by binary search in an index file."""
    relative = offset - base_offset
    low, high = 0, file.size() // ENTRY_SIZE  # Entries below `low` are not above the target.
    found = (0, 0)
    while low < high:
        middle = (low + high) // 2
        data = file.read_at(middle * ENTRY_SIZE, ENTRY_SIZE)
        if len(data) < ENTRY_SIZE:
            high = middle
            continue
        entry = ENTRY.unpack(data)
        if entry[0] <= relative:
            found = entry
            low = middle + 1
        else:
            high = middle
    return OffsetPosition(base_offset + found[0], found[1])


def last_entry(file: File, base_offset: int) -> OffsetPosition:
    """Return the last entry of an index file; the segment's start where it has none."""
    count = file.size() // ENTRY_SIZE
    if count == 0:
        return OffsetPosition(base_offset, 0)
    relative, position = ENTRY.unpack(file.read_at((count - 1) * ENTRY_SIZE, ENTRY_SIZE))
    return OffsetPosition(base_offset + relative, position)
