"""CreatePartitions (key 37). Source: CreatePartitions{Request,Response}.json; KIP-599."""

from ottla.wire.schema import BOOL, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class CreatePartitionsAssignment:
    broker_ids: tuple[int, ...] = field(array(INT32))


@struct_of
class CreatePartitionsTopic:
    name: str = field(STRING)
    count: int = field(INT32)
    """The partitions in all, old ones included."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = field(
        array(CreatePartitionsAssignment), nullable="0+"
    )
    """For the new partitions only; None = let the controller place them."""


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: tuple[CreatePartitionsTopic, ...] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


@struct_of
class CreatePartitionsTopicResult:
    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[CreatePartitionsTopicResult, ...] = field(array(CreatePartitionsTopicResult))
