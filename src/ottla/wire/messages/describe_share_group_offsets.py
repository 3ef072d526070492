"""DescribeShareGroupOffsets (key 90). Source: DescribeShareGroupOffsets{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, STRING, UUID, array, field, message, struct_of


@struct_of
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class DescribeShareGroupOffsetsRequestGroup:
    group_id: str = field(STRING)
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic), nullable="0+"
    )


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = field(
        array(DescribeShareGroupOffsetsRequestGroup)
    )


@struct_of
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: int = field(INT32)
    start_offset: int = field(INT64)
    leader_epoch: int = field(INT32)
    lag: int = field(INT64, versions="1+", default=-1)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = field(
        array(DescribeShareGroupOffsetsResponsePartition)
    )


@struct_of
class DescribeShareGroupOffsetsResponseGroup:
    group_id: str = field(STRING)
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = field(
        array(DescribeShareGroupOffsetsResponseTopic)
    )
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = field(
        array(DescribeShareGroupOffsetsResponseGroup)
    )
