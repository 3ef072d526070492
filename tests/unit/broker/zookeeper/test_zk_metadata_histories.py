"""A broker's image after a controller's requests is equal to the controller's image.

Method: the histories of `test_broker_request_histories`, handled by the broker's own code for the
three requests instead of a model of it. After each delta the broker's image must hold the same
topics, ids, leaders, in-sync replicas, epochs and tiering states, and of its replicas what only
LeaderAndIsr holds.
Log directories are each side's own; brokers' epochs are not sent. A late copy of a request to
delete replicas, at any later time, deletes nothing that the broker hosts then.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from immutables import Map

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.broker.zookeeper.zk_metadata import ZkMetadata, is_late, without_own_leadership
from ottla.controller.zookeeper.request_batch import EPOCH_DURING_DELETE, BrokerRequest
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, TopicImage
from ottla.metadata.records import Record
from ottla.metadata.tiering import (
    DisablePolicy,
    RestoredPartition,
    TieringState,
    TopicTiering,
    tiering_record,
)
from ottla.metadata.topics import DIRECTORY_LOST, RECOVERED, PartitionImage, topic_records
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from ottla.wire.messages.update_metadata import FULL, UpdateMetadataRequest
from tests.drawn import examples
from tests.unit.controller.model_brokers import compare, led, never_led
from tests.unit.controller.model_brokers import topic as a_topic
from tests.unit.controller.zookeeper.test_broker_request_histories import (
    BROKERS,
    TOPICS,
    RequestHistory,
)

UNTOLD: dict[str, Any] = {
    "adding_replicas": (),
    "removing_replicas": (),
    "leader_recovery_state": RECOVERED,
}
"""Fields that UpdateMetadata does not have."""


RESTORED = tuple(
    RestoredPartition(
        partition=each, leader_epoch=each, log_start_offset=0, end_offset=each, epochs=((each, 0),)
    )
    for each in range(3)
)
"""Where the first partitions of each tiered topic began."""


@dataclass(slots=True)
class Broker:
    """One process of a broker that has read nothing in ZooKeeper."""

    id: int
    epoch: int
    image: ClusterImage = EMPTY
    facts: ZkMetadata = field(init=False)
    stops: list[StopReplicaRequest] = field(default_factory=list)
    """The StopReplica requests received."""
    updates: list[UpdateMetadataRequest] = field(default_factory=list)
    """The UpdateMetadata requests received."""

    def __post_init__(self) -> None:
        self.facts = ZkMetadata(self.id, self.epoch)

    def receive(self, sent_one: BrokerRequest) -> None:
        """Take a request as the broker's handlers do."""
        request = sent_one.request
        refusal = self.facts.check_sender(
            broker_epoch=request.broker_epoch,
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
        )
        if refusal is not Error.NONE:
            # Only requests to the previous process of the broker.
            assert (refusal, request.broker_epoch < self.epoch) == (Error.STALE_BROKER_EPOCH, True)
            return
        if isinstance(request, StopReplicaRequest):
            self._stop(request)
            return
        if isinstance(request, LeaderAndIsrRequest):
            change = self.facts.leader_and_isr(self.image, request)
        else:
            assert isinstance(request, UpdateMetadataRequest)
            self.updates.append(request)
            change = self.facts.update_metadata(self.image, request)
        assert set(change.errors.values()) <= {Error.NONE}
        self.apply(change.records)

    def _stop(self, request: StopReplicaRequest) -> None:
        self.stops.append(request)
        for topic in request.topic_states:
            for state in topic.partition_states:
                assert self._may_stop(topic.topic_name, state)
                name = (topic.topic_name, state.partition_index)
                if state.delete_partition:
                    self.apply(self.facts.dropped(self.image, [name]))

    def receive_again(self, request: StopReplicaRequest) -> None:
        """Handle a late copy of a request: nothing that is hosted now is deleted."""
        if request.controller_epoch < self.facts.controller_epoch:
            return
        counts = [
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            if not is_late(self.image, topic.topic_name, topic.topic_id)
            for state in topic.partition_states
            if state.delete_partition and self._may_stop(topic.topic_name, state)
        ]
        assert self.facts.dropped(self.image, counts) == ()

    def receive_late_copy(self, request: UpdateMetadataRequest) -> None:
        """Handle a late copy of a request: topics stay as they are.

        Brokers return to those of that request until the next one; that is left out.
        """
        if request.controller_epoch < self.facts.controller_epoch:
            return
        brokers = self.image.brokers
        self.apply(self.facts.update_metadata(self.image, request).records)
        self.image = replace(self.image, brokers=brokers)

    def _may_stop(self, topic: str, state: StopReplicaPartitionState) -> bool:
        name = (topic, state.partition_index)
        return self.facts.may_stop(self.image, name, state.leader_epoch) is Error.NONE

    def apply(self, records: tuple[Record, ...]) -> None:
        """Replay records."""
        self.image = replay(self.image, records, offset=0, epoch=0).image

    def check(self, image: ClusterImage) -> None:
        """Compare with the controller's image, after a look-up of the missing topics."""
        for topic_id in sorted(self.facts.missing_topics):
            entry = image.deletions.of(topic_id)
            if entry is not None and (entry.has_begun or entry.is_finished):
                self.apply(tuple(self.facts.deleted_topic(self.image, topic_id)))
        self.facts.missing_topics = frozenset()
        assert {
            broker_id: (broker.endpoints, broker.rack, broker.fenced)
            for broker_id, broker in self.image.brokers.items()
        } == {
            broker_id: (broker.endpoints, broker.rack, broker.fenced)
            for broker_id, broker in image.brokers.items()
        }
        for topic in image.topics:
            if image.deletions.is_being_deleted(topic.id):
                self._check_deletion(topic)
        hosted = frozenset(
            (topic.id, partition_id)
            for topic in image.topics
            for partition_id, partition in topic.partitions.items()
            if self.id in partition.replicas and partition.directory(self.id) != DIRECTORY_LOST
        )
        assert as_sent(self.image, hosted) == as_sent(image, hosted)
        named = {(topic_id, number) for _, topic_id, number in as_sent(image, hosted)}
        sent = {topic_id for topic_id, _ in named}
        assert self.image.tiering == Map(
            {
                # Of the partitions it may know more: what it read when it started.
                key: replace(each, restored=self.image.tiering[key].restored)
                for key, each in image.tiering.items()
                if key in sent
            }
        )
        for key, here in self.image.tiering.items():
            all_of_it = image.tiering[key].restored
            needed = {each for each in all_of_it if (key, each.partition) in named}
            assert needed <= set(here.restored) <= set(all_of_it)

    def _check_deletion(self, topic: TopicImage) -> None:
        """No request to delete a replica of a deleted topic is refused."""
        assert self.image.topics.by_id(topic.id) is None
        for partition_id, partition in topic.partitions.items():
            if self.id in partition.replicas:
                name = (topic.name, partition_id)
                may = self.facts.may_stop(self.image, name, EPOCH_DURING_DELETE)
                assert may is Error.NONE


