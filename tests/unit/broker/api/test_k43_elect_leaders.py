"""ElectLeaders translates the decision into every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from ..controller_harness import Controller, versions_of

TOPIC = Uuid(b"topic-----------")
PREFERRED, UNCLEAN = 0, 1


def harness() -> Controller:
    controller = Controller()
    controller.write(TopicRecord(name="t", topic_id=TOPIC))
    for number, leader in enumerate((1, 2)):
        controller.write(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC,
                replicas=(1, 2),
                isr=(1, 2),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=(DIRECTORY_UNASSIGNED,) * 2,
            )
        )
    return controller


def leaders(controller: Controller) -> list[int]:
    topic = controller.image.topics.by_id(TOPIC)
    assert topic is not None
    return [each.leader for _, each in topic.in_order()]


SOME = (
    TopicPartitions(topic="t", partitions=(0, 1)),
    TopicPartitions(topic="nobody", partitions=(0,)),
)


@pytest.mark.parametrize("version", versions_of(43))
def test_every_version(version: int) -> None:
    controller = harness()
    answer = controller.ask(ElectLeadersRequest(topic_partitions=SOME), version)
    assert answer.error_code == Error.NONE
    mine, nobody = answer.replica_election_results
    assert [(each.partition_id, each.error_code) for each in mine.partition_result] == [
        (0, Error.ELECTION_NOT_NEEDED),
        (1, Error.NONE),
    ]
    assert mine.partition_result[1].error_message is None
    assert (nobody.topic, nobody.partition_result[0].error_code) == (
        "nobody",
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert leaders(controller) == [1, 1]


@pytest.mark.parametrize("version", versions_of(43))
def test_null_topics_elect_in_all_partitions(version: int) -> None:
    answer = harness().ask(ElectLeadersRequest(topic_partitions=None), version)
    [topic] = answer.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == [1]


@pytest.mark.parametrize("version", versions_of(43))
def test_a_top_level_refusal_is_returned_for_each_partition(version: int) -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    answer = controller.ask(ElectLeadersRequest(topic_partitions=SOME), version)
    assert answer.error_code == (Error.NOT_CONTROLLER if version else Error.NONE)
    returned = [
        each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    ]
    assert returned == [Error.NOT_CONTROLLER] * 3


def test_the_type_of_the_election() -> None:
    controller = harness()
    answer = controller.ask(ElectLeadersRequest(topic_partitions=None, election_type=UNCLEAN), 2)
    assert answer.replica_election_results == ()
    answer = controller.ask(ElectLeadersRequest(topic_partitions=None, election_type=7), 2)
    assert answer.error_code == Error.INVALID_REQUEST


def test_the_timeout_becomes_a_deadline() -> None:
    controller = harness()
    controller.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=500), 2)
    assert controller.deadlines == [1_500]
