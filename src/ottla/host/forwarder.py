"""A broker's way to the active controller: clients' requests in envelopes, and its own.

A request that met a node which is not the controller is sent again until its time is over; its
time is what it says itself (timeout_ms), and ends with its client's connection. So is one whose
connection broke, as Kafka does, although whether that one was done is unknown, but for those that
are to be done once: see `ottla.broker.forwarding`. Their clients are told REQUEST_TIMED_OUT, or,
of deletions, what became of the topics that they meant. So are those whose time is over while the
controller has not answered (see `ottla.broker.controller_limits`); but the connection stays, since
to break it would leave others unanswered.

Clients' requests are sent one at a time: the controller's node handles what comes over a connection
one after the other anyway (decision 2), and what waits there cannot be called back when its time is
over, but is done after its client has given up.

A client's answer is passed on once this broker's own metadata is as new as the controller's was
when it answered, or after a second: who has deleted a topic, or made one, and then asks the same
broker hears of what he did, which Kafka does not promise. Kafka's controllers do not say how far
that is.

Source: ForwardingManager, NodeToControllerChannelManager, EnvelopeRequest; KIP-590.
"""

import ipaddress
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.api.base import Context, Forwarded
from ottla.broker.forwarding import Forwarding, is_once, look_at
from ottla.broker.peers import Sender
from ottla.wire.codec import encode
from ottla.wire.errors import WireError
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

ANSWER_SLACK_MS = 500
"""How much longer than its limit a request that is on its way is waited for: the controller answers
at the limit itself, and more exactly, for instance which of a deletion's topics are gone."""

ANONYMOUS = struct.pack(">h", PRINCIPAL_VERSION) + encode(
    DefaultPrincipalData(type="User", name="ANONYMOUS", token_authenticated=False),
    PRINCIPAL_VERSION,
)
"""The principal of every client, while nobody authenticates."""

RETRIED = frozenset({Error.NETWORK_EXCEPTION, Error.NOT_CONTROLLER})


class ControllerSender(Sender, Protocol):
    """A way to the controller, whoever that is."""

    def withdraw(self, answer: Pending[Any | ApiError]) -> bool:
        """Take back a request that still waits for a connection; tell whether it did.

        Its answer is REQUEST_TIMED_OUT then.
        """
        ...


@dataclass(slots=True, eq=False)
class _Call:
    """One request until its answer; not sent after `send_until_ms` (monotonic).

    `deadline_ms`: when the connection that it went over is given up.
    `retry`: returns what to send where the request may have been done, None = nothing.
    `sent`: the answer to the last sending.
    `is_clients`: it is sent when no other such is on its way.
    """

    request: object
    version: int
    deadline_ms: int
    send_until_ms: int
    retry: Callable[[], object | None]
    answer: Pending[Any]
    is_clients: bool = False
    sent: Pending[Any | ApiError] | None = None


@dataclass(slots=True)
class _ForwardedRequest:
    """One client's request on its way through this broker."""

    ctx: Context
    forwarding: Forwarding
    was_retried: bool = False

    def envelope(self, frame: bytes) -> EnvelopeRequest:
        return EnvelopeRequest(
            request_data=frame,
            request_principal=ANONYMOUS,
            client_host_address=address_bytes(self.ctx.connection.client_host),
        )

    def retry_envelope(self, remaining_ms: int) -> EnvelopeRequest | None:
        """Return what asks for the same act as a request that may have been done."""
        deletion = self.forwarding.deletion
        frame = None if deletion is None else deletion.frame(remaining_ms)
        if frame is None:
            return None
        self.was_retried = True
        return self.envelope(frame)

    def response(self, data: bytes) -> bytes | None:
        """Return the response in the form in which the client has asked; None = it is none."""
        deletion = self.forwarding.deletion
        if deletion is None or not self.was_retried:
            return data
        try:
            return deletion.answer(data, self.ctx.broker.image)
        except WireError:
            return None