def as_sent(
    image: ClusterImage, hosted: frozenset[tuple[Uuid, int]]
) -> dict[tuple[str, Uuid, int], PartitionImage]:
    """Return the partitions as sent to a broker: less of those that it does not host."""
    return {
        (topic.name, topic.id, partition_id): replace(
            partition,
            directories=(),
            **({} if (topic.id, partition_id) in hosted else UNTOLD),
        )
        for topic in image.topics
        for partition_id, partition in topic.partitions.items()
        if partition.leader_epoch != NO_EPOCH and not image.deletions.is_being_deleted(topic.id)
    }


def knowing_nothing(broker_id: int, epoch: int, _stored: ClusterImage) -> Broker:
    return Broker(broker_id, epoch)


def knowing_what_is_stored(broker_id: int, epoch: int, stored: ClusterImage) -> Broker:
    """Return a broker as it starts: with the topics that are there, leading nothing."""
    topics = replace(EMPTY, topics=stored.topics, tiering=stored.tiering)
    started = Broker(broker_id, epoch, topics)
    started.apply(without_own_leadership(topics, broker_id))
    return started


def next_tiering(
    topic_id: Uuid, before: TopicTiering | None, policy: DisablePolicy
) -> TopicTiering:
    """Return the state that may follow."""
    if before is None:
        return TopicTiering(topic_id=topic_id, restored=RESTORED)
    if before.state is TieringState.ENABLED:
        deletes = policy is DisablePolicy.DELETE
        return replace(
            before,
            state=TieringState.DISABLING,
            tiered_epoch=before.tiered_epoch + 1,
            policy=policy,
            remote_floor_epoch=before.tiered_epoch if deletes else before.remote_floor_epoch,
            purge_pending=deletes or before.purge_pending,
        )
    if before.state is TieringState.DISABLING:
        return replace(before, state=TieringState.DISABLED)
    if before.purge_pending:
        return replace(before, purge_pending=False)
    return replace(
        before,
        state=TieringState.ENABLED,
        tiered_epoch=before.tiered_epoch + 1,
        policy=DisablePolicy.NONE,
    )


class Resending(RequestHistory):
    """Requests are sent again where no answer came, and the copies are read at any time."""

    @rule(broker_id=BROKERS, back=st.integers(0, 9))
    def read_a_late_stop(self, broker_id: int, back: int) -> None:
        process = self.processes.get(broker_id)
        if process is not None:
            assert isinstance(process, Broker)
            for request in process.stops[::-1][back : back + 1]:
                process.receive_again(request)

    @rule(name=TOPICS, policy=st.sampled_from([DisablePolicy.RETAIN, DisablePolicy.DELETE]))
    def change_tiering(self, name: str, policy: DisablePolicy) -> None:
        """Enable remote storage of a topic, or go on towards DISABLED and back to ENABLED."""
        topic = self.image.topics.by_name(name)
        if topic is None or self.image.deletions.of(topic.id) is not None:
            return
        before = self.image.tiering.get(topic.id)
        self.append(tiering_record(next_tiering(topic.id, before, policy)))

    @rule(broker_id=BROKERS, back=st.integers(0, 30))
    def read_late_copy(self, broker_id: int, back: int) -> None:
        process = self.processes.get(broker_id)
        if process is not None:
            assert isinstance(process, Broker)
            for request in process.updates[::-1][back : back + 1]:
                process.receive_late_copy(request)


