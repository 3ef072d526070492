"""ReadShareGroupState (key 84). Source: ReadShareGroupState{Request,Response}.json."""

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
class PartitionData:
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class ReadStateData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    group_id: str = field(STRING)
    topics: tuple[ReadStateData, ...] = field(array(ReadStateData))


@struct_of
class StateBatch:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_state: int = field(INT8)
    delivery_count: int = field(INT16)


@struct_of
class PartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    state_batches: tuple[StateBatch, ...] = field(array(StateBatch))


@struct_of
class ReadStateResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    results: tuple[ReadStateResult, ...] = field(array(ReadStateResult))
