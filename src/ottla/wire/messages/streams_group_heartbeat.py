"""StreamsGroupHeartbeat (key 88). Source: StreamsGroupHeartbeat{Request,Response}.json."""

from ottla.wire.schema import (
    BOOL,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class KeyValue:
    key: str = field(STRING)
    value: str = field(STRING)


@struct_of
class TopicInfo:
    name: str = field(STRING)
    partitions: int = field(INT32)
    replication_factor: int = field(INT16)
    topic_configs: tuple[KeyValue, ...] = field(array(KeyValue))


@struct_of
class CopartitionGroup:
    source_topics: tuple[int, ...] = field(array(INT16), default=())
    source_topic_regex: tuple[int, ...] = field(array(INT16), default=())
    repartition_source_topics: tuple[int, ...] = field(array(INT16), default=())


@struct_of
class Subtopology:
    subtopology_id: str = field(STRING)
    source_topics: tuple[str, ...] = field(array(STRING), default=())
    source_topic_regex: tuple[str, ...] = field(array(STRING), default=())
    state_changelog_topics: tuple[TopicInfo, ...] = field(array(TopicInfo))
    repartition_sink_topics: tuple[str, ...] = field(array(STRING), default=())
    repartition_source_topics: tuple[TopicInfo, ...] = field(array(TopicInfo))
    copartition_groups: tuple[CopartitionGroup, ...] = field(array(CopartitionGroup))


@struct_of
class Topology:
    epoch: int = field(INT32)
    subtopologies: tuple[Subtopology, ...] = field(array(Subtopology))


@struct_of
class TaskIds:
    subtopology_id: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class Endpoint:
    host: str = field(STRING)
    port: int = field(UINT16)


@struct_of
class TaskOffset:
    subtopology_id: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)


@message(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    endpoint_information_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    active_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    standby_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    warmup_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    process_id: str | None = field(STRING, nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: tuple[KeyValue, ...] | None = field(array(KeyValue), nullable="0+")
    task_offsets: tuple[TaskOffset, ...] | None = field(array(TaskOffset), nullable="0+")
    task_end_offsets: tuple[TaskOffset, ...] | None = field(array(TaskOffset), nullable="0+")
    shutdown_application: bool = field(BOOL, default=False)


@struct_of
class Status:
    status_code: int = field(INT8)
    status_detail: str = field(STRING)


@struct_of
class TopicPartition:
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class EndpointToPartitions:
    user_endpoint: Endpoint = field(Endpoint)
    active_partitions: tuple[TopicPartition, ...] = field(array(TopicPartition))
    standby_partitions: tuple[TopicPartition, ...] = field(array(TopicPartition))


@message(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    acceptable_recovery_lag: int = field(INT32)
    task_offset_interval_ms: int = field(INT32)
    status: tuple[Status, ...] | None = field(array(Status), nullable="0+")
    active_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    standby_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    warmup_tasks: tuple[TaskIds, ...] | None = field(array(TaskIds), nullable="0+")
    endpoint_information_epoch: int = field(INT32)
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = field(
        array(EndpointToPartitions), nullable="0+"
    )
