"""Requests reach the controller in envelopes, are retried where that is safe, and are answered.

Method: a channel that answers from a list.
"""

from typing import Any, cast

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.base.principal import ANONYMOUS, Principal
from ottla.broker.api.base import Context
from ottla.broker.ports import Forwarded
from ottla.host.forwarder import (
    ANSWER_SLACK_MS,
    METADATA_WAIT_MS,
    ControllerForwarder,
    address_bytes,
)
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import RemoveTopicRecord, TopicRecord
from ottla.wire.codec import decode
from ottla.wire.frames import (
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

from .harness import Harness, a_connection

FRAME = encode_request(DescribeQuorumRequest(topics=()), 1, 77, "a client")[4:]
"""A request that may be repeated."""

CREATE = encode_request(CreateTopicsRequest(topics=(), timeout_ms=400), 5, 77, "a client")[4:]
DELETE = encode_request(DeleteTopicsRequest(topic_names=("t",), timeout_ms=0), 5, 77, "me")[4:]
LOST = ApiError(Error.NETWORK_EXCEPTION)
UNTOUCHED = EnvelopeResponse(error_code=Error.NOT_CONTROLLER, untouched=True)
MOVED = EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
YES = EnvelopeResponse(response_data=b"yes", error_code=0)
TOPIC_ID = Uuid(b"the topic t-----")
ASK = AllocateProducerIdsRequest(broker_id=1, broker_epoch=2)
ANSWER = AllocateProducerIdsResponse(error_code=0, producer_id_start=1_000, producer_id_len=1_000)


class Channel:
    """Gives the listed answers, one a request; then none."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[Any, int, int]] = []

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        self.sent.append((request, version, timeout_ms))
        return completed(self.answers.pop(0)) if self.answers else Pending()

    def withdraw(self, _answer: Pending[Any]) -> bool:
        """Everything is on its way at once."""
        return False


class Unconnected(Channel):
    """Keeps what it is given until it is taken back."""

    def withdraw(self, answer: Pending[Any]) -> bool:
        return answer.complete(ApiError(Error.REQUEST_TIMED_OUT))


def a_forwarder(harness: Harness, channel: Any) -> ControllerForwarder:
    return ControllerForwarder(
        channel, clock=harness.clock, timers=harness.timers, forward_timeout_ms=1_000
    )


def broker_context(harness: Harness, host: str = "10.1.2.3") -> Context:
    connection = a_connection()
    connection.client_host = host
    return harness.context(version=1, key=55, connection=connection, broker_or_none=Broker())


class Broker:
    """What a broker knows: a topic t."""

    def __init__(self) -> None:
        topic = TopicRecord(name="t", topic_id=TOPIC_ID)
        self.image = replay(EMPTY, [topic], offset=0, epoch=1).image

    def listeners_of_its_close(self) -> None:
        deletion = RemoveTopicRecord(topic_id=TOPIC_ID)
        self.image = replay(self.image, [deletion], offset=1, epoch=1).image


def forward(
    harness: Harness, channel: Any, frame: bytes = FRAME, principal: Principal = ANONYMOUS
) -> Pending[Forwarded]:
    ctx = broker_context(harness)
    ctx.connection.principal = principal
    return a_forwarder(harness, channel).forward(ctx, frame)


# -- the broker's side -------------------------------------------------------------------------


def test_the_envelope_holds_the_whole_request_and_who_sent_it() -> None:
    harness = Harness()
    channel = Channel(EnvelopeResponse(response_data=b"response", error_code=0))
    assert forward(harness, channel).value == b"response"
    ((request, version, timeout_ms),) = channel.sent
    assert isinstance(request, EnvelopeRequest)
    assert (request.request_data, version, timeout_ms) == (FRAME, 0, 1_000 + 2 * ANSWER_SLACK_MS)
    assert request.client_host_address == bytes((10, 1, 2, 3))
    assert request.request_principal is not None
    assert request.request_principal[:2] == b"\0\0"
    principal = decode(DefaultPrincipalData, request.request_principal, 0, 2)
    assert (principal.type, principal.name, principal.token_authenticated) == (
        "User",
        "ANONYMOUS",
        False,
    )


@pytest.mark.parametrize(
    ("host", "data"),
    [
        ("127.0.0.1", b"\x7f\0\0\1"),
        ("::1", b"\0" * 15 + b"\1"),
        ("fe80::1%eth0", bytes.fromhex("fe80") + b"\0" * 13 + b"\1"),
        ("", b""),
        ("not an address", b""),
    ],
)
def test_addresses(host: str, data: bytes) -> None:
    assert address_bytes(host) == data


@pytest.mark.parametrize(
    "lost",
    [LOST, MOVED, UNTOUCHED],
    ids=["broken connection", "not the controller", "not the controller, and says so"],
)
def test_a_question_is_sent_again_until_it_is_answered(lost: Any) -> None:
    harness = Harness()
    channel = Channel(lost, lost, YES)
    answer = forward(harness, channel)
    assert not answer.done
    harness.advance(100)
    assert answer.value == b"yes"
    assert [timeout_ms for _, _, timeout_ms in channel.sent] == [2_000, 1_950, 1_900]


def test_repetition_ends_with_the_time() -> None:
    harness = Harness()
    channel = Channel(*[ApiError(Error.NETWORK_EXCEPTION)] * 100)
    answer = forward(harness, channel)
    harness.advance(5_000)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 20


@pytest.mark.parametrize("lost", [LOST, MOVED], ids=["broken connection", "not in office any more"])
def test_a_request_that_may_have_been_processed_is_not_repeated(lost: Any) -> None:
    """A second creation would bring back a topic whose deletion was acknowledged meanwhile."""
    harness = Harness()
    channel = Channel(lost, YES)
    answer = forward(harness, channel, CREATE)
    harness.advance(1_000)
    assert isinstance(answer.value, ApiError)
    assert answer.value.error is Error.REQUEST_TIMED_OUT
    assert len(channel.sent) == 1


def test_an_untouched_request_is_retried() -> None:
    """A change during a controller election would fail needlessly."""
    harness = Harness()
    channel = Channel(UNTOUCHED, UNTOUCHED, YES)
    answer = forward(harness, channel, CREATE)
    harness.advance(100)
    assert answer.value == b"yes"
    assert len({id(request) for request, _, _ in channel.sent}) == 1


def test_a_deletion_is_sent_again_by_ids_and_answered_by_names() -> None:
    harness = Harness()
    ctx = broker_context(harness)
    deletion = DeleteTopicsResponse(
        responses=(DeletableTopicResult(name=None, topic_id=TOPIC_ID, error_code=100),)
    )
    data = b"".join(encode_response(deletion, 6, 77))[4:]
    channel = Channel(LOST, UNTOUCHED, EnvelopeResponse(response_data=data, error_code=0))
    answer = a_forwarder(harness, channel).forward(ctx, DELETE)
    cast(Any, ctx.broker).listeners_of_its_close()
    harness.advance(100)
    first, *others = [request.request_data for request, _, _ in channel.sent]
    assert first == DELETE
    for frame in others:
        header, body_at = decode_request_header(frame)
        (sent,) = decode(DeleteTopicsRequest, frame, header.api_version, body_at).topics
        assert (sent.name, sent.topic_id) == (None, TOPIC_ID)
    assert len(others) == 2
    response = cast(Any, answer.value)
    _, decoded = decode_response(DeleteTopicsResponse, response, 5)
    assert [(each.name, each.error_code) for each in decoded.responses] == [("t", 0)]


def test_a_deletion_that_got_through_is_passed_on_as_it_is() -> None:
    harness = Harness()
    assert forward(harness, Channel(YES), DELETE).value == b"yes"
    assert forward(harness, Channel(LOST), FRAME).done is False


def test_an_answer_to_a_repeated_deletion_that_is_none_ends_the_client() -> None:
    harness = Harness()
    answer = forward(harness, Channel(LOST, YES), DELETE)
    harness.advance(50)
    assert answer.value is None


@pytest.mark.parametrize("channel", [Unconnected(), Channel(*[UNTOUCHED] * 100)], ids=["0", "1"])
def test_nothing_is_sent_after_its_timeout(channel: Channel) -> None:
    """A client that got a timeout may have done something else since."""
    harness = Harness()
    answer = forward(harness, channel, CREATE)
    harness.advance(399)
    assert isinstance(channel, Unconnected) or len(channel.sent) == 8
    harness.advance(1)
    assert isinstance(answer.value, ApiError)
    harness.advance(2_000)
    assert len(channel.sent) in (1, 8)


@pytest.mark.parametrize(
    ("frame", "limit_ms"), [(CREATE, 400), (FRAME, 1_000)], ids=["its own", "the default"]
)
def test_a_request_in_flight_is_answered_within_its_timeout(frame: bytes, limit_ms: int) -> None:
    """A controller that hangs delays no client; its own response at the timeout is passed on."""
    harness = Harness()
    channel = Channel()
    answer = forward(harness, channel, frame)
    harness.advance(limit_ms + ANSWER_SLACK_MS - 1)
    assert not answer.done
    harness.advance(1)
    assert isinstance(answer.value, ApiError)
    assert answer.value.error is Error.REQUEST_TIMED_OUT
    harness.advance(5_000)
    assert len(channel.sent) == 1


def test_and_its_connection_is_kept_for_others() -> None:
    """To give it up at that limit would leave unanswered what others have sent over it."""
    harness = Harness()
    channel = Channel()
    forward(harness, channel, CREATE)
    ((_, _, timeout_ms),) = channel.sent
    assert timeout_ms == 1_000 + ANSWER_SLACK_MS


class ControllerSender(Channel):
    """Answers on request."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: list[Pending[Any]] = []

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        answer = super().send(request, version, timeout_ms=timeout_ms)
        self.unanswered.append(answer)
        return answer


def test_a_queued_request_is_not_sent_after_its_timeout() -> None:
    """A creation that reached the controller when its client had given up would bring back a topic
    that was made and deleted since."""
    harness = Harness()
    line = ControllerSender()
    forwarder = a_forwarder(harness, line)
    first = forwarder.forward(broker_context(harness), FRAME)
    behind = forwarder.forward(broker_context(harness), CREATE)
    harness.advance(400)
    assert isinstance(behind.value, ApiError)
    line.unanswered[0].complete(YES)
    assert first.value == b"yes"
    harness.advance(5_000)
    assert [request.request_data for request, _, _ in line.sent] == [FRAME]


def test_a_queued_request_is_sent_in_turn() -> None:
    harness = Harness()
    line = ControllerSender()
    forwarder = a_forwarder(harness, line)
    answers = [forwarder.forward(broker_context(harness), FRAME) for _ in range(3)]
    for number, answer in enumerate(answers):
        assert len(line.sent) == number + 1
        line.unanswered[number].complete(YES)
        assert answer.value == b"yes"


def test_a_request_that_is_repeated_lets_others_pass() -> None:
    harness = Harness()
    line = ControllerSender()
    forwarder = a_forwarder(harness, line)
    first = forwarder.forward(broker_context(harness), FRAME)
    second = forwarder.forward(broker_context(harness), CREATE)
    line.unanswered[0].complete(UNTOUCHED)
    line.unanswered[1].complete(YES)
    assert second.value == b"yes"
    harness.advance(50)
    line.unanswered[2].complete(YES)
    assert first.value == b"yes"


def test_thousands_that_wait_end_with_the_forwarder() -> None:
    harness = Harness()
    line = ControllerSender()
    forwarder = a_forwarder(harness, line)
    answers = [forwarder.forward(broker_context(harness), FRAME) for _ in range(5_000)]
    forwarder.close()
    line.unanswered[0].complete(LOST)
    assert all(isinstance(answer.value, ApiError) for answer in answers)
    assert len(line.sent) == 1


def test_brokers_own_requests_do_not_wait_for_one_another() -> None:
    harness = Harness()
    line = ControllerSender()
    forwarder = a_forwarder(harness, line)
    for _ in range(2):
        forwarder.call(ASK, timeout_ms=500)
    assert len(line.sent) == 2


def test_a_request_may_take_longer_than_the_search_for_the_controller() -> None:
    """A deletion waits for brokers for as long as its client said, once the controller has it."""
    harness = Harness()
    channel = Channel()
    frame = encode_request(CreateTopicsRequest(topics=(), timeout_ms=9_000), 5, 77, "a client")
    answer = forward(harness, channel, frame[4:])
    harness.advance(9_000)
    assert not answer.done
    ((_, _, timeout_ms),) = channel.sent
    assert timeout_ms == 9_000 + 2 * ANSWER_SLACK_MS
    harness.advance(ANSWER_SLACK_MS)
    assert isinstance(answer.value, ApiError)


def test_the_wait_for_metadata_keeps_within_the_limit() -> None:
    harness = Harness()
    channel = Channel(EnvelopeResponse(response_data=b"done", error_code=0, committed_offset=41))
    forwarder = ControllerForwarder(
        channel,
        clock=harness.clock,
        timers=harness.timers,
        forward_timeout_ms=30_000,
        caught_up=lambda _: Pending(),
    )
    answer = forwarder.forward(broker_context(harness), CREATE)
    harness.advance(400 + ANSWER_SLACK_MS - 1)
    assert not answer.done
    harness.advance(1)
    assert answer.value == b"done"


@pytest.mark.parametrize("channel", [Unconnected(), Channel(UNTOUCHED)], ids=["0", "1"])
def test_nothing_is_sent_for_a_client_that_has_disconnected(channel: Channel) -> None:
    harness = Harness()
    ctx = broker_context(harness)
    answer = a_forwarder(harness, channel).forward(ctx, FRAME)
    ctx.connection.closed.complete(None)
    harness.advance(1_000)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 1
    late = Channel(YES)
    assert isinstance(a_forwarder(harness, late).forward(ctx, FRAME).value, ApiError)
    assert late.sent == []


def test_an_answered_request_leaves_no_listener_at_its_connection() -> None:
    """A client that asks for years over one connection would fill the broker's memory."""
    harness = Harness()
    ctx = broker_context(harness)
    a_forwarder(harness, Channel(YES)).forward(ctx, FRAME)
    assert ctx.connection.closed._listeners == []
    assert harness.timers.next_ms() is None


@pytest.mark.parametrize(
    "refusal",
    [
        EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION),
        EnvelopeResponse(error_code=Error.INVALID_REQUEST),
    ],
    ids=str,
)
def test_an_unanswerable_request_is_not_retried(refusal: Any) -> None:
    harness = Harness()
    channel = Channel(refusal)
    assert forward(harness, channel).value is None
    assert len(channel.sent) == 1


