"""OffsetFetch (key 9). Source: OffsetFetch{Request,Response}.json; KIP-848."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
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
class OffsetFetchRequestTopic:
    name: str = field(STRING)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@struct_of
class OffsetFetchRequestTopics:
    name: str = field(STRING, versions="8-9", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    partition_indexes: tuple[int, ...] = field(array(INT32))


@struct_of
class OffsetFetchRequestGroup:
    group_id: str = field(STRING)
    member_id: str | None = field(
        STRING, versions="9+", nullable="9+", default=None, ignorable=True
    )
    member_epoch: int = field(INT32, versions="9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = field(
        array(OffsetFetchRequestTopics), nullable="0+"
    )
    """None = every topic the group has committed offsets of."""


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field(STRING, versions="0-7", default="")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = field(
        array(OffsetFetchRequestTopic), versions="0-7", nullable="2-7", default=None
    )
    """None = every topic the group has committed offsets of."""
    groups: tuple[OffsetFetchRequestGroup, ...] = field(
        array(OffsetFetchRequestGroup), versions="8+", default=()
    )
    require_stable: bool = field(BOOL, versions="7+", default=False)


@struct_of
class OffsetFetchResponsePartition:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="5+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, nullable="0+")
    error_code: int = field(INT16)


@struct_of
class OffsetFetchResponseTopic:
    name: str = field(STRING)
    partitions: tuple[OffsetFetchResponsePartition, ...] = field(
        array(OffsetFetchResponsePartition)
    )


@struct_of
class OffsetFetchResponsePartitions:
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, default=-1)
    metadata: str | None = field(STRING, nullable="0+")
    error_code: int = field(INT16)


@struct_of
class OffsetFetchResponseTopics:
    name: str = field(STRING, versions="8-9", default="", ignorable=True)
    topic_id: Uuid = field(UUID, versions="10+", default=NO_UUID, ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = field(
        array(OffsetFetchResponsePartitions)
    )


@struct_of
class OffsetFetchResponseGroup:
    group_id: str = field(STRING)
    topics: tuple[OffsetFetchResponseTopics, ...] = field(array(OffsetFetchResponseTopics))
    error_code: int = field(INT16, default=0)


@message(key=9, versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = field(INT32, versions="3+", default=0, ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = field(
        array(OffsetFetchResponseTopic), versions="0-7", default=()
    )
    error_code: int = field(INT16, versions="2-7", default=0, ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = field(
        array(OffsetFetchResponseGroup), versions="8+", default=()
    )
