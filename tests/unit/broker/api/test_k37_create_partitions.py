"""CreatePartitions translates the decision into every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

from ..controller_harness import Controller, versions_of


def harness() -> Controller:
    controller = Controller()
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    controller.ask(CreateTopicsRequest(topics=(topic,)), 7)
    return controller


def count(controller: Controller) -> int:
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    return len(topic.partitions)


def grow(*topics: CreatePartitionsTopic, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=topics, timeout_ms=500, validate_only=validate_only)


@pytest.mark.parametrize("version", versions_of(37))
def test_every_version(version: int) -> None:
    controller = harness()
    request = grow(
        CreatePartitionsTopic(name="t", count=3, assignments=None),
        CreatePartitionsTopic(name="nobody", count=3, assignments=None),
    )
    good, bad = controller.ask(request, version).results
    assert (good.name, good.error_code, good.error_message) == ("t", Error.NONE, None)
    assert (bad.name, bad.error_code) == ("nobody", Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert count(controller) == 3
    assert controller.deadlines[-1] == 1_500


def test_by_hand_and_validation_alone() -> None:
    controller = harness()
    by_hand = CreatePartitionsTopic(
        name="t", count=2, assignments=(CreatePartitionsAssignment(broker_ids=(1,)),)
    )
    controller.ask(grow(by_hand, validate_only=True), 3)
    assert count(controller) == 1
    controller.ask(grow(by_hand), 3)
    assert count(controller) == 2


def test_a_top_level_refusal_is_returned_for_each_topic() -> None:
    controller = harness()
    much = CreatePartitionsTopic(name="t", count=20_000, assignments=None)
    [notified] = controller.ask(grow(much), 3).results
    assert (notified.name, notified.error_code) == ("t", Error.POLICY_VIOLATION)
