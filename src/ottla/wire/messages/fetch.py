"""Fetch (key 1). Source: Fetch{Request,Response}.json; KIP-74, KIP-110, KIP-320, KIP-405,
KIP-516, KIP-853, KIP-903, KIP-951, KIP-1166.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Records,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class ReplicaState:
    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


@struct_of
class FetchPartition:
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, versions="12+", default=-1)
    """Of a follower: lets the leader see where their logs diverge (KIP-595)."""
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, versions="17+", tag=0, default=NO_UUID, ignorable=True)
    high_watermark: int = field(
        INT64, versions="18+", tag=1, default=9_223_372_036_854_775_807, ignorable=True
    )


@struct_of
class FetchTopic:
    topic: str = field(STRING, versions="0-12", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="13+", default=NO_UUID, ignorable=True)
    partitions: tuple[FetchPartition, ...] = field(array(FetchPartition))


@struct_of
class ForgottenTopic:
    topic: str = field(STRING, versions="7-12", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="13+", default=NO_UUID, ignorable=True)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=1, versions="0-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field(
        STRING, versions="12+", nullable="12+", tag=0, default=None, ignorable=True
    )
    replica_id: int = field(INT32, versions="0-14", default=-1)
    """The fetching broker, -1 = a consumer. From version 15 in `replica_state`."""
    replica_state: ReplicaState = field(ReplicaState, versions="15+", tag=1, default=ReplicaState())
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, versions="3+", default=2_147_483_647, ignorable=True)
    isolation_level: int = field(INT8, versions="4+", default=0, ignorable=True)
    """0 = read uncommitted; 1 = read committed: up to the last stable offset."""
    session_id: int = field(INT32, versions="7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, versions="7+", default=-1, ignorable=True)
    """-1 = no session; 0 = open one; else the next of an open session (KIP-227)."""
    topics: tuple[FetchTopic, ...] = field(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field(
        array(ForgottenTopic), versions="7+", default=()
    )
    rack_id: str = field(STRING, versions="11+", default="", ignorable=True)


@struct_of
class EpochEndOffset:
    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


@struct_of
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct_of
class SnapshotId:
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct_of
class AbortedTransaction:
    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


@struct_of
class PartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, versions="4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(
        EpochEndOffset, versions="12+", tag=0, default=EpochEndOffset()
    )
    """Said to a follower that must truncate: where its last fetched epoch ends here."""
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, versions="12+", tag=1, default=LeaderIdAndEpoch()
    )
    snapshot_id: SnapshotId = field(SnapshotId, versions="12+", tag=2, default=SnapshotId())
    """Said to a follower whose offset is gone: fetch this snapshot first (KIP-630)."""
    aborted_transactions: tuple[AbortedTransaction, ...] | None = field(
        array(AbortedTransaction), versions="4+", nullable="4+", default=None, ignorable=True
    )
    preferred_read_replica: int = field(INT32, versions="11+", default=-1)
    records: Records | None = field(RECORDS, nullable="0+")


@struct_of
class FetchableTopicResponse:
    topic: str = field(STRING, versions="0-12", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="13+", default=NO_UUID, ignorable=True)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


@message(key=1, versions="0-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16, versions="7+", default=0, ignorable=True)
    session_id: int = field(INT32, versions="7+", default=0)
    responses: tuple[FetchableTopicResponse, ...] = field(array(FetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = field(
        array(NodeEndpoint), versions="16+", tag=0, default=()
    )
