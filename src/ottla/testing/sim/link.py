"""A node's or a client's way over the simulated network.

A `SimLink` is to its owner what `ottla.host.channel.Channel` is in a process: one connection at a
time, opened when there is something to send, answers in the order of the requests, failures after
which nobody knows whether a request was done.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.host.node_ports import Address, ChooseEndpoint
from ottla.testing.sim.net import MS, Network
from ottla.testing.sim.pipes import Pipe
from ottla.testing.sim.world import Event, Process
from ottla.wire.errors import WireError
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.registry import response_type
from ottla.wire.schema import spec_of


@dataclass(slots=True)
class _Call:
    """One request that waits for its answer."""

    frame: bytes
    correlation_id: int
    answer: Pending[Any]
    response: type
    version: int
    timer: Event | None = None


class SimLink:
    """See `ottla.host.channel.Channel`, whose behaviour this has, in virtual time."""

    def __init__(
        self,
        net: Network,
        place: int,
        owner: Process | None,
        choose_endpoint: ChooseEndpoint,
        client_id: str,
        *,
        backoff_ms: int = 50,
        backoff_max_ms: int = 1000,
        connect_timeout_ms: int = 10_000,
        connect_timeout_max_ms: int = 30_000,
        patient: bool = True,
    ) -> None:
        self.place = place
        self.owner = owner
        self.answered: Callable[[], None] = lambda: None
        self._net = net
        self._choose_endpoint = choose_endpoint
        self._client_id = client_id
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._connect_timeout_ms = connect_timeout_ms
        self._connect_timeout_max_ms = connect_timeout_max_ms
        self._patient = patient
        self._failures = 0
        self._correlation_id = 0
        self._unsent: deque[_Call] = deque()
        self._in_flight: deque[_Call] = deque()
        self._pipe: Pipe | None = None
        self._address: Address | None = None
        self._connecting: Event | None = None
        self._trying: Address | None = None
        """Where an attempt is under way; None in the pause between attempts."""
        self._closed = False

    @property
    def connected(self) -> bool:
        """Tell whether a connection stands."""
        return self._pipe is not None

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send a request; answer the response message, or an ApiError."""
        answer: Pending[Any | ApiError] = Pending()
        key = spec_of(type(request)).key
        assert key is not None
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self._client_id)
        if self._closed:
            answer.complete(ApiError(Error.NETWORK_EXCEPTION, "the link is closed"))
            return answer
        call = _Call(frame, self._correlation_id, answer, response_type(key), version)
        call.timer = self._after(timeout_ms * MS, lambda: self._timed_out(call))
        if self._pipe is not None:
            self._in_flight.append(call)
            self._pipe.send(frame)
        else:
            self._unsent.append(call)
            self._connect()
        return answer

    def _after(self, delay_us: int, call: Callable[[], None]) -> Event:
        return self._net.world.after(delay_us, call, self.owner)

    def withdraw(self, answer: Pending[Any | ApiError]) -> bool:
        """Take back a request that still waits for a connection; tell whether it did."""
        for call in self._unsent:
            if call.answer is answer:
                self._timed_out(call)
                return True
        return False

    def retarget(self) -> None:
        """Leave the present endpoint where another one is named now."""
        if self._pipe is not None:
            if self._choose_endpoint() != self._address:
                self._drop("another endpoint is named")
        elif self._connecting is not None:
            self._failures = 0
            if self._trying is None or self._choose_endpoint() != self._trying:
                self._connecting.cancel()
                self._connecting = self._after(0, self._try)

    def close(self) -> None:
        """End the connection; everything unanswered fails with NETWORK_EXCEPTION."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        calls = [*self._in_flight, *self._unsent]
        self._in_flight.clear()
        self._unsent.clear()
        if self._pipe is not None:
            self._pipe.abandon()
            self._pipe = None
        self._fail(calls, "the link is closed")

    # -- connecting ----------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connecting is None and not self._closed:
            self._connecting = self._after(0, self._try)

    def _try(self) -> None:
        self._connecting = None
        if not self._unsent or self._pipe is not None or self._closed:
            return
        address = self._choose_endpoint()
        if address is None:
            self._failed_to_connect()
            return
        self._trying = address
        timeout_us = MS * min(
            self._connect_timeout_ms << min(self._failures, 10), self._connect_timeout_max_ms
        )
        if self._net.is_cut(self.place, address):
            self._connecting = self._after(timeout_us, self._failed_to_connect)
            return
        travel_us = self._net.delay_us() + self._net.delay_us()
        self._connecting = self._after(travel_us, lambda: self._reached(address))

    def _reached(self, address: Address) -> None:
        door = self._net.door_at(address)
        if door is None or not door.is_open:
            self._failed_to_connect()
            return
        self._connecting = self._trying = None
        self._failures = 0
        pipe = self._pipe = Pipe(self._net, self, door, address)
        self._address = address
        while self._unsent:
            call = self._unsent.popleft()
            self._in_flight.append(call)
            pipe.send(call.frame)

    def _failed_to_connect(self) -> None:
        self._connecting = self._trying = None
        self._failures += 1
        pause_ms = min(self._backoff_ms << min(self._failures, 10), self._backoff_max_ms)
        # Set before anybody is told: what they send next waits out the pause, too.
        self._connecting = self._after(pause_ms * MS, self._try)
        if not self._patient:
            calls = list(self._unsent)
            self._unsent.clear()
            self._fail(calls, "the peer cannot be reached")

    # -- answers -------------------------------------------------------------------------------

    def received(self, pipe: Pipe, frame: bytes) -> None:
        """Take the response to the oldest request."""
        if pipe is not self._pipe:
            return
        call = self._in_flight[0] if self._in_flight else None
        body = bytearray(frame[4:])
        if call is None or int.from_bytes(body[:4], "big", signed=True) != call.correlation_id:
            raise AssertionError("an answer that nobody asked for")
        self._in_flight.popleft()
        try:
            value: Any = decode_response(call.response, body, call.version)[1]
        except WireError as error:
            raise AssertionError(f"a malformed {call.response.__name__}: {error}") from error
        self.answered()
        self._finish(call, value)
        # A channel's buffer, too, is only good while the listeners run.
        body[:] = b"\xbb" * len(body)

    def lost(self, pipe: Pipe, reason: str) -> None:
        """The connection has ended."""
        if pipe is not self._pipe:
            return
        self._pipe = None
        calls = list(self._in_flight)
        self._in_flight.clear()
        self._fail(calls, reason)
        if self._unsent:
            self._connect()

    def _drop(self, reason: str) -> None:
        pipe = self._pipe
        if pipe is not None:
            pipe.abandon()
            # As a transport's: the loss is told after what called for it.
            self._after(0, lambda: self.lost(pipe, reason))

    def _timed_out(self, call: _Call) -> None:
        if call.answer.done:
            return
        error = ApiError(Error.REQUEST_TIMED_OUT, "no answer in time")
        if call in self._unsent:
            self._unsent.remove(call)
            self._finish(call, error)
            return
        # Answers come in order: once one is given up the connection has no further use.
        self._finish(call, error)
        self._drop("a request was given up")

    def _fail(self, calls: list[_Call], reason: str) -> None:
        for call in calls:
            self._finish(call, ApiError(Error.NETWORK_EXCEPTION, reason))

    def _finish(self, call: _Call, value: Any) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.answer.complete(value)


def links_from(
    net: Network,
    place: int,
    owner: Process | None,
    answered: Callable[[], None] = lambda: None,
) -> "Callable[..., SimLink]":
    """Return what makes links from a place; see `ottla.host.node_ports.Connect`.

    `answered` is called before an answer is handed over.
    """

    def connect(choose_endpoint: ChooseEndpoint, *, client_id: str, **timing: Any) -> SimLink:
        link = SimLink(net, place, owner, choose_endpoint, client_id, **timing)
        link.answered = answered
        return link

    return connect
