"""Whatever happens, a leader has only such in-sync replicas as may lead after it.

Method: hypothesis plays brokers, leaders, administrators and controllers against the real deciders.
Decisions wait for their turn, and are made on the image of that moment. With none left, each
in-sync replica of a partition that is led is registered, and has joined as the process that is.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.elections.elections import elect_after_failover, elect_uncleanly
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.keys import PartitionKey
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.step import Step
from ottla.controller.zookeeper.broker_changes import process_broker_change, process_missed_restarts
from ottla.controller.zookeeper.controlled_shutdown import controlled_shutdown
from ottla.controller.zookeeper.offline_log_dirs import take_replicas_offline
from ottla.metadata.image import ClusterImage, PartitionImage
from tests.drawn import examples
from tests.unit.controller.builders import after
from tests.unit.controller.model_brokers import (
    a_broker,
    change,
    cluster_image,
    compare,
    context,
    led,
    of,
    topic,
    topic_id,
)

BROKERS = st.integers(1, 4)
SOME = st.sets(BROKERS, min_size=1, max_size=3)
PARTITIONS = st.integers(0, 3)

Decider = Callable[[ClusterImage], Step]


class IsrHistory(RuleBasedStateMachine):
    """Four brokers, and a topic whose partitions have three replicas, two and one.

    `joined`: the registration's epoch under which an in-sync replica joined, or was elected.
    """

    @initialize(unclean=st.booleans())
    def begin(self, unclean: bool) -> None:
        self.context = context({"unclean.leader.election.enable": str(unclean).lower()})
        partitions = led([1, 2, 3]), led([2, 3, 1]), led([3, 1]), led([1])
        self.image = cluster_image([1, 2, 3, 4], topic("t", *partitions))
        self.registered = dict(self.image.brokers.items())
        self.zxid = 1_000
        self.joined = {
            (partition_id, each): self.registered[each].epoch
            for partition_id, partition in enumerate(partitions)
            for each in partition.isr
        }
        self.undecided: deque[Decider] = deque()

    # -- brokers ---------------------------------------------------------------------------------

    @rule(broker_ids=SOME)
    def start(self, broker_ids: set[int]) -> None:
        for each in sorted(broker_ids):
            self.zxid += 1
            self.registered[each] = a_broker(each, self.zxid)

    @rule(broker_ids=SOME)
    def stop(self, broker_ids: set[int]) -> None:
        for each in broker_ids:
            self.registered.pop(each, None)

    @rule(partition_id=PARTITIONS, members=st.sets(BROKERS))
    def change_isr(self, partition_id: int, members: set[int]) -> None:
        """Let a leader say who is in sync: who is registered, as that process."""
        partition = of(self.image, "t", partition_id)
        leader = partition.leader
        broker = self.image.brokers.get(leader)
        if broker is None or self.joined[partition_id, leader] != broker.epoch:
            return
        epochs = {
            each: self.registered[each].epoch
            for each in sorted(members & set(partition.replicas) & self.registered.keys())
        }
        epochs[leader] = broker.epoch
        wanted = IsrChange(
            topic_id=topic_id("t"),
            partition_id=partition_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple(epochs.items()),
        )

        def decide(image: ClusterImage) -> Step:
            decided = alter_partition(
                image, [wanted], broker_id=leader, broker_epoch=broker.epoch, context=self.context
            )
            [result] = decided.reply
            if result.error in (Error.NONE, Error.NEW_LEADER_ELECTED):
                self.joined |= {(partition_id, each): epoch for each, epoch in epochs.items()}
            return decided.step

        self.undecided.append(decide)

    @rule(broker_id=BROKERS)
    def shut_down(self, broker_id: int) -> None:
        known = self.image.brokers.get(broker_id)
        if known is not None:
            config = self.context.config
            self.undecided.append(
                lambda image: controlled_shutdown(image, config, broker_id, known.epoch).step
            )

    @rule(broker_id=BROKERS, partition_id=PARTITIONS)
    def fail_a_log_dir(self, broker_id: int, partition_id: int) -> None:
        lost = [PartitionKey("t", partition_id)]
        config = self.context.config
        self.undecided.append(lambda image: take_replicas_offline(image, config, broker_id, lost))

    # -- administrators --------------------------------------------------------------------------

    @rule(partition_id=PARTITIONS, to=st.lists(BROKERS, max_size=3, unique=True))
    def reassign(self, partition_id: int, to: list[int]) -> None:
        wanted = [Target("t", partition_id, tuple(to) or None)]
        self.undecided.append(
            lambda image: (
                alter_reassignments(
                    image, wanted, may_change_factor=True, context=self.context
                ).step
            )
        )

    @rule(kind=st.sampled_from([0, 1]))
    def elect(self, kind: int) -> None:
        self.undecided.append(
            lambda image: elect_leaders(image, None, election_type=kind, context=self.context).step
        )

    # -- controllers -----------------------------------------------------------------------------

    @rule()
    def elect_by_itself(self) -> None:
        self.undecided.append(lambda image: balance(image, self.context.config).step)
        self.undecided.append(lambda image: elect_uncleanly(image, self.context.config).step)

    @rule()
    def look_at_brokers(self) -> None:
        observed = compare(self.image, self.registered)
        if observed:
            delta = change(self.image, observed)
            self.image = delta.image
            self.undecided.append(
                lambda image: process_broker_change(image, self.context.config, delta)
            )

    @rule(count=st.integers(1, 3))
    def decide(self, count: int) -> None:
        for _ in range(min(count, len(self.undecided))):
            decide = self.undecided.popleft()
            with suppress(ApiError):
                self._append(decide(self.image))

    @rule()
    def decide_all(self) -> None:
        self.decide(len(self.undecided))

    @rule()
    def fail_over(self) -> None:
        """What was not decided is lost; the next controller sees who restarted since."""
        self.undecided.clear()
        image = change(self.image, compare(self.image, self.registered)).image
        for broker in image.brokers.values():
            stays = replace(broker, in_controlled_shutdown=False)
            image = replace(image, brokers=image.brokers.set(broker.id, stays))
        self.image, config = image, self.context.config
        restarted = {
            ("t", partition_id): frozenset(
                each
                for each in {partition.leader, *partition.isr}
                if self._epoch(each) not in (None, self.joined.get((partition_id, each)))
            )
            for partition_id, partition in self._partitions()
        }
        since = {key: found for key, found in restarted.items() if found}
        self._append(process_missed_restarts(self.image, config, since))
        self._append(elect_after_failover(self.image, config))

    def _append(self, step: Step) -> None:
        before, self.image = self.image, after(self.image, step)
        for partition_id, partition in self._partitions():
            epoch = self._epoch(partition.leader)
            is_elected = partition.leader_epoch != of(before, "t", partition_id).leader_epoch
            if is_elected and epoch is not None:
                self.joined[partition_id, partition.leader] = epoch

    def _epoch(self, broker_id: int) -> int | None:
        """Return the epoch of a broker's registration as the controller knows it."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def _partitions(self) -> list[tuple[int, PartitionImage]]:
        found = self.image.topics.by_name("t")
        assert found is not None
        return list(found.in_order())

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def in_sync_replicas_are_the_processes_that_joined(self) -> None:
        if self.undecided:
            return
        for partition_id, partition in self._partitions():
            assert partition.leader in (*partition.isr, NO_LEADER)
            if partition.leader != NO_LEADER:
                registered = {each: self._epoch(each) for each in partition.isr}
                joined = {each: self.joined.get((partition_id, each)) for each in partition.isr}
                assert registered == joined


TestIsrHistories = IsrHistory.TestCase
TestIsrHistories.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)
