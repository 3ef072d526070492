"""Vote (key 52). Source: Vote{Request,Response}.json; KIP-853."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
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
    replica_epoch: int = field(INT32)
    replica_id: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, versions="1+", default=NO_UUID)
    voter_directory_id: Uuid = field(UUID, versions="1+", default=NO_UUID, ignorable=True)
    last_offset_epoch: int = field(INT32)
    last_offset: int = field(INT64)
    pre_vote: bool = field(BOOL, versions="2+", default=False)
    """Ask whether an election could be won, without starting one (KIP-996)."""


@struct_of
class RequestTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[RequestPartitionData, ...] = field(array(RequestPartitionData))


@message(key=52, versions="0-2", flexible="0+")
class VoteRequest:
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, versions="1+", default=-1, ignorable=True)
    topics: tuple[RequestTopicData, ...] = field(array(RequestTopicData))


@struct_of
class ResponsePartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    vote_granted: bool = field(BOOL)


@struct_of
class ResponseTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[ResponsePartitionData, ...] = field(array(ResponsePartitionData))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(UINT16)


@message(key=52, versions="0-2", flexible="0+")
class VoteResponse:
    error_code: int = field(INT16)
    topics: tuple[ResponseTopicData, ...] = field(array(ResponseTopicData))
    node_endpoints: tuple[NodeEndpoint, ...] = field(
        array(NodeEndpoint), versions="1+", tag=0, default=()
    )
