"""AlterPartition (key 56). Source: AlterPartition{Request,Response}.json; KIP-704, KIP-841,
KIP-903.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
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
class BrokerState:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


@struct_of
class RequestPartitionData:
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: tuple[int, ...] = field(array(INT32), versions="0-2", default=())
    new_isr_with_epochs: tuple[BrokerState, ...] = field(
        array(BrokerState), versions="3+", default=()
    )
    leader_recovery_state: int = field(INT8, versions="1+", default=0)
    partition_epoch: int = field(INT32)


@struct_of
class RequestTopicData:
    topic_name: str = field(STRING, versions="0-1", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="2+", default=NO_UUID, ignorable=True)
    partitions: tuple[RequestPartitionData, ...] = field(array(RequestPartitionData))


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: tuple[RequestTopicData, ...] = field(array(RequestTopicData))


@struct_of
class ResponsePartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: tuple[int, ...] = field(array(INT32))
    leader_recovery_state: int = field(INT8, versions="1+", default=0, ignorable=True)
    partition_epoch: int = field(INT32)


@struct_of
class ResponseTopicData:
    topic_name: str = field(STRING, versions="0-1", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="2+", default=NO_UUID, ignorable=True)
    partitions: tuple[ResponsePartitionData, ...] = field(array(ResponsePartitionData))


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    topics: tuple[ResponseTopicData, ...] = field(array(ResponseTopicData))
