"""A broker's way to the active controller: clients' requests in envelopes, and its own.

A request whose connection broke, or that met a node which is not the controller, is sent again
until its time is over, as Kafka does: whether the lost one was done is unknown, and the
controller's decisions are made to be asked for twice (a second creation is told that the topic
exists).

A client's answer is passed on once this broker's own metadata is as new as the controller's was
when it answered, or after a second: who has deleted a topic, or made one, and then asks the same
broker hears of what he did, which Kafka does not promise. Kafka's controllers do not say how far
that is.

Source: ForwardingManager, NodeToControllerChannelManager, EnvelopeRequest; KIP-590.
"""

import ipaddress
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.base import limits
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.api.base import Context, Forwarded
from ottla.broker.peers import Sender
from ottla.wire.codec import encode
from ottla.wire.messages.default_principal_data import DefaultPrincipalData
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.registry import APIS
from ottla.wire.schema import spec_of

ENVELOPE_VERSION = 0
PRINCIPAL_VERSION = 0

VERSIONS = {62: 4, 63: 1}
"""The versions spoken to a controller where they are not the newest that the codec knows:
those of metadata.version 4.0-IV3."""

METADATA_WAIT_MS = 1_000
"""How long an answer is held back for this broker's own metadata."""

RETRY_MS = 50
"""The pause before a request is sent again."""

ANONYMOUS = struct.pack(">h", PRINCIPAL_VERSION) + encode(
    DefaultPrincipalData(type="User", name="ANONYMOUS", token_authenticated=False),
    PRINCIPAL_VERSION,
)
"""The principal of every client, while nobody authenticates."""

RETRIED = frozenset({Error.NETWORK_EXCEPTION, Error.NOT_CONTROLLER})


@dataclass(slots=True)
class _Call:
    """One request until its answer or `deadline_ms` (monotonic)."""

    request: object
    version: int
    deadline_ms: int
    failure_of: Callable[[Any], Error]
    answer: Pending[Any]


class ControllerForwarder:
    """See `ottla.broker.api.base.Forwarder`."""

    def __init__(
        self,
        sender: Sender,
        *,
        clock: Clock,
        timers: Timers,
        forward_timeout_ms: int = limits.FORWARD_TIMEOUT_MS,
        on_not_controller: Callable[[], None] = lambda: None,
        caught_up: Callable[[int], Pending[None]] = lambda offset: completed(None),
    ) -> None:
        self._sender = sender
        self._clock = clock
        self._timers = timers
        self._forward_timeout_ms = forward_timeout_ms
        self._on_not_controller = on_not_controller
        self._caught_up = caught_up
        self._closed = False

    def close(self) -> None:
        """Send nothing again; the channel's owner closes the channel."""
        self._closed = True

    def forward(self, ctx: Context, frame: bytes) -> Pending[Forwarded]:
        """Send a client's request, header included; answer its response, header included."""
        request = EnvelopeRequest(
            request_data=frame,
            request_principal=ANONYMOUS,
            client_host_address=address_bytes(ctx.connection.client_host),
        )
        answer = self._submit(request, ENVELOPE_VERSION, self._forward_timeout_ms, _envelope_error)
        forwarded: Pending[Forwarded] = Pending()
        answer.then(lambda response: self._pass_on(response, forwarded))
        return forwarded

    def _pass_on(
        self, response: EnvelopeResponse | ApiError, forwarded: Pending[Forwarded]
    ) -> None:
        data = _unwrapped(response)
        if isinstance(response, ApiError) or not isinstance(data, bytes):
            forwarded.complete(data)
            return
        known = self._caught_up(response.committed_offset)
        due_ms = self._clock.monotonic_ms() + METADATA_WAIT_MS

        def give_up() -> None:
            # Whoever keeps the wait lets it go: a broker that hears nothing would gather answers.
            known.complete(None)

        timer = self._timers.at(due_ms, give_up)

        def pass_on(_: None) -> None:
            timer.cancel()
            forwarded.complete(data)

        known.then(pass_on)

    def call(self, request: object, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Ask the controller something of the broker's own."""
        key = spec_of(type(request)).key
        assert key is not None
        version = VERSIONS.get(key, APIS[key].last)
        return self._submit(request, version, timeout_ms, _top_level_error)

    # -- sending -------------------------------------------------------------------------------

    def _submit(
        self, request: object, version: int, timeout_ms: int, failure_of: Callable[[Any], Error]
    ) -> Pending[Any]:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        call = _Call(request, version, deadline_ms, failure_of, Pending())
        self._send(call)
        return call.answer

    def _send(self, call: _Call) -> None:
        left_ms = call.deadline_ms - self._clock.monotonic_ms()
        if self._closed or left_ms <= 0:
            call.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
            return
        sent = self._sender.send(call.request, call.version, timeout_ms=left_ms)
        sent.then(lambda response: self._answered(call, response))

    def _answered(self, call: _Call, response: Any) -> None:
        failure = response.error if isinstance(response, ApiError) else call.failure_of(response)
        now_ms = self._clock.monotonic_ms()
        if failure is Error.NOT_CONTROLLER:
            self._on_not_controller()
        if failure not in RETRIED or self._closed or now_ms + RETRY_MS >= call.deadline_ms:
            call.answer.complete(response)
            return
        self._timers.at(now_ms + RETRY_MS, lambda: self._send(call))


def address_bytes(host: str) -> bytes:
    """Return an address as InetAddress keeps it: 4 or 16 bytes; not an address = none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return b""


def _top_level_error(response: Any) -> Error:
    code = getattr(response, "error_code", 0)
    return Error.NOT_CONTROLLER if code == Error.NOT_CONTROLLER else Error.NONE


def _envelope_error(response: EnvelopeResponse) -> Error:
    return _top_level_error(response)


def _unwrapped(response: EnvelopeResponse | ApiError) -> Forwarded:
    if isinstance(response, ApiError):
        return response
    if response.error_code == Error.NOT_CONTROLLER:
        return ApiError(Error.NOT_CONTROLLER)
    return None if response.error_code else response.response_data
