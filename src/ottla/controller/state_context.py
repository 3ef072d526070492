"""What the controller of a cluster whose brokers are told by requests knows, as one value.

Assignments, leadership, live brokers and their epochs, the states of both machines, and what is
queued for deletion. It is persistent: a decision returns the next context and leaves the old one
valid, so that a round whose writes were refused is simply decided again on what is stored.

Not in it: topics' and brokers' configuration. Source: ControllerContext.scala, Kafka 3.9.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_UUID, Uuid
from ottla.controller import partition_states, replica_states
from ottla.controller.inter_broker_protocol import LATEST, Level
from ottla.controller.partition_states import PartitionState
from ottla.controller.replica_states import ReplicaState
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.topics import DIRECTORY_MIGRATING, PartitionImage


class PartitionKey(NamedTuple):
    """A partition by its topic's name: the requests of old versions know no ids."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class ReplicaKey(NamedTuple):
    """One copy of a partition. In order: by broker, then by partition."""

    broker_id: int
    topic: str
    number: int

    @property
    def partition(self) -> PartitionKey:
        """Return the partition of which it is a copy."""
        return PartitionKey(self.topic, self.number)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A partition's state as some writer left it; its epoch tells which controller that was."""

    partition: PartitionImage
    controller_epoch: int


def assigned(
    replicas: tuple[int, ...], *, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()
) -> PartitionImage:
    """Return a partition that has replicas and nothing else yet."""
    return PartitionImage(
        replicas=replicas,
        directories=(DIRECTORY_MIGRATING,) * len(replicas),
        isr=(),
        adding_replicas=adding,
        removing_replicas=removing,
        leader=NO_LEADER,
        leader_epoch=NO_EPOCH,
        partition_epoch=NO_EPOCH,
    )


