"""DescribeTopicTiering (key 1009): topics' tiering states, and what they wait for.

Ottla's own, for its clients. States and policies are those of `ottla.metadata.tiering`, reasons
those of `ottla.controller.disabling.acknowledgements`.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
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


@message(key=1009, versions="0", flexible="0+")
class DescribeTopicTieringRequest:
    topics: tuple[str, ...] | None = field(array(STRING), nullable="0+", default=None)
    """None = all topics that have a tiering state."""


@struct_of
class MissingAcknowledgement:
    """Partitions that a broker has to acknowledge before the topic is DISABLED."""

    broker_id: int = field(INT32)
    """-1 = none: the partitions have no live leader."""
    is_leader: bool = field(BOOL)
    reason: int = field(INT8)
    error: int = field(INT16)
    """The broker's last answer; 0 = it has not answered. It is no error of this request."""
    partitions: tuple[int, ...] = field(array(INT32))


@struct_of
class DescribedTopicTiering:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    state: int = field(INT8)
    """0 = the topic never had remote storage."""
    tiered_epoch: int = field(INT32, default=0)
    policy: int = field(INT8, default=0)
    remote_floor_epoch: int = field(INT32, default=0)
    purge_pending: bool = field(BOOL, default=False)
    missing: tuple[MissingAcknowledgement, ...] = field(array(MissingAcknowledgement), default=())
    """While it is DISABLING, by broker."""
    purge_partitions: int = field(INT32, default=-1)
    """Partitions of a pending purge; -1 = none is pending."""
    purge_partitions_left: int = field(INT32, default=-1)
    """Those of them that are not purged yet."""
    purge_segments_left: int = field(INT32, default=-1)
    """Dead segments of those, as far as their purgers have reported; -1 = none has."""
    purge_bytes_left: int = field(INT64, default=-1)
    purge_error: str | None = field(STRING, nullable="0+", default=None)
    """Of the last deletion of objects that failed; None = none did."""
    purge_leaderless: tuple[int, ...] = field(
        array(INT32), versions="0+", tag=0, default=(), ignorable=True
    )
    """Partitions that are not purged and have no leader, who would purge them."""


@message(key=1009, versions="0", flexible="0+")
class DescribeTopicTieringResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: tuple[DescribedTopicTiering, ...] = field(array(DescribedTopicTiering), default=())
    """By name. A topic that does not exist is left out."""
