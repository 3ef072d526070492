"""DisableRemoteTopic (key 1001): the controller has a broker stop tiering topics.

Ottla's own, spoken between its nodes only; the draft of KIP-950 names it without a schema that
could be used. The tiered epoch says which of several changes a command belongs to, so a late
or repeated one is known as such; a leader's answer counts for its leader epoch only.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT8, INT16, INT32, INT64, UUID, array, field, message, struct_of

RETAIN = 0
DELETE = 1
"""Policies: stop copying and keep what is remote, or give that up too."""

FOLLOWER = 0
LEADER = 1


@struct_of
class DisableRemoteTopicTopic:
    topic_id: Uuid = field(UUID)
    tiered_epoch: int = field(INT32)
    policy: int = field(INT8)
    remote_floor_epoch: int = field(INT32)
    """Remote segments of this tiered epoch and below are dead; 0 = none."""
    partitions: tuple[int, ...] = field(array(INT32))


@message(key=1001, versions="0", flexible="0+")
class DisableRemoteTopicRequest:
    controller_id: int = field(INT32)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    """The broker's registration that is meant; -1 = any."""
    topics: tuple[DisableRemoteTopicTopic, ...] = field(array(DisableRemoteTopicTopic))


@struct_of
class DisableRemoteTopicPartitionResult:
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    role: int = field(INT8, default=FOLLOWER)
    """What the broker was to the partition when it complied."""
    leader_epoch: int = field(INT32, default=-1)
    log_start_offset: int = field(INT64, default=-1)
    remaining_segments: int = field(INT32, default=-1)
    """Remote segments that are not marked as deleted yet; only a leader knows."""


@struct_of
class DisableRemoteTopicTopicResult:
    topic_id: Uuid = field(UUID)
    tiered_epoch: int = field(INT32)
    partitions: tuple[DisableRemoteTopicPartitionResult, ...] = field(
        array(DisableRemoteTopicPartitionResult)
    )


@message(key=1001, versions="0", flexible="0+")
class DisableRemoteTopicResponse:
    error_code: int = field(INT16)
    """Where it is not 0 nothing was done, and no topic is named."""
    topics: tuple[DisableRemoteTopicTopicResult, ...] = field(
        array(DisableRemoteTopicTopicResult), default=()
    )
