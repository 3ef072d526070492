"""DescribeQuorum (key 55). Source: DescribeQuorum{Request,Response}.json; KIP-836, KIP-853."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class RequestPartitionData:
    partition_index: int = field(INT32)


@struct_of
class RequestTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[RequestPartitionData, ...] = field(array(RequestPartitionData))


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: tuple[RequestTopicData, ...] = field(array(RequestTopicData))


@struct_of
class ReplicaState:
    replica_id: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, versions="2+", default=NO_UUID)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, versions="1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, versions="1+", default=-1, ignorable=True)


@struct_of
class ResponsePartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="2+", nullable="2+", default=None, ignorable=True
    )
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: tuple[ReplicaState, ...] = field(array(ReplicaState))
    observers: tuple[ReplicaState, ...] = field(array(ReplicaState))


@struct_of
class ResponseTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[ResponsePartitionData, ...] = field(array(ResponsePartitionData))


@struct_of
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@struct_of
class Node:
    node_id: int = field(INT32)
    listeners: tuple[Listener, ...] = field(array(Listener))


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="2+", nullable="2+", default=None, ignorable=True
    )
    topics: tuple[ResponseTopicData, ...] = field(array(ResponseTopicData))
    nodes: tuple[Node, ...] = field(array(Node), versions="2+", default=())
