"""ShareGroupHeartbeat (key 76). Source: ShareGroupHeartbeat{Request,Response}.json; KIP-932."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, array, field, message, struct_of


@message(key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = field(
        array(STRING), nullable="0+", default=None
    )


@struct_of
class TopicPartitions:
    topic_id: Uuid = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = field(array(TopicPartitions))


@message(key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
