"""A retried deletion deletes the topics that the request meant originally, and no others.

Method: the real decider on an image in memory. What the broker knew when the request came, what it
knows with the answer, and what the lost sending did, differ from test to test.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.forwarding.delete_topics_retry import (
    MALFORMED,
    RENAMED,
    UNKNOWN,
    DeleteTopicsRetry,
)
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import RemoveTopicRecord, TopicRecord
from ottla.wire.codec import decode
from ottla.wire.frames import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_response,
)
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.unit.broker.controller_harness import Controller, versions_of

FIRST = Uuid(b"the first one---")
SECOND = Uuid(b"the second one--")
OTHER = Uuid(b"another topic---")
INTERNAL = Uuid(b"internal--------")


def harness(**given: str) -> Controller:
    controller = Controller({name.replace("_", "."): value for name, value in given.items()})
    controller.write(
        TopicRecord(name="t", topic_id=FIRST),
        TopicRecord(name="u", topic_id=OTHER),
        TopicRecord(name="__consumer_offsets", topic_id=INTERNAL),
    )
    return controller


def names(*topics: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=topics, timeout_ms=9_000)


def states(*topics: tuple[str | None, Uuid]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name, topic_id=each) for name, each in topics),
        timeout_ms=9_000,
    )


class Repeated:
    """A request that is sent again to `controller`."""

    def __init__(self, image: ClusterImage, request: DeleteTopicsRequest, version: int = 5) -> None:
        self.version = version
        self.deletion = DeleteTopicsRetry(RequestHeader(20, version, 7, "me"), request, image)

    def sent(self) -> DeleteTopicsRequest:
        frame = self.deletion.frame(800)
        assert frame is not None
        header, body_at = decode_request_header(frame)
        assert header == RequestHeader(20, 6, 7, "me")
        return decode(DeleteTopicsRequest, frame, 6, body_at)

    def answered(
        self, controller: Controller, image: ClusterImage | None = None
    ) -> list[tuple[str | None, Error]]:
        """Return the client's answers. `image`: the broker's, where it lags."""
        response = controller.ask(self.sent(), 6)
        frame = b"".join(encode_response(response, 6, 7))[4:]
        result = self.deletion.answer(frame, controller.image if image is None else image)
        correlation_id, self.response = decode_response(DeleteTopicsResponse, result, self.version)
        assert correlation_id == 7
        return [(each.name, Error(each.error_code)) for each in self.response.responses]


def recreate(controller: Controller) -> None:
    controller.write(RemoveTopicRecord(topic_id=FIRST), TopicRecord(name="t", topic_id=SECOND))


@pytest.mark.parametrize("version", versions_of(20))
def test_what_the_lost_sending_did_not_do_is_done_now(version: int) -> None:
    controller = harness()
    request = states(("t", NO_UUID), ("u", NO_UUID)) if version >= 6 else names("t", "u")
    repeated = Repeated(controller.image, request, version)
    assert repeated.answered(controller) == [("t", Error.NONE), ("u", Error.NONE)]
    ids = [each.topic_id for each in repeated.response.responses]
    assert ids == ([FIRST, OTHER] if version >= 6 else [NO_UUID, NO_UUID])
    assert not {"t", "u"} & set(controller.image.topics.names())


def test_it_is_sent_by_ids_with_the_remaining_timeout() -> None:
    sent = Repeated(harness().image, names("t", "nobody", "u")).sent()
    assert [(each.name, each.topic_id) for each in sent.topics] == [(None, FIRST), (None, OTHER)]
    assert sent.timeout_ms == 800


def test_what_has_gone_meanwhile_is_answered_as_deleted() -> None:
    controller = harness()
    repeated = Repeated(controller.image, names("t", "u"))
    controller.write(RemoveTopicRecord(topic_id=FIRST))
    assert repeated.answered(controller) == [("t", Error.NONE), ("u", Error.NONE)]


def test_a_recreated_topic_stays() -> None:
    """Sent by name, it would delete acknowledged records of another topic."""
    controller = harness()
    repeated = Repeated(controller.image, names("t"))
    recreate(controller)
    assert repeated.answered(controller) == [("t", Error.REQUEST_TIMED_OUT)]
    assert repeated.response.responses[0].error_message == RENAMED
    assert controller.image.topics.id_of("t") == SECOND


def test_a_name_that_this_broker_did_not_know_is_not_sent_again() -> None:
    controller = harness()
    assert Repeated(EMPTY, names("t")).deletion.frame(800) is None
    before = controller.image
    controller.write(TopicRecord(name="new", topic_id=SECOND))
    repeated = Repeated(before, names("new", "t"))
    assert repeated.answered(controller) == [("new", Error.REQUEST_TIMED_OUT), ("t", Error.NONE)]
    assert repeated.response.responses[0].error_message == UNKNOWN
    assert "new" in controller.image.topics


def test_what_this_broker_has_not_seen_go_is_not_called_deleted() -> None:
    """A controller that was deposed without knowing it may not have the topic."""
    controller = harness()
    before = controller.image
    controller.write(RemoveTopicRecord(topic_id=FIRST))
    by_name, by_id = Repeated(before, names("t")), Repeated(before, states((None, FIRST)), 6)
    assert by_name.answered(controller, before) == [("t", Error.REQUEST_TIMED_OUT)]
    assert by_id.answered(controller, before) == [(None, Error.REQUEST_TIMED_OUT)]
    for each in (by_name, by_id):
        assert each.response.responses[0].error_message == UNKNOWN


def test_by_id() -> None:
    controller = harness()
    repeated = Repeated(controller.image, states((None, FIRST), (None, OTHER), (None, SECOND)), 6)
    recreate(controller)
    controller.write(RemoveTopicRecord(topic_id=SECOND))
    result = [("t", Error.NONE), ("u", Error.NONE), (None, Error.UNKNOWN_TOPIC_ID)]
    assert repeated.answered(controller) == result
    assert [each.topic_id for each in repeated.response.responses] == [FIRST, OTHER, SECOND]


def test_what_is_refused_is_refused_again() -> None:
    controller = harness()
    wanted = states(
        ("t", NO_UUID),
        (None, FIRST),
        ("u", OTHER),
        (None, NO_UUID),
        ("__consumer_offsets", NO_UUID),
    )
    repeated = Repeated(controller.image, wanted, 6)
    assert [error for _, error in repeated.answered(controller)] == [Error.INVALID_REQUEST] * 5
    assert repeated.response.responses[2].error_message == MALFORMED
    assert "t" in controller.image.topics
    assert "u" in controller.image.topics


def test_a_topic_named_twice_is_refused_once() -> None:
    controller = harness()
    repeated = Repeated(controller.image, names("t", "t", "u"))
    assert repeated.answered(controller) == [("t", Error.INVALID_REQUEST), ("u", Error.NONE)]
    assert "t" in controller.image.topics


@pytest.mark.parametrize(
    ("version", "error"),
    [(1, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)],
)
def test_where_topics_are_not_deleted(version: int, error: Error) -> None:
    controller = harness(delete_topic_enable="false")
    repeated = Repeated(controller.image, names("t"), version)
    assert repeated.answered(controller) == [("t", error)]


def test_a_topic_missing_in_the_response_is_unknown() -> None:
    repeated = Repeated(harness().image, names("t"))
    silent: Any = b"".join(encode_response(DeleteTopicsResponse(responses=()), 6, 7))[4:]
    _, result = decode_response(DeleteTopicsResponse, repeated.deletion.answer(silent, EMPTY), 5)
    (only,) = result.responses
    assert isinstance(only, DeletableTopicResult)
    assert only.error_code == Error.REQUEST_TIMED_OUT
