"""ShareAcknowledge (key 79). Source: ShareAcknowledge{Request,Response}.json; KIP-932."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
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
class AcknowledgementBatch:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    acknowledge_types: tuple[int, ...] = field(array(INT8), default=())


@struct_of
class AcknowledgePartition:
    partition_index: int = field(INT32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field(array(AcknowledgementBatch))


@struct_of
class AcknowledgeTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[AcknowledgePartition, ...] = field(array(AcknowledgePartition))


@message(key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeRequest:
    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    is_renew_ack: bool = field(BOOL, versions="2+", default=False)
    topics: tuple[AcknowledgeTopic, ...] = field(array(AcknowledgeTopic))


@struct_of
class LeaderIdAndEpoch:
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class PartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


@struct_of
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid = field(UUID, default=NO_UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


@message(key=79, versions="1-2", flexible="1+")
class ShareAcknowledgeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, versions="2+", default=0)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = field(
        array(ShareAcknowledgeTopicResponse)
    )
    node_endpoints: tuple[NodeEndpoint, ...] = field(array(NodeEndpoint))
