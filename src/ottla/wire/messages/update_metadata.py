"""UpdateMetadata (key 6). Source: UpdateMetadata{Request,Response}.json; KIP-866."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.messages.pending_purges import TAG as PURGES_TAG
from ottla.wire.messages.pending_purges import PendingPurge
from ottla.wire.messages.topic_tiering import TAG, TopicTieringState
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

UNKNOWN, INCREMENTAL, FULL = 0, 1, 2
"""The types of a request: it does not say; some partitions are named; all are."""


@struct_of
class UpdateMetadataPartitionState:
    topic_name: str = field(STRING, versions="0-4", default="", ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: tuple[int, ...] = field(array(INT32))
    zk_version: int = field(INT32)
    replicas: tuple[int, ...] = field(array(INT32))
    offline_replicas: tuple[int, ...] = field(
        array(INT32), versions="4+", default=(), ignorable=True
    )


@struct_of
class UpdateMetadataTopicState:
    topic_name: str = field(STRING)
    topic_id: Uuid = field(UUID, versions="7+", default=NO_UUID, ignorable=True)
    partition_states: tuple[UpdateMetadataPartitionState, ...] = field(
        array(UpdateMetadataPartitionState)
    )
    tiering: TopicTieringState | None = field(
        TopicTieringState, versions="6+", nullable="6+", tag=TAG, default=None, ignorable=True
    )
    """None = the topic never had remote storage."""


@struct_of
class UpdateMetadataEndpoint:
    port: int = field(INT32)
    host: str = field(STRING)
    listener: str = field(STRING, versions="3+", default="", ignorable=True)
    security_protocol: int = field(INT16)


@struct_of
class UpdateMetadataBroker:
    id: int = field(INT32)
    v0_host: str = field(STRING, versions="0", default="", ignorable=True)
    v0_port: int = field(INT32, versions="0", default=0, ignorable=True)
    endpoints: tuple[UpdateMetadataEndpoint, ...] = field(
        array(UpdateMetadataEndpoint), versions="1+", default=(), ignorable=True
    )
    rack: str | None = field(STRING, versions="2+", nullable="2+", default=None, ignorable=True)


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest:
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOL, versions="8+", default=False)
    type: int = field(INT8, versions="8+", tag=0, default=UNKNOWN)
    """Whether all partitions are named, or some."""
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, versions="5+", default=-1, ignorable=True)
    ungrouped_partition_states: tuple[UpdateMetadataPartitionState, ...] = field(
        array(UpdateMetadataPartitionState), versions="0-4", default=()
    )
    topic_states: tuple[UpdateMetadataTopicState, ...] = field(
        array(UpdateMetadataTopicState), versions="5+", default=()
    )
    live_brokers: tuple[UpdateMetadataBroker, ...] = field(array(UpdateMetadataBroker))
    pending_purges: tuple[PendingPurge, ...] | None = field(
        array(PendingPurge),
        versions="6+",
        nullable="6+",
        tag=PURGES_TAG,
        default=None,
        ignorable=True,
    )
    """All there are; None = the request does not say."""


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    error_code: int = field(INT16)
