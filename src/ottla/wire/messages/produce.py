"""Produce (key 0). Source: Produce{Request,Response}.json; KIP-110, KIP-467, KIP-516, KIP-890,
KIP-951.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
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
class PartitionProduceData:
    index: int = field(INT32)
    records: Records | None = field(RECORDS, nullable="0+")


@struct_of
class TopicProduceData:
    name: str = field(STRING, versions="0-12", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="13+", default=NO_UUID, ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = field(array(PartitionProduceData))


@message(key=0, versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    """None = not in a transaction."""
    acks: int = field(INT16)
    """0 = no answer at all; 1 = the leader has it; -1 = all in-sync replicas have it."""
    timeout_ms: int = field(INT32)
    topic_data: tuple[TopicProduceData, ...] = field(array(TopicProduceData))


@struct_of
class BatchIndexAndErrorMessage:
    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


@struct_of
class PartitionProduceResponse:
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, versions="2+", default=-1, ignorable=True)
    """-1 unless the topic stamps records with the time of the append."""
    log_start_offset: int = field(INT64, versions="5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = field(
        array(BatchIndexAndErrorMessage), versions="8+", default=(), ignorable=True
    )
    error_message: str | None = field(
        STRING, versions="8+", nullable="8+", default=None, ignorable=True
    )
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, versions="10+", tag=0, default=LeaderIdAndEpoch()
    )


@struct_of
class TopicProduceResponse:
    name: str = field(STRING, versions="0-12", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="13+", default=NO_UUID, ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = field(
        array(PartitionProduceResponse)
    )


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


@message(key=0, versions="0-13", flexible="9+")
class ProduceResponse:
    responses: tuple[TopicProduceResponse, ...] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = field(
        array(NodeEndpoint), versions="10+", tag=0, default=()
    )
