"""AlterShareGroupOffsets (key 91). Source: AlterShareGroupOffsets{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, STRING, UUID, array, field, message, struct_of


@struct_of
class AlterShareGroupOffsetsRequestPartition:
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)


@struct_of
class AlterShareGroupOffsetsRequestTopic:
    topic_name: str = field(STRING)
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = field(
        array(AlterShareGroupOffsetsRequestPartition)
    )


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    group_id: str = field(STRING)
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = field(
        array(AlterShareGroupOffsetsRequestTopic)
    )


@struct_of
class AlterShareGroupOffsetsResponsePartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class AlterShareGroupOffsetsResponseTopic:
    topic_name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = field(
        array(AlterShareGroupOffsetsResponsePartition)
    )


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = field(
        array(AlterShareGroupOffsetsResponseTopic)
    )
