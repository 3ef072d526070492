"""The ports of a node for tests: manual time, one disk in memory, threads that run on request.

`Workers.run` runs queued work, one piece after another; until then it is "in a thread".
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api.base import Context
from ottla.broker.ports import Connection, Listener
from ottla.testing.disk import KeepUnsynced, MemoryDisk, keep_nothing
from ottla.wire.frames import RequestHeader

START_MS = 1_700_000_000_000
CLUSTER_ID = "bW9vbiBhbmQgc3RhcnMhIQ"


class FakeClock:
    """Both clocks; they move together, by hand."""

    def __init__(self) -> None:
        self.elapsed_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms


class Dice:
    """Chance from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class Workers:
    """Threads that do nothing until `run`."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], Any], Callable[[Any], None] | None]] = deque()

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
        self.waiting.append((work, done))

    def run(self, count: int | None = None) -> None:
        """Run so many pieces of work, or all, also those that the first ones bring."""
        while self.waiting and (count is None or count > 0):
            work, done = self.waiting.popleft()
            try:
                outcome: Any = work()
            except OSError as error:
                outcome = error
            if done is not None:
                done(outcome)
            elif isinstance(outcome, OSError):
                raise outcome
            count = None if count is None else count - 1


@dataclass(slots=True)
class Harness:
    """Time, threads and a disk that outlive the processes of a test."""

    clock: FakeClock = field(default_factory=FakeClock)
    timers: Timers = field(default_factory=Timers)
    workers: Workers = field(default_factory=Workers)
    disk: MemoryDisk = field(default_factory=MemoryDisk)

    def advance(self, ms: int) -> None:
        """Let time pass; timers and threads run at their moments."""
        end = self.clock.elapsed_ms + ms
        self.workers.run()
        while (due := self.timers.next_ms()) is not None and due <= end:
            self.clock.elapsed_ms = max(self.clock.elapsed_ms, due)
            self.timers.run_due(self.clock.elapsed_ms)
            self.workers.run()
        self.clock.elapsed_ms = end

    def crash(self, keep: KeepUnsynced = keep_nothing) -> None:
        """Lose power: timers and threads are gone, and unsynced bytes but for what `keep` says."""
        self.disk.crash(keep)
        self.timers = Timers()
        self.workers = Workers()

    def context(
        self,
        *,
        version: int,
        key: int = 1,
        connection: Connection | None = None,
        **parts: Any,
    ) -> Context:
        """Return the context of a request on the controller's listener."""
        return Context(
            header=RequestHeader(key, version, 1, "test"),
            connection=connection or a_connection(),
            now_ms=self.clock.now_ms(),
            monotonic_ms=self.clock.monotonic_ms(),
            node=NODE,
            **parts,
        )


def a_connection(name: str = "c1") -> Connection:
    return Connection(
        id=name,
        listener=Listener.CONTROLLER,
        listener_name="CONTROLLER",
        client_host="127.0.0.1",
        client_port=5,
    )


class _Node:
    node_id = 1
    cluster_id = CLUSTER_ID

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        raise AssertionError("no request is embedded here")


NODE = _Node()


class Sender:
    """A channel whose other end is a function; `down` breaks it."""

    def __init__(self, serve: Callable[[object, int], Any]) -> None:
        self.serve = serve
        self.down = False
        self.sent: list[object] = []

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        self.sent.append(request)
        answer: Pending[Any] = Pending()
        if self.down:
            answer.complete(ApiError(Error.NETWORK_EXCEPTION, "down"))
            return answer
        response = self.serve(request, version)
        if isinstance(response, Pending):
            response.then(lambda value: answer.complete(value) and None)
        else:
            answer.complete(response)
        return answer
