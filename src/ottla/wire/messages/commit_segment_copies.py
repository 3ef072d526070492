"""CommitSegmentCopies (key 1012): segments that were granted are copied to remote storage.

Ottla's own, for `ottla pipeline backfill`: see GrantSegmentCopies (key 1011). The epochs are those
of the grants.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
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
class CommittedSegmentCopy:
    segment_id: Uuid = field(UUID)
    offset_index_bytes: int = field(INT64, default=0)
    """The size of the object, as of the next one. Those of the others are known."""
    time_index_bytes: int = field(INT64, default=0)
    failure: str | None = field(STRING, nullable="0+", default=None)
    """Why the copy was given up; None = all objects are written."""


@struct_of
class CommitSegmentCopiesPartition:
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)
    tiered_epoch: int = field(INT32)
    copies: tuple[CommittedSegmentCopy, ...] = field(array(CommittedSegmentCopy))


@struct_of
class CommitSegmentCopiesTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[CommitSegmentCopiesPartition, ...] = field(
        array(CommitSegmentCopiesPartition)
    )


@message(key=1012, versions="0", flexible="0+")
class CommitSegmentCopiesRequest:
    topics: tuple[CommitSegmentCopiesTopic, ...] = field(array(CommitSegmentCopiesTopic))


@struct_of
class SegmentCopyResult:
    segment_id: Uuid = field(UUID)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    is_finished: bool = field(BOOL, default=False)
    """It can be read. Else, without an error, it is kept until those before it are copied."""


@struct_of
class SegmentCopiesPartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    copies: tuple[SegmentCopyResult, ...] = field(array(SegmentCopyResult), default=())


@struct_of
class SegmentCopiesTopicResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[SegmentCopiesPartitionResult, ...] = field(
        array(SegmentCopiesPartitionResult)
    )


@message(key=1012, versions="0", flexible="0+")
class CommitSegmentCopiesResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[SegmentCopiesTopicResult, ...] = field(
        array(SegmentCopiesTopicResult), default=()
    )
