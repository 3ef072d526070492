"""The simulated network: listeners, connections, cut links, delays and faults of frames.

Faults: a frame is slow; a direction of a connection goes silent (the client runs into its request
timeout); a connection breaks, with the request processed or not; a request is delivered again,
later, on a connection that its sender has given up; two places cannot reach each other, one way or
both, and what was sent meanwhile arrives after the cut is healed, or never.

A connection is a stream each way, and the server's end. The server processes one request of a
connection at a time, in order. Frames are bytes: both ends encode and decode with the product's
codec, and a request's buffer is valid only while its handler runs.

A place is a node id, or a negative number for a client.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from ottla.base.pending import Pending
from ottla.broker.dispatch import Outcome
from ottla.broker.ports import CloseConnection, Connection, Listener
from ottla.host.node_ports import Address
from ottla.testing.sim.scheduler import Process, Scheduler, below

MS = 1000
"""Microseconds of one millisecond."""

RESEND_US = 200 * MS
"""The first retransmission timeout on a cut link, as with TCP."""

RESEND_MAX_US = 3_200 * MS

GONE_US = 30_000 * MS
"""When a server closes a connection whose other end lost power."""

Handler = Callable[[Connection, memoryview], Outcome]


@dataclass(slots=True)
class NetFaults:
    """Chances of faults for one frame, and the largest delay of a slow one."""

    slow: float = 0.0
    slow_us_max: int = 2_000 * MS
    silent: float = 0.0
    broken: float = 0.0
    twice: float = 0.0


@dataclass(slots=True)
class SimListener:
    """A listener of a node, and the handler of its requests."""

    process: Process
    place: int
    kind: Listener
    name: str
    handle: Handler
    is_open: bool = False


class BlockedDial(Protocol):
    """An attempt to connect over a cut link."""

    def healed(self) -> None:
        """Called when all links work again."""
        ...


class Network:
    """All listeners and connections. `cut`: pairs (from, to) of places without a link."""

    def __init__(
        self, scheduler: Scheduler, random: Random, on_frame: Callable[[str, int, int, bytes], None]
    ) -> None:
        self.scheduler = scheduler
        self.random = random
        self.faults = NetFaults()
        self.cut: set[tuple[int, int]] = set()
        self.marks: Callable[[str], None] = lambda name: None
        self.blocked_dials: dict[BlockedDial, None] = {}
        """Attempts to connect that began on cut links and have not ended, in their order."""
        self.pipes: dict[int, Pipe] = {}
        self.arriving_on = 0
        """The connection of the frame that observers are called with. A redelivered request has
        one of its own."""
        self.arrived: Callable[[str, int, int, bytes], None] | None = None
        """Called like `frame_arrived` with each frame that arrives, before it is read."""
        self.held: Callable[[Pipe, bytes, int, bool], None] | None = None
        """Called with a request that was not answered at once, its arrival time (microseconds), and
        whether it was answered."""
        self.late_us: Callable[[int, int, bytes], int] | None = None
        """Called with source, target and frame of each request that is sent; returns by how many
        microseconds it, and what follows it on its connection, is delayed."""
        self._observers = [on_frame]
        self._response_observers: list[Callable[[int, bytes], None]] = []
        self._listeners: dict[Address, SimListener] = {}
        self._numbers = 0

    # -- places --------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all faults and cuts. What is under way on a cut link goes on.

        An attempt to connect may last 30 seconds: those that began on a cut link need not end
        first, as their next packet gets through.
        """
        self.faults = NetFaults()
        self.cut.clear()
        blocked = [*self.blocked_dials]
        self.blocked_dials.clear()
        for dial in blocked:
            dial.healed()

    def listen(self, address: Address, listener: SimListener) -> None:
        """Bind a listener to an address, which must be free."""
        held = self._listeners.get(address)
        assert held is None or not held.process.alive, f"{address} is taken"
        self._listeners[address] = listener

    def listener_at(self, address: Address) -> SimListener | None:
        """Return the listener at an address, if its process runs."""
        listener = self._listeners.get(address)
        return listener if listener is not None and listener.process.alive else None

    def is_cut(self, place: int, address: Address) -> bool:
        """Tell whether no connection can be made: it needs both directions."""
        listener = self.listener_at(address)
        if listener is None:
            return False
        return (place, listener.place) in self.cut or (listener.place, place) in self.cut

    def pipe_between(self, source: int, target: int) -> "Pipe | None":
        """Return the newest connection from a place to a node, if any."""
        found = None
        for pipe in self.pipes.values():
            if pipe.source == source and pipe.listener.place == target:
                found = pipe
        return found

    def vanish(self, process: Process, *, silently: bool) -> None:
        """End a dead process's listeners and connections; `silently`: peers are not notified."""
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        for pipe in list(self.pipes.values()):
            if pipe.listener.process is process:
                pipe.server_died(silently=silently)
            elif pipe.owner is process:
                pipe.client_died(silently=silently)

    def close(self, listener: SimListener) -> None:
        """End the connections of a listener."""
        for pipe in list(self.pipes.values()):
            if pipe.listener is listener:
                pipe.close_server()

    def delay_us(self) -> int:
        """Draw the delay of one frame."""
        random = self.random
        faults = self.faults
        if faults.slow and random.random() < faults.slow:
            self.marks("frame-slow")
            return random.randrange(20 * MS, faults.slow_us_max)
        return 150 + below(random, 1_350)

    def next_number(self) -> int:
        """Return a number for a connection."""
        self._numbers += 1
        return self._numbers

    def observe(self, observer: Callable[[str, int, int, bytes], None]) -> None:
        """Call `observer` with each frame that arrives, before it is read."""
        self._observers.append(observer)

    def observe_responses(self, observer: Callable[[int, bytes], None]) -> None:
        """Call `observer` with each response that is sent, and the number of its connection."""
        self._response_observers.append(observer)

    def response_sent(self, connection: int, frame: bytes) -> None:
        """Pass a response that is sent to observers."""
        for observer in self._response_observers:
            observer(connection, frame)

    def frame_arrived(
        self, what: str, source: int, target: int, frame: bytes, *, connection: int = 0
    ) -> None:
        """Pass a frame that arrives to the digest of the history and to observers."""
        self.arriving_on = connection
        for observer in self._observers:
            observer(what, source, target, frame)
        if self.arrived is not None:
            self.arrived(what, source, target, frame)


