"""Sends requests to the active controller: clients' requests in envelopes, and the broker's own.

A request that reached a node which is not the controller is retried until it times out: after its
own timeout_ms, and when its client's connection closes. So is a request whose connection broke, as
in Kafka, although it may have been processed; requests that must not be repeated are the exception,
see `ottla.broker.forwarding.forwarded_requests`: their clients get REQUEST_TIMED_OUT or, for
deletions, the result for the topics of the request. The same holds for a request that times out
while the controller has not responded (see `ottla.broker.forwarding.controller_limits`); its
connection stays open, because to close it would fail the requests behind it.

Clients' requests are sent one at a time: the controller handles the requests of a connection one
after the other anyway (decision 2), and a request that waits there cannot be cancelled when it
times out, but would be processed after its client has given up.

A response is passed on once this broker's metadata has the offset at which the controller
responded, or after a second: a client that has created or deleted a topic and then asks the same
broker sees the result, which Kafka does not guarantee. Kafka's controllers do not send that offset.

Source: ForwardingManager, NodeToControllerChannelManager, EnvelopeRequest; KIP-590.
"""

import ipaddress
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.forwarding.forwarded_requests import Forwarding, is_at_most_once, look_at
from ottla.broker.forwarding.principal_serde import serialize_principal
from ottla.broker.ports import Forwarded, RequestContext, Sender
from ottla.wire.errors import WireError
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.registry import APIS
from ottla.wire.schema import spec_of

ENVELOPE_VERSION = 0

VERSIONS = {62: 4, 63: 1}
"""The versions of requests to a controller that are not the newest of the codec: those of
metadata.version 4.0-IV3."""

METADATA_WAIT_MS = 1_000
"""How long a response waits for this broker's metadata."""

RETRY_MS = 50
"""The backoff before a request is sent again."""

ANSWER_SLACK_MS = 500
"""How much longer than its timeout the response of a request in flight is awaited: the controller
responds at the timeout itself, with more detail, for instance which topics are deleted."""

RETRIED = frozenset({Error.NETWORK_EXCEPTION, Error.NOT_CONTROLLER})


class ControllerSender(Sender, Protocol):
    """A channel to the active controller."""

    def withdraw(self, answer: Pending[Any | ApiError]) -> bool:
        """Cancel a request that still waits for a connection; return whether it did.

        It then ends with REQUEST_TIMED_OUT.
        """
        ...


@dataclass(slots=True, eq=False)
class _Call:
    """One request until its response; not sent after `send_until_ms` (monotonic).

    `deadline_ms`: when the connection that it was sent over is closed.
    `retry`: returns what to send where the request may have been processed, None = nothing.
    `sent`: the response to the last attempt.
    `is_clients`: a client's request, sent when no other one is in flight.
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
    """A client's request that is forwarded."""

    ctx: RequestContext
    forwarding: Forwarding
    was_retried: bool = False

    def envelope(self, frame: bytes) -> EnvelopeRequest:
        return EnvelopeRequest(
            request_data=frame,
            request_principal=serialize_principal(self.ctx.principal),
            client_host_address=address_bytes(self.ctx.connection.client_host),
        )

    def retry_envelope(self, remaining_ms: int) -> EnvelopeRequest | None:
        """Return an equivalent request to one that may have been processed, or None."""
        deletion = self.forwarding.deletion
        frame = None if deletion is None else deletion.frame(remaining_ms)
        if frame is None:
            return None
        self.was_retried = True
        return self.envelope(frame)

    def response(self, data: bytes) -> bytes | None:
        """Return the response to the client's request; None if the data is not one."""
        deletion = self.forwarding.deletion
        if deletion is None or not self.was_retried:
            return data
        try:
            return deletion.answer(data, self.ctx.broker.image)
        except WireError:
            return None


class ControllerForwarder:
    """See `ottla.broker.api.base.Forwarder`.

    `forward_timeout_ms`: the timeout of clients' requests without one, and the longest time for
    which a request is retried.
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
        """Retry nothing any more; the channel's owner closes the channel."""
        self._closed = True

    def forward(self, ctx: RequestContext, frame: bytes) -> Pending[Forwarded]:
        """Send a client's request with its header; return its response with its header."""
        forwarded_request = _ForwardedRequest(ctx, look_at(frame, ctx.broker.image))
        envelope = forwarded_request.envelope(frame)
        now_ms = self._clock.monotonic_ms()
        limit_ms = forwarded_request.forwarding.timeout_ms or self._forward_timeout_ms
        send_until_ms = now_ms + min(self._forward_timeout_ms, limit_ms)
        answer_by_ms = now_ms + limit_ms + ANSWER_SLACK_MS

        def retry() -> object | None:
            if not forwarded_request.forwarding.at_most_once:
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
        """Stop sending at the request's timeout, or when its client's connection closes.

        A response to a request in flight is awaited until `answer_by_ms`.
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
            # Completed, so that the waiter is removed: they would pile up without new metadata.
            caught_up.complete(None)

        timer = self._timers.at(due_ms, give_up)

        def respond(_: None) -> None:
            timer.cancel()
            forwarded.complete(forwarded_request.response(data))

        caught_up.then(respond)

    def call(self, request: object, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send a request of the broker itself to the controller."""
        key = spec_of(type(request)).key
        assert key is not None
        version = VERSIONS.get(key, APIS[key].last)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        retry = None if is_at_most_once(key) else request
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
        """Send the next queued request; in a loop, because it may be answered at once."""
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
    """Return an address as the bytes of an InetAddress: 4 or 16, none if it is not an address."""
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
