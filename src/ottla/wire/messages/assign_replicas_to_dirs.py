"""AssignReplicasToDirs (key 73). Source: AssignReplicasToDirs{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, UUID, array, field, message, struct_of


@struct_of
class RequestPartitionData:
    partition_index: int = field(INT32)


@struct_of
class RequestTopicData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[RequestPartitionData, ...] = field(array(RequestPartitionData))


@struct_of
class RequestDirectoryData:
    id: Uuid = field(UUID)
    topics: tuple[RequestTopicData, ...] = field(array(RequestTopicData))


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    directories: tuple[RequestDirectoryData, ...] = field(array(RequestDirectoryData))


@struct_of
class ResponsePartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class ResponseTopicData:
    topic_id: Uuid = field(UUID)
    partitions: tuple[ResponsePartitionData, ...] = field(array(ResponsePartitionData))


@struct_of
class ResponseDirectoryData:
    id: Uuid = field(UUID)
    topics: tuple[ResponseTopicData, ...] = field(array(ResponseTopicData))


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    directories: tuple[ResponseDirectoryData, ...] = field(array(ResponseDirectoryData))
