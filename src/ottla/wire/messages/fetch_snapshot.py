"""FetchSnapshot (key 59). Source: FetchSnapshot{Request,Response}.json; KIP-853."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Records,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class SnapshotId:
    end_offset: int = field(INT64)
    epoch: int = field(INT32)


@struct_of
class RequestPartitionSnapshot:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(INT64)
    replica_directory_id: Uuid = field(UUID, versions="1+", tag=0, default=NO_UUID, ignorable=True)


@struct_of
class RequestTopicSnapshot:
    name: str = field(STRING)
    partitions: tuple[RequestPartitionSnapshot, ...] = field(array(RequestPartitionSnapshot))


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    cluster_id: str | None = field(STRING, nullable="0+", tag=0, default=None)
    replica_id: int = field(INT32, default=-1)
    max_bytes: int = field(INT32, default=2_147_483_647)
    topics: tuple[RequestTopicSnapshot, ...] = field(array(RequestTopicSnapshot))


@struct_of
class LeaderIdAndEpoch:
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class ResponsePartitionSnapshot:
    index: int = field(INT32)
    error_code: int = field(INT16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, tag=0, default=LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
    )
    size: int = field(INT64)
    position: int = field(INT64)
    unaligned_records: Records = field(RECORDS)
    """A piece of the file, cut anywhere: not whole batches."""


@struct_of
class ResponseTopicSnapshot:
    name: str = field(STRING)
    partitions: tuple[ResponsePartitionSnapshot, ...] = field(array(ResponsePartitionSnapshot))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(UINT16)


@message(key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    topics: tuple[ResponseTopicSnapshot, ...] = field(array(ResponseTopicSnapshot))
    node_endpoints: tuple[NodeEndpoint, ...] = field(
        array(NodeEndpoint), versions="1+", tag=0, default=()
    )
