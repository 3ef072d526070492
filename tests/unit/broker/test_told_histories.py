"""What a broker makes of a controller's requests is what the controller's image says.

Method: the histories of `test_telling_histories`, told to the broker's own reading of the three
requests instead of a model of it. After each delta the broker's image must hold the same topics,
ids, leaders, in-sync replicas and epochs, and of what it hosts what only LeaderAndIsr tells, too.
Folders are each side's own; brokers' epochs are not told.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.broker.told import ToldMetadata, without_own_leadership
from ottla.controller.request_batch import EPOCH_DURING_DELETE, BrokerRequest
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, TopicImage
from ottla.metadata.records import Record
from ottla.metadata.topics import DIRECTORY_LOST, RECOVERED, PartitionImage, topic_records
from ottla.wire.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.wire.messages.stop_replica import StopReplicaRequest
from ottla.wire.messages.update_metadata import UpdateMetadataRequest

from ..controller.test_telling_histories import Telling
from ..controller.told_world import compare, never_led
from ..controller.told_world import topic as a_topic

UNTOLD: dict[str, Any] = {
    "adding_replicas": (),
    "removing_replicas": (),
    "leader_recovery_state": RECOVERED,
}
"""What UpdateMetadata has no word for."""


@dataclass(slots=True)
class Broker:
    """One process of a broker that has read nothing in ZooKeeper."""

    id: int
    epoch: int
    image: ClusterImage = EMPTY
    facts: ToldMetadata = field(init=False)

    def __post_init__(self) -> None:
        self.facts = ToldMetadata(self.id, self.epoch)

    def hear(self, sent_one: BrokerRequest) -> None:
        """Take a request as the broker's handlers do."""
        request = sent_one.request
        refusal = self.facts.check_sender(
            broker_epoch=request.broker_epoch,
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
        )
        if refusal is not Error.NONE:
            # Only what was meant for the process before this one.
            assert (refusal, request.broker_epoch < self.epoch) == (Error.STALE_BROKER_EPOCH, True)
            return
        if isinstance(request, StopReplicaRequest):
            self._stop(request)
            return
        if isinstance(request, LeaderAndIsrRequest):
            told = self.facts.leader_and_isr(self.image, request)
        else:
            assert isinstance(request, UpdateMetadataRequest)
            told = self.facts.update_metadata(self.image, request)
        assert set(told.errors.values()) <= {Error.NONE}
        self.apply(told.records)

    def _stop(self, request: StopReplicaRequest) -> None:
        for topic in request.topic_states:
            for state in topic.partition_states:
                name = (topic.topic_name, state.partition_index)
                may = self.facts.may_stop(self.image, name, state.leader_epoch)
                assert may is Error.NONE
                if state.delete_partition:
                    self.apply(self.facts.dropped(self.image, [name]))

    def apply(self, records: tuple[Record, ...]) -> None:
        """Replay records."""
        self.image = replay(self.image, records, offset=0, epoch=0).image

    def check(self, image: ClusterImage) -> None:
        """Compare with what the controller knows."""
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
            (topic.id, number)
            for topic in image.topics
            for number, partition in topic.partitions.items()
            if self.id in partition.replicas and partition.directory(self.id) != DIRECTORY_LOST
        )
        assert as_told(self.image, hosted) == as_told(image, hosted)

    def _check_deletion(self, topic: TopicImage) -> None:
        """No order to delete a replica of a topic that goes is refused, whatever was heard."""
        assert self.image.topics.by_id(topic.id) is None
        for number, partition in topic.partitions.items():
            if self.id in partition.replicas:
                name = (topic.name, number)
                may = self.facts.may_stop(self.image, name, EPOCH_DURING_DELETE)
                assert may is Error.NONE


def as_told(
    image: ClusterImage, hosted: frozenset[tuple[Uuid, int]]
) -> dict[tuple[str, Uuid, int], PartitionImage]:
    """Return what brokers are told of partitions: who does not host one hears less of it."""
    return {
        (topic.name, topic.id, number): replace(
            partition,
            directories=(),
            **({} if (topic.id, number) in hosted else UNTOLD),
        )
        for topic in image.topics
        for number, partition in topic.partitions.items()
        if partition.leader_epoch != NO_EPOCH and not image.deletions.is_being_deleted(topic.id)
    }


def knowing_nothing(broker_id: int, epoch: int, _stored: ClusterImage) -> Broker:
    return Broker(broker_id, epoch)


def knowing_what_is_stored(broker_id: int, epoch: int, stored: ClusterImage) -> Broker:
    """Return a broker as it starts: with the topics that are there, leading nothing."""
    topics = replace(EMPTY, topics=stored.topics)
    started = Broker(broker_id, epoch, topics)
    started.apply(without_own_leadership(topics, broker_id))
    return started


class Hearing(Telling):
    process = knowing_nothing


class Starting(Telling):
    process = knowing_what_is_stored


SETTINGS = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestHearing, TestStarting = Hearing.TestCase, Starting.TestCase
TestHearing.settings = TestStarting.settings = SETTINGS


def test_a_topic_that_nobody_ever_led_is_told_to_go_to_who_read_of_it() -> None:
    """Its only broker was away when it was made; the order to delete it was refused for ever."""
    history = Starting()
    history.begin(number=0, unclean=False)
    history.write_a_topic_by_hand(name="v", replicas=[4])
    history.start(broker_id=4)
    history.begin_to_delete(name="v")
    history.look_at_brokers(apart=False)
    check_all(history)


def test_the_same_where_it_is_there_when_the_deletion_begins() -> None:
    history = Starting()
    history.begin(number=0, unclean=False)
    history.append(*topic_records(a_topic("v", never_led(1, 2))))
    history.start(broker_id=2)
    # Of a broker's start its elections are to come, and do not where a deletion comes first.
    history.append(*compare(history.image, history.registered))
    history.begin_to_delete(name="v")
    check_all(history)


def check_all(history: Telling) -> None:
    for process in history.told.values():
        process.check(history.image)
