"""Brokers crash, lose power, return, leave; ISRs change: no election loses what was acknowledged.

Method: hypothesis plays brokers, leaders and administrators against the deciders, with a model of
what each replica holds (`written_data`). Brokers lose power only while eligible leader replicas are
on, which promise to survive it; the histories without them know kills alone, after which all that
was written is still there. Rules hold after each decision, the data once a leader serves.
"""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER
from ottla.controller.activation import MIN_ISR
from ottla.controller.brokers.brokers import NO_BROKER_EPOCH, fence_stalest
from ottla.controller.brokers.unregister import unregister_broker
from ottla.controller.elections.elections import elect_after_failover, elect_uncleanly
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.topics.configs import UNCLEAN, Alteration, alter_configs
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.features import ELR_VERSION, METADATA_VERSION, elr_enabled
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord
from ottla.metadata.topic_config import effective_topic_value
from ottla.metadata.topics import RECOVERED, RECOVERING
from tests.drawn import examples
from tests.unit.controller.builders import SESSION_MS
from tests.unit.controller.history import History
from tests.unit.controller.written_data import Key, WrittenData, partitions

BROKERS = st.integers(1, 4)
PARTITIONS = st.sampled_from([("t", 0), ("t", 1), ("u", 0), ("v", 0)])
SET, DELETE = 0, 1


