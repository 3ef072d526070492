"""DescribeProducers (key 61). Source: DescribeProducers{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@struct_of
class TopicRequest:
    name: str = field(STRING)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: tuple[TopicRequest, ...] = field(array(TopicRequest))


@struct_of
class ProducerState:
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)
    """-1 = no transaction open."""


@struct_of
class PartitionResponse:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    active_producers: tuple[ProducerState, ...] = field(array(ProducerState))


@struct_of
class TopicResponse:
    name: str = field(STRING)
    partitions: tuple[PartitionResponse, ...] = field(array(PartitionResponse))


@message(key=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: tuple[TopicResponse, ...] = field(array(TopicResponse))
