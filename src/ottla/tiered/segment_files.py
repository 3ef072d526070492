"""What the index objects of a remote segment say, for readers that hold them in memory.

`SegmentPositions` is its offset index: where in the segment's object to read some offsets. The
others are its aborted transactions and its producers' state.

Source: OffsetIndex; TransactionIndex; ProducerStateManager. Formats: `log.indexes`,
`log.producers.producer_snapshot`.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice
from operator import lt

from ottla.base.ids import NO_OFFSET
from ottla.log.indexes.offset_index import ENTRY
from ottla.log.indexes.time_index import TimeIndex
from ottla.log.indexes.transaction_index import AbortedTransaction, decode_entries, select
from ottla.log.producers.producer_snapshot import decode_snapshot

__all__ = [
    "AbortedTransaction",
    "SegmentPositions",
    "aborted_in",
    "decode_entries",
    "first_open_offset",
    "offset_before",
]


class SegmentPositions:
    """A segment's offset index. An entry: the last offset of a batch, and where that batch begins.

    `start_offset` and `size_bytes` are the segment's.
    """

    __slots__ = ("_positions", "_relative", "size_bytes", "start_offset")

    def __init__(self, data: bytes, start_offset: int, size_bytes: int) -> None:
        """Decode the index. Raises: ValueError where it is damaged."""
        if len(data) % ENTRY.size:
            raise ValueError(f"an offset index of {len(data)} bytes is not whole entries")
        self.start_offset = start_offset
        self.size_bytes = size_bytes
        # A segment of 1 GB has a quarter of a million entries: no loop in Python.
        fields = array("i", data)
        if sys.byteorder == "little":
            fields.byteswap()
        self._relative, self._positions = fields[0::2], fields[1::2]
        for each in (self._relative, self._positions):
            if not all(map(lt, each, islice(each, 1, None))) or (each and each[0] < 0):
                raise ValueError("the entries of an offset index do not ascend")
        if self._positions and self._positions[-1] >= size_bytes:
            raise ValueError(
                f"an offset index leads to {self._positions[-1]} of {size_bytes} bytes"
            )

    def position_of(self, offset: int) -> int:
        """Return where to read from on, to find an offset: a batch begins there."""
        slot = bisect_right(self._relative, offset - self.start_offset)
        return self._positions[slot - 1] if slot else 0

    def end_position_of(self, end_offset: int) -> int:
        """Return up to where offsets below `end_offset` are: no batch behind has any."""
        # The batch of this entry may have some: its last offset is `end_offset` - 1 or more.
        slot = bisect_left(self._relative, end_offset - 1 - self.start_offset)
        return self._positions[slot + 1] if slot + 1 < len(self._positions) else self.size_bytes

    def cut_at(self, position: int) -> int:
        """Return the offset that begins closest behind a position, as far as the index knows.

        A reader of that offset finds it without reading what is before `position`, but for one
        batch. NO_OFFSET: there is no entry.
        """
        slot = bisect_right(self._positions, position)
        return self.start_offset + self._relative[slot - 1] + 1 if slot else NO_OFFSET


def aborted_in(
    entries: Iterable[AbortedTransaction], own: tuple[int, int], start_offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return a segment's aborted transactions with records in a range, and whether these are all.

    `own`: the offsets that are read from this segment: markers elsewhere in it are of a history
    that was cut off, or are found in its neighbour.
    """
    mine = [each for each in entries if own[0] <= each.last_offset < own[1]]
    return select(mine, start_offset, end_offset)


def offset_before(time_index: bytes, start_offset: int, timestamp_ms: int) -> int:
    """Return an offset of a segment below which all records are older than a timestamp.

    Raises: ValueError where the time index is damaged.
    """
    index = TimeIndex.load(time_index, start_offset, len(time_index))
    return index.lookup(timestamp_ms - 1).offset


def first_open_offset(snapshot: bytes) -> int:
    """Return where the first transaction begins that is open in a producers' state; -1 = none.

    Raises: ValueError where the snapshot is damaged.
    """
    starts = [each.transaction_start for each in decode_snapshot(snapshot)]
    return min((each for each in starts if each >= 0), default=NO_OFFSET)