def test_own_requests_are_answered_as_messages_or_errors() -> None:
    harness = Harness()
    channel = Channel(ApiError(Error.NETWORK_EXCEPTION), ANSWER)
    answer = a_forwarder(harness, channel).call(ASK, timeout_ms=500)
    harness.advance(50)
    assert answer.value is ANSWER
    failed = a_forwarder(harness, Channel(ApiError(Error.REQUEST_TIMED_OUT))).call(
        ASK, timeout_ms=500
    )
    assert failed.value.error is Error.REQUEST_TIMED_OUT


def test_own_requests_are_retried_after_not_controller() -> None:
    harness = Harness()
    refused = AllocateProducerIdsResponse(
        error_code=Error.NOT_CONTROLLER, producer_id_start=0, producer_id_len=0
    )
    channel = Channel(refused, ANSWER)
    answer = a_forwarder(harness, channel).call(ASK, timeout_ms=500)
    harness.advance(50)
    assert answer.value is ANSWER


def test_topics_are_not_created_twice_for_a_broker_either() -> None:
    harness = Harness()
    channel = Channel(LOST, ANSWER)
    request = CreateTopicsRequest(topics=(), timeout_ms=500)
    answer = a_forwarder(harness, channel).call(request, timeout_ms=500)
    harness.advance(500)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 1


