"""Requests reach the controller inside envelopes, are repeated where that is right, and come back.

Method: a channel that answers from a list; then both ends together, the envelope's handler being
the real one.
"""

from typing import Any, cast

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.api import k58_envelope
from ottla.broker.api.base import Context, Forwarded
from ottla.host.forwarder import METADATA_WAIT_MS, ControllerForwarder, address_bytes
from ottla.wire.codec import decode
from ottla.wire.frames import encode_request
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

from .world import World, a_connection

FRAME = encode_request(DeleteTopicsRequest(topic_names=("t",), timeout_ms=5), 3, 77, "a client")[4:]
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


def a_forwarder(world: World, channel: Any) -> ControllerForwarder:
    return ControllerForwarder(
        channel, clock=world.clock, timers=world.timers, forward_timeout_ms=1_000
    )


def broker_context(world: World, host: str = "10.1.2.3") -> Context:
    connection = a_connection()
    connection.client_host = host
    return world.context(version=3, key=20, connection=connection)


def forward(world: World, channel: Any) -> Pending[Forwarded]:
    return a_forwarder(world, channel).forward(broker_context(world), FRAME)


# -- the broker's side -------------------------------------------------------------------------


def test_the_envelope_holds_the_whole_request_and_who_sent_it() -> None:
    world = World()
    channel = Channel(EnvelopeResponse(response_data=b"response", error_code=0))
    assert forward(world, channel).value == b"response"
    ((request, version, timeout_ms),) = channel.sent
    assert isinstance(request, EnvelopeRequest)
    assert (request.request_data, version, timeout_ms) == (FRAME, 0, 1_000)
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
    [
        ApiError(Error.NETWORK_EXCEPTION),
        EnvelopeResponse(error_code=Error.NOT_CONTROLLER),
    ],
    ids=["broken connection", "not the controller"],
)
def test_a_request_is_sent_again_until_it_is_answered(lost: Any) -> None:
    world = World()
    channel = Channel(lost, lost, EnvelopeResponse(response_data=b"yes", error_code=0))
    answer = forward(world, channel)
    assert not answer.done
    world.advance(100)
    assert answer.value == b"yes"
    assert [timeout_ms for _, _, timeout_ms in channel.sent] == [1_000, 950, 900]


def test_repetition_ends_with_the_time() -> None:
    world = World()
    channel = Channel(*[ApiError(Error.NETWORK_EXCEPTION)] * 100)
    answer = forward(world, channel)
    world.advance(5_000)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 20


@pytest.mark.parametrize(
    "refusal",
    [
        EnvelopeResponse(error_code=Error.UNSUPPORTED_VERSION),
        EnvelopeResponse(error_code=Error.INVALID_REQUEST),
    ],
    ids=str,
)
def test_what_the_controller_cannot_answer_is_not_repeated(refusal: Any) -> None:
    world = World()
    channel = Channel(refusal)
    assert forward(world, channel).value is None
    assert len(channel.sent) == 1


def test_own_requests_are_answered_as_messages_or_errors() -> None:
    world = World()
    channel = Channel(ApiError(Error.NETWORK_EXCEPTION), ANSWER)
    answer = a_forwarder(world, channel).call(ASK, timeout_ms=500)
    world.advance(50)
    assert answer.value is ANSWER
    failed = a_forwarder(world, Channel(ApiError(Error.REQUEST_TIMED_OUT))).call(
        ASK, timeout_ms=500
    )
    assert failed.value.error is Error.REQUEST_TIMED_OUT


def test_own_requests_look_further_when_this_is_not_the_controller() -> None:
    world = World()
    refused = AllocateProducerIdsResponse(
        error_code=Error.NOT_CONTROLLER, producer_id_start=0, producer_id_len=0
    )
    channel = Channel(refused, ANSWER)
    answer = a_forwarder(world, channel).call(ASK, timeout_ms=500)
    world.advance(50)
    assert answer.value is ANSWER


def test_a_closed_forwarder_sends_nothing_again() -> None:
    world = World()
    channel = Channel(ApiError(Error.NETWORK_EXCEPTION))
    forwarder = a_forwarder(world, channel)
    answer = forwarder.call(ASK, timeout_ms=500)
    forwarder.close()
    world.advance(1_000)
    assert isinstance(answer.value, ApiError)
    assert len(channel.sent) == 1


def test_an_answer_waits_until_this_broker_knows_what_the_controller_knew() -> None:
    world = World()
    waited: list[int] = []
    knows: Pending[None] = Pending()

    def caught_up(offset: int) -> Pending[None]:
        waited.append(offset)
        return knows

    channel = Channel(EnvelopeResponse(response_data=b"done", error_code=0, committed_offset=41))
    forwarder = ControllerForwarder(
        channel, clock=world.clock, timers=world.timers, caught_up=caught_up
    )
    answer = forwarder.forward(broker_context(world), FRAME)
    assert (waited, answer.done) == ([41], False)
    knows.complete(None)
    assert answer.value == b"done"
    world.advance(METADATA_WAIT_MS)


