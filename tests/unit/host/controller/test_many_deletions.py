"""A request that deletes more topics than fit a batch is served, without blocking the loop.

Method: the controller role on a disk in memory, whose threads run on request; the limits of a batch
and of a step are small. The request passes the handler.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.api import k20_delete_topics as k20
from ottla.controller.deletion import delete_topics as deletion
from ottla.controller.step import Decision, Step
from ottla.host.kraft import metadata_log
from ottla.host.kraft.controller_node import ControllerNode
from ottla.metadata.features import ELR_VERSION, OTTLA_VERSION
from ottla.metadata.records import PartitionRecord, Record, TopicRecord
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from tests.unit.host.kraft.test_controller_node import add_broker, running

from ..harness import Harness

BROKERS = (11, 12)
TOPICS = 25
RECORDS_EACH = 2 + len(BROKERS)
"""Of a deletion: the topic's removal, the header of its entry, a row for each broker."""


def topic_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def records_of(number: int) -> tuple[Record, ...]:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id(number),
        replicas=BROKERS,
        isr=BROKERS,
        leader=11,
        leader_epoch=0,
        partition_epoch=0,
    )
    return TopicRecord(name=f"t{number}", topic_id=topic_id(number)), partition


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(metadata_log, "RECORDS_PER_STEP_MAX", 10 * RECORDS_EACH)
    monkeypatch.setattr(deletion, "DELETIONS_PER_STEP_MAX", 5)
    return Harness()


def a_controller(harness: Harness) -> ControllerNode:
    controller = running(harness, features={ELR_VERSION: 0, OTTLA_VERSION: 1})
    for broker_id in BROKERS:
        add_broker(harness, controller, broker_id)
    for number in range(TOPICS):
        records = records_of(number)
        controller.run(lambda _image, records=records: Decision(Step(records), None))
    harness.workers.run()
    return controller


def delete_all(harness: Harness, controller: ControllerNode) -> Pending[Any]:
    request = DeleteTopicsRequest(
        topic_names=tuple(f"t{number}" for number in range(TOPICS)), timeout_ms=500
    )
    broker: Any = SimpleNamespace()
    context = harness.context(
        version=5, key=20, controller_or_none=controller, broker_or_none=broker
    )
    answer = k20.handle(context, request)
    assert isinstance(answer, Pending)
    return answer


def remaining(controller: ControllerNode) -> tuple[int, int]:
    """Return how many topics are there, and how many are in the ledger; committed."""
    image = controller.runtime.committed_image
    return len(image.topics), image.deletions.pending_count()


def test_a_request_goes_in_steps_and_each_topic_with_its_entry(harness: Harness) -> None:
    controller = a_controller(harness)
    answer = delete_all(harness, controller)
    seen = [remaining(controller)]
    while harness.workers.waiting:
        assert not answer.done
        harness.workers.run(1)
        seen.append(remaining(controller))
    assert {each.error_code for each in answer.value.responses} == {Error.NONE}
    assert seen[-1] == (0, TOPICS)
    assert all(topics + entries == TOPICS for topics, entries in seen)
    assert len(dict.fromkeys(seen)) == 1 + TOPICS // 5


def test_requests_meanwhile_are_decided_between_two_steps(harness: Harness) -> None:
    controller = a_controller(harness)
    answer = delete_all(harness, controller)
    met: list[int] = []
    controller.run(lambda image: Decision(Step(), met.append(len(image.topics))))
    harness.workers.run()
    assert answer.done
    assert met == [TOPICS - 5]
