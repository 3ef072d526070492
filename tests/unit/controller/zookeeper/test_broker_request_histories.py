"""Whatever happens, brokers know by requests alone what the controller's image says.

Method: hypothesis plays brokers, administrators, tools and controllers against the real deciders.
Each delta is sent to model brokers (`model_brokers.ModelBroker`) that know nothing else; after each
one all of them must hold the brokers, the leaders, the ISRs and what they host as the controller
has it. Brokers that died and came back know nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.base.ids import NO_EPOCH, NO_LEADER
from ottla.controller.elections.elections import elect_after_failover, elect_uncleanly
from ottla.controller.elections.leader_rebalance import balance, elect_leaders
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.keys import PartitionKey
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.step import Decision, Step
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.controller.zookeeper.broker_changes import process_broker_change
from ottla.controller.zookeeper.broker_requests import delta_batch, full_batch, live_brokers_batch
from ottla.controller.zookeeper.controlled_shutdown import controlled_shutdown
from ottla.controller.zookeeper.offline_log_dirs import take_replicas_offline
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.metadata.brokers import BrokerImage
from ottla.metadata.deletions import (
    STARTED,
    DeletionImage,
    Policy,
    header_record,
    replicas_record,
)
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
)
from ottla.metadata.topics import DIRECTORY_MIGRATING, topic_records
from tests.drawn import examples
from tests.unit.controller.model_brokers import (
    ModelBroker,
    a_broker,
    change,
    compare,
    context,
    never_led,
    sent,
    topic,
    topic_id,
    view,
)

BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(["t", "u"])
NUMBERS = st.integers(0, 1)


def unplaced(record: Record) -> Record:
    """Return a record as ZooKeeper keeps it: without the log directory that a broker chose."""
    if isinstance(record, PartitionRecord) and record.partition_epoch <= 0:
        return replace(record, directories=(DIRECTORY_MIGRATING,) * len(record.replicas))
    if isinstance(record, PartitionChangeRecord):
        return replace(record, directories=None)
    return record


class Process(Protocol):
    """One process of a broker."""

    epoch: int

    def receive(self, sent_one: BrokerRequest) -> None:
        """Take a request."""
        ...

    def check(self, image: ClusterImage) -> None:
        """Compare with what the controller knows."""
        ...


class RequestHistory(RuleBasedStateMachine):
    """Four brokers, two topics; brokers' registrations are what ZooKeeper holds.

    Another kind of broker may stand in for the model of one: `process` makes it, of an id, an
    epoch and what it finds stored when it starts.
    """

    process: Callable[[int, int, ClusterImage], Process] = ModelBroker.knowing_nothing

    @initialize(partition_id=st.integers(0, 9), unclean=st.booleans())
    def begin(self, partition_id: int, unclean: bool) -> None:
        self.context = context({"unclean.leader.election.enable": str(unclean).lower()})
        self.image: ClusterImage = EMPTY
        self.zxid = 100
        self.written = 0
        self.controller_epoch = 5
        self.registered: dict[int, BrokerImage] = {}
        self.processes: dict[int, Process] = {}
        for broker_id in (1, 2, 3):
            self._start(broker_id)
        self.look_at_brokers(apart=False)
        for name in ("t", "u"):
            self.create(name, 3 if name == "t" else 2)

    # -- requests for what is written ----------------------------------------------------------

    def take(self, decided: Decision[Any] | Step, *, apart: bool = False) -> Any:
        """Write a decision, as a whole or record by record, and send the requests."""
        step = decided.step if isinstance(decided, Decision) else decided
        parts = [[each] for each in step.records] if apart and not step.atomic else [step.records]
        for part in parts:
            self.append(*part)
        return decided.reply if isinstance(decided, Decision) else None

    def append(self, *records: Record) -> ClusterDelta | None:
        if not records:
            return None
        delta = change(self.image, map(unplaced, records))
        self._tell(delta)
        return delta

    def _tell(self, delta: ClusterDelta) -> None:
        self.image = delta.image
        seen = view(self.image, self.controller_epoch)
        self._deliver(sent(delta_batch(seen, delta), seen))

    def _deliver(self, requests: list[Any]) -> None:
        for each in requests:
            process = self.processes.get(each.broker_id)
            if process is not None:
                process.receive(each)

    # -- brokers -------------------------------------------------------------------------------

    def _start(self, broker_id: int) -> None:
        self.zxid += 1
        self.registered[broker_id] = a_broker(broker_id, self.zxid)
        self.processes[broker_id] = type(self).process(broker_id, self.zxid, self.image)

    @rule(broker_id=BROKERS)
    def start(self, broker_id: int) -> None:
        self._start(broker_id)

    @rule(broker_id=BROKERS)
    def stop(self, broker_id: int) -> None:
        if len(self.registered) > 1:
            self.registered.pop(broker_id, None)
            self.processes.pop(broker_id, None)

    @rule(broker_id=BROKERS, port=st.integers(9092, 9094))
    def move_to_another_port(self, broker_id: int, port: int) -> None:
        there = self.registered.get(broker_id)
        if there is not None:
            endpoint = replace(there.endpoints[0], port=port)
            self.registered[broker_id] = replace(there, endpoints=(endpoint,))

    @rule(apart=st.booleans())
    def look_at_brokers(self, apart: bool) -> None:
        delta = self.append(*compare(self.image, self.registered))
        assert compare(self.image, self.registered) == []
        if delta is not None:
            self.take(process_broker_change(self.image, self.context.config, delta), apart=apart)
            self.take(bring_online(self.image, self.context.config))

    @rule(broker_id=BROKERS, apart=st.booleans())
    def ask_to_go(self, broker_id: int, apart: bool) -> None:
        known = self.image.brokers.get(broker_id)
        if known is None:
            return
        decided = controlled_shutdown(self.image, self.context.config, broker_id, known.epoch)
        remaining = self.take(decided, apart=apart)
        for key in remaining:
            found = self.image.topics.by_name(key.topic)
            assert found is not None
            assert found.partitions[key.partition].leader == broker_id

    @rule(broker_id=BROKERS, name=TOPICS, partition_id=NUMBERS)
    def fail_a_log_dir(self, broker_id: int, name: str, partition_id: int) -> None:
        key = PartitionKey(name, partition_id)
        self.take(take_replicas_offline(self.image, self.context.config, broker_id, [key]))

    # -- controllers ---------------------------------------------------------------------------

    @rule()
    def fail_over(self) -> None:
        """Soft state of the last controller is lost; the next one sends what it did not."""
        self.controller_epoch += 1
        records = list(compare(self.image, self.registered))
        fresh = change(self.image, records).image if records else self.image
        for broker in fresh.brokers.values():
            if broker.in_controlled_shutdown:
                stays = replace(broker, in_controlled_shutdown=False)
                fresh = replace(fresh, brokers=fresh.brokers.set(broker.id, stays))
        self.image = fresh
        first = live_brokers_batch(view(self.image, self.controller_epoch))
        self._deliver(sent(first, view(self.image, self.controller_epoch)))
        self.take(elect_after_failover(self.image, self.context.config))
        self.take(bring_online(self.image, self.context.config))
        seen = view(self.image, self.controller_epoch)
        self._deliver(sent(full_batch(seen), seen))

    @rule()
    def read_everything_anew(self) -> None:
        """Nothing changed: nothing is sent."""
        delta = delta_between(self.image, self.image)
        assert not delta_batch(view(self.image, self.controller_epoch), delta)

    # -- topics --------------------------------------------------------------------------------

    def create(self, name: str, factor: int) -> None:
        wanted = NewTopic(name=name, partition_count=1, replication_factor=factor)
        self.take(create_topics(self.image, [wanted], validate_only=False, context=self.context))

    @rule(name=TOPICS, factor=st.integers(1, 3))
    def make(self, name: str, factor: int) -> None:
        if name not in self.image.topics:
            self.create(name, factor)

    @rule(name=TOPICS, replicas=st.lists(BROKERS, min_size=1, max_size=3, unique=True))
    def write_a_topic_by_hand(self, name: str, replicas: list[int]) -> None:
        if name not in self.image.topics:
            self.written += 1
            bare = topic(name, never_led(*replicas), never_led(*replicas))
            self.append(*topic_records(replace(bare, id=topic_id(f"by-hand-{self.written}"))))
            self.take(bring_online(self.image, self.context.config))

    @rule(name=TOPICS, count=st.integers(1, 2))
    def grow(self, name: str, count: int) -> None:
        wanted = [NewPartitions(name, count)]
        self.take(create_partitions(self.image, wanted, validate_only=False, context=self.context))

    @rule(name=TOPICS)
    def begin_to_delete(self, name: str) -> None:
        found = self.image.topics.by_name(name)
        if found is None or self.image.deletions.of(found.id) is not None:
            return
        asked = DeletionImage(topic_id=found.id, name=name, policy=Policy.CLASSIC, asked_ms=1)
        self.append(header_record(asked))
        self.append(replicas_record(found.id, 1, STARTED, list(found.partitions)))

    @rule(name=TOPICS)
    def end_deleting(self, name: str) -> None:
        found = self.image.topics.by_name(name)
        deletion = None if found is None else self.image.deletions.of(found.id)
        if found is not None and deletion is not None and self._have_all_heard(found):
            done = header_record(replace(deletion, finished_ms=2))
            self.append(RemoveTopicRecord(topic_id=found.id), done)

    def _have_all_heard(self, found: TopicImage) -> bool:
        """Tell whether everybody who runs and holds a replica can have confirmed its end."""
        holders = {each for partition in found.partitions.values() for each in partition.replicas}
        return all(
            broker_id in self.image.brokers
            and self.image.brokers[broker_id].epoch == self.processes[broker_id].epoch
            for broker_id in holders & self.processes.keys()
        )

    # -- partitions ----------------------------------------------------------------------------

    def _partition(self, name: str, partition_id: int) -> PartitionImage | None:
        found = self.image.topics.by_name(name)
        if found is None or self.image.deletions.is_being_deleted(found.id):
            return None
        return found.partitions.get(partition_id)

    @rule(name=TOPICS, partition_id=NUMBERS, isr=st.lists(BROKERS, max_size=4, unique=True))
    def change_isr(self, name: str, partition_id: int, isr: list[int]) -> None:
        partition = self._partition(name, partition_id)
        if partition is None or partition.leader not in self.image.brokers:
            return
        leader = self.image.brokers[partition.leader]
        members = {leader.id, *isr} & set(partition.replicas)
        found = self.image.topics.by_name(name)
        assert found is not None
        wanted = IsrChange(
            topic_id=found.id,
            partition_id=partition_id,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=tuple((each, -1) for each in sorted(members)),
        )
        self.take(
            alter_partition(
                self.image,
                [wanted],
                broker_id=leader.id,
                broker_epoch=leader.epoch,
                context=self.context,
            )
        )

    @rule(name=TOPICS, partition_id=NUMBERS, to=st.lists(BROKERS, max_size=3, unique=True))
    def reassign(self, name: str, partition_id: int, to: list[int]) -> None:
        if self._partition(name, partition_id) is not None:
            wanted = [Target(name, partition_id, tuple(to) or None)]
            self.take(
                alter_reassignments(
                    self.image, wanted, may_change_factor=True, context=self.context
                )
            )

    @rule(kind=st.sampled_from([0, 1]))
    def elect(self, kind: int) -> None:
        self.take(elect_leaders(self.image, None, election_type=kind, context=self.context))

    @rule()
    def elect_by_itself(self) -> None:
        self.take(balance(self.image, self.context.config))
        self.take(elect_uncleanly(self.image, self.context.config))

    @rule(name=TOPICS)
    def configure(self, name: str) -> None:
        if name in self.image.topics:
            record = ConfigRecord(
                resource_type=2, resource_name=name, name="retention.ms", value="1"
            )
            delta = change(self.image, [record])
            assert not delta_batch(view(delta.image, self.controller_epoch), delta)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def all_that_are_known_know_all(self) -> None:
        for broker_id, process in self.processes.items():
            known = self.image.brokers.get(broker_id)
            if known is not None and known.epoch == process.epoch:
                process.check(self.image)

    @invariant()
    def partitions_are_sound(self) -> None:
        for each in self.image.topics:
            if self.image.deletions.is_being_deleted(each.id):
                continue
            for _, partition in each.in_order():
                if partition.leader_epoch == NO_EPOCH:
                    assert (partition.leader, partition.isr) == (NO_LEADER, ())
                    assert partition.partition_epoch == NO_EPOCH
                    continue
                # KAFKA-708: somebody who has everything stays listed.
                assert partition.isr
                assert partition.leader in (*partition.isr, NO_LEADER)
                assert partition.leader == NO_LEADER or partition.leader in self.image.brokers


TestBrokerRequests = RequestHistory.TestCase
TestBrokerRequests.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
