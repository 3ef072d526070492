"""InitializeShareGroupState (key 83). Source: InitializeShareGroupState{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, STRING, UUID, array, field, message, struct_of


@struct_of
class PartitionData:
    partition: int = field(INT32)
    state_epoch: int = field(INT32)
    start_offset: int = field(INT64)


@struct_of
class InitializeStateData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: str = field(STRING)
    topics: tuple[InitializeStateData, ...] = field(array(InitializeStateData))


@struct_of
class PartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class InitializeStateResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: tuple[InitializeStateResult, ...] = field(array(InitializeStateResult))
