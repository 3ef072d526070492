"""ListPartitionReassignments (key 46). Source:
ListPartitionReassignments{Request,Response}.json.
"""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class ListPartitionReassignmentsTopics:
    name: str = field(STRING)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = field(INT32, default=60_000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = field(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )
    """None = every partition being reassigned."""


@struct_of
class OngoingPartitionReassignment:
    partition_index: int = field(INT32)
    replicas: tuple[int, ...] = field(array(INT32))
    adding_replicas: tuple[int, ...] = field(array(INT32))
    removing_replicas: tuple[int, ...] = field(array(INT32))


@struct_of
class OngoingTopicReassignment:
    name: str = field(STRING)
    partitions: tuple[OngoingPartitionReassignment, ...] = field(
        array(OngoingPartitionReassignment)
    )


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[OngoingTopicReassignment, ...] = field(array(OngoingTopicReassignment))
