"""A client connection from this node to another: requests out, responses back in order.

One connection at a time to the endpoint that `choose_endpoint` names, opened when there is
something to send and again after a failure, with backoff. A request that was in flight when the
connection broke fails with NETWORK_EXCEPTION: whether it was processed is unknown, and the caller
decides whether to retry. All callbacks run on the loop; record batches in a response are valid only
until they return.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Buffer
from ottla.host.net.client_protocol import ClientProtocol
from ottla.host.net.dialer import Address, Dialer, Handle
from ottla.wire.errors import WireError
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.registry import NAMES, response_type
from ottla.wire.schema import spec_of

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Call:
    """One request in flight; `decode` turns the response's bytes into the caller's value."""

    frame: bytes
    correlation_id: int
    answer: Pending[Any]
    decode: Callable[[Buffer], Any]
    name: str
    timer: Handle | None = None


class Channel:
    """Requests to one other node, answered in the order in which they were sent.

    `patient`: a request waits for a connection until it times out. Otherwise it fails with
    NETWORK_EXCEPTION as soon as an attempt has: for callers that have other nodes to ask.
    """

    def __init__(
        self,
        dialer: Dialer,
        choose_endpoint: Callable[[], Address | None],
        *,
        client_id: str,
        backoff_ms: int = 50,
        backoff_max_ms: int = 1000,
        connect_timeout_ms: int = 10_000,
        connect_timeout_max_ms: int = 30_000,
        patient: bool = True,
    ) -> None:
        self._dialer = dialer
        self._choose_endpoint = choose_endpoint
        self.client_id = client_id
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._connect_timeout_max_ms = connect_timeout_max_ms
        self._patient = patient
        self._failures = 0
        self._correlation_id = 0
        self._unsent: deque[_Call] = deque()
        self._in_flight: deque[_Call] = deque()
        self._protocol: ClientProtocol | None = None
        self._address: Address | None = None
        self._connecting: Handle | None = None
        """The attempt under way, or the pause before the next one."""
        self._dialing: Address | None = None
        """Where an attempt is under way; None in a pause."""
        self._skip_backoff = False
        """The endpoint has changed since the attempt under way began."""
        self._closed = False

    @property
    def connected(self) -> bool:
        """Tell whether there is a connection."""
        return self._protocol is not None

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send a request; return the response message, or an ApiError.

        Errors: NETWORK_EXCEPTION (broken in flight), REQUEST_TIMED_OUT (also while no
        connection could be made).
        """
        key = spec_of(type(request)).key
        assert key is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = encode_request(request, version, self._correlation_id, self.client_id)
        response = response_type(key)

        def decoded(body: Buffer) -> Any:
            return decode_response(response, body, version)[1]

        return self._submit(frame, self._correlation_id, decoded, NAMES[key], timeout_ms)

    def withdraw(self, answer: Pending[Any | ApiError]) -> bool:
        """Cancel a request that still waits for a connection; return whether it did.

        It then ends with REQUEST_TIMED_OUT. A request in flight is not cancelled.
        """
        for call in self._unsent:
            if call.answer is answer:
                self._timed_out(call)
                return True
        return False

    def retarget(self) -> None:
        """Close the connection where another endpoint is chosen now.

        What is in flight fails with NETWORK_EXCEPTION at once: an endpoint that hangs would
        keep it until it times out. The backoff of attempts at the old one does not count.
        """
        if self._protocol is not None:
            if self._choose_endpoint() != self._address:
                self._protocol.abort()
        elif self._connecting is not None:
            self._failures = 0
            if self._dialing is None or self._choose_endpoint() != self._dialing:
                self._connecting.cancel()
                self._try_after(0)
            else:
                self._skip_backoff = True

    def close(self) -> None:
        """End the connection; everything unanswered fails with NETWORK_EXCEPTION."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._protocol is not None:
            self._protocol.abort()
        self._fail_all([*self._in_flight, *self._unsent], "the channel is closed")

    def _submit(
        self,
        frame: bytes,
        correlation_id: int,
        decoded: Callable[[Buffer], Any],
        name: str,
        timeout_ms: int,
    ) -> Pending[Any | ApiError]:
        answer: Pending[Any | ApiError] = Pending()
        if self._closed:
            answer.complete(ApiError(Error.NETWORK_EXCEPTION, "the channel is closed"))
            return answer
        call = _Call(frame, correlation_id, answer, decoded, name)
        call.timer = self._dialer.after(timeout_ms, lambda: self._timed_out(call))
        if self._protocol is not None and self._protocol.connected:
            self._in_flight.append(call)
            self._protocol.write(frame)
        else:
            # Also while the end of a connection is on its way: it would fail as one in flight.
            self._unsent.append(call)
            self._connect()
        return answer

    # -- connection ----------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None and not self._closed:
            self._try_after(0)

    def _try_after(self, delay_ms: int) -> None:
        self._dialing = None
        self._connecting = self._dialer.after(delay_ms, self._try)

    def _try(self) -> None:
        self._connecting = None
        if not self._unsent or self._protocol is not None or self._closed:
            return
        self._skip_backoff = False
        address = self._choose_endpoint()
        if address is None:
            self._failed()
            return
        # It doubles with each failure, as the backoff does, for the sake of distant peers.
        timeout_ms = min(
            self._connect_timeout_ms * 2 ** min(self._failures, 10), self._connect_timeout_max_ms
        )
        protocol = ClientProtocol(self._received, self._lost)
        self._dialing = address
        self._connecting = self._dialer.dial(
            address, protocol, timeout_ms, lambda failure: self._dialed(address, protocol, failure)
        )

    def _dialed(
        self, address: Address, protocol: ClientProtocol, failure: Exception | None
    ) -> None:
        self._connecting = self._dialing = None
        if failure is not None:
            if self._failures == 0:
                log.info("connection to %s:%d failed: %s; retrying", *address, failure)
            self._failed()
        elif not protocol.connected:
            self._failed()  # Lost before anything was written to it.
        else:
            self._failures = 0
            self._protocol, self._address = protocol, address
            while self._unsent:
                call = self._unsent.popleft()
                self._in_flight.append(call)
                protocol.write(call.frame)

    def _failed(self) -> None:
        """Back off before the next attempt, unless there is another endpoint by now.

        A channel that is not patient backs off, too: what is sent meanwhile is tried afterwards.
        """
        if self._skip_backoff:
            delay_ms = 0
        else:
            self._failures += 1
            delay_ms = min(self._backoff_ms * 2 ** min(self._failures, 10), self._backoff_max_ms)
        # Set before callers are called: what they send next waits for the backoff, too.
        self._try_after(delay_ms)
        if not self._patient:
            unsent = list(self._unsent)
            self._unsent.clear()
            self._fail_all(unsent, "the peer cannot be reached")

    def _received(self, body: Buffer) -> None:
        if not self._in_flight:
            self._abort_connection("a response without a request")
            return
        call = self._in_flight.popleft()
        if int.from_bytes(body[:4], "big", signed=True) != call.correlation_id:
            self._in_flight.appendleft(call)
            self._abort_connection("a response with an unexpected correlation id")
            return
        try:
            value = call.decode(body)
        except WireError as error:
            self._in_flight.appendleft(call)
            self._abort_connection(f"a malformed {call.name} response: {error}")
            return
        self._finish(call, value)

    def _lost(self, reason: str) -> None:
        self._protocol = None
        lost = list(self._in_flight)
        self._in_flight.clear()
        self._fail_all(lost, reason)
        if self._unsent:
            self._connect()

    def _abort_connection(self, reason: str) -> None:
        log.warning("connection of client %s closed: %s", self.client_id, reason)
        assert self._protocol is not None
        self._protocol.abort()

    def _timed_out(self, call: _Call) -> None:
        error = ApiError(Error.REQUEST_TIMED_OUT, f"no answer to {call.name} in time")
        if call in self._unsent:
            self._unsent.remove(call)
            self._finish(call, error)
            return
        # Responses come in order: after a timeout the connection has no further use. It ends before
        # the caller is called, whose next request waits for another one.
        if self._protocol is not None:
            self._protocol.abort()
        self._finish(call, error)

    def _fail_all(self, calls: list[_Call], reason: str) -> None:
        for call in calls:
            self._finish(call, ApiError(Error.NETWORK_EXCEPTION, reason))

    def _finish(self, call: _Call, value: Any) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.answer.complete(value)