def client_host(place: int) -> str:
    """Return the IP address of a place."""
    return f"10.0.0.{place}" if place >= 0 else f"10.1.0.{-place}"


class ClientEnd(Protocol):
    """The client's end of a connection."""

    place: int
    owner: Process | None

    def received(self, pipe: "Pipe", frame: bytes) -> None:
        """Take the response to the oldest request."""
        ...

    def lost(self, pipe: "Pipe", reason: str) -> None:
        """Called when the connection has ended."""
        ...


class _Stream:
    """One direction of a connection; it keeps the order of frames."""

    __slots__ = ("_last_us", "_net", "_queue", "_resend_us", "_route", "_waits", "silent")

    def __init__(self, net: Network, source: int, target: int) -> None:
        self.silent = False
        """Nothing arrives any more, and neither end is notified."""
        self._net = net
        self._route = (source, target)
        self._queue: deque[tuple[Process | None, Callable[[], None]]] = deque()
        self._last_us = 0
        self._resend_us = RESEND_US
        self._waits = False

    def hold(self, delay_us: int) -> None:
        """Delay all deliveries until `delay_us` from now."""
        self._last_us = max(self._last_us, self._net.scheduler.now_us + delay_us)

    def put(self, process: Process | None, call: Callable[[], None]) -> None:
        """Schedule `call` at the other end, after all that was put here before."""
        if self.silent:
            return
        if self._waits:
            self._queue.append((process, call))
        elif self._route in self._net.cut:
            self._queue.append((process, call))
            self._wait()
        else:
            self._deliver(process, call)

    def _wait(self) -> None:
        self._waits = True
        self._net.scheduler.after(self._resend_us, self._resend)
        self._resend_us = min(2 * self._resend_us, RESEND_MAX_US)

    def _resend(self) -> None:
        self._waits = False
        while self._queue and not self.silent:
            if self._route in self._net.cut:
                self._wait()
                return
            self._resend_us = RESEND_US
            self._deliver(*self._queue.popleft())

    def _deliver(self, process: Process | None, call: Callable[[], None]) -> None:
        net, last_us = self._net, self._last_us
        at_us = net.scheduler.now_us + net.delay_us()
        self._last_us = at_us if at_us > last_us else last_us
        net.scheduler.at(self._last_us, call, process)


