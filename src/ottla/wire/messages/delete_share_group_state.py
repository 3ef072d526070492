"""DeleteShareGroupState (key 86). Source: DeleteShareGroupState{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, array, field, message, struct_of


@struct_of
class PartitionData:
    partition: int = field(INT32)


@struct_of
class DeleteStateData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: str = field(STRING)
    topics: tuple[DeleteStateData, ...] = field(array(DeleteStateData))


@struct_of
class PartitionResult:
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class DeleteStateResult:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionResult, ...] = field(array(PartitionResult))


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: tuple[DeleteStateResult, ...] = field(array(DeleteStateResult))
