"""DescribeRemoteLog (key 1006): where the tiers of partitions begin and end, and their segments.

Ottla's own, for its clients: `ottla tier describe` and readers that plan from the remote tier. The
numbers of states and policies are those of `ottla.metadata.tiering`. A broker answers for the
partitions that it leads. Offsets are -1 where there is none.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
    INT8,
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
class DescribeRemoteLogTopic:
    name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=1006, versions="0", flexible="0+")
class DescribeRemoteLogRequest:
    topics: tuple[DescribeRemoteLogTopic, ...] | None = field(
        array(DescribeRemoteLogTopic), nullable="0+", default=None
    )
    """None = all partitions that the broker leads of topics that were ever tiered."""
    include_segments: bool = field(BOOL, default=False)


@struct_of
class RemoteLogSegment:
    """A segment that can be read."""

    segment_id: Uuid = field(UUID)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    """Inclusive."""
    leader_epoch: int = field(INT32)
    """The copier's."""
    tiered_epoch: int = field(INT32)
    max_timestamp_ms: int = field(INT64)
    size_bytes: int = field(INT64)
    txn_index_empty: bool = field(BOOL, versions="0+", tag=0, default=False, ignorable=True)
    """It has no transaction index; False also where that is not known."""


@struct_of
class RemoteLogPartition:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    leader_epoch: int = field(INT32, default=-1)
    log_start_offset: int = field(INT64, default=-1)
    remote_end_offset: int = field(INT64, default=-1)
    """The last offset in the remote tier, inclusive."""
    local_start_offset: int = field(INT64, default=-1)
    log_end_offset: int = field(INT64, default=-1)
    high_watermark: int = field(INT64, default=-1)
    last_stable_offset: int = field(INT64, default=-1)
    remote_bytes: int = field(INT64, default=-1)
    remote_segments: int = field(INT32, default=-1)
    local_bytes: int = field(INT64, default=-1)
    lag_bytes: int = field(INT64, default=-1)
    """Of the closed local segments that are not copied yet."""
    lag_segments: int = field(INT32, default=-1)
    last_error: str | None = field(STRING, nullable="0+", default=None)
    """Of the last copy or deletion that failed; None = the last one succeeded."""
    segments: tuple[RemoteLogSegment, ...] = field(array(RemoteLogSegment), default=())
    """By start offset; only if asked for."""
    deleting_segments: int = field(INT32, versions="0+", tag=0, default=-1, ignorable=True)
    """Segments whose objects are being deleted, or whose copy is being undone; -1 = not known."""
    purge_segments_left: int = field(INT32, versions="0+", tag=1, default=-1, ignorable=True)
    """Of those, the ones that tiered storage was disabled for with delete, and whose objects are
    not deleted yet; -1 = not known."""
    purge_segments_deleted: int = field(INT32, versions="0+", tag=2, default=-1, ignorable=True)
    """The same whose objects are deleted, while a late write may still bring one back."""
    purge_late_writes_ms: int = field(INT32, versions="0+", tag=3, default=-1, ignorable=True)
    """How much longer that may be; then they are deleted once more, and forgotten."""


@struct_of
class RemoteLogTopic:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID, default=NO_UUID)
    state: int = field(INT8, default=0)
    """0 = the topic was never tiered."""
    tiered_epoch: int = field(INT32, default=-1)
    policy: int = field(INT8, default=0)
    remote_floor_epoch: int = field(INT32, default=-1)
    purge_pending: bool = field(BOOL, default=False)
    partitions: tuple[RemoteLogPartition, ...] = field(array(RemoteLogPartition), default=())


@message(key=1006, versions="0", flexible="0+")
class DescribeRemoteLogResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[RemoteLogTopic, ...] = field(array(RemoteLogTopic), default=())
