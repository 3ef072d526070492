"""What every back end of the metadata port keeps, whatever it is made of: one list of checks.

A `PortBench` is a back end with a controller's port in it; a check is a function of one. Histories
of real decisions are compared: the same ones give the same facts in memory, in a KRaft log and in
ZooKeeper. Then the answers that are no success: nothing half-done is served, nothing that was
acknowledged is lost, and a deposed controller writes nothing.

Left out of the comparison is what a back end is free in: brokers' epochs, directories' ids,
features, and the position.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Protocol, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.controller.disabling.acknowledgements import Acknowledgement, Given, missing
from ottla.controller.disabling.disabling_manager import finish_disabling
from ottla.controller.elections.leader_rebalance import balance
from ottla.controller.metadata_port import Committed, Fenced, MetadataPort
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.step import Decision, Step, refused
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.controller.zookeeper.broker_changes import process_broker_change
from ottla.host.controller.controller_runtime import ControllerRuntime
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.features import OTTLA_VERSION, TIERING
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    FeatureLevelRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import DisablePolicy, TieringState
from tests.unit.controller.builders import CountingDice, context

T = TypeVar("T")

TOPICS = ("a", "b.c", "d_e")
BROKERS = (1, 2, 3, 4)
SET = 0
REMOTE_STORAGE = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "memory://test",
}


class PortBench(Protocol):
    """A back end under test.

    Fields: `port`, `epoch`: of the controller that rules. `clock`: what it goes by.
            `has_other_writers`: somebody else than the controller may write, too.
    """

    port: MetadataPort
    epoch: int
    clock: Clock
    has_other_writers: bool

    def wait(self, pending: Pending[T]) -> T:
        """Let time pass until a promise is kept."""
        ...

    def set_brokers(self, live: Collection[int]) -> None:
        """Let just these brokers be there, and the image hold them."""
        ...

    def stored(self) -> ClusterImage:
        """Return what somebody who starts now finds."""
        ...

    def depose(self) -> None:
        """Let another controller rule. This one does not know."""
        ...

    def disturb(self, topic: str) -> None:
        """Let somebody else elect the leader of a topic's partition 0 once more, unseen."""
        ...

    def losing_answers(self) -> AbstractContextManager[None]:
        """Lose some of the answers, of what was written and of what was not."""
        ...


def broker_records(
    image: ClusterImage, live: Collection[int], next_epoch: Callable[[], int]
) -> list[Record]:
    """Return the records by which just these brokers are there, for benches without sessions."""
    gone = sorted(set(image.brokers) - set(live))
    records: list[Record] = [
        UnregisterBrokerRecord(broker_id=each, broker_epoch=image.brokers[each].epoch)
        for each in gone
    ]
    for broker_id in sorted(set(live) - set(image.brokers)):
        epoch = next_epoch()
        there = BrokerImage(
            id=broker_id,
            epoch=epoch,
            incarnation_id=Uuid(epoch.to_bytes(16, "big")),
            endpoints=(Endpoint("PLAINTEXT", "localhost", 9091 + broker_id),),
            fenced=False,
        )
        records.append(record_of(there))
    return records


# -- what is compared --------------------------------------------------------------------------


def facts(image: ClusterImage) -> dict[str, Any]:
    """Return what all back ends must agree on."""
    return {
        "brokers": {
            broker.id: (broker.endpoints, broker.rack, broker.active)
            for broker in image.brokers.values()
        },
        "topics": {
            topic.name: (topic.id, {n: _standing(each) for n, each in topic.partitions.items()})
            for topic in image.topics
        },
        "configs": {resource: dict(values) for resource, values in image.configs},
        "producer ids": image.producer_ids.next_producer_id,
        "tiering": dict(image.tiering),
    }


def _standing(partition: PartitionImage) -> tuple[Any, ...]:
    return (
        partition.replicas,
        partition.adding_replicas,
        partition.removing_replicas,
        partition.isr,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.leader_recovery_state,
    )


