"""DeleteTopics (key 20). Source: DeleteTopics{Request,Response}.json; KIP-599."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, array, field, message, struct_of


@struct_of
class DeleteTopicState:
    name: str | None = field(STRING, nullable="0+", default=None)
    """None = named by its id."""
    topic_id: Uuid = field(UUID)


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: tuple[DeleteTopicState, ...] = field(array(DeleteTopicState), versions="6+", default=())
    topic_names: tuple[str, ...] = field(array(STRING), versions="0-5", default=(), ignorable=True)
    timeout_ms: int = field(INT32)


@struct_of
class DeletableTopicResult:
    name: str | None = field(STRING, nullable="6+")
    topic_id: Uuid = field(UUID, versions="6+", default=NO_UUID, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )


@message(key=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    responses: tuple[DeletableTopicResult, ...] = field(array(DeletableTopicResult))
