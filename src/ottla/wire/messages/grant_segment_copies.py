"""GrantSegmentCopies (key 1011): a leader has the sender copy segments to remote storage.

Ottla's own, for `ottla pipeline backfill`. The sender reads a granted segment's batches with Fetch,
writes its objects, and commits the copy with CommitSegmentCopies (key 1012) before its lease ends.
What cannot be computed from the batches comes with the grant.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class GrantSegmentCopiesPartition:
    partition: int = field(INT32)
    segments_max: int = field(INT32)
    """0 = only tell what is left to copy."""
    until_offset: int = field(INT64, default=-1)
    """The last offset that is asked for; -1 = no limit."""


@struct_of
class GrantSegmentCopiesTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[GrantSegmentCopiesPartition, ...] = field(array(GrantSegmentCopiesPartition))


@message(key=1011, versions="0", flexible="0+")
class GrantSegmentCopiesRequest:
    holder: Uuid = field(UUID)
    """Of whoever copies: a repeated request of it renews its grants, and returns them again."""
    lease_ms: int = field(INT32)
    """Until when a copy must be committed; the leader bounds it."""
    topics: tuple[GrantSegmentCopiesTopic, ...] = field(array(GrantSegmentCopiesTopic))


@struct_of
class GrantedEpoch:
    epoch: int = field(INT32)
    start_offset: int = field(INT64)


@struct_of
class GrantedSegment:
    segment_id: Uuid = field(UUID)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    """Inclusive."""
    size_bytes: int = field(INT64)
    """Of its batches."""
    max_timestamp_ms: int = field(INT64)
    lease_ms: int = field(INT32)
    """How much longer the lease lives."""
    epochs: tuple[GrantedEpoch, ...] = field(array(GrantedEpoch))
    leader_epochs: bytes = field(BYTES)
    """The content of the object with the leader epochs."""
    producer_snapshot: bytes = field(BYTES)
    transaction_index: bytes | None = field(BYTES, nullable="0+", default=None)
    """None = the segment has none."""


@struct_of
class GrantedPartition:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    leader_epoch: int = field(INT32, default=-1)
    tiered_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)
    """The last offset of what is left, or else of what is copied; -1 = nothing is."""
    segments_left: int = field(INT32, default=-1)
    """Closed segments that can be copied and are not, also those that are granted."""
    bytes_left: int = field(INT64, default=-1)
    segments: tuple[GrantedSegment, ...] = field(array(GrantedSegment), default=())


@struct_of
class GrantedTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[GrantedPartition, ...] = field(array(GrantedPartition))


@message(key=1011, versions="0", flexible="0+")
class GrantSegmentCopiesResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[GrantedTopic, ...] = field(array(GrantedTopic), default=())
