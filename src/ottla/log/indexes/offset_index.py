"""The sparse index from offsets to positions in a segment's file.

An entry is 8 bytes: the offset of a batch's last record, relative to the segment's base offset
(int32), and the position of that batch (int32). Offsets and positions strictly grow. A lookup
returns the entry with the largest offset not above the target: a scan from its position finds the
target, if the segment has it.

Source: OffsetIndex.
"""

import struct
from typing import Final, NamedTuple

from ottla.base.ports import File, Readable
from ottla.log.indexes.sparse_index import Pair, SparseIndex, last_of_file, search_file

ENTRY: Final = struct.Struct(">ii")
ENTRY_SIZE: Final = ENTRY.size


class OffsetPosition(NamedTuple):
    """An index entry, its offset absolute."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """An index in memory: its keys are relative offsets, its values positions."""

    NAME = "offset index"
    FORMAT = ENTRY
    VALUE_STEP = 1

    __slots__ = ()

    @property
    def is_full(self) -> bool:
        return len(self._keys) >= self.entries_max

    @property
    def last(self) -> OffsetPosition:
        """The last entry; the segment's start where there is none."""
        return _absolute(self._last(), self.base_offset)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; both must exceed the last one's."""
        relative = self._relative(offset)
        assert not self._keys or relative > self._keys[-1]
        self._append(relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the entry to scan from for `offset`: see the module."""
        return _absolute(self._lookup(offset - self.base_offset), self.base_offset)


def search(file: Readable, base_offset: int, offset: int) -> OffsetPosition:
    """Return the entry to scan from for `offset`, by binary search in an index file."""
    return _absolute(search_file(file, ENTRY, offset - base_offset), base_offset)


def last_entry(file: File, base_offset: int) -> OffsetPosition:
    """Return the last entry of an index file; the segment's start where it has none."""
    return _absolute(last_of_file(file, ENTRY), base_offset)


def _absolute(entry: Pair | None, base_offset: int) -> OffsetPosition:
    relative, position = entry or (0, 0)
    return OffsetPosition(base_offset + relative, position)
