"""ReportIdleTopics (key 1004): for how long a broker has seen nobody use topics.

Ottla's own, from brokers to the controller, about topics that have an `ottla.topic.ttl.ms`.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, INT64, UUID, array, field, message, struct_of


@struct_of
class IdleTopic:
    topic_id: Uuid = field(UUID)
    replicas: tuple[int, ...] = field(array(INT32))
    """The brokers that any of its partitions is assigned to, sorted, as the sender knows them."""
    idle_ms: int = field(INT64)


@message(key=1004, versions="0", flexible="0+")
class ReportIdleTopicsRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    token: int = field(INT64, default=-1)
    """Of the last answer that came before the sender looked; -1 = none did."""
    coordinators: tuple[int, ...] = field(array(INT32))
    """The same brokers of the offsets topic."""
    topics: tuple[IdleTopic, ...] = field(array(IdleTopic))


@message(key=1004, versions="0", flexible="0+")
class ReportIdleTopicsResponse:
    error_code: int = field(INT16)
    token: int = field(INT64, default=-1)
