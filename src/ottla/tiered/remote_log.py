"""The remote segments of one partition, by replaying its records in the order of their topic.

All readers of a partition of `__remote_log_metadata` see its records in one order, so they judge
each alike:

- A segment's state changes as `TRANSITIONS` allows; any other change is dropped.
- A fence is refused if its leader epoch or tiered epoch is smaller than the last fence's.
- COPY_STARTED and COPY_FINISHED are refused if the last fence before them has a larger leader epoch
  or another tiered epoch, or if they are at its floor or below. DELETE_STARTED and DELETE_FINISHED
  are judged by state alone.
- The fence of a deleted topic's purge has the largest epochs, so no other one follows. If the purge
  was abandoned and the topic is restored, RestoreStarted lifts that fence, or another one of the
  topic's earlier life, and all segments before it are forgotten.
- A copy that a fence of newer epochs finds unfinished will never finish: it counts as
  DELETE_STARTED from the fence on. So does every segment of the fence's floor and below. A fence of
  the same epochs, repeated after a lost answer, interrupts nothing.

Only COPY_FINISHED segments are readable. Highest offsets are those of readable segments as they
are now, so segments that were deleted are copied again after tiering was off in between.

Source: RemoteLogMetadataCache; KIP-405; KAFKA-15632 (records of forgotten segments are dropped).
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered import remote_log_image
from ottla.tiered.segment_index import SegmentIndex
from ottla.tiered.segment_metadata import (
    NO_FLOOR,
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    may_follow,
)

CHANGES_MAX: Final = 1_000
"""Changes that are kept for `changes_since`."""


_FEW: Final = SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED
"""The states that only few segments have, but for moments."""


def by_offset(segment: SegmentMetadata) -> tuple[int, int, Uuid]:
    """Return the key of the order of segments."""
    return segment.start_offset, segment.end_offset, segment.segment_id


class RemoteLog:
    """The remote segments of one user partition.

    `fence`: the last one. `refused`: the records that were dropped. `version` counts the changes
    of segments.
    """

    __slots__ = (
        "_by_id",
        "_changed",
        "_ended",
        "_forgotten",
        "_ids",
        "_ordered",
        "_readable",
        "fence",
        "refused",
    )

    def __init__(self) -> None:
        self._by_id: dict[Uuid, SegmentMetadata] = {}
        self._ordered: list[SegmentMetadata] = []
        self._ids: dict[SegmentState, set[Uuid]] = {each: set() for each in _FEW}
        self._readable = SegmentIndex()
        self._changed: list[Uuid] = []
        self._forgotten = 0
        self._ended: set[Uuid] = set()
        """Those that are DELETE_STARTED and were COPY_FINISHED before."""
        self.fence: Fence | None = None
        self.refused = 0

    # Replay

    def replay(self, record: MetadataRecord) -> None:
        """Apply the next record; one that is illegal, fenced or late is dropped and counted."""
        if isinstance(record, SegmentMetadata):
            is_valid = self._start_copy(record)
        elif isinstance(record, SegmentUpdate):
            is_valid = self._update(record)
        elif isinstance(record, RestoreStarted):
            is_valid = self._start_anew(record)
        else:
            is_valid = self._apply_fence(record)
        self.refused += not is_valid

    def _start_copy(self, started: SegmentMetadata) -> bool:
        if started.state is not SegmentState.COPY_STARTED or self._is_fenced(started):
            return False
        known = self._by_id.get(started.segment_id)
        if not may_follow(known.state if known else None, started.state):
            return False
        if known is None:
            self._add(started)
        return known is None or known == started

    def _update(self, update: SegmentUpdate) -> bool:
        known = self._by_id.get(update.segment_id)
        if known is None or not may_follow(known.state, update.state):
            return False
        is_copy = update.state is SegmentState.COPY_FINISHED
        if update.state is SegmentState.COPY_STARTED or (is_copy and self._is_fenced(update)):
            return False
        if update.state is SegmentState.DELETE_FINISHED:
            self._remove(known)
            return True
        custom = update.custom_metadata
        self._set(
            replace(
                known,
                state=update.state,
                broker_id=update.broker_id,
                event_timestamp_ms=update.event_timestamp_ms,
                custom_metadata=known.custom_metadata if custom is None else custom,
            )
        )
        return True

    def _is_fenced(self, copy: SegmentMetadata | SegmentUpdate) -> bool:
        fence = self.fence
        return fence is not None and (
            copy.leader_epoch < fence.leader_epoch
            or copy.tiered_epoch != fence.tiered_epoch
            or self._is_dead(copy)
        )

    def _is_dead(self, segment: SegmentMetadata | SegmentUpdate) -> bool:
        return self.floor > NO_FLOOR and segment.tiered_epoch <= self.floor

    def _apply_fence(self, fence: Fence) -> bool:
        last = self.fence
        if last is not None:
            if fence.leader_epoch < last.leader_epoch or fence.tiered_epoch < last.tiered_epoch:
                return False
            if fence.floor < last.floor:
                fence = replace(fence, floor=last.floor)
        self.fence = fence
        for segment in self.unfinished():
            if self._is_fenced(segment):
                self._set(replace(segment, state=SegmentState.DELETE_STARTED))
        # The floor is the only reason to look at all: a leader repeats its fence.
        if last is None or fence.floor > last.floor:
            self._give_up_dead()
        return True

    def _give_up_dead(self) -> None:
        """Mark the segments of the floor and below: thousands perhaps, in one turn of the loop.

        Where they are is known here, and what stays readable is little: one by one it would take
        several times as long.
        """
        was_readable = False
        for slot, segment in enumerate(self._ordered):
            if segment.state is SegmentState.DELETE_STARTED or not self._is_dead(segment):
                continue
            was_readable |= segment.state is SegmentState.COPY_FINISHED
            dead = replace(segment, state=SegmentState.DELETE_STARTED)
            self._note(dead, segment)
            self._by_id[dead.segment_id] = self._ordered[slot] = dead
        if was_readable:
            self._readable = SegmentIndex(self.finished())

    def _start_anew(self, restore: RestoreStarted) -> bool:
        """Forget the topic's earlier life, if the last fence is of it."""
        fence = self.fence
        if fence is None:
            return False
        if fence.floor < WHOLE_TOPIC and fence.leader_epoch >= restore.leader_epoch:
            return False
        for segment in self._ordered:
            self._note(segment, segment)
        self._by_id.clear()
        self._ordered.clear()
        self._readable = SegmentIndex()
        self.fence = None
        return True

    def _add(self, segment: SegmentMetadata) -> None:
        if self._ordered and self._ordered[0].topic is not segment.topic:
            # Each decoded record has its own copies, which a hundred thousand segments would keep.
            first = self._ordered[0]
            segment = replace(segment, topic=first.topic, topic_id=first.topic_id)
        self._by_id[segment.segment_id] = segment
        self._note(segment, None)
        insort(self._ordered, segment, key=by_offset)
        if segment.state is SegmentState.COPY_FINISHED:
            self._readable.add(segment)

    def _remove(self, segment: SegmentMetadata) -> None:
        del self._by_id[segment.segment_id]
        self._note(segment, segment)
        del self._ordered[self._slot(segment)]
        if segment.state is SegmentState.COPY_FINISHED:
            self._readable.remove(segment)

    def _set(self, segment: SegmentMetadata) -> None:
        """Replace what is known of a segment; its offsets and epochs stay."""
        before = self._by_id[segment.segment_id]
        self._note(segment, before)
        self._by_id[segment.segment_id] = segment
        self._ordered[self._slot(segment)] = segment
        was_readable = before.state is SegmentState.COPY_FINISHED
        is_readable = segment.state is SegmentState.COPY_FINISHED
        if was_readable and not is_readable:
            self._readable.remove(segment)
        elif is_readable and not was_readable:
            self._readable.add(segment)

    def _note(self, segment: SegmentMetadata, before: SegmentMetadata | None) -> None:
        """Note that a segment changes; the same one before it = it is removed."""
        if before is not None and before.state in self._ids:
            self._ids[before.state].remove(segment.segment_id)
        if before is segment:
            self._ended.discard(segment.segment_id)
        elif segment.state in self._ids:
            self._ids[segment.state].add(segment.segment_id)
            if before is not None and before.state is SegmentState.COPY_FINISHED:
                self._ended.add(segment.segment_id)
        self._changed.append(segment.segment_id)
        if len(self._changed) > 2 * CHANGES_MAX:
            self._forgotten += CHANGES_MAX
            del self._changed[:CHANGES_MAX]

    def _slot(self, segment: SegmentMetadata) -> int:
        slot = bisect_left(self._ordered, by_offset(segment), key=by_offset)
        assert self._ordered[slot].segment_id == segment.segment_id
        return slot

    # Lookups

    @property
    def floor(self) -> int:
        """Segments of this tiered epoch and below are dead; 0 = none are."""
        return NO_FLOOR if self.fence is None else self.fence.floor

    def segments(self) -> Sequence[SegmentMetadata]:
        """Return the segments that are not deleted yet, by start offset."""
        return tuple(self._ordered)

    def finished(self) -> list[SegmentMetadata]:
        """Return the readable segments, by start offset."""
        return [each for each in self._ordered if each.state is SegmentState.COPY_FINISHED]

    def unfinished(self) -> list[SegmentMetadata]:
        """Return the segments that are COPY_STARTED, by start offset."""
        return self._in_state(SegmentState.COPY_STARTED)

    def deleting(self) -> list[SegmentMetadata]:
        """Return the segments that are DELETE_STARTED, by start offset."""
        return self._in_state(SegmentState.DELETE_STARTED)

    def has_ended(self, segment: SegmentMetadata) -> bool:
        """Tell whether a segment's copy was finished, also if it is being deleted by now: nothing
        of it was being written any more."""
        is_readable = segment.state is SegmentState.COPY_FINISHED
        return is_readable or segment.segment_id in self._ended

    def _in_state(self, state: SegmentState) -> list[SegmentMetadata]:
        return sorted((self._by_id[each] for each in self._ids[state]), key=by_offset)

    @property
    def count(self) -> int:
        """The number of segments that are not deleted yet."""
        return len(self._ordered)

    @property
    def version(self) -> int:
        """The number of changes of segments so far, since this object was made."""
        return self._forgotten + len(self._changed)

    def changes_since(self, version: int) -> Collection[Uuid] | None:
        """Return which segments have changed since a version; None = that is not known any more.

        With it, whoever derives something from all segments need not look at all of them again.
        """
        if version < self._forgotten:
            return None
        return dict.fromkeys(self._changed[version - self._forgotten :])

    def get(self, segment_id: Uuid) -> SegmentMetadata | None:
        """Return a segment that is not deleted yet, or None."""
        return self._by_id.get(segment_id)

    def segment_for(self, epoch: int, offset: int) -> SegmentMetadata | None:
        """Return the readable segment that has an offset in a leader epoch, or None.

        It may hold records of a history that was cut off: see `Lineage.shared_end`.
        """
        segment_id = self._readable.find(epoch, offset)
        return None if segment_id is None else self._by_id[segment_id]

    def highest_offset(self, epoch: int) -> int:
        """Return the highest readable offset of a leader epoch; -1 = none."""
        return self._readable.highest_offset(epoch)

    def highest_offset_of_all(self) -> int:
        """Return the highest readable offset of any leader epoch; -1 = none."""
        return self._readable.highest_offset_of_all()

    # Checkpoint

    def image(self) -> bytes:
        """Return all that was replayed, for `from_image`."""
        return remote_log_image.encode_image(
            self._ordered, self._ended, fence=self.fence, refused=self.refused
        )

    @classmethod
    def from_image(cls, data: bytes) -> "RemoteLog":
        """Return the log of an image; the next records are replayed onto it. Raises: ValueError."""
        image = remote_log_image.decode_image(data)
        log = cls()
        for segment in image.segments:
            log._add(segment)
        log._ended = set(image.ended)
        log.fence = image.fence
        log.refused = image.refused
        return log
