"""What consumers of classic groups send one another inside JoinGroup and SyncGroup. Source:
ConsumerProtocol{Subscription,Assignment}.json.
"""

from ottla.wire.schema import BYTES, INT32, STRING, array, field, message, struct_of


@struct_of
class TopicPartition:
    topic: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32))


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: tuple[str, ...] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: tuple[TopicPartition, ...] = field(
        array(TopicPartition), versions="1+", default=(), ignorable=True
    )
    generation_id: int = field(INT32, versions="2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, versions="3+", nullable="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: tuple[TopicPartition, ...] = field(array(TopicPartition))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
