"""CreateTopics translates the decision into every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.base.limits import CREATIONS_PER_STEP_MAX
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

from ..controller_harness import Controller, versions_of


def topic(name: str, count: int = 2, factor: int = 1, **more: object) -> CreatableTopic:
    values: dict[str, object] = {"assignments": (), "configs": (), **more}
    return CreatableTopic(name=name, num_partitions=count, replication_factor=factor, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", versions_of(19))
def test_every_version(version: int) -> None:
    controller = Controller()
    config = CreatableTopicConfig(name="retention.ms", value="5")
    answer = controller.ask(
        CreateTopicsRequest(topics=(topic("t", configs=(config,)), topic("a b"))), version
    )
    good, bad = answer.topics
    made = controller.image.topics.by_name("t")
    assert made is not None
    assert (good.name, good.error_code) == ("t", Error.NONE)
    assert (bad.name, bad.error_code) == ("a b", Error.INVALID_TOPIC_EXCEPTION)
    if version >= 1:
        assert good.error_message is None
        assert "characters" in bad.error_message
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 1)
        assert {each.name: each.value for each in good.configs}["retention.ms"] == "5"
        assert (bad.num_partitions, bad.configs) == (-1, ())
    if version >= 7:
        assert (good.topic_id, bad.topic_id) == (made.id, NO_UUID)


def test_a_manual_assignment() -> None:
    controller = Controller()
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=(1,))
    controller.ask(CreateTopicsRequest(topics=(topic("t", -1, -1, assignments=(assignment,)),)), 7)
    made = controller.image.topics.by_name("t")
    assert made is not None
    assert made.partitions[0].replicas == (1,)


def test_validation_alone() -> None:
    controller = Controller()
    answer = controller.ask(CreateTopicsRequest(topics=(topic("t"),), validate_only=True), 7)
    assert answer.topics[0].error_code == Error.NONE
    assert "t" not in controller.image.topics


@pytest.mark.parametrize("request_", [CreateTopicsRequest(topics=(topic("t"), topic("u", 10_000)))])
def test_a_top_level_refusal_is_returned_for_each_topic(request_: CreateTopicsRequest) -> None:
    answer = Controller().ask(request_, 7)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("t", Error.POLICY_VIOLATION),
        ("u", Error.POLICY_VIOLATION),
    ]


@pytest.mark.parametrize("validate_only", [False, True])
def test_many_topics_are_created_in_parts(validate_only: bool) -> None:
    controller = Controller()
    topics = tuple(topic(f"t{number}", 2 if number % 2 else 1) for number in range(500))
    answer = controller.ask(
        CreateTopicsRequest(
            topics=(*topics, topic("bad name"), topic("t7")), validate_only=validate_only
        ),
        7,
    )
    assert len(controller.deadlines) > 500 * 1.5 / CREATIONS_PER_STEP_MAX
    names = [f"t{number}" for number in range(500)]
    assert [each.name for each in answer.topics] == [*names, "bad name"]
    refused = {each.name: each.error_code for each in answer.topics if each.error_code}
    assert refused == {
        "t7": Error.INVALID_REQUEST,
        "bad name": Error.INVALID_TOPIC_EXCEPTION,
    }, "it is asked for twice, in what would be the first part and the last"
    assert len(controller.image.topics) == (0 if validate_only else 499)


def test_topics_after_the_controller_is_lost_get_its_error() -> None:
    controller = Controller()
    run = controller.run

    def lost(decide: Any, *, deadline_ms: int | None = None) -> Any:
        if len(controller.deadlines) == 2:
            controller.refusal = Error.NOT_CONTROLLER
        return run(decide, deadline_ms=deadline_ms)

    controller.run = lost  # type: ignore[method-assign]
    topics = tuple(topic(f"t{number}", 1) for number in range(3 * CREATIONS_PER_STEP_MAX))
    answer = controller.ask(CreateTopicsRequest(topics=topics), 7)
    codes = [each.error_code for each in answer.topics]
    created = 2 * CREATIONS_PER_STEP_MAX
    assert codes == [Error.NONE] * created + [Error.NOT_CONTROLLER] * CREATIONS_PER_STEP_MAX
    assert len(controller.image.topics) == created


def test_without_a_controller() -> None:
    controller = Controller()
    controller.refusal = Error.NOT_CONTROLLER
    answer = controller.ask(CreateTopicsRequest(topics=(topic("t"),)), 7)
    assert answer.topics[0].error_code == Error.NOT_CONTROLLER


@pytest.mark.parametrize(("timeout_ms", "deadline"), [(500, 1_500), (0, 28_000), (-1, 28_000)])
def test_the_timeout_becomes_a_deadline(timeout_ms: int, deadline: int) -> None:
    controller = Controller()
    controller.ask(CreateTopicsRequest(topics=(topic("t"),), timeout_ms=timeout_ms), 7)
    assert controller.deadlines == [deadline]