class ControllerTerm:
    """A controller on a bench: what it decides, and all deltas that listeners got."""

    def __init__(
        self, bench: PortBench, number: int = 0, properties: dict[str, str] | None = None
    ) -> None:
        self.bench = bench
        given = {"unclean.leader.election.enable": "true", **(properties or {})}
        self.context = context(given, CountingDice(number))
        self.heard: list[ClusterDelta] = []
        self.fenced = 0
        self.order: list[Any] = []
        self.runtime = ControllerRuntime(
            bench.port,
            epoch=bench.epoch,
            clock=bench.clock,
            on_fenced=self._fenced,
            on_effect=self.order.append,
        )
        self.runtime.subscribe(self.heard.append)

    def _fenced(self) -> None:
        self.fenced += 1

    @property
    def image(self) -> ClusterImage:
        return self.runtime.image

    def run(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Any:
        return self.bench.wait(self.runtime.run(decide))

    def run_noted(
        self, decide: Callable[[ClusterImage], Decision[Any]], **how: Any
    ) -> Pending[Any]:
        """Decide, without waiting; the answer is noted in `order`."""
        answer = self.runtime.run(decide, **how)
        answer.then(self.order.append)
        return answer

    def create(self, name: str, partitions: int = 2, factor: int = 2) -> Any:
        wanted = [NewTopic(name=name, partition_count=partitions, replication_factor=factor)]
        return self.run(
            lambda image: create_topics(image, wanted, validate_only=False, context=self.context)
        )

    def ids(self) -> Any:
        """Return the first of a block of producer ids."""

        def decide(image: ClusterImage) -> Decision[tuple[int, int]]:
            epoch = image.brokers[1].epoch
            return allocate_producer_ids(image, broker_id=1, broker_epoch=epoch)

        answer = self.run(decide)
        return answer if isinstance(answer, ApiError) else answer[0]

    def set_brokers(self, live: Collection[int]) -> None:
        """Let brokers come and go, with the elections that follow."""
        before = self.image
        self.bench.set_brokers(live)
        delta = delta_between(before, self.image)
        self.run(
            lambda image: Decision(process_broker_change(image, self.context.config, delta), None)
        )

    def alter(self, topic: str, number: int, isr: Collection[int]) -> Any:
        """Let a partition's leader say who is in sync."""
        found = self.image.topics.by_name(topic)
        assert found is not None
        partition = found.partitions[number]
        if partition.leader == NO_LEADER:
            return None
        listed = sorted({*isr, partition.leader} & set(self.image.brokers))
        change = IsrChange(
            topic_id=found.id,
            partition_id=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((each, self.image.brokers[each].epoch) for each in listed),
        )
        leader = self.image.brokers[partition.leader]
        return self.run(
            lambda image: alter_partition(
                image,
                [change],
                broker_id=leader.id,
                broker_epoch=leader.epoch,
                context=self.context,
            )
        )

    def check(self) -> None:
        """The image is what is stored, and listeners got each step that led to it."""
        assert facts(self.bench.stored()) == facts(self.image)
        for before, after in zip(self.heard, self.heard[1:], strict=False):
            assert after.before is before.image
        if self.heard:
            assert facts(self.heard[-1].image) == facts(self.image)


# -- histories ---------------------------------------------------------------------------------


class History(ControllerTerm):
    """Random decisions, the same ones for the same number."""

    def __init__(self, bench: PortBench, number: int) -> None:
        super().__init__(bench, number)
        self.random = Random(number)
        self.live = set(BROKERS)
        self.set_brokers(self.live)

    def play(self, moves: int) -> list[dict[str, Any]]:
        """Make so many moves; return the facts after each."""
        found = []
        for _ in range(moves):
            self.random.choice(self.MOVES)(self)
            found.append(facts(self.image))
        self.check()
        return found

    def _partition(self) -> tuple[str, int, PartitionImage] | None:
        keys = [(topic, n, each) for topic in self.image.topics for n, each in topic.in_order()]
        if not keys:
            return None
        topic, number, partition = self.random.choice(keys)
        return topic.name, number, partition

    def _create(self) -> None:
        name = self.random.choice(TOPICS)
        self.create(name, self.random.randint(1, 4), self.random.randint(1, 3))

    def _grow(self) -> None:
        wanted = [NewPartitions(name=self.random.choice(TOPICS), count=self.random.randint(2, 7))]
        self.run(
            lambda image: create_partitions(
                image, wanted, validate_only=False, context=self.context
            )
        )

    def _configure(self) -> None:
        value = self.random.choice([None, "1", "86400000"])
        resource = self.random.choice(
            [(ResourceType.TOPIC, self.random.choice(TOPICS)), (ResourceType.BROKER, "")]
        )
        name = "retention.ms" if resource[0] is ResourceType.TOPIC else "log.retention.ms"
        operation = SET if value is not None else 1
        change = Alteration((int(resource[0]), resource[1]), ((name, operation, value),))
        self.run(
            lambda image: alter_configs(
                image, [change], incremental=True, validate_only=False, context=self.context
            )
        )

    def _sync(self) -> None:
        found = self._partition()
        if found is not None:
            topic, number, partition = found
            some = [each for each in partition.replicas if self.random.random() < 0.7]
            self.alter(topic, number, some)

    def _reassign(self) -> None:
        found = self._partition()
        if found is None:
            return
        topic, number, _ = found
        factor = self.random.randint(1, 3)
        wanted = tuple(self.random.sample(BROKERS, factor)) if self.random.random() < 0.8 else None
        self.run(
            lambda image: alter_reassignments(
                image,
                [Target(topic, number, wanted)],
                may_change_factor=True,
                context=self.context,
            )
        )

    def _balance(self) -> None:
        self.run(lambda image: balance(image, self.context.config))

    def _take_ids(self) -> None:
        if 1 in self.live:
            self.ids()

    def _broker(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self.live ^= {broker_id}
        self.set_brokers(self.live)

    def _remove(self) -> None:
        def decide(image: ClusterImage) -> Decision[None]:
            topic = image.topics.by_name(name)
            gone = () if topic is None else (RemoveTopicRecord(topic_id=topic.id),)
            return Decision(Step(gone, atomic=False), None)

        name = self.random.choice(TOPICS)
        if self.random.random() < 0.3:
            self.run(decide)

    MOVES: tuple[Callable[["History"], None], ...] = (
        _create,
        _grow,
        _configure,
        _sync,
        _sync,
        _reassign,
        _balance,
        _take_ids,
        _broker,
        _remove,
    )


# -- checks ------------------------------------------------------------------------------------


def check_committed_facts_are_stored_and_told(bench: PortBench) -> None:
    """Committed: in the image, sent to brokers, and found by whoever starts next."""
    term = ControllerTerm(bench)
    term.set_brokers(BROKERS)
    (created,) = term.create("t")
    assert created.error is Error.NONE
    assert term.ids() == 0
    assert term.ids() == 1_000
    assert "t" in bench.stored().topics
    term.check()


def check_the_raw_answer_of_an_append(bench: PortBench) -> None:
    """An append passes on its deltas; another epoch's is fenced, and nothing of it is written."""
    bench.set_brokers(BROKERS)
    step = Step((ProducerIdsRecord(broker_id=1, next_producer_id=1_000),))
    notified: list[ClusterDelta] = []
    bench.port.subscribe(notified.append)
    answer = bench.wait(bench.port.append(step, bench.epoch))
    assert isinstance(answer, Committed)
    assert list(answer.deltas) == notified
    assert bench.port.image.producer_ids.next_producer_id == 1_000
    again = Step((ProducerIdsRecord(broker_id=1, next_producer_id=2_000),))
    assert isinstance(bench.wait(bench.port.append(again, bench.epoch + 7)), Fenced)
    assert bench.stored().producer_ids.next_producer_id == 1_000


def next_ids(image: ClusterImage) -> int:
    return image.producer_ids.next_producer_id


def taking(count: int) -> Callable[[ClusterImage], Decision[str]]:
    """Return a decider that takes so many producer ids, and says where they began."""

    def decide(image: ClusterImage) -> Decision[str]:
        first = next_ids(image)
        record = ProducerIdsRecord(broker_id=1, next_producer_id=first + count)
        return Decision(Step((record,), (f"effect of {first}",)), f"from {first}")

    return decide


def check_decisions_rest_on_those_before_and_are_answered_in_order(bench: PortBench) -> None:
    """Listeners, effects, answer: in this order, and in the order of the decisions."""
    term = ControllerTerm(bench)
    bench.set_brokers(BROKERS)
    term.runtime.subscribe(lambda delta: term.order.append(next_ids(delta.image)))
    answers = [term.run_noted(taking(10)) for _ in range(3)]
    if bench.port.is_pipelined:
        assert next_ids(bench.port.image) == 30
        assert next_ids(bench.port.committed_image) == 0
    for answer in answers:
        bench.wait(answer)
    assert term.order == [
        each
        for first in (0, 10, 20)
        for each in (first + 10, f"effect of {first}", f"from {first}")
    ]
    assert next_ids(bench.port.committed_image) == next_ids(bench.stored()) == 30


def check_a_decision_without_records_waits_for_what_it_saw(bench: PortBench) -> None:
    """It is answered at once, unless it rests on what is not committed yet."""
    term = ControllerTerm(bench)
    bench.set_brokers(BROKERS)
    assert term.runtime.run(lambda image: refused(next_ids(image))).value == 0
    term.run_noted(taking(10))
    read = term.run_noted(lambda image: refused(next_ids(image)))
    assert bench.wait(read) == 10
    assert term.order == ["effect of 0", "from 0", 10]


def check_what_raises_is_answered_and_writes_nothing(bench: PortBench) -> None:
    """A refusal, a bug of a decider, a deadline, and a listener that raises: others go on."""
    term = ControllerTerm(bench)
    bench.set_brokers(BROKERS)
    term.runtime.subscribe(lambda delta: 1 // 0)
    calls: list[ClusterDelta] = []
    term.runtime.subscribe(calls.append)

    def refuse(image: ClusterImage) -> Decision[None]:
        raise ApiError(Error.INVALID_REQUEST, "no")

    def fail(image: ClusterImage) -> Decision[None]:
        raise ZeroDivisionError

    now_ms = bench.clock.monotonic_ms()
    assert term.run(refuse).error is Error.INVALID_REQUEST
    assert term.run(fail).error is Error.UNKNOWN_SERVER_ERROR
    late = bench.wait(term.runtime.run(fail, deadline_ms=now_ms))
    assert late.error is Error.REQUEST_TIMED_OUT
    assert calls == []
    in_time = term.runtime.run(taking(10), deadline_ms=now_ms + 60_000)
    assert bench.wait(in_time) == "from 0"
    assert len(calls) == 1


def check_large_steps_that_may_be_cut_arrive_whole(bench: PortBench) -> None:
    """A step of many records that is not atomic is written in as many parts as it takes."""
    term = ControllerTerm(bench)
    term.set_brokers(BROKERS)
    (created,) = term.create("large", partitions=1_500, factor=3)
    assert created.error is Error.NONE
    topic = term.image.topics.by_name("large")
    assert topic is not None
    assert len(topic.partitions) == 1_500
    term.check()
    removed = RemoveTopicRecord(topic_id=topic.id)
    term.run(lambda image: Decision(Step((removed,), atomic=False), None))
    assert "large" not in term.image.topics
    term.check()


def check_a_tiering_state_is_stored_with_its_configuration(bench: PortBench) -> None:
    """Created with it, altered to it, removed with the topic, and another one of the name."""
    term = ControllerTerm(bench, properties=REMOTE_STORAGE)
    term.set_brokers(BROKERS)
    level = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=TIERING)
    term.run(lambda image: Decision(Step((level,)), None))
    wanted = [
        NewTopic(name="t", partition_count=700, configs=(("remote.storage.enable", "true"),)),
        NewTopic(name="u"),
    ]
    created = term.run(
        lambda image: create_topics(image, wanted, validate_only=False, context=term.context)
    )
    assert {each.error for each in created} == {Error.NONE}
    change = Alteration((2, "u"), (("remote.storage.enable", SET, "true"),))
    term.run(
        lambda image: alter_configs(
            image, [change], incremental=True, validate_only=False, context=term.context
        )
    )
    assert {each.tiered_epoch for each in bench.stored().tiering.values()} == {1}
    assert len(bench.stored().tiering) == 2
    term.check()
    former = term.image.topics.id_of("t")
    assert former is not None
    removed = RemoveTopicRecord(topic_id=former)
    term.run(lambda image: Decision(Step((removed,), atomic=False), None))
    assert len(bench.stored().tiering) == 1
    term.create("t")
    assert len(bench.stored().tiering) == 1
    term.check()


def check_tiered_storage_is_disabled_and_enabled_again(bench: PortBench) -> None:
    """Each change is stored once and whole, also where answers are lost."""
    term = ControllerTerm(bench, properties=REMOTE_STORAGE)
    term.set_brokers(BROKERS)
    level = FeatureLevelRecord(name=OTTLA_VERSION, feature_level=TIERING)
    term.run(lambda image: Decision(Step((level,)), None))
    names = ("t", "u")
    for name in names:
        term.create(name, partitions=3)
    kept, given_up = "remote.log.disable.policy=retain", "remote.log.disable.policy=delete"
    on, off = "remote.storage.enable=true", "remote.storage.enable=false"
    expected = [
        ((on,), (1, TieringState.ENABLED, DisablePolicy.NONE, 0, False)),
        ((kept, off), (2, TieringState.DISABLING, DisablePolicy.RETAIN, 0, False)),
        ((), (2, TieringState.DISABLED, DisablePolicy.RETAIN, 0, False)),
        ((given_up,), (3, TieringState.DISABLING, DisablePolicy.DELETE, 2, True)),
        ((), (3, TieringState.DISABLED, DisablePolicy.DELETE, 2, True)),
        ((on,), (4, TieringState.ENABLED, DisablePolicy.NONE, 2, True)),
        ((off,), (5, TieringState.DISABLING, DisablePolicy.DELETE, 4, True)),
        ((), (5, TieringState.DISABLED, DisablePolicy.DELETE, 4, True)),
    ]
    for changes, state in expected:
        with bench.losing_answers():
            _change_tiering(term, names, changes)
        for name in names:
            topic_id = bench.stored().topics.id_of(name)
            assert topic_id is not None
            stored = bench.stored().tiering[topic_id]
            assert state == (
                stored.tiered_epoch,
                stored.state,
                stored.policy,
                stored.remote_floor_epoch,
                stored.purge_pending,
            )
            values = bench.stored().configs.of(2, name)
            assert {f"{key}={value}" for key, value in values.items()} >= set(changes)
        term.check()


def _change_tiering(term: ControllerTerm, names: Collection[str], changes: Collection[str]) -> None:
    """Alter configurations; without changes have the topics' last acknowledgements come."""
    if not changes:
        term.run(lambda image: finish_disabling(image, _acknowledged_by_all(image)))
        return
    pairs = [each.split("=") for each in changes]
    altered = [Alteration((2, name), tuple((k, SET, v) for k, v in pairs)) for name in names]
    results = term.run(
        lambda image: alter_configs(
            image, altered, incremental=True, validate_only=False, context=term.context
        )
    )
    assert {each.error for each in results} == {Error.NONE}


def _acknowledged_by_all(image: ClusterImage) -> dict[Uuid, Given]:
    found = {}
    for tiering in image.tiering.values():
        rows = {
            (each.partition, each.broker_id): Acknowledgement(
                image.brokers[each.broker_id].epoch, each.leader_epoch, each.is_leader
            )
            for each in missing(image, tiering, {})
            if each.broker_id in image.brokers
        }
        found[tiering.topic_id] = Given(tiered_epoch=tiering.tiered_epoch, acknowledgements=rows)
    return found


def check_kafka_1096_a_deposed_controller_writes_nothing(bench: PortBench) -> None:
    """Fenced: whatever it decides, the answer is fenced and the facts stay as they are."""
    term = ControllerTerm(bench)
    term.set_brokers(BROKERS)
    term.create("before")
    before = facts(bench.stored())
    bench.depose()
    decisions = [
        lambda: term.create("zombie"),
        term.ids,
        lambda: term.alter("before", 0, []),
    ]
    for decide in decisions:
        answer = decide()
        assert isinstance(answer, ApiError)
        assert answer.error is Error.NOT_CONTROLLER
    assert term.fenced == 1
    assert not term.runtime.active
    assert facts(bench.stored()) == before


def check_a_conflict_is_decided_again_on_what_is_stored(bench: PortBench) -> None:
    """Conflict: what somebody else wrote is kept, and the decision rests on it."""
    if not bench.has_other_writers:
        return
    term = ControllerTerm(bench)
    term.set_brokers(BROKERS)
    term.create("t", partitions=1, factor=3)
    topic = term.image.topics.by_name("t")
    assert topic is not None
    before = topic.partitions[0]
    seen: list[int] = []

    def decide(image: ClusterImage) -> Decision[None]:
        found = image.topics.by_name("t")
        assert found is not None
        seen.append(found.partitions[0].leader_epoch)
        targets = [Target("t", 0, (4, 3))]
        return alter_reassignments(image, targets, may_change_factor=True, context=term.context)  # type: ignore[return-value]

    bench.disturb("t")
    term.run(decide)
    assert seen == [before.leader_epoch, before.leader_epoch + 1]
    topic = term.image.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[0].adding_replicas == (4,) or 4 in topic.partitions[0].replicas
    assert topic.partitions[0].leader_epoch >= before.leader_epoch + 1
    term.check()


def check_lost_answers_lose_nothing_and_do_nothing_twice(bench: PortBench) -> None:
    """Unknown: no block of ids is given twice, and what was acknowledged is there."""
    term = ControllerTerm(bench)
    term.set_brokers(BROKERS)
    with bench.losing_answers():
        given = [term.ids() for _ in range(25)]
        created = [term.create(f"t{number}") for number in range(10)]
    firsts = [each for each in given if not isinstance(each, ApiError)]
    assert firsts == sorted(set(firsts))
    assert term.image.producer_ids.next_producer_id >= max(firsts, default=0) + 1_000
    for number, answer in enumerate(created):
        if not isinstance(answer, ApiError):
            (topic,) = answer
            assert topic.error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)
            assert f"t{number}" in bench.stored().topics
    term.check()


CHECKS: tuple[Callable[[PortBench], None], ...] = (
    check_committed_facts_are_stored_and_told,
    check_the_raw_answer_of_an_append,
    check_decisions_rest_on_those_before_and_are_answered_in_order,
    check_a_decision_without_records_waits_for_what_it_saw,
    check_what_raises_is_answered_and_writes_nothing,
    check_large_steps_that_may_be_cut_arrive_whole,
    check_a_tiering_state_is_stored_with_its_configuration,
    check_tiered_storage_is_disabled_and_enabled_again,
    check_kafka_1096_a_deposed_controller_writes_nothing,
    check_a_conflict_is_decided_again_on_what_is_stored,
    check_lost_answers_lose_nothing_and_do_nothing_twice,
)
