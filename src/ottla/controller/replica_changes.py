"""What is done when replicas enter a state. See `state_changes`."""

from collections.abc import Iterable
from typing import assert_never

from ottla.base.ids import NO_LEADER
from ottla.controller.replica_states import ReplicaState, is_legal
from ottla.controller.state_context import PartitionKey, ReplicaKey
from ottla.controller.state_rounds import Round
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.topics import PartitionImage


class ReplicaRound(Round):
    """One round of the replica state machine.

    Replicas of one partition are dealt with one after another, each on what the one before has
    made of the in-sync set.
    """

    def enter(self, replicas: Iterable[ReplicaKey], target: ReplicaState) -> None:
        """Move replicas to a state, broker by broker."""
        for replica in sorted(set(replicas)):
            source = self.draft.replica_state(replica)
            if not is_legal(source, target):
                self.refuse(
                    replica, f"no way from {source.kafka_name} to {target.kafka_name}", illegal=True
                )
            elif self._work(replica, source, target):
                self.draft.set_replica_state(replica, target)

    def _work(self, replica: ReplicaKey, source: ReplicaState, target: ReplicaState) -> bool:
        """Do what entering a state brings; return whether it can be entered."""
        match target:
            case ReplicaState.NEW:
                return self._begin(replica)
            case ReplicaState.ONLINE:
                self._online(replica, source)
            case ReplicaState.OFFLINE:
                return self._offline(replica)
            case ReplicaState.DELETION_STARTED:
                self._stop(replica, delete=True)
            case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.DELETION_INELIGIBLE:
                pass
            case ReplicaState.NON_EXISTENT:
                self._unassign(replica)
            case _:
                assert_never(target)
        return True

    # -- into each state -----------------------------------------------------------------------

    def _begin(self, replica: ReplicaKey) -> bool:
        partition = self.draft.leadership(replica.partition)
        if partition is None:
            return True  # Its first leader will tell it.
        if partition.leader == replica.broker_id:
            self.refuse(replica, "it leads the partition, so it cannot be new")
            return False
        self._tell((replica.broker_id,), replica.partition, partition, is_new=True)
        return True

    def _online(self, replica: ReplicaKey, source: ReplicaState) -> None:
        key = replica.partition
        if source is ReplicaState.NEW:
            partition = self.draft.partition(key)
            if partition is not None and replica.broker_id not in partition.replicas:
                self.draft.set_replicas(key, (*partition.replicas, replica.broker_id))
            return
        led = self.draft.leadership(key)
        if led is not None and not self.context.is_queued_for_deletion(key.topic):
            self._tell((replica.broker_id,), key, led, is_new=False)

    def _offline(self, replica: ReplicaKey) -> bool:
        key = replica.partition
        led = self.draft.leadership(key)
        if led is None:
            # Nobody ever led it, or its state is gone already: a deletion that a dead
            # controller left half done must not wait for it for ever (KAFKA-6650).
            self._stop(replica, delete=False)
            self.batch.add_update_metadata(
                self.context.live_or_shutting_down_ids(), (), written_by=self._epoch
            )
            return True
        if replica.broker_id in led.isr and self.is_another_controllers(key):
            self.refuse(
                replica,
                f"controller epoch {self.draft.written_by(key)} wrote the partition, this is "
                f"{self._epoch}",
            )
            return False
        self._stop(replica, delete=False)
        after = self._leave_isr(replica, led)
        if not self.context.is_queued_for_deletion(key.topic):
            others = [each for each in after.replicas if each != replica.broker_id]
            self._tell(others, key, after, is_new=False)
        return True

    def _leave_isr(self, replica: ReplicaKey, led: PartitionImage) -> PartitionImage:
        """Take a replica out of the in-sync set and the lead; return the partition after it."""
        broker_id = replica.broker_id
        if broker_id not in led.isr:
            return led
        # The last one stays listed: only it surely has every acknowledged record (KAFKA-708).
        isr = tuple(each for each in led.isr if each != broker_id) or led.isr
        leader = NO_LEADER if led.leader == broker_id else led.leader
        if (isr, leader) == (led.isr, led.leader):
            return led
        record = PartitionChangeRecord(
            partition_id=replica.number,
            topic_id=self.topic_id(replica.partition),
            isr=None if isr == led.isr else isr,
            leader=leader,  # Also where it is the same: the leader epoch must rise.
        )
        return self.change(replica.partition, led, record)

    def _unassign(self, replica: ReplicaKey) -> None:
        partition = self.draft.partition(replica.partition)
        if partition is not None and replica.broker_id in partition.replicas:
            left = tuple(each for each in partition.replicas if each != replica.broker_id)
            self.draft.set_replicas(replica.partition, left)

    # -- telling brokers -----------------------------------------------------------------------

    @property
    def _epoch(self) -> int:
        return self.context.controller_epoch

    def _stop(self, replica: ReplicaKey, *, delete: bool) -> None:
        partition = self.draft.partition(replica.partition)
        self.batch.add_stop_replica(
            (replica.broker_id,), replica.partition, partition, delete_partition=delete
        )

    def _tell(
        self, recipients: Iterable[int], key: PartitionKey, led: PartitionImage, *, is_new: bool
    ) -> None:
        self.batch.add_leader_and_isr(
            recipients, key, led, written_by=self.draft.written_by(key), is_new=is_new
        )
