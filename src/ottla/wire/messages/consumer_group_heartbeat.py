"""ConsumerGroupHeartbeat (key 68). Source: ConsumerGroupHeartbeat{Request,Response}.json;
KIP-848.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, array, field, message, struct_of


@struct_of
class TopicPartitions:
    topic_id: Uuid = field(UUID)
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    """0 = join; -1 = leave; -2 = leave for a while, as a static member; else the known epoch."""
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: tuple[str, ...] | None = field(
        array(STRING), nullable="0+", default=None
    )
    subscribed_topic_regex: str | None = field(STRING, versions="1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = field(
        array(TopicPartitions), nullable="0+", default=None
    )
    """The partitions owned; None = as said before."""


@struct_of
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = field(array(TopicPartitions))


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable="0+", default=None)
