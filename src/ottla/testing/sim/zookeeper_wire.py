"""The connection between a client of the simulated ZooKeeper and its servers.

Both ways keep their order. A way that is cut holds what is on it until it is healed; when a
connection breaks, a first part of what was on each way still arrives, so that a request whose
answer never comes was done or not.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ottla.base.zookeeper import Event
from ottla.testing.sim.scheduler import Call, Process, Scheduler

MS = 1000


@dataclass(slots=True)
class ZooKeeperFaults:
    """What happens to messages: chances that one is slow, or that its connection breaks."""

    slow: float = 0.0
    slow_us_max: int = 2_000 * MS
    broken: float = 0.0


class Stream:
    """One way of a connection. What arrives is given to `arrive`; when shut it takes no more."""

    def __init__(self, scheduler: Scheduler, arrive: Callable[[Call], None]) -> None:
        self.is_cut = self.is_shut = False
        self._scheduler = scheduler
        self._arrive = arrive
        self._under_way: deque[tuple[int, Call]] = deque()
        self._last_us = 0

    def put(self, call: Call, delay_us: int) -> None:
        """Let `call` arrive after a delay, and after all that was put here before."""
        if self.is_shut:
            return
        at_us = max(self._last_us, self._scheduler.now_us + delay_us)
        self._last_us = at_us
        self._under_way.append((at_us, call))
        self._scheduler.at(at_us, self.pump)

    def pump(self) -> None:
        """Let arrive what is due."""
        while (
            self._under_way and not self.is_cut and self._under_way[0][0] <= self._scheduler.now_us
        ):
            _at_us, call = self._under_way.popleft()
            self._arrive(call)

    def lose_rest(self, random: Random) -> None:
        """Let only a first part of what is under way arrive."""
        kept = random.randrange(len(self._under_way) + 1)
        while len(self._under_way) > kept:
            self._under_way.pop()


class Connection:
    """One connection. `client` names the place that a cut concerns.

    Fields: `on_event`, `on_closed`: what the client does when it is told.
            `client_open`, `server_open`: whether that end still listens.
            `last_heard_us`: when the client last heard something, at least a ping's answer.
            `watched`: the paths that the server watches for it, for data and for children.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        faults: ZooKeeperFaults,
        *,
        client: object,
        process: Process | None,
        on_event: Callable[["Connection", Event], None],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._scheduler = scheduler
        self._random = random
        self._faults = faults
        self.client = client
        self.process = process
        self.on_event = on_event
        self.on_closed = on_closed
        self.client_open = self.server_open = True
        self.last_heard_us = scheduler.now_us
        self.watched: set[tuple[bool, str]] = set()
        self._up = Stream(scheduler, self._arrive_at_server)
        self._down = Stream(scheduler, self._arrive_at_client)

    @property
    def answers_pings(self) -> bool:
        """Tell whether the client hears of the server now."""
        return self.server_open and not self._up.is_cut and not self._down.is_cut

    def hold(self, *, asks: bool, answers: bool) -> None:
        """Hold what is under way and what will be sent, either way; else let it pass again."""
        for stream, is_cut in ((self._up, asks), (self._down, answers)):
            stream.is_cut = is_cut
            stream.pump()

    def ask(self, call: Call) -> None:
        """Carry a request to the server."""
        self._up.put(call, self._delay_us())

    def respond(self, call: Call) -> None:
        """Carry an answer or an event to the client."""
        if self.server_open:
            self._down.put(call, self._delay_us())

    def shut_by_client(self) -> None:
        """The client gives it up: what it has sent may still arrive, or a first part of it."""
        self.client_open = False
        self._up.lose_rest(self._random)

    def event(self, event: Event) -> None:
        """Carry a watch's event to the client."""
        self.respond(lambda: self.on_event(self, event))

    def shut_by_server(self) -> None:
        """The server ends it: the client gets what was sent to it, and learns of the end."""
        if self.server_open:
            self.respond(lambda: self.on_closed(self))
            self.server_open = False

    def break_both(self) -> None:
        """The connection breaks: on both ways only a first part arrives; the client learns.

        What arrives at the server is done, and its answer is lost.
        """
        self._up.lose_rest(self._random)
        self._down.lose_rest(self._random)
        self.respond(lambda: self.on_closed(self))
        self._down.is_shut = True

    def _arrive_at_server(self, call: Call) -> None:
        if self.server_open:
            call()

    def _arrive_at_client(self, call: Call) -> None:
        def unless_shut() -> None:
            if self.client_open:
                self.last_heard_us = self._scheduler.now_us
                call()

        self._scheduler.after(0, unless_shut, self.process)

    def _delay_us(self) -> int:
        faults, random = self._faults, self._random
        if faults.slow and random.random() < faults.slow:
            return random.randrange(20 * MS, faults.slow_us_max)
        return random.randrange(100, 1_200)
