"""ControlledShutdown (key 7). Source: ControlledShutdown{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, INT64, STRING, array, field, message, struct_of


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, versions="2+", default=-1, ignorable=True)


@struct_of
class RemainingPartition:
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message(key=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse:
    error_code: int = field(INT16)
    remaining_partitions: tuple[RemainingPartition, ...] = field(array(RemainingPartition))
