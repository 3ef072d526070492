"""ShareFetch (key 78). Source: ShareFetch{Request,Response}.json; KIP-74, KIP-932."""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
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
class AcknowledgementBatch:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    acknowledge_types: tuple[int, ...] = field(array(INT8), default=())


@struct_of
class FetchPartition:
    partition_index: int = field(INT32)
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field(array(AcknowledgementBatch))


@struct_of
class FetchTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[FetchPartition, ...] = field(array(FetchPartition))


@struct_of
class ForgottenTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@message(key=78, versions="1-2", flexible="1+")
class ShareFetchRequest:
    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2_147_483_647)
    max_records: int = field(INT32)
    batch_size: int = field(INT32)
    share_acquire_mode: int = field(INT8, versions="2+", default=0)
    is_renew_ack: bool = field(BOOL, versions="2+", default=False)
    topics: tuple[FetchTopic, ...] = field(array(FetchTopic))
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field(array(ForgottenTopic))


@struct_of
class LeaderIdAndEpoch:
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


@struct_of
class AcquiredRecords:
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_count: int = field(INT16)


@struct_of
class PartitionData:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acknowledge_error_code: int = field(INT16)
    acknowledge_error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: Records = field(RECORDS)
    acquired_records: tuple[AcquiredRecords, ...] = field(array(AcquiredRecords))


@struct_of
class ShareFetchableTopicResponse:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PartitionData, ...] = field(array(PartitionData))


@struct_of
class NodeEndpoint:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


@message(key=78, versions="1-2", flexible="1+")
class ShareFetchResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32)
    responses: tuple[ShareFetchableTopicResponse, ...] = field(array(ShareFetchableTopicResponse))
    node_endpoints: tuple[NodeEndpoint, ...] = field(array(NodeEndpoint))