def has_leadership(partition: PartitionImage) -> bool:
    """Tell whether somebody ever led it, as far as is stored."""
    return partition.leader_epoch != NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class StateContext:
    """See the module.

    Fields: `brokers`: those that are alive, also while they shut down; `offline_replicas`: what
            lies on failed folders of live brokers; `partitions`: the assignment with, where
            there is one, the leadership; `written_by`: the controller epoch that wrote it;
            `to_delete`: topics queued for deletion; `deletion_started`: those of them whose
            deletion has begun.
    """

    controller_id: int
    controller_epoch: int
    level: Level = LATEST
    inter_broker_listener: str = "PLAINTEXT"
    brokers: Map[int, BrokerImage] = field(default_factory=Map)
    shutting_down: frozenset[int] = frozenset()
    offline_replicas: frozenset[ReplicaKey] = frozenset()
    topic_ids: Map[str, Uuid] = field(default_factory=Map)
    partitions: Map[PartitionKey, PartitionImage] = field(default_factory=Map)
    written_by: Map[PartitionKey, int] = field(default_factory=Map)
    partition_states: Map[PartitionKey, PartitionState] = field(default_factory=Map)
    replica_states: Map[ReplicaKey, ReplicaState] = field(default_factory=Map)
    to_delete: frozenset[str] = frozenset()
    deletion_started: frozenset[str] = frozenset()

    # -- asking --------------------------------------------------------------------------------

    def partition_state(self, key: PartitionKey) -> PartitionState:
        """Return a partition's state; what nobody spoke of does not exist."""
        return self.partition_states.get(key, partition_states.INITIAL)

    def replica_state(self, key: ReplicaKey) -> ReplicaState:
        """Return a replica's state; what nobody spoke of does not exist."""
        return self.replica_states.get(key, replica_states.INITIAL)

    def leadership(self, key: PartitionKey) -> PartitionImage | None:
        """Return the partition where it has a leadership, else None."""
        partition = self.partitions.get(key)
        return partition if partition is not None and has_leadership(partition) else None

    def topic_id(self, topic: str) -> Uuid:
        """Return a topic's id; zero where it never got one."""
        return self.topic_ids.get(topic, NO_UUID)

    def is_live(self, broker_id: int) -> bool:
        """Tell whether a broker is there and stays."""
        return broker_id in self.brokers and broker_id not in self.shutting_down

    def is_online(self, replica: ReplicaKey, *, or_shutting_down: bool = False) -> bool:
        """Tell whether a replica's broker lives and its folder works."""
        lives = self.is_live(replica.broker_id) or (
            or_shutting_down and replica.broker_id in self.brokers
        )
        return lives and replica not in self.offline_replicas

    def online(self, key: PartitionKey, replicas: Iterable[int]) -> tuple[int, ...]:
        """Return those of a partition's replicas that are online, in the order given."""
        return tuple(each for each in replicas if self.is_online(ReplicaKey(each, *key)))

    def live_ids(self) -> list[int]:
        """Return the brokers that are there and stay, in order."""
        return [each for each in sorted(self.brokers) if each not in self.shutting_down]

    def live_or_shutting_down_ids(self) -> list[int]:
        """Return all brokers that can be reached, in order."""
        return sorted(self.brokers)

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Tell whether a topic is to go."""
        return topic in self.to_delete

    def is_being_deleted(self, topic: str) -> bool:
        """Tell whether the deletion of a topic has begun."""
        return topic in self.deletion_started

    def replicas_on(self, broker_ids: Iterable[int]) -> list[ReplicaKey]:
        """Return all replicas assigned to some brokers, in order."""
        wanted = frozenset(broker_ids)
        return sorted(
            ReplicaKey(replica, *key)
            for key, partition in self.partitions.items()
            for replica in partition.replicas
            if replica in wanted
        )

    def replicas(self) -> Iterator[ReplicaKey]:
        """Yield all assigned replicas, in no order."""
        for key, partition in self.partitions.items():
            for replica in partition.replicas:
                yield ReplicaKey(replica, *key)

    def in_partition_states(self, *states: PartitionState) -> list[PartitionKey]:
        """Return the partitions in some states, in order."""
        return sorted(key for key, state in self.partition_states.items() if state in states)

    def offline_partition_count(self) -> int:
        """Return OfflinePartitionsCount: topics whose deletion has begun are not missed.

        Counted when it is asked for, so that nothing can be counted twice (KAFKA-13572).
        """
        return sum(
            state is PartitionState.OFFLINE and key.topic not in self.deletion_started
            for key, state in self.partition_states.items()
        )

    def preferred_replica_imbalance_count(self) -> int:
        """Return PreferredReplicaImbalanceCount, without topics that are queued for deletion."""
        return sum(
            has_leadership(partition) and partition.leader != partition.replicas[0]
            for key, partition in self.partitions.items()
            if partition.replicas and key.topic not in self.to_delete
        )

    # -- changing ------------------------------------------------------------------------------

    def draft(self) -> "Draft":
        """Begin the next context."""
        return Draft(self)

    def with_topic(
        self, topic: str, topic_id: Uuid, partitions: Mapping[int, PartitionImage]
    ) -> "StateContext":
        """Return the context with a topic's partitions added, in no state yet."""
        added = {PartitionKey(topic, number): each for number, each in partitions.items()}
        return replace(
            self,
            topic_ids=self.topic_ids.set(topic, topic_id),
            partitions=self.partitions.update(added),
        )

    def without_topic(self, topic: str) -> "StateContext":
        """Return the context that has forgotten a topic, in every index.

        Also in those of deletion: a later topic of the same name begins anew.
        """
        draft = Draft(self)
        for key in [each for each in self.partitions if each.topic == topic]:
            draft.drop_partition(key)
        for replica in [each for each in self.replica_states if each.topic == topic]:
            draft.set_replica_state(replica, ReplicaState.NON_EXISTENT)
        return replace(
            draft.finish(),
            topic_ids=self.topic_ids.delete(topic) if topic in self.topic_ids else self.topic_ids,
            offline_replicas=frozenset(r for r in self.offline_replicas if r.topic != topic),
            to_delete=self.to_delete - {topic},
            deletion_started=self.deletion_started - {topic},
        )

    def observed(self, stored: "Mapping[PartitionKey, Stored | None]") -> "StateContext":
        """Return the context with leaderships as they are stored; None = none is stored.

        For writes that met another writer's: the assignment stays this controller's, for it
        lives elsewhere. A partition that is not known here is left alone.
        """
        draft = Draft(self)
        for key, found in sorted(stored.items()):
            known = self.partitions.get(key)
            if known is None:
                continue
            if found is None:
                bare = assigned(
                    known.replicas, adding=known.adding_replicas, removing=known.removing_replicas
                )
                draft.set_partition(key, bare, written_by=None)
                continue
            led = replace(
                known,
                isr=found.partition.isr,
                leader=found.partition.leader,
                leader_epoch=found.partition.leader_epoch,
                leader_recovery_state=found.partition.leader_recovery_state,
                partition_epoch=found.partition.partition_epoch,
            )
            draft.set_partition(key, led, written_by=found.controller_epoch)
        return draft.finish()


