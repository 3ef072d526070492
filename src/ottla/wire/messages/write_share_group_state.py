"""WriteShareGroupState (key 85). Source: WriteShareGroupState{Request,Response}.json."""

from ottla.base.ids import Uuid
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
class StateBatch:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


@struct_of
class PartitionData:
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, versions="1+", default=-1)
    state_batches: tuple[StateBatch, ...] = field(array(StateBatch))


@struct_of
class WriteStateData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: str = field(STRING)
    topics: tuple[WriteStateData, ...] = field(array(WriteStateData))


@struct_of
class PartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class WriteStateResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: tuple[WriteStateResult, ...] = field(array(WriteStateResult))
