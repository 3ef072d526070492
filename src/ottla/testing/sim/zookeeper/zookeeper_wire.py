"""The connection between a client of the simulated ZooKeeper and its servers.

Both directions keep the order. A cut direction holds its messages until it is healed; when a
connection breaks, a prefix of the messages in flight still arrives, so that a request without a
response was processed or not.
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
    """Chances that a message is slow, or that its connection breaks."""

    slow: float = 0.0
    slow_us_max: int = 2_000 * MS
    broken: float = 0.0


class Stream:
    """One direction of a connection; it passes each message to `arrive`, and none once shut."""

    def __init__(self, scheduler: Scheduler, arrive: Callable[[Call], None]) -> None:
        self.is_cut = self.is_shut = False
        self._scheduler = scheduler
        self._arrive = arrive
        self._under_way: deque[tuple[int, Call]] = deque()
        self._last_us = 0

    def put(self, call: Call, delay_us: int) -> None:
        """Deliver `call` after a delay, and after all that was put here before."""
        if self.is_shut:
            return
        at_us = max(self._last_us, self._scheduler.now_us + delay_us)
        self._last_us = at_us
        self._under_way.append((at_us, call))
        self._scheduler.at(at_us, self.pump)

    def pump(self) -> None:
        """Deliver what is due."""
        while (
            self._under_way and not self.is_cut and self._under_way[0][0] <= self._scheduler.now_us
        ):
            _at_us, call = self._under_way.popleft()
            self._arrive(call)

    def lose_rest(self, random: Random) -> None:
        """Drop all but a prefix of the messages in flight."""
        kept = random.randrange(len(self._under_way) + 1)
        while len(self._under_way) > kept:
            self._under_way.pop()


class Connection:
    """One connection. `client`: its key for cuts.

    Fields: `on_event`, `on_closed`: called on the client for a watch event, or the end.
            `client_open`, `server_open`: whether that end is open.
            `last_heard_us`: when the client last received something, or a ping response.
            `watched`: the paths of its watches, (children, path).
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
        self._to_server = Stream(scheduler, self._arrive_at_server)
        self._to_client = Stream(scheduler, self._arrive_at_client)

    @property
    def answers_pings(self) -> bool:
        """Tell whether pings are answered now."""
        return self.server_open and not self._to_server.is_cut and not self._to_client.is_cut

    def hold(self, *, requests: bool, responses: bool) -> None:
        """Hold the messages of either direction, or let them pass again."""
        for stream, is_cut in ((self._to_server, requests), (self._to_client, responses)):
            stream.is_cut = is_cut
            stream.pump()

    def send_request(self, call: Call) -> None:
        """Send a request to the server."""
        self._to_server.put(call, self._delay_us())

    def respond(self, call: Call) -> None:
        """Send a response or an event to the client."""
        if self.server_open:
            self._to_client.put(call, self._delay_us())

    def shut_by_client(self) -> None:
        """The client closes it: a prefix of what it has sent may still arrive."""
        self.client_open = False
        self._to_server.lose_rest(self._random)

    def event(self, event: Event) -> None:
        """Send a watch event to the client."""
        self.respond(lambda: self.on_event(self, event))

    def shut_by_server(self) -> None:
        """The server closes it: the client gets what was sent to it, and the end."""
        if self.server_open:
            self.respond(lambda: self.on_closed(self))
            self.server_open = False

    def break_both(self) -> None:
        """Break the connection: in both directions only a prefix arrives; the client is notified.

        Requests that arrive at the server are processed, and their responses are lost.
        """
        self._to_server.lose_rest(self._random)
        self._to_client.lose_rest(self._random)
        self.respond(lambda: self.on_closed(self))
        self._to_client.is_shut = True

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
