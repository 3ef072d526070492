"""ReportPurges (key 1007): which remote segments a broker has purged, and what is left of others.

Ottla's own, from brokers to the controller. The floor says up to which tiered epoch a partition is
purged, or to be purged; that of a deleted topic is the largest int32.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
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


@struct_of
class PurgedPartition:
    partition: int = field(INT32)
    floor: int = field(INT32)
    """Remote segments of this tiered epoch and below are meant."""
    is_purged: bool = field(BOOL)
    """No object of them is left."""
    segments_left: int = field(INT32, default=-1)
    """-1 = not known yet."""
    bytes_left: int = field(INT64, default=-1)
    last_error: str | None = field(STRING, nullable="0+", default=None)
    """Of the last failure; None = there is none."""


@struct_of
class PurgedTopic:
    topic_id: Uuid = field(UUID)
    partitions: tuple[PurgedPartition, ...] = field(array(PurgedPartition))


@message(key=1007, versions="0", flexible="0+")
class ReportPurgesRequest:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    topics: tuple[PurgedTopic, ...] = field(array(PurgedTopic))


@struct_of
class PurgedTopicResult:
    topic_id: Uuid = field(UUID)
    error_code: int = field(INT16)
    """UNKNOWN_TOPIC_ID: nothing of this topic is to be purged any more."""


@message(key=1007, versions="0", flexible="0+")
class ReportPurgesResponse:
    error_code: int = field(INT16)
    topics: tuple[PurgedTopicResult, ...] = field(array(PurgedTopicResult), default=())
