"""What is done when partitions enter a state. See `state_changes`."""

from collections.abc import Iterable

from ottla.base.ids import NO_LEADER
from ottla.controller import inter_broker_protocol as protocol
from ottla.controller.leader_strategies import (
    Candidates,
    ControlledShutdownElection,
    NotElected,
    Strategy,
    elect,
)
from ottla.controller.partition_states import PartitionState, is_legal
from ottla.controller.state_context import PartitionKey, ReplicaKey, has_leadership
from ottla.controller.state_rounds import Round
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord
from ottla.metadata.topics import PartitionImage

FIRST_EPOCH = 0
"""The leader epoch and the partition epoch of a partition's first leadership."""


class PartitionRound(Round):
    """One round of the partition state machine."""

    def enter(
        self, partitions: Iterable[PartitionKey], target: PartitionState, strategy: Strategy
    ) -> None:
        """Move partitions to a state, each by itself, in the order of their names."""
        for key in sorted(set(partitions)):
            source = self.draft.partition_state(key)
            if not is_legal(source, target):
                self.refuse(
                    key, f"no way from {source.kafka_name} to {target.kafka_name}", illegal=True
                )
            elif target is not PartitionState.ONLINE:
                # In memory only: brokers hear of it by their replicas' transitions.
                self.draft.set_partition_state(key, target)
            elif source is PartitionState.NEW:
                self._initialize(key)
            else:
                self._elect(key, strategy)

    def _initialize(self, key: PartitionKey) -> None:
        """Give a new partition its first leader: the first live replica, with all live in sync."""
        partition = self.draft.partition(key)
        if partition is None:
            self.refuse(key, "it has no assignment")
            return
        if has_leadership(partition):
            self.refuse(key, "a state of it is stored already")
            return
        live = self.context.online(key, partition.replicas)
        if not live:
            self.refuse(key, f"none of its replicas {list(partition.replicas)} is live")
            return
        created = self.create(
            key,
            PartitionRecord(
                partition_id=key.number,
                topic_id=self.topic_id(key),
                replicas=partition.replicas,
                isr=live,
                adding_replicas=partition.adding_replicas,
                removing_replicas=partition.removing_replicas,
                leader=live[0],
                leader_epoch=FIRST_EPOCH,
                partition_epoch=FIRST_EPOCH,
                directories=partition.directories,
            ),
        )
        self._tell(live, key, created, is_new=True)
        self.draft.set_partition_state(key, PartitionState.ONLINE)

    def _elect(self, key: PartitionKey, strategy: Strategy) -> None:
        partition = self.draft.leadership(key)
        if partition is None:
            self.refuse(key, "no state of it is stored")
            return
        if self.is_another_controllers(key):
            self.refuse(
                key,
                f"controller epoch {self.draft.written_by(key)} wrote it, this is "
                f"{self.context.controller_epoch}",
            )
            return
        elected = elect(strategy, self._candidates(key, partition, strategy))
        if isinstance(elected, NotElected):
            self.refuse(key, elected.reason)
            return
        recovery = elected.recovery_state
        led = self.change(
            key,
            partition,
            PartitionChangeRecord(
                partition_id=key.number,
                topic_id=self.topic_id(key),
                isr=None if elected.isr == partition.isr else elected.isr,
                leader=elected.leader,
                leader_recovery_state=-1 if recovery is None else recovery,
            ),
        )
        assert led.leader != NO_LEADER
        self.unclean += elected.unclean
        self._tell(elected.recipients, key, led, is_new=False)
        self.draft.set_partition_state(key, PartitionState.ONLINE)

    def _candidates(
        self, key: PartitionKey, partition: PartitionImage, strategy: Strategy
    ) -> Candidates:
        target = tuple(
            each for each in partition.replicas if each not in partition.removing_replicas
        )
        context = self.context
        stopping: frozenset[int] = frozenset()
        if isinstance(strategy, ControlledShutdownElection):
            stopping = frozenset(
                each
                for each in context.shutting_down
                if context.is_online(ReplicaKey(each, *key), or_shutting_down=True)
            )
        return Candidates(
            topic=key.topic,
            assigned=partition.replicas,
            target=target,
            isr=partition.isr,
            live=frozenset(context.online(key, partition.replicas)),
            shutting_down=stopping,
            can_recover=context.level >= protocol.LEADER_RECOVERY,
        )

    def _tell(
        self, recipients: Iterable[int], key: PartitionKey, led: PartitionImage, *, is_new: bool
    ) -> None:
        self.batch.add_leader_and_isr(
            recipients, key, led, written_by=self.context.controller_epoch, is_new=is_new
        )