class Pipe:
    """One connection: a stream each way, and both ends."""

    def __init__(
        self, net: Network, link: ClientEnd, listener: SimListener, address: Address
    ) -> None:
        self.net = net
        self.link: ClientEnd | None = link
        self.listener = listener
        self.owner = link.owner
        self.number = net.next_number()
        self.source = link.place
        self._to_server = _Stream(net, link.place, listener.place)
        self._to_client = _Stream(net, listener.place, link.place)
        self._waiting: deque[bytes] = deque()
        self._answering = False
        self._muted = False
        """A response had a throttle."""
        self._pending_request: tuple[bytes, int] | None = None
        """The request that is not answered yet, and since when."""
        self._open = True
        """Whether the server's end is open."""
        self.address = address
        host, port = address
        self.info = Connection(
            id=f"{host}:{port}-{client_host(link.place)}:{40_000 + self.number}-{self.number}",
            listener=listener.kind,
            listener_name=listener.name,
            client_host=client_host(link.place),
            client_port=40_000 + self.number % 20_000,
        )
        net.pipes[self.number] = self

    # -- moving bytes --------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a request on its way to the server."""
        net, random, faults = self.net, self.net.random, self.net.faults
        if faults.silent and random.random() < faults.silent:
            random.choice((self._to_server, self._to_client)).silent = True
            net.marks("connection-silent")
        if faults.broken and random.random() < faults.broken:
            net.marks("connection-broken")
            net.scheduler.after(random.randrange(3 * MS), self.break_off)
        if faults.twice and random.random() < faults.twice:
            net.marks("request-twice")
            late_us = random.randrange(faults.slow_us_max)
            net.scheduler.after(
                late_us, lambda: RedeliveredRequest(net, self.listener, self.info, frame).deliver()
            )
        if net.late_us is not None:
            late_us = net.late_us(self.source, self.listener.place, frame)
            if late_us:
                self._to_server.hold(late_us)
        self._to_server.put(self.listener.process, lambda: self._arrived(frame))

    def hold_answers(self, delay_us: int) -> None:
        """Delay all further responses by at least `delay_us`."""
        self._to_client.hold(delay_us)

    # -- the server's end ----------------------------------------------------------------------

    def _arrived(self, frame: bytes) -> None:
        if not self._open:
            return
        place = self.listener.place
        self.net.frame_arrived("request", self.source, place, frame, connection=self.number)
        if self._answering or self._muted or self._waiting:
            self._waiting.append(frame)
        else:
            self._handle(frame)

    def _handle(self, frame: bytes) -> None:
        try:
            outcome = ask(self.listener, self.info, frame)
        except CloseConnection:
            self.net.marks("connection-closed-by-server")
            self.close_server()
            return
        except Exception:
            self.close_server()
            raise
        if not isinstance(outcome, Pending):
            if outcome is not None:
                self._answer(outcome)
            else:
                self._mute()
        elif outcome.done:
            self._answer(outcome.value)
        else:
            self._answering = True
            self._pending_request = frame, self.net.scheduler.now_us
            outcome.then(self._answered_later)

    def _answer(self, chunks: list[Any] | None) -> None:
        if chunks is None:
            self.close_server()
            return
        try:
            body = joined(chunks)
        except OSError:
            self.close_server()  # As the server does when a file slice cannot be read.
            return
        self._to_client.put(self.owner, lambda: self._returned(body))
        self.net.response_sent(self.number, body)
        self._mute()

    def _mute(self) -> None:
        """Read nothing for as long as the request that was handled says."""
        throttle_ms = self.info.take_throttle_ms()
        if throttle_ms:
            self._muted = True
            self.net.scheduler.after(throttle_ms * MS, self._unmute, self.listener.process)

    def _unmute(self) -> None:
        self._muted = False
        self._continue()

    @property
    def pending_request(self) -> tuple[bytes, int] | None:
        """Return the request that is not answered yet, and since when (microseconds)."""
        return self._pending_request

    def report_held(self, *, answered: bool) -> None:
        """Report the pending request, if any, with the time it has waited."""
        pending_request, self._pending_request = self._pending_request, None
        if pending_request is not None and self.net.held is not None:
            self.net.held(self, *pending_request, answered)

    def _answered_later(self, chunks: list[Any] | None) -> None:
        self._answering = False
        self.report_held(answered=True)
        if not self._open:
            release(chunks)
            return
        self._answer(chunks)
        if self._waiting:
            # In an event of its own: the current one belongs to another step of the process.
            self.net.scheduler.after(0, self._continue, self.listener.process)

    def _continue(self) -> None:
        while self._waiting and not (self._answering or self._muted) and self._open:
            self._handle(self._waiting.popleft())

    def close_server(self) -> None:
        """Close the server's end; the client's end is notified."""
        if not self._open:
            return
        self._end_server()
        self._to_client.put(self.owner, self._end_client)

    def _end_server(self) -> None:
        self.report_held(answered=False)
        self._open = False
        self._waiting.clear()
        self.net.pipes.pop(self.number, None)
        if self.listener.process.alive:
            self.info.closed.complete(None)

    def server_died(self, *, silently: bool) -> None:
        """The server's process has ended; `silently`: its machine too, so that no FIN is sent."""
        self._end_server()
        if silently:
            self._to_server.silent = self._to_client.silent = True
        else:
            self._to_client.put(self.owner, self._end_client)

    def client_died(self, *, silently: bool) -> None:
        """The client's process has ended, as `server_died`; if silently, the server times out."""
        self.link = None
        if silently:
            self.net.scheduler.after(GONE_US, self._client_gone, self.listener.process)
        else:
            self._to_server.put(self.listener.process, self._client_gone)

    # -- the client's end ----------------------------------------------------------------------

    def _returned(self, frame: bytes) -> None:
        link = self.link
        if link is not None:
            place = self.listener.place
            self.net.frame_arrived("response", place, self.source, frame, connection=self.number)
            link.received(self, frame)

    def _end_client(self) -> None:
        link, self.link = self.link, None
        if link is not None:
            link.lost(self, "the connection was closed")

    def break_off(self) -> None:
        """Break the connection for both ends, whatever is in flight."""
        if self.link is not None:
            self.net.scheduler.after(self.net.delay_us(), self._end_client, self.owner)
        if self._open:
            self.net.scheduler.after(self.net.delay_us(), self._client_gone, self.listener.process)

    def abandon(self) -> None:
        """The client closes its end: no response is delivered, what was sent may still arrive."""
        self.link = None
        if self._open:
            self._to_server.put(self.listener.process, self._client_gone)

    def _client_gone(self) -> None:
        if self._open:
            self._end_server()


