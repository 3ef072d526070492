"""DeleteTopics translates the decision into every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import DELETED_TOPICS_PER_REQUEST_MAX
from ottla.controller.deletion import delete_topics as deletion
from ottla.metadata.records import Record, TopicRecord
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

from ..controller_harness import Controller, versions_of

ID = Uuid(b"topic-----------")
NOBODY = Uuid(b"nobody----------")


def harness(**given: str) -> Controller:
    controller = Controller({name.replace("_", "."): value for name, value in given.items()})
    controller.write(TopicRecord(name="t", topic_id=ID))
    return controller


@pytest.mark.parametrize("version", versions_of(20))
def test_every_version(version: int) -> None:
    controller = harness()
    if version >= 6:
        request = DeleteTopicsRequest(
            topics=(
                DeleteTopicState(name="t", topic_id=NO_UUID),
                DeleteTopicState(name="nobody", topic_id=NO_UUID),
            ),
            timeout_ms=500,
        )
    else:
        request = DeleteTopicsRequest(topic_names=("t", "nobody"), timeout_ms=500)
    good, bad = controller.ask(request, version).responses
    assert (good.name, good.error_code) == ("t", Error.NONE)
    assert (bad.name, bad.error_code) == ("nobody", Error.UNKNOWN_TOPIC_OR_PARTITION)
    if version >= 5:
        assert bad.error_message
    if version >= 6:
        assert good.topic_id == ID
    assert "t" not in controller.image.topics
    assert controller.deadlines == [1_500]


def test_by_id() -> None:
    controller = harness()
    request = DeleteTopicsRequest(
        topics=(DeleteTopicState(topic_id=ID), DeleteTopicState(topic_id=NOBODY)), timeout_ms=0
    )
    good, bad = controller.ask(request, 6).responses
    assert (good.name, good.topic_id, good.error_code) == ("t", ID, Error.NONE)
    assert (bad.name, bad.topic_id, bad.error_code) == (None, NOBODY, Error.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", versions_of(20))
def test_switched_off(version: int) -> None:
    controller = harness(delete_topic_enable="false")
    if version >= 6:
        request = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=ID),), timeout_ms=1)
    else:
        request = DeleteTopicsRequest(topic_names=("t",), timeout_ms=1)
    [results] = controller.ask(request, version).responses
    expected = Error.INVALID_REQUEST if version < 3 else Error.TOPIC_DELETION_DISABLED
    assert results.error_code == expected
    assert "t" in controller.image.topics


NAMES = ("t", "u", "nobody", "v")


def several(**given: str) -> Controller:
    controller = harness(**given)
    for name in ("u", "v"):
        controller.write(TopicRecord(name=name, topic_id=Uuid(name.encode() * 16)))
    return controller


def errors(controller: Controller) -> list[Error]:
    request = DeleteTopicsRequest(topic_names=NAMES, timeout_ms=500)
    results = controller.ask(request, 5).responses
    assert tuple(each.name for each in results) == NAMES
    return [Error(each.error_code) for each in results]


def test_many_topics_go_in_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has the request's deadline: who has stopped waiting may not be surprised."""
    monkeypatch.setattr(deletion, "DELETIONS_PER_STEP_MAX", 1)
    controller = several()
    assert errors(controller) == [
        Error.NONE,
        Error.NONE,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NONE,
    ]
    assert controller.image.topics.names() == []
    assert controller.deadlines == [1_500] * 3


def test_an_office_that_ends_between_two_decisions_ends_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is gone is gone, and what is left is left."""
    monkeypatch.setattr(deletion, "DELETIONS_PER_STEP_MAX", 1)
    controller = several()
    write = controller.write

    def write_and_resign(*records: Record) -> None:
        write(*records)
        controller.refusal = Error.NOT_CONTROLLER

    monkeypatch.setattr(controller, "write", write_and_resign)
    assert errors(controller) == [
        Error.NONE,
        Error.NOT_CONTROLLER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_CONTROLLER,
    ]
    assert controller.image.topics.names() == ["u", "v"]


@pytest.mark.parametrize("version", [5, 6])
def test_too_many_are_refused(version: int) -> None:
    controller = harness()
    names = ("t", *(f"t{number}" for number in range(DELETED_TOPICS_PER_REQUEST_MAX)))
    request = (
        DeleteTopicsRequest(
            topics=tuple(DeleteTopicState(name=name, topic_id=NO_UUID) for name in names),
            timeout_ms=1,
        )
        if version >= 6
        else DeleteTopicsRequest(topic_names=names, timeout_ms=1)
    )
    results = controller.ask(request, version).responses
    assert [each.name for each in results] == list(names)
    assert {each.error_code for each in results} == {Error.INVALID_REQUEST}
    assert "t" in controller.image.topics
