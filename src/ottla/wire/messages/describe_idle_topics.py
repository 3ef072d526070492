"""DescribeIdleTopics (key 1005): how long topics have been idle, and why they do not go.

Ottla's own, for its clients. Reasons are those of `ottla.controller.idle.IdleReason`.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    INT8,
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


@message(key=1005, versions="0", flexible="0+")
class DescribeIdleTopicsRequest:
    topics: tuple[str, ...] | None = field(array(STRING), nullable="0+", default=None)
    """None = all topics that have an `ottla.topic.ttl.ms`."""


@struct_of
class DescribedIdleTopic:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    ttl_ms: int = field(INT64)
    """-1 = it has none."""
    idle_ms: int = field(INT64)
    """The least that a broker has said; -1 = none has."""
    reason: int = field(INT8)
    brokers: tuple[int, ...] = field(array(INT32), default=())
    """Those because of which it does not go."""


@message(key=1005, versions="0", flexible="0+")
class DescribeIdleTopicsResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[DescribedIdleTopic, ...] = field(array(DescribedIdleTopic), default=())
    """By name. A topic that does not exist is left out."""