def test_a_closed_forwarder_retries_nothing() -> None:
    harness = Harness()
    channel = Channel(ApiError(Error.NETWORK_EXCEPTION))
    forwarder = a_forwarder(harness, channel)
    answer = forwarder.call(ASK, timeout_ms=500)
    forwarder.close()
    harness.advance(1_000)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 1


def test_a_response_waits_until_this_broker_has_the_controllers_offset() -> None:
    harness = Harness()
    waited: list[int] = []
    knows: Pending[None] = Pending()

    def caught_up(offset: int) -> Pending[None]:
        waited.append(offset)
        return knows

    channel = Channel(EnvelopeResponse(response_data=b"done", error_code=0, committed_offset=41))
    forwarder = ControllerForwarder(
        channel,
        clock=harness.clock,
        timers=harness.timers,
        forward_timeout_ms=30_000,
        caught_up=caught_up,
    )
    answer = forwarder.forward(broker_context(harness), FRAME)
    assert (waited, answer.done) == ([41], False)
    knows.complete(None)
    assert answer.value == b"done"
    harness.advance(METADATA_WAIT_MS)


def test_a_response_does_not_wait_long_for_a_broker_without_metadata() -> None:
    harness = Harness()
    channel = Channel(EnvelopeResponse(response_data=b"done", error_code=0, committed_offset=41))
    never: Pending[None] = Pending()
    forwarder = ControllerForwarder(
        channel,
        clock=harness.clock,
        timers=harness.timers,
        forward_timeout_ms=30_000,
        caught_up=lambda _: never,
    )
    answer = forwarder.forward(broker_context(harness), FRAME)
    harness.advance(METADATA_WAIT_MS - 1)
    assert not answer.done
    harness.advance(1)
    assert answer.value == b"done"
    assert never.done  # The wait is completed, so that it can be removed.
    never.complete(None)
