"""DeleteShareGroupOffsets (key 92). Source: DeleteShareGroupOffsets{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, array, field, message, struct_of


@struct_of
class DeleteShareGroupOffsetsRequestTopic:
    topic_name: str = field(STRING)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    group_id: str = field(STRING)
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = field(
        array(DeleteShareGroupOffsetsRequestTopic)
    )


@struct_of
class DeleteShareGroupOffsetsResponseTopic:
    topic_name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = field(
        array(DeleteShareGroupOffsetsResponseTopic)
    )
