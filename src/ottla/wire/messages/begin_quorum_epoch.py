"""BeginQuorumEpoch (key 53). Source: BeginQuorumEpoch{Request,Response}.json; KIP-853."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import INT16, INT32, STRING, UINT16, UUID, array, field, message, struct_of


@struct_of
class RequestPartitionData:
    partition_index: int = field(INT32)
    voter_directory_id: Uuid = field(UUID, versions="1+", default=NO_UUID, ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class RequestTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[RequestPartitionData, ...] = field(array(RequestPartitionData))


@struct_of
class LeaderEndpoint:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, versions="1+", default=-1, ignorable=True)
    topics: tuple[RequestTopicData, ...] = field(array(RequestTopicData))
    leader_endpoints: tuple[LeaderEndpoint, ...] = field(
        array(LeaderEndpoint), versions="1+", default=(), ignorable=True
    )


@struct_of
class ResponsePartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class ResponseTopicData:
    topic_name: str = field(STRING)
    partitions: tuple[ResponsePartitionData, ...] = field(array(ResponsePartitionData))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(UINT16)


@message(key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    error_code: int = field(INT16)
    topics: tuple[ResponseTopicData, ...] = field(array(ResponseTopicData))
    node_endpoints: tuple[NodeEndpoint, ...] = field(
        array(NodeEndpoint), versions="1+", tag=0, default=()
    )
