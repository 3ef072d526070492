"""Asking for a missing topic creates it once, with the settings it needs.

Method: a controller that answers by hand; the configuration is Kafka's defaults.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.base.limits import AUTO_CREATED_IN_FLIGHT_MAX
from ottla.broker.forwarding.auto_create import AutoCreate
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tests.unit.broker.harness import FakeForwarder, node_config

MISSING = Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def controller() -> FakeForwarder:
    return FakeForwarder()


@pytest.fixture
def auto_create(controller: FakeForwarder) -> AutoCreate:
    config = node_config({"num.partitions": "3", "default.replication.factor": "2"})
    return AutoCreate(config, controller)


def test_all_missing_topics_go_in_one_request(
    auto_create: AutoCreate, controller: FakeForwarder
) -> None:
    assert auto_create.create(["a", "b", "a"]) == {"a": MISSING, "b": MISSING}
    (request, _) = controller.calls[0]
    assert [
        (each.name, each.num_partitions, each.replication_factor) for each in request.topics
    ] == [("a", 3, 2), ("b", 3, 2)]


def test_a_creation_in_flight_is_not_repeated(
    auto_create: AutoCreate, controller: FakeForwarder
) -> None:
    auto_create.create(["a"])
    assert auto_create.create(["a", "b"]) == {"a": MISSING, "b": MISSING}
    assert [each.name for each in controller.calls[1][0].topics] == ["b"]


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(Error.REQUEST_TIMED_OUT),
        CreateTopicsResponse(
            topics=(CreatableTopicResult(name="a", error_code=Error.INVALID_REPLICATION_FACTOR),)
        ),
    ],
)
def test_after_a_failure_the_next_request_tries_again(
    auto_create: AutoCreate, controller: FakeForwarder, answer: object
) -> None:
    auto_create.create(["a"])
    controller.answer(answer)
    auto_create.create(["a"])
    assert len(controller.calls) == 1


def test_bad_names_never_reach_the_controller(
    auto_create: AutoCreate, controller: FakeForwarder
) -> None:
    assert auto_create.create(["no/slash"]) == {"no/slash": Error.INVALID_TOPIC_EXCEPTION}
    assert not controller.calls


def test_internal_topics_have_settings_of_their_own(
    auto_create: AutoCreate, controller: FakeForwarder
) -> None:
    auto_create.create([OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
    offsets, transactions = controller.calls[0][0].topics
    assert (offsets.num_partitions, offsets.replication_factor) == (50, 3)
    assert {each.name: each.value for each in offsets.configs} == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }
    assert (transactions.num_partitions, transactions.replication_factor) == (50, 3)
    assert {each.name: each.value for each in transactions.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_creations_in_flight_are_limited_and_logged_in_one_line(
    auto_create: AutoCreate, controller: FakeForwarder, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"t{number}" for number in range(AUTO_CREATED_IN_FLIGHT_MAX + 10)]
    assert set(auto_create.create(names).values()) == {MISSING}
    (request, _) = controller.calls[0]
    assert len(request.topics) == AUTO_CREATED_IN_FLIGHT_MAX
    auto_create.create(names)
    assert len(controller.calls) == 1, "the others wait until these are answered"
    refused = tuple(
        CreatableTopicResult(name=each.name, error_code=Error.INVALID_REPLICATION_FACTOR)
        for each in request.topics
    )
    controller.answer(CreateTopicsResponse(topics=refused))
    assert len(caplog.records) == 1
    auto_create.create(names[-10:])
    assert len(controller.calls) == 1
    assert [each.name for each in controller.calls[0][0].topics] == names[-10:]