def test_an_answer_does_not_wait_long_for_a_broker_that_hears_nothing() -> None:
    world = World()
    channel = Channel(EnvelopeResponse(response_data=b"done", error_code=0, committed_offset=41))
    never: Pending[None] = Pending()
    forwarder = ControllerForwarder(
        channel, clock=world.clock, timers=world.timers, caught_up=lambda _: never
    )
    answer = forwarder.forward(broker_context(world), FRAME)
    world.advance(METADATA_WAIT_MS - 1)
    assert not answer.done
    world.advance(1)
    assert answer.value == b"done"
    assert never.done  # Whoever keeps the wait may let it go.
    never.complete(None)


# -- both sides --------------------------------------------------------------------------------


class Controller:
    """A node that answers embedded requests with what it saw, and remembers it."""

    node_id = 1
    cluster_id = "c"

    def __init__(self, response: bytes | None = b"done") -> None:
        self.response = response
        self.seen: list[tuple[Context, bytes]] = []

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        self.seen.append((ctx, bytes(frame)))
        return completed(self.response)


def envelope(world: World, node: Any, **fields: Any) -> EnvelopeResponse:
    """Return what the controller's handler makes of an envelope."""
    ctx = world.context(version=0, key=58)
    ctx.node = node
    request = EnvelopeRequest(
        **(
            {
                "request_data": FRAME,
                "request_principal": b"\0\0\5User\012ANONYMOUS\0\0",
                "client_host_address": b"\x0a\1\2\3",
            }
            | fields
        )
    )
    answer = k58_envelope.handle(ctx, request)
    response = answer.value if isinstance(answer, Pending) else answer
    assert isinstance(response, EnvelopeResponse)
    return response


def test_the_request_inside_is_handled_as_its_clients() -> None:
    node = Controller()
    response = envelope(World(), node)
    assert (response.response_data, response.error_code) == (b"done", 0)
    ((ctx, frame),) = node.seen
    assert frame == FRAME
    assert (ctx.header.api_key, ctx.header.api_version) == (20, 3)
    assert (ctx.header.correlation_id, ctx.header.client_id) == (77, "a client")
    assert ctx.connection.client_host == "10.1.2.3"


def test_the_answer_says_how_far_the_metadata_was_committed() -> None:
    world = World()
    ctx = world.context(version=0, key=58, quorum_or_none=Quorum())
    ctx.node = cast(Any, Controller())
    request = EnvelopeRequest(
        request_data=FRAME,
        request_principal=b"\0\0\5User\012ANONYMOUS\0\0",
        client_host_address=b"\x0a\1\2\3",
    )
    answer = k58_envelope.handle(ctx, request)
    assert isinstance(answer, Pending)
    assert answer.value.committed_offset == 41


class Quorum:
    """A quorum that the node leads."""

    leader_id = 1
    committed_offset = 41


def test_who_was_elected_and_does_not_decide_yet_lets_the_broker_ask_again() -> None:
    node = Controller()
    world = World()
    ctx = world.context(version=0, key=58, controller_or_none=Elected())
    ctx.node = cast(Any, node)
    request = EnvelopeRequest(
        request_data=FRAME, request_principal=None, client_host_address=b"\x0a\1\2\3"
    )
    assert k58_envelope.handle(ctx, request) == EnvelopeResponse(error_code=Error.NOT_CONTROLLER)
    assert not node.seen


class Elected:
    """A controller whose office is not certain."""

    in_office = False


def test_a_request_goes_there_and_back() -> None:
    world = World()
    node = Controller(b"header and body")

    class Line:
        def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
            ctx = world.context(version=version, key=58)
            ctx.node = node
            answer = k58_envelope.handle(ctx, request)
            return answer if isinstance(answer, Pending) else completed(answer)

    assert forward(world, Line()).value == b"header and body"
    assert node.seen[0][0].connection.client_host == "10.1.2.3"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"request_data": b""}, Error.INVALID_REQUEST),
        ({"request_data": b"\0\x14\0\3"}, Error.INVALID_REQUEST),
        ({"request_data": b"\0\x14\0\x63\0\0\0\1\0\0"}, Error.UNSUPPORTED_VERSION),
        ({"request_data": b"\0\x3a\0\0\0\0\0\1\xff\xff\0"}, Error.INVALID_REQUEST),
        ({"request_principal": None}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\1\5User"}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"request_principal": b"\0\0\5Us"}, Error.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"\1\2\3"}, Error.INVALID_REQUEST),
    ],
    ids=[
        "empty", "cut header", "version", "envelope in envelope",
        "no principal", "principal version", "cut principal", "address",
    ],
)  # fmt: skip
def test_a_malformed_envelope_is_refused(fields: dict[str, Any], error: Error) -> None:
    node = Controller()
    response = envelope(World(), node, **fields)
    assert (response.error_code, response.response_data) == (error, None)
    assert node.seen == []


def test_a_request_without_an_answer_is_an_error_of_the_server() -> None:
    response = envelope(World(), Controller(None))
    assert response.error_code == Error.UNKNOWN_SERVER_ERROR
