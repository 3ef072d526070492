"""Finds a remote segment by leader epoch and offset.

Leaders may have copied the same offsets more than once: a new leader rolled its segments at other
offsets, or a copy was repeated after a lost answer. Within one leader epoch all copies of an offset
have the same records, so any will do. The segment that reaches farthest is taken, which makes the
index a function of the set of its segments, whatever the order in which they came: where the
farthest one is deleted, those that it hid are found again.

Source: RemoteLogLeaderEpochState; KAFKA-15168 (the wrong one of overlapping segments was read).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from ottla.base.ids import NO_OFFSET, Uuid
from ottla.tiered.segment_metadata import SegmentMetadata, epoch_ranges

_Entry = tuple[int, int, Uuid]
"""In one leader epoch: start offset, end offset (inclusive), segment id."""


class _EpochIndex:
    """The segments with records of one leader epoch, by their first offset in it.

    `_farthest[i]` is the entry with the greatest end among the first i + 1. An offset is in the
    farthest of all entries that start at or below it, or in none.
    """

    __slots__ = ("_entries", "_farthest")

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._farthest: list[_Entry] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, entry: _Entry) -> None:
        slot = bisect_left(self._entries, entry)
        if slot < len(self._entries) and self._entries[slot] == entry:
            return
        self._entries.insert(slot, entry)
        self._farthest.insert(slot, entry)
        self._extend(slot)

    def remove(self, entry: _Entry) -> None:
        slot = bisect_left(self._entries, entry)
        assert self._entries[slot] == entry
        del self._entries[slot], self._farthest[slot]
        self._extend(slot)

    def _extend(self, slot: int) -> None:
        """Bring `_farthest` up to date from a slot on, as far as it changes."""
        first = slot
        for at in range(slot, len(self._entries)):
            farthest = self._entries[at]
            if at and self._farthest[at - 1][1] > farthest[1]:
                farthest = self._farthest[at - 1]
            if self._farthest[at] is farthest and at > first:
                break
            self._farthest[at] = farthest

    def find(self, offset: int) -> Uuid | None:
        slot = bisect_right(self._entries, (offset + 1,)) - 1
        if slot < 0:
            return None
        _, end, segment_id = self._farthest[slot]
        return segment_id if offset <= end else None

    @property
    def highest_offset(self) -> int:
        return self._farthest[-1][1] if self._farthest else NO_OFFSET


class SegmentIndex:
    """Readable segments by leader epoch and offset. The caller keeps the segments themselves."""

    __slots__ = ("_epochs",)

    def __init__(self, segments: Iterable[SegmentMetadata] = ()) -> None:
        self._epochs: dict[int, _EpochIndex] = {}
        for segment in segments:
            self.add(segment)

    def add(self, segment: SegmentMetadata) -> None:
        """Add a segment; one that is there stays."""
        for epoch, start, end in epoch_ranges(segment):
            index = self._epochs.get(epoch)
            if index is None:
                index = self._epochs[epoch] = _EpochIndex()
            index.add((start, end, segment.segment_id))

    def remove(self, segment: SegmentMetadata) -> None:
        """Remove a segment that was added."""
        for epoch, start, end in epoch_ranges(segment):
            index = self._epochs[epoch]
            index.remove((start, end, segment.segment_id))
            if not index:
                del self._epochs[epoch]

    def find(self, epoch: int, offset: int) -> Uuid | None:
        """Return the segment that has this offset in this leader epoch, or None."""
        index = self._epochs.get(epoch)
        return None if index is None else index.find(offset)

    def highest_offset(self, epoch: int) -> int:
        """Return the highest offset of a leader epoch; -1 = none."""
        index = self._epochs.get(epoch)
        return NO_OFFSET if index is None else index.highest_offset

    def highest_offset_of_all(self) -> int:
        """Return the highest offset of any leader epoch; -1 = none."""
        return max((each.highest_offset for each in self._epochs.values()), default=NO_OFFSET)
