"""DescribeTopicPartitions (key 75). Source: DescribeTopicPartitions{Request,Response}.json."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class TopicRequest:
    name: str = field(STRING)


@struct_of
class Cursor:
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: tuple[TopicRequest, ...] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


@struct_of
class DescribeTopicPartitionsResponsePartition:
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: tuple[int, ...] = field(array(INT32))
    isr_nodes: tuple[int, ...] = field(array(INT32))
    eligible_leader_replicas: tuple[int, ...] | None = field(
        array(INT32), nullable="0+", default=None
    )
    last_known_elr: tuple[int, ...] | None = field(array(INT32), nullable="0+", default=None)
    offline_replicas: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class DescribeTopicPartitionsResponseTopic:
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="0+")
    topic_id: Uuid = field(UUID, default=NO_UUID)
    is_internal: bool = field(BOOL, default=False)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = field(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(INT32, default=-2_147_483_648)
    tiered_epoch: int = field(INT32, tag=10001, default=0)
    """Ottla's own; 0 = the topic never had remote storage."""
    tiering_state: int = field(INT8, tag=10002, default=0)
    """Ottla's own: 1 = enabled, 2 = disabling, 3 = disabled."""


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = field(
        array(DescribeTopicPartitionsResponseTopic)
    )
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
