"""A log's lineage: which leader epoch each of its offsets has.

After an unclean election the remote tier may hold records that the log no longer has: other
records, of another epoch, are at their offsets now. A segment may be used as far as its leader
epochs are those of the lineage.

Offsets before the lineage's first entry are not compared: the leader epoch cache was truncated
there, with the log start, and entries of a segment that reaches back behind it are gone.

Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs; KAFKA-15241, KAFKA-16511.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.base.turns import Steps
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState, epoch_ranges


class Lineage:
    """The leader epochs of a log, from the entries of its leader epoch cache and its end.

    `entries` are (epoch, start offset), both strictly ascending, as the cache has them.
    """

    __slots__ = ("_epochs", "_starts", "log_end_offset")

    def __init__(self, entries: Iterable[tuple[int, int]], log_end_offset: int) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.log_end_offset = log_end_offset
        for epoch, start in entries:
            assert not self._epochs or (self._epochs[-1] < epoch and self._starts[-1] < start)
            self._epochs.append(epoch)
            self._starts.append(start)

    @property
    def entries(self) -> Epochs:
        """The entries that it was made of."""
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def first_epoch(self) -> int:
        """The earliest epoch that is known; -1 = none is."""
        return self._epochs[0] if self._epochs else NO_EPOCH

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 = none is known."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs, ascending."""
        return tuple(self._epochs)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of an offset; -1 = before the first entry, or no entries."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else NO_EPOCH

    def start_of(self, epoch: int) -> int:
        """Return the first offset of an epoch; -1 = it is not in the lineage."""
        slot = bisect_right(self._epochs, epoch)
        if not slot or self._epochs[slot - 1] != epoch:
            return NO_OFFSET
        return self._starts[slot - 1]

    def end_of(self, epoch: int) -> int:
        """Return the offset behind the last one of an epoch; -1 = it is not in the lineage."""
        slot = bisect_right(self._epochs, epoch)
        if not slot or self._epochs[slot - 1] != epoch:
            return NO_OFFSET
        return self._end(slot - 1)

    def _end(self, slot: int) -> int:
        return self._starts[slot + 1] if slot + 1 < len(self._starts) else self.log_end_offset

    def shared_end(self, segment: SegmentMetadata) -> int:
        """Return the last offset up to which a segment's records are those of this log; -1 = none.

        What follows in the segment is of a history that an unclean election has cut off. A segment
        that ends before the first entry is judged by the epoch of its last record.
        """
        if not self._starts:
            return NO_OFFSET
        known_from = self._starts[0]
        ranges = epoch_ranges(segment)
        if segment.end_offset < known_from:
            return segment.end_offset if ranges[-1][0] == self._epochs[0] else NO_OFFSET
        shared = NO_OFFSET
        for epoch, start, end in ranges:
            if end < known_from:
                continue
            start = max(start, known_from)
            slot = bisect_right(self._starts, start) - 1
            until = self._end(slot) - 1
            if self._epochs[slot] != epoch or until < start:
                break
            shared = min(end, until)
            if shared < end:
                break
        return shared

    def contains(self, segment: SegmentMetadata) -> bool:
        """Return whether all of a segment's records are this log's."""
        return self.shared_end(segment) == segment.end_offset


class Visible(NamedTuple):
    """A readable segment of a lineage; its records after `end_offset` (inclusive) are not."""

    segment: SegmentMetadata
    end_offset: int


def visible_segments(segments: Iterable[SegmentMetadata], lineage: Lineage) -> list[Visible]:
    """Return the readable segments with records of a lineage, without those that another covers.

    Both their start and their end offsets strictly ascend. Neighbours may overlap: each leader
    rolls its segments at offsets of its own.
    """
    visible: list[Visible] = []
    _add_visible(visible, sorted(segments, key=lambda each: each.start_offset), lineage)
    return visible


def visible_in_steps(
    segments: Sequence[SegmentMetadata], lineage: Lineage, step: int
) -> Steps[list[Visible]]:
    """Return the same of segments by start offset; so many are examined in each step."""
    visible: list[Visible] = []
    for begin in range(0, len(segments), step):
        _add_visible(visible, segments[begin : begin + step], lineage)
        yield
    return visible


def _add_visible(
    visible: list[Visible], segments: Iterable[SegmentMetadata], lineage: Lineage
) -> None:
    """Add the visible ones of segments by start offset, all of which follow those before."""
    for segment in segments:
        if segment.state is not SegmentState.COPY_FINISHED:
            continue
        end = lineage.shared_end(segment)
        if end < 0 or (visible and end <= visible[-1].end_offset):
            continue
        if visible and visible[-1].segment.start_offset == segment.start_offset:
            visible.pop()  # This one covers it.
        visible.append(Visible(segment, end))