class ControllerForwarder:
    """See `ottla.broker.api.base.Forwarder`.

    `forward_timeout_ms`: the limit of clients' requests that say none, and how long the controller
    is looked for at most.
    """

    def __init__(
        self,
        sender: ControllerSender,
        *,
        clock: Clock,
        timers: Timers,
        forward_timeout_ms: int,
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
        self._in_flight: _Call | None = None
        self._queue: deque[_Call] = deque()
        self._is_sending_queued = False

    def close(self) -> None:
        """Send nothing again; the channel's owner closes the channel."""
        self._closed = True

    def forward(self, ctx: Context, frame: bytes) -> Pending[Forwarded]:
        """Send a client's request, header included; answer its response, header included."""
        forwarded_request = _ForwardedRequest(ctx, look_at(frame, ctx.broker.image))
        envelope = forwarded_request.envelope(frame)
        now_ms = self._clock.monotonic_ms()
        limit_ms = forwarded_request.forwarding.timeout_ms or self._forward_timeout_ms
        send_until_ms = now_ms + min(self._forward_timeout_ms, limit_ms)
        answer_by_ms = now_ms + limit_ms + ANSWER_SLACK_MS

        def retry() -> object | None:
            if not forwarded_request.forwarding.once:
                return envelope
            return forwarded_request.retry_envelope(
                max(1, send_until_ms - self._clock.monotonic_ms())
            )

        # A controller that still answers at the limit keeps its connection.
        deadline_ms = max(now_ms + self._forward_timeout_ms, answer_by_ms) + ANSWER_SLACK_MS
        call = _Call(
            envelope,
            ENVELOPE_VERSION,
            deadline_ms,
            send_until_ms,
            retry,
            Pending(),
            is_clients=True,
        )
        self._set_time_limits(ctx.connection.closed, call, answer_by_ms)
        self._send(call)
        forwarded: Pending[Forwarded] = Pending()
        call.answer.then(
            lambda response: self._respond(response, forwarded_request, forwarded, answer_by_ms)
        )
        return forwarded

    def _set_time_limits(self, closed: Pending[None], call: _Call, answer_by_ms: int) -> None:
        """Send nothing after the request's time, or once nobody is there to hear the answer.

        What is on its way then is waited for until `answer_by_ms`.
        """

        def stop_sending(_: None = None) -> None:
            call.send_until_ms = self._clock.monotonic_ms()
            if call in self._queue:
                self._queue.remove(call)
                expire()
            elif call.sent is not None:
                self._sender.withdraw(call.sent)

        def expire() -> None:
            call.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))

        sent_until = self._timers.at(call.send_until_ms, stop_sending)
        answered_by = self._timers.at(answer_by_ms, expire)

        def answered(_: object) -> None:
            sent_until.cancel()
            answered_by.cancel()
            closed.forget(stop_sending)

        closed.then(stop_sending)
        call.answer.then(answered)

    def _respond(
        self,
        response: EnvelopeResponse | ApiError,
        forwarded_request: _ForwardedRequest,
        forwarded: Pending[Forwarded],
        answer_by_ms: int,
    ) -> None:
        data = _unwrapped(response)
        if isinstance(response, ApiError) or not isinstance(data, bytes):
            forwarded.complete(data)
            return
        caught_up = self._caught_up(response.committed_offset)
        due_ms = min(self._clock.monotonic_ms() + METADATA_WAIT_MS, answer_by_ms)

        def give_up() -> None:
            # Whoever keeps the wait lets it go: a broker that hears nothing would gather answers.
            caught_up.complete(None)

        timer = self._timers.at(due_ms, give_up)

        def respond(_: None) -> None:
            timer.cancel()
            forwarded.complete(forwarded_request.response(data))

        caught_up.then(respond)

    def call(self, request: object, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Ask the controller something of the broker's own."""
        key = spec_of(type(request)).key
        assert key is not None
        version = VERSIONS.get(key, APIS[key].last)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        retry = None if is_once(key) else request
        call = _Call(request, version, deadline_ms, deadline_ms, lambda: retry, Pending())
        self._send(call)
        return call.answer

    # -- sending -------------------------------------------------------------------------------

    def _send(self, call: _Call) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._closed or now_ms >= call.send_until_ms:
            call.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
            return
        if call.is_clients:
            if self._in_flight is not None:
                self._queue.append(call)
                return
            self._in_flight = call
        remaining_ms = call.deadline_ms - now_ms
        call.sent = self._sender.send(call.request, call.version, timeout_ms=remaining_ms)
        call.sent.then(lambda response: self._on_channel_response(call, response))

    def _send_queued(self) -> None:
        """Send what is next in line; in a loop, for it may be answered at once."""
        if self._is_sending_queued:
            return
        self._is_sending_queued = True
        try:
            while self._queue and self._in_flight is None:
                self._send(self._queue.popleft())
        finally:
            self._is_sending_queued = False

    def _on_channel_response(self, call: _Call, response: Any) -> None:
        try:
            self._on_response(call, response)
        finally:
            if self._in_flight is call:
                self._in_flight = None
                self._send_queued()

    def _on_response(self, call: _Call, response: Any) -> None:
        failure = response.error if isinstance(response, ApiError) else _top_level_error(response)
        now_ms = self._clock.monotonic_ms()
        if failure is Error.NOT_CONTROLLER:
            self._on_not_controller()
        if failure not in RETRIED or self._closed or now_ms + RETRY_MS >= call.send_until_ms:
            call.answer.complete(response)
            return
        if not getattr(response, "untouched", False):
            request = call.retry()
            if request is None:
                call.answer.complete(ApiError(Error.REQUEST_TIMED_OUT))
                return
            call.request = request
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


def _unwrapped(response: EnvelopeResponse | ApiError) -> Forwarded:
    if isinstance(response, ApiError):
        return response
    if response.error_code == Error.NOT_CONTROLLER:
        return ApiError(Error.NOT_CONTROLLER)
    return None if response.error_code else response.response_data
