"""ControlledShutdown translates the decision into every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.brokers import record_of
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

from ..controller_harness import BROKER, Controller, versions_of

ID = Uuid(b"topic-----------")


def harness(*, isr: tuple[int, ...]) -> Controller:
    """Return a controller of brokers 1 and 2, and a partition of both that 1 leads."""
    controller = Controller()
    controller.write(record_of(replace(BROKER, id=2, epoch=2)))
    controller.write(
        TopicRecord(name="t", topic_id=ID),
        PartitionRecord(
            partition_id=0,
            topic_id=ID,
            replicas=(1, 2),
            isr=isr,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
    )
    return controller


def ask(controller: Controller, version: int, epoch: int = 1) -> ControlledShutdownResponse:
    said = epoch if version >= 2 else -1
    response = controller.ask(ControlledShutdownRequest(broker_id=1, broker_epoch=said), version)
    assert isinstance(response, ControlledShutdownResponse)
    return response


@pytest.mark.parametrize("version", versions_of(7))
def test_what_it_leads_moves(version: int) -> None:
    controller = harness(isr=(1, 2))
    response = ask(controller, version)
    assert (response.error_code, response.remaining_partitions) == (Error.NONE, ())
    topic = controller.image.topics.by_name("t")
    assert topic is not None
    assert topic.partitions[0].leader == 2
    assert controller.image.brokers[1].in_controlled_shutdown


@pytest.mark.parametrize("version", versions_of(7))
def test_what_cannot_move_is_named(version: int) -> None:
    response = ask(harness(isr=(1,)), version)
    [left] = response.remaining_partitions
    assert (left.topic_name, left.partition_index) == ("t", 0)


def test_an_older_process_cannot_ask() -> None:
    assert ask(harness(isr=(1, 2)), 3, epoch=0).error_code == Error.STALE_BROKER_EPOCH


def test_an_unknown_broker_cannot_ask() -> None:
    request = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
    assert harness(isr=(1,)).ask(request, 3).error_code == Error.BROKER_NOT_AVAILABLE


def test_a_node_that_is_not_the_controller_answers_not_controller() -> None:
    controller = harness(isr=(1, 2))
    controller.refusal = Error.NOT_CONTROLLER
    assert ask(controller, 3).error_code == Error.NOT_CONTROLLER
