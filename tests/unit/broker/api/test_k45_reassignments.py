"""AlterPartitionReassignments and ListPartitionReassignments translate decisions into all versions.

Method: the real deciders on an image in memory; every answer passes the codec of its version.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.brokers import record_of
from ottla.metadata.image import PartitionImage
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from ..controller_harness import BROKER, Controller, versions_of


def harness() -> Controller:
    """Two brokers; the topic t has two partitions on the first."""
    controller = Controller()
    second = replace(
        BROKER,
        id=2,
        incarnation_id=Uuid(b"second process--"),
        log_dirs=(Uuid(b"second directory"),),
    )
    topic = CreatableTopic(
        name="t", num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    controller.ask(CreateTopicsRequest(topics=(topic,)), 7)
    controller.write(record_of(second))
    return controller


def partition(controller: Controller, number: int) -> PartitionImage:
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    return topic.partitions[number]


def request(
    topics: dict[str, dict[int, tuple[int, ...] | None]], **more: Any
) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=500,
        topics=tuple(
            ReassignableTopic(
                name=name,
                partitions=tuple(
                    ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in partitions.items()
                ),
            )
            for name, partitions in topics.items()
        ),
        **more,
    )


@pytest.mark.parametrize("version", versions_of(45))
def test_every_version(version: int) -> None:
    controller = harness()
    answer = controller.ask(request({"t": {1: (2,), 0: None}, "nobody": {0: (1,)}}), version)
    assert (answer.error_code, answer.error_message) == (Error.NONE, None)
    returned = {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }
    assert returned == {
        ("t", 1): (Error.NONE, None),
        ("t", 0): (
            Error.NO_REASSIGNMENT_IN_PROGRESS,
            "No reassignment of the partition is going on.",
        ),
        ("nobody", 0): (
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named nobody.",
        ),
    }
    assert partition(controller, 1).replicas == (2, 1)
    assert partition(controller, 0).replicas == (1,)
    assert controller.deadlines[-1] == 1_500


def test_the_number_of_replicas_can_be_held_fast() -> None:
    controller = harness()
    grown: Any = {"t": {0: (1, 2)}}
    answer = controller.ask(request(grown, allow_replication_factor_change=False), 1)
    assert answer.allow_replication_factor_change is False
    assert answer.responses[0].partitions[0].error_code == Error.INVALID_REPLICATION_FACTOR
    answer = controller.ask(request(grown), 1)
    assert answer.allow_replication_factor_change is True
    assert partition(controller, 0).adding_replicas == (2,)


def listed(controller: Controller, topics: Any = None) -> list[Any]:
    answer = controller.ask(ListPartitionReassignmentsRequest(timeout_ms=500, topics=topics), 0)
    assert answer.error_code == Error.NONE
    return [
        (
            topic.name,
            each.partition_index,
            each.replicas,
            each.adding_replicas,
            each.removing_replicas,
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


def test_listing() -> None:
    controller = harness()
    assert listed(controller) == []
    controller.ask(request({"t": {1: (2,)}}), 1)
    moving = [("t", 1, (2, 1), (2,), (1,))]
    assert listed(controller) == moving
    for name, numbers, expected in (("t", (0, 1), moving), ("t", (0,), []), ("nobody", (1,), [])):
        wanted = ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
        assert listed(controller, (wanted,)) == expected
    controller.ask(request({"t": {1: None}}), 1)
    assert listed(controller) == []
    assert partition(controller, 1).replicas == (1,)


def test_a_controller_without_office_refuses_the_whole() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    answer = controller.ask(request({"t": {1: (2,)}}), 1)
    assert (answer.error_code, answer.responses) == (Error.NOT_CONTROLLER, ())
    answer = controller.ask(ListPartitionReassignmentsRequest(), 0)
    assert (answer.error_code, answer.topics) == (Error.NOT_CONTROLLER, ())
