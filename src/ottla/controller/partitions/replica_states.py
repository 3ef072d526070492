"""The lifecycle of a replica, one copy of a partition on one broker, as a table.

All transitions of replicas are here, and only here. Values are the ids that Kafka's metrics and
tools show. An ineligible replica has two ways back: to ONLINE, when its broker returns, and to
OFFLINE, from where its deletion is retried.

Only deletions walk this table, step by step (`deletion_policy`), and keep the states of their
replicas in the ledger. The state of all others follows from the image, `replica_state_of`.
Source: ReplicaStateMachine.scala, Kafka 3.9; KAFKA-499.
"""

from enum import Enum
from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.topics import UNKNOWN_DIRECTORIES


class ReplicaState(Enum):
    """The state of a replica between its creation and its deletion."""

    NEW = 1
    """Just assigned: it may only follow, and is in no in-sync set."""
    ONLINE = 2
    """On a broker that is alive: it may lead or follow."""
    OFFLINE = 3
    """Its broker or its disk failed, or it was stopped by StopReplica."""
    DELETION_STARTED = 4
    """Its broker was sent the order to delete it."""
    DELETION_SUCCESSFUL = 5
    """Its broker responded that it is deleted."""
    DELETION_INELIGIBLE = 6
    """It cannot be deleted for now: its broker is down, or its disk failed."""
    NON_EXISTENT = 7
    """It was never created, or nothing is left of it."""

    @property
    def kafka_name(self) -> str:
        """Return the state's name in Kafka's logs."""
        return _KAFKA_NAMES[self]


_S = ReplicaState

PREVIOUS: Final[dict[ReplicaState, frozenset[ReplicaState]]] = {
    _S.NEW:                 frozenset({_S.NON_EXISTENT}),
    _S.ONLINE:              frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.OFFLINE:             frozenset({_S.NEW, _S.ONLINE, _S.OFFLINE, _S.DELETION_INELIGIBLE}),
    _S.DELETION_STARTED:    frozenset({_S.OFFLINE}),
    _S.DELETION_SUCCESSFUL: frozenset({_S.DELETION_STARTED}),
    _S.DELETION_INELIGIBLE: frozenset({_S.OFFLINE, _S.DELETION_STARTED}),
    _S.NON_EXISTENT:        frozenset({_S.DELETION_SUCCESSFUL}),
}  # fmt: skip
"""From which states each state may be entered."""

_KAFKA_NAMES: Final = {
    _S.NEW: "NewReplica",
    _S.ONLINE: "OnlineReplica",
    _S.OFFLINE: "OfflineReplica",
    _S.DELETION_STARTED: "ReplicaDeletionStarted",
    _S.DELETION_SUCCESSFUL: "ReplicaDeletionSuccessful",
    _S.DELETION_INELIGIBLE: "ReplicaDeletionIneligible",
    _S.NON_EXISTENT: "NonExistentReplica",
}

assert set(PREVIOUS) == set(_KAFKA_NAMES) == set(ReplicaState)  # No state without its row.
assert all(PREVIOUS.values())  # None that cannot be entered,
assert set().union(*PREVIOUS.values()) == set(ReplicaState)  # and none that cannot be left.


def is_legal(source: ReplicaState, target: ReplicaState) -> bool:
    """Tell whether a replica may go from `source` to `target`."""
    return source in PREVIOUS[target]


def replica_state_of(
    image: ClusterImage, topic_id: Uuid, partition_id: int, broker_id: int
) -> ReplicaState:
    """Return a replica's state by the image; those of deletion are in the ledger.

    NEW lasts until the replica of a reassignment has caught up.
    """
    topic = image.topics.by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(partition_id)
    if partition is None or broker_id not in partition.replicas:
        return ReplicaState.NON_EXISTENT
    if not _is_there(image.brokers.get(broker_id), partition.directory(broker_id)):
        return ReplicaState.OFFLINE
    if broker_id in partition.adding_replicas and broker_id not in partition.isr:
        return ReplicaState.NEW
    return ReplicaState.ONLINE


def _is_there(broker: BrokerImage | None, directory: Uuid) -> bool:
    if broker is None or not broker.active:
        return False
    log_dirs = broker.log_dirs
    return not log_dirs or directory in log_dirs or directory in UNKNOWN_DIRECTORIES
