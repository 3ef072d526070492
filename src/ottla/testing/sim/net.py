"""The simulated network: listeners, cut links, delays and faults of frames.

Faults: a frame is slow; a direction of a connection goes silent (the client runs into its request
timeout); a connection breaks, with the request processed or not; a request is delivered again,
later, on a connection that its sender has given up; two places cannot reach each other, one way or
both, and what was sent meanwhile arrives after the cut is healed, or never.

A place is a node id, or a negative number for a client.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.dispatch import Outcome
from ottla.broker.ports import Connection, Listener
from ottla.host.node_ports import Address
from ottla.testing.sim.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from ottla.testing.sim.pipes import Pipe

MS = 1000
"""Microseconds of one millisecond."""

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
        self.pipes: dict[int, Pipe] = {}
        self.arrived: Callable[[str, int, int, bytes], None] | None = None
        """Called like `frame_arrived` with each frame that arrives, before it is read."""
        self.held: Callable[[Pipe, bytes, int, bool], None] | None = None
        """Called with a request that was not answered at once, its arrival time (microseconds), and
        whether it was answered."""
        self._observers: list[Callable[[str, int, int, bytes], None]] = []
        self._on_frame = on_frame
        self._listeners: dict[Address, SimListener] = {}
        self._numbers = 0

    # -- places --------------------------------------------------------------------------------

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
        return random.randrange(150, 1_500)

    def next_number(self) -> int:
        """Return a number for a connection."""
        self._numbers += 1
        return self._numbers

    def observe(self, observer: Callable[[str, int, int, bytes], None]) -> None:
        """Call `observer` with each frame that arrives, before it is read."""
        self._observers.append(observer)

    def frame_arrived(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Pass a frame that arrives to the digest of the history and to observers."""
        self._on_frame(what, source, target, frame)
        for observer in self._observers:
            observer(what, source, target, frame)
        if self.arrived is not None:
            self.arrived(what, source, target, frame)


def client_host(place: int) -> str:
    """Return the IP address of a place."""
    return f"10.0.0.{place}" if place >= 0 else f"10.1.0.{-place}"
