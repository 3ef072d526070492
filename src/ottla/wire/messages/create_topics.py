"""CreateTopics (key 19). Source: CreateTopics{Request,Response}.json; KIP-464, KIP-525, KIP-599."""

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
class CreatableReplicaAssignment:
    partition_index: int = field(INT32)
    broker_ids: tuple[int, ...] = field(array(INT32))


@struct_of
class CreatableTopicConfig:
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


@struct_of
class CreatableTopic:
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    """-1 = as many as the broker is configured for, or as `assignments` says."""
    replication_factor: int = field(INT16)
    """-1 = as the broker is configured, or as `assignments` says."""
    assignments: tuple[CreatableReplicaAssignment, ...] = field(array(CreatableReplicaAssignment))
    configs: tuple[CreatableTopicConfig, ...] = field(array(CreatableTopicConfig))


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: tuple[CreatableTopic, ...] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOL, versions="1+", default=False)


@struct_of
class CreatableTopicConfigs:
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOL)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOL)


@struct_of
class CreatableTopicResult:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID, versions="7+", default=NO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="1+", nullable="1+", default=None, ignorable=True
    )
    topic_config_error_code: int = field(INT16, versions="5+", tag=0, default=0, ignorable=True)
    num_partitions: int = field(INT32, versions="5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, versions="5+", default=-1, ignorable=True)
    configs: tuple[CreatableTopicConfigs, ...] | None = field(
        array(CreatableTopicConfigs), versions="5+", nullable="5+", default=None, ignorable=True
    )


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = field(INT32, versions="2+", default=0, ignorable=True)
    topics: tuple[CreatableTopicResult, ...] = field(array(CreatableTopicResult))
