"""What `__remote_log_metadata` says of remote segments: their metadata, updates of it, fences.

A remote segment is first announced (COPY_STARTED), then uploaded, then readable (COPY_FINISHED).
A segment that shall go is first marked (DELETE_STARTED), then its objects are deleted, then it is
forgotten (DELETE_FINISHED). A copy that failed is deleted in the same way.

Two records are Ottla's own. A leader writes a fence before its first copy in a leader epoch or
tiered epoch: copies of older epochs are refused from there on (`remote_log.py`). The start of a
restore is written where a fence of the topic's earlier life refuses what comes now.

Source: KIP-405; RemoteLogSegmentMetadata, RemoteLogSegmentState.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from typing import Final

from ottla.base.ids import NO_EPOCH, Uuid

Epochs = tuple[tuple[int, int], ...]
"""(leader epoch, start offset), both ascending. The first entry is at a segment's start offset, or
behind it where the log start lay within the segment when it was copied: the leader epochs of the
records before are not known any more, and nobody reads them."""

NO_FLOOR: Final = 0


class SegmentState(IntEnum):
    """The state of a remote segment; wire values."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


_S = SegmentState

TRANSITIONS: Final[dict[SegmentState | None, frozenset[SegmentState]]] = {
    None: frozenset({_S.COPY_STARTED}),
    _S.COPY_STARTED: frozenset({_S.COPY_STARTED, _S.COPY_FINISHED, _S.DELETE_STARTED}),
    _S.COPY_FINISHED: frozenset({_S.COPY_FINISHED, _S.DELETE_STARTED}),
    _S.DELETE_STARTED: frozenset({_S.DELETE_STARTED, _S.DELETE_FINISHED}),
    _S.DELETE_FINISHED: frozenset({_S.DELETE_FINISHED}),
}
"""Which states may follow; None = a segment that is not known. A state may follow itself, since
appends are retried."""
assert set(TRANSITIONS) == {None, *SegmentState}


def may_follow(before: SegmentState | None, after: SegmentState) -> bool:
    """Return whether a segment may go from one state into the other."""
    return after in TRANSITIONS[before]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMetadata:
    """A remote segment. Source: RemoteLogSegmentMetadata.

    Fields: `end_offset` is inclusive: the next segment's base offset - 1.
            `max_timestamp_ms`: the newest timestamp of its records.
            `broker_id`, `event_timestamp_ms`: who wrote its latest state, and when.
            `size_bytes`: of the .log file; an int32 in Kafka's record.
            `epochs`: the leader epochs of its records.
            `leader_epoch`, `tiered_epoch`: of the leader that copied it; -1 = a record of Kafka's,
            which has the former in newer versions.
            `txn_index_empty`: it has no transaction index. `custom_metadata`: what the store adds.
    """

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    broker_id: int
    event_timestamp_ms: int
    size_bytes: int
    epochs: Epochs
    state: SegmentState
    leader_epoch: int
    tiered_epoch: int
    txn_index_empty: bool = False
    custom_metadata: bytes | None = None

    @property
    def may_lack_txn_index(self) -> bool:
        """Tell whether nothing is lost where the store has no transaction index of it.

        Before KIP-1058 Kafka's records do not say whether there is one; Ottla's always do.
        """
        return self.txn_index_empty or self.tiered_epoch == NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentUpdate:
    """A segment's new state. Source: RemoteLogSegmentMetadataUpdate.

    `leader_epoch` and `tiered_epoch` are those of the leader that wrote it.
    """

    topic: str
    topic_id: Uuid
    partition: int
    segment_id: Uuid
    state: SegmentState
    broker_id: int
    event_timestamp_ms: int
    leader_epoch: int
    tiered_epoch: int
    custom_metadata: bytes | None = None


def copy_started(segment: SegmentMetadata) -> SegmentMetadata:
    """Return the record with which the copy of a segment began."""
    return replace(segment, state=SegmentState.COPY_STARTED)


def copy_finished(segment: SegmentMetadata) -> SegmentUpdate:
    """Return the record with which the copy of a segment ended."""
    return SegmentUpdate(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        segment_id=segment.segment_id,
        state=SegmentState.COPY_FINISHED,
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        leader_epoch=segment.leader_epoch,
        tiered_epoch=segment.tiered_epoch,
        custom_metadata=segment.custom_metadata,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """From here on, copies are those of this leader epoch and this tiered epoch.

    `state` is the topic's TieringState. `floor`: segments of this tiered epoch and below are dead;
    0 = none are. The floor may be above the tiered epoch: everything of a deleted topic is dead.
    """

    topic: str
    topic_id: Uuid
    partition: int
    broker_id: int
    leader_epoch: int
    tiered_epoch: int
    state: int
    floor: int
    event_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreStarted:
    """The partition is restored as one of which nothing is known: from here on neither the last
    fence counts, nor any segment before.

    `leader_epoch`: the first one of the restored topic. A fence of it or a larger one is the
    restored topic's own, so that this has no effect; but that of a purge has the largest.
    """

    topic: str
    topic_id: Uuid
    partition: int
    broker_id: int
    leader_epoch: int
    event_timestamp_ms: int


MetadataRecord = SegmentMetadata | SegmentUpdate | Fence | RestoreStarted


def epoch_ranges(segment: SegmentMetadata) -> list[tuple[int, int, int]]:
    """Return (leader epoch, first offset, last offset) of the epochs that have records in it."""
    end = segment.end_offset
    if len(segment.epochs) == 1:  # Most have one.
        ((epoch, offset),) = segment.epochs
        return [(epoch, max(offset, segment.start_offset), end)]
    ranges = []
    for epoch, offset in reversed(segment.epochs):
        start = max(offset, segment.start_offset)
        if start <= end:
            ranges.append((epoch, start, end))
            end = start - 1
    ranges.reverse()
    return ranges


def check_segment(segment: SegmentMetadata) -> None:
    """Check what every consumer of a segment's metadata relies on. Raises: ValueError."""
    start, end, epochs = segment.start_offset, segment.end_offset, segment.epochs
    if not 0 <= start <= end:
        raise ValueError(f"a remote segment from offset {start} to {end}")
    if segment.size_bytes < 0 or segment.partition < 0:
        raise ValueError(f"a remote segment of {segment.size_bytes} bytes")
    if not epochs or epochs[0][0] < 0 or epochs[0][1] > end:
        raise ValueError(f"leader epochs {epochs} of a remote segment from {start} to {end}")
    for (epoch, offset), (next_epoch, next_offset) in pairwise(epochs):
        if epoch >= next_epoch or offset > next_offset:
            raise ValueError(f"leader epochs {epochs} of a remote segment do not ascend")


def check_fence(fence: Fence) -> None:
    """Check a fence's epochs. Raises: ValueError."""
    if fence.partition < 0 or fence.leader_epoch < 0 or fence.tiered_epoch < 0:
        raise ValueError(f"a fence has a negative epoch: {fence}")
    if fence.floor < 0:
        raise ValueError(f"a fence has a negative floor: {fence}")