class RedeliveredRequest:
    """A request that is delivered again, after its sender has switched to another connection."""

    def __init__(self, net: Network, listener: SimListener, like: Connection, frame: bytes) -> None:
        self._net = net
        self._listener = listener
        self._frame = frame
        self._number = net.next_number()
        self._info = Connection(
            id=f"{like.id}-again-{self._number}",
            listener=like.listener,
            listener_name=like.listener_name,
            client_host=like.client_host,
            client_port=like.client_port,
            principal=like.principal,
        )

    def deliver(self) -> None:
        """Deliver it, if the receiving process still runs."""
        if self._listener.process.alive and self._listener.is_open:
            self._net.scheduler.after(0, self._arrive, self._listener.process)

    def _arrive(self) -> None:
        place = self._listener.place
        self._net.frame_arrived("again", 0, place, self._frame, connection=self._number)
        try:
            outcome = ask(self._listener, self._info, self._frame)
        except CloseConnection:
            outcome = None
        if isinstance(outcome, Pending):
            outcome.then(self._answered)
        else:
            self._answered(outcome)
        self._info.closed.complete(None)

    def _answered(self, chunks: list[Any] | None) -> None:
        """Show the response to observers, as nobody receives it. Slices of files are not read."""
        if chunks and all(isinstance(each, bytes | bytearray | memoryview) for each in chunks):
            self._net.response_sent(self._number, joined(chunks))
        else:
            release(chunks)


def ask(listener: SimListener, info: Connection, frame: bytes) -> Outcome:
    """Handle a request in a buffer that is overwritten afterwards, as a socket's is."""
    buffer = bytearray(frame)
    try:
        return listener.handle(info, memoryview(buffer)[4:])
    finally:
        buffer[:] = b"\xaa" * len(frame)


def joined(chunks: list[Any]) -> bytes:
    """Return a response's bytes; file slices are read and released. Raises: OSError."""
    parts: list[Any] = []
    try:
        for chunk in chunks:
            if isinstance(chunk, bytes | bytearray | memoryview):
                parts.append(chunk)
                continue
            parts.append(chunk.read())
            if len(parts[-1]) < chunk.length:
                raise OSError(f"{chunk.file.path} was truncated during a read")
    finally:
        release(chunks)
    return b"".join(parts)


def release(chunks: list[Any] | None) -> None:
    """Release file slices that will not be read."""
    for chunk in chunks or ():
        if not isinstance(chunk, bytes | bytearray | memoryview):
            chunk.release()
