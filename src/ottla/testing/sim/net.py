"""The simulated network: who listens where, which ways are cut, what happens to frames.

What goes wrong: a frame is slow; a direction of a connection goes silent (the asker's patience
ends); a connection breaks, with the request done or not; a request arrives once more, later, over
a connection that its sender has given up; places cannot reach each other, one way or both, and
what was sent meanwhile arrives when they can again, or never.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.api.base import Connection, Listener
from ottla.broker.dispatch import Outcome
from ottla.host.node_ports import Address
from ottla.testing.sim.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from ottla.testing.sim.pipes import Pipe

MS = 1000
"""Microseconds of one millisecond."""

Handler = Callable[[Connection, memoryview], Outcome]


@dataclass(slots=True)
class NetFaults:
    """Chances that something happens to one frame, and how late it may be."""

    slow: float = 0.0
    slow_us_max: int = 2_000 * MS
    silent: float = 0.0
    broken: float = 0.0
    twice: float = 0.0


@dataclass(slots=True)
class SimListener:
    """A listener of a node: who answers there."""

    process: Process
    place: int
    kind: Listener
    name: str
    handle: Handler
    is_open: bool = False


class Network:
    """All places and the ways between them. Negative places are clients."""

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
        """Called with each frame that arrives, as `frame_arrived`, before anybody reads it."""
        self.held: Callable[[Pipe, bytes, int, bool], None] | None = None
        """Called with a request that waited for its answer, since when (microseconds), and whether
        it got one."""
        self._observers: list[Callable[[str, int, int, bytes], None]] = []
        self._on_frame = on_frame
        self._listeners: dict[Address, SimListener] = {}
        self._numbers = 0

    # -- places --------------------------------------------------------------------------------

    def listen(self, address: Address, listener: SimListener) -> None:
        """Take an address; nobody may have it."""
        held = self._listeners.get(address)
        assert held is None or not held.process.alive, f"{address} is taken"
        self._listeners[address] = listener

    def listener_at(self, address: Address) -> SimListener | None:
        """Return who listens at an address, if the process lives."""
        listener = self._listeners.get(address)
        return listener if listener is not None and listener.process.alive else None

    def is_cut(self, place: int, address: Address) -> bool:
        """Tell whether no connection can be made: it needs both ways."""
        listener = self.listener_at(address)
        if listener is None:
            return False
        return (place, listener.place) in self.cut or (listener.place, place) in self.cut

    def pipe_between(self, source: int, target: int) -> "Pipe | None":
        """Return the newest connection from a place to a node; None = there is none."""
        found = None
        for pipe in self.pipes.values():
            if pipe.source == source and pipe.listener.place == target:
                found = pipe
        return found

    def vanish(self, process: Process, *, silently: bool) -> None:
        """End a dead process's listeners and connections; `silently` = nobody is told."""
        for address, listener in list(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]
        for pipe in list(self.pipes.values()):
            if pipe.listener.process is process:
                pipe.server_died(silently=silently)
            elif pipe.owner is process:
                pipe.client_died(silently=silently)

    def close(self, listener: SimListener) -> None:
        """End the connections at a door."""
        for pipe in list(self.pipes.values()):
            if pipe.listener is listener:
                pipe.close_server()

    def delay_us(self) -> int:
        """Return how long one frame travels."""
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
        """Call `observer` with each frame that arrives, before anybody reads it."""
        self._observers.append(observer)

    def frame_arrived(self, what: str, source: int, target: int, frame: bytes) -> None:
        """Note a frame that arrives, for the digest of the history."""
        self._on_frame(what, source, target, frame)
        for observer in self._observers:
            observer(what, source, target, frame)
        if self.arrived is not None:
            self.arrived(what, source, target, frame)


def client_host(place: int) -> str:
    """Return the address of a node, or of a client, whose place is negative."""
    return f"10.0.0.{place}" if place >= 0 else f"10.1.0.{-place}"
