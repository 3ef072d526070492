"""The controller's side of envelopes, and both sides together.

Method: the envelope's handler is the real one; its dispatcher is a fake that records requests.
"""

from typing import Any, cast

import pytest

from ottla.base.errors import Error
from ottla.base.pending import Pending, completed
from ottla.base.principal import ANONYMOUS, Principal
from ottla.broker.api import k58_envelope
from ottla.broker.api.base import Context
from ottla.wire.codec import decode, encode
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

from .harness import Harness
from .test_forwarder import FRAME, MOVED, UNTOUCHED, forward


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


def envelope(harness: Harness, node: Any, **fields: Any) -> EnvelopeResponse:
    """Return what the controller's handler makes of an envelope."""
    ctx = harness.context(version=0, key=58)
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
    response = envelope(Harness(), node)
    assert (response.response_data, response.error_code) == (b"done", 0)
    ((ctx, frame),) = node.seen
    assert frame == FRAME
    assert (ctx.header.api_key, ctx.header.api_version) == (55, 1)
    assert (ctx.header.correlation_id, ctx.header.client_id) == (77, "a client")
    assert ctx.connection.client_host == "10.1.2.3"
    assert ctx.principal == ANONYMOUS


def test_the_request_inside_has_the_principal_of_its_client() -> None:
    node = Controller()
    envelope(Harness(), node, request_principal=b"\0\0\5User\6alice\1\0")
    ((ctx, _),) = node.seen
    assert str(ctx.principal) == "User:alice"
    assert ctx.principal.token_authenticated


def test_the_response_has_the_committed_metadata_offset() -> None:
    harness = Harness()
    ctx = harness.context(version=0, key=58, quorum_or_none=Quorum())
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


def test_an_elected_controller_that_is_not_active_yet_has_the_broker_retry() -> None:
    node = Controller()
    harness = Harness()
    ctx = harness.context(version=0, key=58, controller_or_none=Elected())
    ctx.node = cast(Any, node)
    request = EnvelopeRequest(
        request_data=FRAME, request_principal=None, client_host_address=b"\x0a\1\2\3"
    )
    assert k58_envelope.handle(ctx, request) == UNTOUCHED
    assert not node.seen


class Elected:
    """An elected controller that is not active yet."""

    is_active = False


def test_a_controller_that_resigned_during_a_request_does_not_mark_it_untouched() -> None:
    """What he wrote may be committed by the next controller."""
    controller = Elected()
    controller.is_active = True

    class Deposed(Controller):
        def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
            controller.is_active = False
            return super().dispatch_embedded(ctx, frame)

    harness = Harness()
    ctx = harness.context(version=0, key=58, controller_or_none=controller)
    ctx.node = cast(Any, Deposed())
    request = EnvelopeRequest(
        request_data=FRAME,
        request_principal=b"\0\0\5User\012ANONYMOUS\0\0",
        client_host_address=b"\x0a\1\2\3",
    )
    answer = cast(Any, k58_envelope.handle(ctx, request))
    assert answer.value == MOVED


def test_the_untouched_mark_goes_over_the_wire() -> None:
    for response in (UNTOUCHED, MOVED):
        assert decode(EnvelopeResponse, encode(response, 0), 0) == response


@pytest.mark.parametrize("principal", [ANONYMOUS, Principal("User", "alice")], ids=str)
def test_a_request_goes_there_and_back(principal: Principal) -> None:
    harness = Harness()
    node = Controller(b"header and body")

    class ControllerSender:
        def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
            ctx = harness.context(version=version, key=58)
            ctx.node = node
            seen = decode(EnvelopeRequest, memoryview(encode(request, version)), version)
            answer = k58_envelope.handle(ctx, seen)
            return answer if isinstance(answer, Pending) else completed(answer)

        def withdraw(self, _answer: Pending[Any]) -> bool:
            return False

    forwarded = forward(harness, ControllerSender(), principal=principal)
    assert forwarded.value == b"header and body"
    assert node.seen[0][0].connection.client_host == "10.1.2.3"
    assert node.seen[0][0].principal == principal


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
    response = envelope(Harness(), node, **fields)
    assert (response.error_code, response.response_data) == (error, None)
    assert node.seen == []


def test_a_request_without_an_answer_is_an_error_of_the_server() -> None:
    response = envelope(Harness(), Controller(None))
    assert response.error_code == Error.UNKNOWN_SERVER_ERROR
