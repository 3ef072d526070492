"""OffsetCommit (key 8). Source: OffsetCommit{Request,Response}.json; KIP-848."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import INT16, INT32, INT64, STRING, UUID, array, field, message, struct_of


@struct_of
class OffsetCommitRequestPartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="6+", default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, versions="1", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+")


@struct_of
class OffsetCommitRequestTopic:
    name: str = field(STRING, versions="0-9", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = field(
        array(OffsetCommitRequestPartition)
    )


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(STRING, versions="1+", default="", ignorable=True)
    group_instance_id: str | None = field(STRING, versions="7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, versions="2-4", default=-1, ignorable=True)
    """-1 = as the broker is configured."""
    topics: tuple[OffsetCommitRequestTopic, ...] = field(array(OffsetCommitRequestTopic))


@struct_of
class OffsetCommitResponsePartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class OffsetCommitResponseTopic:
    name: str = field(STRING, versions="0-9", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = field(
        array(OffsetCommitResponsePartition)
    )


@message(key=8, versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = field(INT32, versions="3+", default=0, ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = field(array(OffsetCommitResponseTopic))
