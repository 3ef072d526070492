"""The remote segments of one partition by the committed records of `__remote_log_metadata`.

It is written apart from `ottla.tiered.remote_log`, which it judges: the rules are DESIGN 6's, in a
few lines and without an index.
"""

from collections.abc import Iterable
from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    epoch_ranges,
)

COPYING, READABLE = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DOOMED, GONE = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
NEXT = {COPYING: {READABLE, DOOMED}, READABLE: {DOOMED}, DOOMED: {GONE}}

Extent = tuple[int, int]
"""Offsets, half-open."""


class SegmentLedger:
    """Fields: `segments`: those that are not deleted, by id. `finished`: all that ever were
    readable. `fence`: the last one."""

    def __init__(self) -> None:
        self.segments: dict[Uuid, SegmentMetadata] = {}
        self.finished: set[Uuid] = set()
        self.fence: Fence | None = None

    def apply(self, record: MetadataRecord) -> SegmentMetadata | None:
        """Apply the next committed record; return the segment that it made unreadable, if any."""
        if isinstance(record, Fence):
            self._raise_fence(record)
            return None
        if isinstance(record, RestoreStarted):
            self._start_anew(record)
            return None
        known = self.segments.get(record.segment_id)
        is_copy = record.state in (COPYING, READABLE)
        if is_copy and self._is_refused(record):
            return None
        if isinstance(record, SegmentMetadata):
            if record.state is COPYING and known is None:
                self.segments[record.segment_id] = record
            return None
        if known is None or record.state not in NEXT[known.state]:
            return None
        self._change(known, record)
        return known if known.state is READABLE else None

    def _change(self, known: SegmentMetadata, update: SegmentUpdate) -> None:
        if update.state is GONE:
            del self.segments[known.segment_id]
            return
        self.segments[known.segment_id] = replace(known, state=update.state)
        if update.state is READABLE:
            self.finished.add(known.segment_id)

    def _raise_fence(self, fence: Fence) -> None:
        last = self.fence
        if last is not None:
            if fence.leader_epoch < last.leader_epoch or fence.tiered_epoch < last.tiered_epoch:
                return
            fence = replace(fence, floor=max(fence.floor, last.floor))
        self.fence = fence
        for segment_id, segment in list(self.segments.items()):
            if segment.state is READABLE and not self._is_dead(segment):
                continue
            if segment.state is not DOOMED and self._is_refused(segment):
                self.segments[segment_id] = replace(segment, state=DOOMED)

    def _start_anew(self, restore: RestoreStarted) -> None:
        last = self.fence
        if last and (last.floor == WHOLE_TOPIC or last.leader_epoch < restore.leader_epoch):
            self.fence = None
            self.segments.clear()

    def _is_refused(self, copy: SegmentMetadata | SegmentUpdate) -> bool:
        fence = self.fence
        if fence is None:
            return False
        is_other = copy.leader_epoch < fence.leader_epoch or copy.tiered_epoch != fence.tiered_epoch
        return is_other or self._is_dead(copy)

    def _is_dead(self, copy: SegmentMetadata | SegmentUpdate) -> bool:
        return self.fence is not None and 0 < self.fence.floor >= copy.tiered_epoch

    # -- what it says --------------------------------------------------------------------------

    def states(self) -> tuple[tuple[Uuid, str], ...]:
        """Return the segments and their states, by id."""
        return tuple((each, self.segments[each].state.name) for each in sorted(self.segments))

    def readable(self) -> list[SegmentMetadata]:
        """Return the readable segments."""
        return [each for each in self.segments.values() if each.state is READABLE]


def first_uncovered(
    segments: Iterable[SegmentMetadata], epochs: Iterable[tuple[int, int]], extent: Extent
) -> Extent | None:
    """Return the first offsets of an extent that no segment has in a log's leader epochs.

    `epochs`: (epoch, start offset) of the log, ascending. None = the segments have all.
    """
    entries = list(epochs)
    of_log = [
        (epoch, start, entries[index + 1][1] if index + 1 < len(entries) else extent[1])
        for index, (epoch, start) in enumerate(entries)
    ]
    covered = sorted(
        (max(first, start), min(last + 1, end))
        for segment in segments
        for epoch, first, last in epoch_ranges(segment)
        for of_epoch, start, end in of_log
        if epoch == of_epoch and max(first, start) < min(last + 1, end)
    )
    at, end = extent
    for start, until in covered:
        if start > at:
            return (at, min(start, end)) if at < end else None
        at = max(at, until)
    return (at, end) if at < end else None
