"""Records about topics and partitions. Source: Kafka's metadata record schemas, 4.0; KIP-966."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT8, INT32, STRING, UUID, array, field, record

LEADER_UNCHANGED = -2
"""A PartitionChangeRecord's leader that keeps leader and leader epoch as they are."""


@record(type=2, versions="0")
class TopicRecord:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID)


@record(type=3, versions="0-2")
class PartitionRecord:
    partition_id: int = field(INT32, default=-1)
    topic_id: Uuid = field(UUID)
    replicas: tuple[int, ...] = field(array(INT32))
    isr: tuple[int, ...] = field(array(INT32))
    removing_replicas: tuple[int, ...] = field(array(INT32), default=())
    adding_replicas: tuple[int, ...] = field(array(INT32), default=())
    leader: int = field(INT32, default=-1)
    leader_recovery_state: int = field(INT8, tag=0, default=0)
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)
    directories: tuple[Uuid, ...] = field(array(UUID), versions="1+", default=())
    """One for each replica, in the order of `replicas`."""
    eligible_leader_replicas: tuple[int, ...] | None = field(
        array(INT32), versions="2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: tuple[int, ...] | None = field(
        array(INT32), versions="2+", nullable="2+", tag=2, default=None
    )


@record(type=5, versions="0-2")
class PartitionChangeRecord:
    """What changed in a partition: None (or a negative number) = as it was."""

    partition_id: int = field(INT32, default=-1)
    topic_id: Uuid = field(UUID)
    isr: tuple[int, ...] | None = field(array(INT32), nullable="0+", tag=0, default=None)
    leader: int = field(INT32, tag=1, default=LEADER_UNCHANGED)
    """-1 = no leader now. Any other value than -2, even the same one, bumps the leader epoch."""
    replicas: tuple[int, ...] | None = field(array(INT32), nullable="0+", tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = field(
        array(INT32), nullable="0+", tag=3, default=None
    )
    adding_replicas: tuple[int, ...] | None = field(
        array(INT32), nullable="0+", tag=4, default=None
    )
    leader_recovery_state: int = field(INT8, tag=5, default=-1)
    directories: tuple[Uuid, ...] | None = field(
        array(UUID), versions="1+", nullable="1+", tag=8, default=None
    )
    eligible_leader_replicas: tuple[int, ...] | None = field(
        array(INT32), versions="2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: tuple[int, ...] | None = field(
        array(INT32), versions="2+", nullable="2+", tag=7, default=None
    )


@record(type=9, versions="0")
class RemoveTopicRecord:
    topic_id: Uuid = field(UUID)


@record(type=28, versions="0")
class ClearElrRecord:
    """Forget eligible and last known leaders; Ottla reads it, and writes single changes."""

    topic_name: str = field(STRING)
    """Empty = of all topics."""
