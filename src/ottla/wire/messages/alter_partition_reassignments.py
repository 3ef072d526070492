"""AlterPartitionReassignments (key 45). Source:
AlterPartitionReassignments{Request,Response}.json.
"""

from ottla.wire.schema import BOOL, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class ReassignablePartition:
    partition_index: int = field(INT32)
    replicas: tuple[int, ...] | None = field(array(INT32), nullable="0+", default=None)
    """None = cancel the reassignment under way."""


@struct_of
class ReassignableTopic:
    name: str = field(STRING)
    partitions: tuple[ReassignablePartition, ...] = field(array(ReassignablePartition))


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOL, versions="1+", default=True)
    topics: tuple[ReassignableTopic, ...] = field(array(ReassignableTopic))


@struct_of
class ReassignablePartitionResponse:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct_of
class ReassignableTopicResponse:
    name: str = field(STRING)
    partitions: tuple[ReassignablePartitionResponse, ...] = field(
        array(ReassignablePartitionResponse)
    )


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOL, versions="1+", default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: tuple[ReassignableTopicResponse, ...] = field(array(ReassignableTopicResponse))
