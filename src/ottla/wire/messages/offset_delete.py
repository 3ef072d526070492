"""OffsetDelete (key 47). Source: OffsetDelete{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class OffsetDeleteRequestPartition:
    partition_index: int = field(INT32)


@struct_of
class OffsetDeleteRequestTopic:
    name: str = field(STRING)
    partitions: tuple[OffsetDeleteRequestPartition, ...] = field(
        array(OffsetDeleteRequestPartition)
    )


@message(key=47, versions="0")
class OffsetDeleteRequest:
    group_id: str = field(STRING)
    topics: tuple[OffsetDeleteRequestTopic, ...] = field(array(OffsetDeleteRequestTopic))


@struct_of
class OffsetDeleteResponsePartition:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


@struct_of
class OffsetDeleteResponseTopic:
    name: str = field(STRING)
    partitions: tuple[OffsetDeleteResponsePartition, ...] = field(
        array(OffsetDeleteResponsePartition)
    )


@message(key=47, versions="0")
class OffsetDeleteResponse:
    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, default=0)
    topics: tuple[OffsetDeleteResponseTopic, ...] = field(array(OffsetDeleteResponseTopic))
