"""StreamsGroupDescribe (key 89). Source: StreamsGroupDescribe{Request,Response}.json."""

from ottla.wire.schema import (
    BOOL,
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


@message(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: tuple[str, ...] = field(array(STRING), default=())
    include_authorized_operations: bool = field(BOOL)


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
class Subtopology:
    subtopology_id: str = field(STRING)
    source_topics: tuple[str, ...] = field(array(STRING), default=())
    repartition_sink_topics: tuple[str, ...] = field(array(STRING), default=())
    state_changelog_topics: tuple[TopicInfo, ...] = field(array(TopicInfo))
    repartition_source_topics: tuple[TopicInfo, ...] = field(array(TopicInfo))


@struct_of
class Topology:
    epoch: int = field(INT32)
    subtopologies: tuple[Subtopology, ...] | None = field(array(Subtopology), nullable="0+")


@struct_of
class Endpoint:
    host: str = field(STRING)
    port: int = field(UINT16)


@struct_of
class TaskOffset:
    subtopology_id: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)


@struct_of
class TaskIds:
    subtopology_id: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class Assignment:
    active_tasks: tuple[TaskIds, ...] = field(array(TaskIds))
    standby_tasks: tuple[TaskIds, ...] = field(array(TaskIds))
    warmup_tasks: tuple[TaskIds, ...] = field(array(TaskIds))


@struct_of
class Member:
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    topology_epoch: int = field(INT32)
    process_id: str = field(STRING)
    user_endpoint: Endpoint | None = field(Endpoint, nullable="0+", default=None)
    client_tags: tuple[KeyValue, ...] = field(array(KeyValue))
    task_offsets: tuple[TaskOffset, ...] = field(array(TaskOffset))
    task_end_offsets: tuple[TaskOffset, ...] = field(array(TaskOffset))
    assignment: Assignment = field(Assignment)
    target_assignment: Assignment = field(Assignment)
    is_classic: bool = field(BOOL)


@struct_of
class DescribedGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    topology: Topology | None = field(Topology, nullable="0+", default=None)
    members: tuple[Member, ...] = field(array(Member))
    authorized_operations: int = field(INT32, default=-2_147_483_648)


@message(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: tuple[DescribedGroup, ...] = field(array(DescribedGroup))