class Draft:
    """The next context while it is being made: as the context, but changed in place.

    Only for the length of one decision; `finish` returns the value.
    """

    def __init__(self, context: StateContext) -> None:
        self._before = context
        self._partitions = context.partitions.mutate()
        self._written_by = context.written_by.mutate()
        self._partition_states = context.partition_states.mutate()
        self._replica_states = context.replica_states.mutate()

    def partition(self, key: PartitionKey) -> PartitionImage | None:
        """Return a partition as it is now."""
        found: PartitionImage | None = self._partitions.get(key)
        return found

    def leadership(self, key: PartitionKey) -> PartitionImage | None:
        """Return the partition where it has a leadership now, else None."""
        partition = self.partition(key)
        return partition if partition is not None and has_leadership(partition) else None

    def written_by(self, key: PartitionKey) -> int:
        """Return the epoch of the controller that wrote the leadership last."""
        epoch: int = self._written_by.get(key, NO_EPOCH)
        return epoch

    def partition_state(self, key: PartitionKey) -> PartitionState:
        """Return a partition's state as it is now."""
        state: PartitionState = self._partition_states.get(key, partition_states.INITIAL)
        return state

    def replica_state(self, key: ReplicaKey) -> ReplicaState:
        """Return a replica's state as it is now."""
        state: ReplicaState = self._replica_states.get(key, replica_states.INITIAL)
        return state

    def set_partition(
        self, key: PartitionKey, partition: PartitionImage, *, written_by: int | None
    ) -> None:
        """Set a partition; `written_by` None = it has no leadership."""
        assert (written_by is not None) == has_leadership(partition)
        self._partitions[key] = partition
        if written_by is not None:
            self._written_by[key] = written_by
        else:
            self._written_by.pop(key, None)

    def set_replicas(self, key: PartitionKey, replicas: tuple[int, ...]) -> None:
        """Set only who holds a partition, in memory."""
        before = self._partitions[key]
        known = dict(zip(before.replicas, before.directories, strict=True))
        directories = tuple(known.get(each, DIRECTORY_MIGRATING) for each in replicas)
        self._partitions[key] = replace(before, replicas=replicas, directories=directories)

    def set_partition_state(self, key: PartitionKey, state: PartitionState) -> None:
        """Set a partition's state; the initial one is not kept."""
        if state is not partition_states.INITIAL:
            self._partition_states[key] = state
        else:
            self._partition_states.pop(key, None)

    def set_replica_state(self, key: ReplicaKey, state: ReplicaState) -> None:
        """Set a replica's state; the initial one is not kept."""
        if state is not replica_states.INITIAL:
            self._replica_states[key] = state
        else:
            self._replica_states.pop(key, None)

    def drop_partition(self, key: PartitionKey) -> None:
        """Forget a partition and its state."""
        self._partitions.pop(key, None)
        self._written_by.pop(key, None)
        self._partition_states.pop(key, None)

    def finish(self) -> StateContext:
        """Return the context that this has become; the draft must not be used after."""
        return replace(
            self._before,
            partitions=self._partitions.finish(),
            written_by=self._written_by.finish(),
            partition_states=self._partition_states.finish(),
            replica_states=self._replica_states.finish(),
        )