class Elections(RuleBasedStateMachine, History):
    """Four brokers and three topics: of three, two and one replicas."""

    @initialize(partition_id=st.integers(0, 9), elr=st.booleans(), min_isr=st.integers(1, 2))
    def begin(self, partition_id: int, elr: bool, min_isr: int) -> None:
        History.__init__(self, partition_id)
        self.data = WrittenData()
        self.epochs: dict[int, int] = {}
        self.kept: set[int] = set()
        self.append(
            FeatureLevelRecord(name=METADATA_VERSION, feature_level=25),
            FeatureLevelRecord(name=ELR_VERSION, feature_level=int(elr)),
            ConfigRecord(resource_type=4, resource_name="", name=MIN_ISR, value=str(min_isr)),
        )
        for broker_id in (1, 2, 3, 4):
            self._start(broker_id, NO_BROKER_EPOCH)
            self.beat_once(broker_id)
        wanted = [
            NewTopic(name="t", partition_count=2, replication_factor=3),
            NewTopic(name="u", partition_count=1, replication_factor=2),
            NewTopic(name="v", partition_count=1, replication_factor=1),
        ]
        self.take(create_topics(self.image, wanted, validate_only=False, context=self.context))
        self.seen = self.image

    # -- the data --------------------------------------------------------------------------------

    def _key(self, where: tuple[str, int]) -> tuple[Key, PartitionImage]:
        topic = self.image.topics.by_name(where[0])
        assert topic is not None
        return (topic.id, where[1]), topic.partitions[where[1]]

    def _min_isr(self, topic: str) -> int:
        found: int = effective_topic_value(self.image, self.context.config, topic, MIN_ISR)
        return found

    @rule(where=PARTITIONS)
    def all_catch_up(self, where: tuple[str, int]) -> None:
        _, partition = self._key(where)
        running = [each for each in partition.replicas if each not in self.data.down]
        self._alter(where, {*partition.isr, *running}, epochs_known=True)

    @rule(where=PARTITIONS, broker_id=BROKERS, epochs_known=st.booleans())
    def one_falls_behind(self, where: tuple[str, int], broker_id: int, epochs_known: bool) -> None:
        _, partition = self._key(where)
        self._alter(where, set(partition.isr) - {broker_id}, epochs_known)

    def _alter(self, where: tuple[str, int], wanted: set[int], epochs_known: bool) -> None:
        key, partition = self._key(where)
        leader = partition.leader
        if leader == NO_LEADER or leader in self.data.down:
            return
        wanted.add(leader)
        self.data.catch_up(key, leader, sorted(wanted - set(partition.isr)))
        change = IsrChange(
            topic_id=key[0],
            partition_id=key[1],
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((each, self.epochs[each] if epochs_known else -1) for each in sorted(wanted)),
            recovery_state=RECOVERED,
        )
        with suppress(ApiError):  # A leader that was unregistered knows it by its next heartbeat.
            [result] = self.take(
                alter_partition(
                    self.image,
                    [change],
                    broker_id=leader,
                    broker_epoch=self.epochs[leader],
                    context=self.context,
                )
            )
            assert result.error in (Error.NONE, Error.INELIGIBLE_REPLICA, Error.NEW_LEADER_ELECTED)

    # -- the brokers -----------------------------------------------------------------------------

    def _start(self, broker_id: int, previous_epoch: int) -> None:
        if self.register_process(broker_id, previous_epoch):
            self.epochs[broker_id] = self.image.position[0]
            self.data.down.discard(broker_id)

    @rule(broker_id=BROKERS, noticed=st.booleans())
    def kill(self, broker_id: int, noticed: bool) -> None:
        if broker_id not in self.data.down:
            self.data.stop(broker_id, loses_all=False)
            self.kept.add(broker_id)
        self._pass_session(noticed)

    @precondition(lambda self: elr_enabled(self.image.features))
    @rule(broker_id=BROKERS, noticed=st.booleans())
    def lose_power(self, broker_id: int, noticed: bool) -> None:
        self.data.stop(broker_id, loses_all=True)
        self.kept.discard(broker_id)
        self._pass_session(noticed)

    def _pass_session(self, noticed: bool) -> None:
        """Let the sessions of all that are down end, and the controller see that, or not yet."""
        if noticed:
            self.wait(SESSION_MS)
            for _ in self.data.down:
                self.fence()

    @rule(broker_id=BROKERS, remembers=st.booleans(), serves=st.booleans(), at_once=st.booleans())
    def start(self, broker_id: int, remembers: bool, serves: bool, at_once: bool) -> None:
        if broker_id not in self.data.down and broker_id in self.image.brokers:
            return
        if not at_once:
            self.wait(SESSION_MS)
        known = self.epochs[broker_id]
        # Who lost its memory may still have a note of a stop that was clean, of an older life.
        self._start(broker_id, known if broker_id in self.kept and remembers else known - 1)
        if serves and broker_id not in self.data.down:
            self.beat_once(broker_id)

    @rule(broker_id=BROKERS, fence=st.booleans())
    def beat(self, broker_id: int, fence: bool) -> None:
        if broker_id not in self.data.down:
            self.beat_once(broker_id, fence=fence)

    @rule(broker_id=BROKERS)
    def stop(self, broker_id: int) -> None:
        if broker_id not in self.data.down:
            reply = self.beat_once(broker_id, stop=True)
            if reply is not None and reply.should_shut_down:
                self.kill(broker_id, noticed=False)

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.take(unregister_broker(self.image, broker_id, context=self.context))

    # -- the controller --------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for broker_id in (1, 2, 3, 4):
            if broker_id not in self.data.down:
                self.context.liveness.touch(broker_id, self.now_ms)

    @rule()
    def fence(self) -> None:
        self.take(fence_stalest(self.image, self.context, self.now_ms).step)

    @rule()
    def fail_over(self) -> None:
        self.context.liveness.activate(self.image, self.now_ms)
        self.take(elect_after_failover(self.image, self.context.config))

    @rule(election_type=st.sampled_from([0, 0, 1]))
    def elect(self, election_type: int) -> None:
        self.take(
            elect_leaders(self.image, None, election_type=election_type, context=self.context)
        )

    @rule()
    def balance_leaders(self) -> None:
        self.take(balance(self.image, self.context.config))

    @rule()
    def elect_where_allowed(self) -> None:
        self.take(elect_uncleanly(self.image, self.context.config))

    @rule(
        name=st.sampled_from([MIN_ISR, MIN_ISR, UNCLEAN]),
        topic=st.sampled_from(["t", "u", "v", None]),
        value=st.integers(1, 3),
        operation=st.sampled_from([SET, DELETE]),
    )
    def configure(self, name: str, topic: str | None, value: int, operation: int) -> None:
        text = str(value) if name == MIN_ISR else str(value == 1).lower()
        change = (name, operation, text if operation == SET else None)
        resource = (4, "") if topic is None else (2, topic)
        self.take(
            alter_configs(
                self.image,
                [Alteration(resource, (change,))],
                incremental=True,
                validate_only=False,
                context=self.context,
            )
        )

    @rule(where=PARTITIONS, replicas=st.lists(BROKERS, max_size=3, unique=True))
    def reassign(self, where: tuple[str, int], replicas: list[int]) -> None:
        target = Target(*where, tuple(replicas) or None)
        self.take(
            alter_reassignments(self.image, [target], may_change_factor=True, context=self.context)
        )

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def every_change_is_sound(self) -> None:
        for key, after in partitions(self.image):
            topic = self.seen.topics.by_id(key[0])
            assert topic is not None
            before = topic.partitions[key[1]]
            assert after.leader_epoch >= before.leader_epoch
            assert after.partition_epoch >= before.partition_epoch
            assert (after == before) == (after.partition_epoch == before.partition_epoch)
            moved = after.leader != before.leader
            assert not moved or after.leader_epoch > before.leader_epoch
            if moved and after.leader != NO_LEADER and after.leader_recovery_state == RECOVERED:
                safe = {*before.isr, *before.elr, *after.isr}
                assert after.leader in safe
        self.data.follow(self.seen, self.image)
        self.seen = self.image
        self.data.check(self.image)
        for topic in self.image.topics:
            for partition_id in topic.partitions:
                where = (topic.name, partition_id)
                self.data.write(*self._key(where), self._min_isr(topic.name))

    @invariant()
    def every_partition_is_sound(self) -> None:
        elr = elr_enabled(self.image.features)
        for topic in self.image.topics:
            for _, partition in topic.in_order():
                _check(self.image, partition, self._min_isr(topic.name), elr)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_log()


def _check(image: ClusterImage, partition: PartitionImage, min_isr: int, elr: bool) -> None:
    replicas, isr = set(partition.replicas), set(partition.isr)
    assert isr <= replicas
    assert set(partition.elr) <= replicas
    assert not isr & set(partition.elr)
    assert partition.leader in (*isr, NO_LEADER)
    assert isr or elr
    assert elr or not (partition.elr or partition.last_known_elr)
    assert len(isr) < min(min_isr, len(replicas)) or not partition.elr
    assert partition.leader_recovery_state in (RECOVERED, RECOVERING)
    active = {each for each in replicas if image.is_active(each)}
    if partition.leader == NO_LEADER:
        # Nobody who may lead is left without.
        assert not isr & active
        assert isr or not set(partition.elr) & active
        lost = not isr and not partition.elr and len(partition.last_known_elr) == 1
        assert not lost or not set(partition.last_known_elr) & active
    else:
        assert partition.leader in active
        assert not partition.last_known_elr
        assert isr <= active


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
