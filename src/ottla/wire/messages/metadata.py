"""Metadata (key 3). Source: Metadata{Request,Response}.json; KIP-700."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class MetadataRequestTopic:
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    name: str | None = field(STRING, nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: tuple[MetadataRequestTopic, ...] | None = field(
        array(MetadataRequestTopic), nullable="1+"
    )
    """None = all topics; empty = all in version 0, none in later ones."""
    allow_auto_topic_creation: bool = field(BOOL, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOL, versions="8+", default=False)


@struct_of
class MetadataResponseBroker:
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, versions="1+", nullable="1+", default=None, ignorable=True)


@struct_of
class MetadataResponsePartition:
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, versions="7+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = field(array(INT32))
    isr_nodes: tuple[int, ...] = field(array(INT32))
    offline_replicas: tuple[int, ...] = field(
        array(INT32), versions="5+", default=(), ignorable=True
    )


@struct_of
class MetadataResponseTopic:
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable="12+")
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, versions="1+", default=False, ignorable=True)
    partitions: tuple[MetadataResponsePartition, ...] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, versions="8+", default=-2_147_483_648)
    """One bit for each AclOperation; the lowest number = not asked for."""
    tiered_epoch: int = field(INT32, versions="9+", tag=10001, default=0, ignorable=True)
    """Ottla's own; 0 = the topic never had remote storage."""
    tiering_state: int = field(INT8, versions="9+", tag=10002, default=0, ignorable=True)
    """Ottla's own: 1 = enabled, 2 = disabling, 3 = disabled."""


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = field(INT32, versions="3+", default=0, ignorable=True)
    brokers: tuple[MetadataResponseBroker, ...] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(
        STRING, versions="2+", nullable="2+", default=None, ignorable=True
    )
    controller_id: int = field(INT32, versions="1+", default=-1, ignorable=True)
    topics: tuple[MetadataResponseTopic, ...] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, versions="8-10", default=-2_147_483_648)
    """One bit for each AclOperation; the lowest number = not asked for."""
    error_code: int = field(INT16, versions="13+", default=0, ignorable=True)