class Hearing(Resending):
    process = knowing_nothing


class Starting(Resending):
    process = knowing_what_is_stored


SETTINGS = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
TestHearing, TestStarting = Hearing.TestCase, Starting.TestCase
TestHearing.settings = TestStarting.settings = SETTINGS


def test_the_deletion_of_a_topic_that_never_had_a_leader_is_sent_to_brokers_that_read_it() -> None:
    """Its only broker was away when it was made; the order to delete it was refused for ever."""
    history = Starting()
    history.begin(partition_id=0, unclean=False)
    history.write_a_topic_by_hand(name="v", replicas=[4])
    history.start(broker_id=4)
    history.begin_to_delete(name="v")
    history.look_at_brokers(apart=False)
    check_all(history)


def test_the_same_where_it_is_there_when_the_deletion_begins() -> None:
    history = Starting()
    history.begin(partition_id=0, unclean=False)
    history.append(*topic_records(a_topic("v", never_led(1, 2))))
    history.start(broker_id=2)
    # Of a broker's start its elections are to come, and do not where a deletion comes first.
    history.append(*compare(history.image, history.registered))
    history.begin_to_delete(name="v")
    check_all(history)


def test_kafka_9539_an_order_from_before_a_replica_came_back_does_not_hit_it() -> None:
    """Its topic is the same, and so was its leader epoch."""
    history = Hearing()
    history.begin(partition_id=0, unclean=False)
    history.reassign(name="t", partition_id=0, to=[2, 3])
    history.reassign(name="t", partition_id=0, to=[2, 3, 1])
    assert len(history.processes[1].stops) == 1
    history.read_a_late_stop(broker_id=1, back=0)
    history.change_isr(name="t", partition_id=0, isr=[1, 2, 3])
    history.read_a_late_stop(broker_id=1, back=0)
    check_all(history)


@pytest.mark.parametrize("process", [knowing_nothing, knowing_what_is_stored])
def test_a_tiering_state_is_sent_where_nothing_else_changed(process: Any) -> None:
    history = Hearing() if process is knowing_nothing else Starting()
    history.begin(partition_id=0, unclean=False)
    for _ in range(7):
        history.change_tiering(name="t", policy=DisablePolicy.DELETE)
        assert len(history.image.tiering) == 1
        check_all(history)
    history.start(broker_id=4)
    history.look_at_brokers(apart=False)
    history.fail_over()
    check_all(history)
    [broker] = [each for each in history.processes.values() if each.id == 4]
    assert isinstance(broker, Broker)
    assert len(broker.image.tiering) == 1
    late = len(broker.updates)
    history.change_tiering(name="t", policy=DisablePolicy.RETAIN)
    for back in range(late + 1):
        history.read_late_copy(broker_id=4, back=back)
        check_all(history)


def test_a_broker_has_the_state_before_it_leads() -> None:
    """LeaderAndIsr alone is enough: it comes before UpdateMetadata."""
    topic = a_topic("v", led([1, 2]))
    tiering = TopicTiering(topic_id=topic.id, restored=RESTORED[:1])
    records = [*topic_records(topic), tiering_record(tiering)]
    history = Hearing()
    history.begin(partition_id=0, unclean=False)
    process = history.processes[1]
    assert isinstance(process, Broker)
    receive, leading = process.receive, []

    def received(request: BrokerRequest) -> None:
        receive(request)
        if isinstance(request.request, LeaderAndIsrRequest):
            leading.append(process.image.tiering.get(topic.id))

    history.processes[1] = Recorded(process, received)  # type: ignore[assignment]
    history.append(*records)
    assert leading == [tiering]


@dataclass
class Recorded:
    """A broker whose requests are seen by a test."""

    process: Broker
    receive: Any


def test_a_late_full_update_removes_no_topic_created_since() -> None:
    history = Hearing()
    history.begin(partition_id=0, unclean=False)
    history.start(broker_id=4)
    history.look_at_brokers(apart=False)
    history.append(*topic_records(a_topic("v", led([1, 2]))))
    process = history.processes[4]
    assert isinstance(process, Broker)
    assert FULL in {each.type for each in process.updates}
    for back in range(len(process.updates)):
        history.read_late_copy(broker_id=4, back=back)
        check_all(history)


def check_all(history: RequestHistory) -> None:
    for process in history.processes.values():
        process.check(history.image)
