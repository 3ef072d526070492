"""The lifecycle of a partition, as a table.

All transitions of partitions are here, and only here. Values are the ids that Kafka's metrics and
tools show. The loops of ONLINE and OFFLINE are transitions like others: a new election of a led
partition, and a failure that is observed twice.

No code walks this table: deciders change the image, and the state follows from that,
`partition_state_of`. What is written at once is one change though it takes several steps here: a
topic that is created with its leaders, a deletion that begins on a partition with a leader.
Source: PartitionStateMachine.scala, Kafka 3.9; KAFKA-499.
"""

from enum import Enum
from typing import Final

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.metadata.image import ClusterImage


class PartitionState(Enum):
    """The state of a partition between its creation and its deletion."""

    NEW = 0
    """It has replicas, but no leader and no in-sync set yet."""
    ONLINE = 1
    """A leader was elected, and is alive as far as is known."""
    OFFLINE = 2
    """Its leader failed, and no other one could be elected yet."""
    NON_EXISTENT = 3
    """It was never created, or has been deleted."""

    @property
    def kafka_name(self) -> str:
        """Return the state's name in Kafka's logs."""
        return _KAFKA_NAMES[self]


_S = PartitionState

PREVIOUS: Final[dict[PartitionState, frozenset[PartitionState]]] = {
    _S.NEW:          frozenset({_S.NON_EXISTENT}),
    _S.ONLINE:       frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.OFFLINE:      frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE}),
    _S.NON_EXISTENT: frozenset({_S.OFFLINE}),
}  # fmt: skip
"""From which states each state may be entered."""

_KAFKA_NAMES: Final = {
    _S.NEW: "NewPartition",
    _S.ONLINE: "OnlinePartition",
    _S.OFFLINE: "OfflinePartition",
    _S.NON_EXISTENT: "NonExistentPartition",
}

assert set(PREVIOUS) == set(_KAFKA_NAMES) == set(PartitionState)  # No state without its row.
assert all(PREVIOUS.values())  # None that cannot be entered,
assert set().union(*PREVIOUS.values()) == set(PartitionState)  # and none that cannot be left.


def is_legal(source: PartitionState, target: PartitionState) -> bool:
    """Tell whether a partition may go from `source` to `target`."""
    return source in PREVIOUS[target]


def partition_state_of(image: ClusterImage, topic_id: Uuid, partition_id: int) -> PartitionState:
    """Return a partition's state by the metadata.

    A leader in the image is alive as far as the controller knows: fencing removes it in the same
    decision, a registration that vanished in the next one. In KRaft partitions are created with
    their leaders, so none is ever NEW. In ZooKeeper mode a topic whose deletion has begun is still
    in the image, but no broker serves it.
    """
    topic = image.topics.by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if partition is None or image.deletions.is_being_deleted(topic_id):
        return PartitionState.NON_EXISTENT
    if partition.leader_epoch == NO_EPOCH:
        return PartitionState.NEW
    return PartitionState.OFFLINE if partition.leader == NO_LEADER else PartitionState.ONLINE
