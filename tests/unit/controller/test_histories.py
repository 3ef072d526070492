"""After any requests in any order, the image is sound and the log replays to it.

Method: hypothesis plays administrators and brokers against the deciders; after each decision the
invariants hold, and at the end a second replica that replays the log, and a third one that
loads a snapshot, have the same image.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.base.ids import NO_LEADER
from ottla.controller.brokers.brokers import fence_stalest
from ottla.controller.brokers.unregister import unregister_broker
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from tests.drawn import examples

from .builders import SESSION_MS
from .history import History

IDS = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b", "a.b", "a_b", "__consumer_offsets"])
COUNTS = st.integers(-1, 4)


class Histories(RuleBasedStateMachine, History):
    """A controller, its log, and time that passes."""

    @initialize(number=st.integers(0, 9))
    def begin(self, number: int) -> None:
        History.__init__(self, number)
        for broker_id in (1, 2):
            self.register_process(broker_id)
            self.beat_once(broker_id)

    @rule(
        names=st.lists(NAMES, max_size=3),
        count=COUNTS,
        factor=st.integers(-1, 3),
        validate_only=st.booleans(),
    )
    def create(self, names: list[str], count: int, factor: int, validate_only: bool) -> None:
        wanted = [
            NewTopic(
                name=name,
                partition_count=count,
                replication_factor=factor,
                configs=(("retention.ms", "5"),),
            )
            for name in names
        ]
        self.take(
            create_topics(self.image, wanted, validate_only=validate_only, context=self.context)
        )

    @rule(names=st.lists(NAMES, max_size=3), by_id=st.booleans())
    def delete(self, names: list[str], by_id: bool) -> None:
        wanted = [TopicReference(name) for name in names]
        if by_id:
            found = [self.image.topics.id_of(name) for name in names]
            wanted = [TopicReference(None, each) for each in found if each is not None]
        self.take(delete_topics(self.image, wanted, context=self.context, wall_ms=1_000))

    @rule(name=NAMES, count=COUNTS)
    def grow(self, name: str, count: int) -> None:
        wanted = [NewPartitions(name, count)]
        self.take(create_partitions(self.image, wanted, validate_only=False, context=self.context))

    @rule(
        name=NAMES,
        operation=st.integers(0, 3),
        config=st.sampled_from(["cleanup.policy", "retention.ms"]),
        value=st.sampled_from(["compact", "delete", "7"]),
        incremental=st.booleans(),
    )
    def alter(self, name: str, operation: int, config: str, value: str, incremental: bool) -> None:
        changes = ((config, operation if incremental else 0, value),)
        self.take(
            alter_configs(
                self.image,
                [Alteration((2, name), changes)],
                incremental=incremental,
                validate_only=False,
                context=self.context,
            )
        )

    @rule(broker_id=IDS)
    def register(self, broker_id: int) -> None:
        self.register_process(broker_id)

    @rule(broker_id=IDS, fence=st.booleans(), stop=st.booleans())
    def beat(self, broker_id: int, fence: bool, stop: bool) -> None:
        self.beat_once(broker_id, fence=fence, stop=stop)

    @rule(broker_id=IDS)
    def unregister(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.take(unregister_broker(self.image, broker_id, context=self.context))

    @rule(broker_id=IDS)
    def allocate(self, broker_id: int) -> None:
        found = self.image.brokers.get(broker_id)
        if found is not None:
            before = self.image.producer_ids.next_producer_id
            first, _ = self.take(
                allocate_producer_ids(self.image, broker_id=broker_id, broker_epoch=found.epoch)
            )
            assert first == before < self.image.producer_ids.next_producer_id

    @rule(ms=st.integers(0, 2 * SESSION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.take(fence_stalest(self.image, self.context, self.now_ms))

    @rule()
    def failover(self) -> None:
        self.context.liveness.activate(self.image, self.now_ms)

    @invariant()
    def leaders_are_active_members_of_their_isr(self) -> None:
        for topic in self.image.topics:
            assert [number for number, _ in topic.in_order()] == list(range(len(topic.partitions)))
            for _, partition in topic.in_order():
                assert partition.isr
                assert set(partition.isr) <= set(partition.replicas)
                assert len(partition.directories) == len(partition.replicas)
                active = [each for each in partition.isr if self.image.is_active(each)]
                if partition.leader == NO_LEADER:
                    assert not active
                else:
                    assert partition.leader in active

    @invariant()
    def only_existing_topics_have_configs(self) -> None:
        for resource_type, name in self.image.configs.resources():
            assert resource_type == 4 or name in self.image.topics

    @invariant()
    def no_two_topics_collide_in_metrics(self) -> None:
        names = [topic.name.replace(".", "_") for topic in self.image.topics]
        assert len(set(names)) == len(names)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check_log()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
