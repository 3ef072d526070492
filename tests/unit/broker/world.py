"""A broker's surroundings for tests: clock, dice, workers, a controller that answers by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api.base import Context, Message
from ottla.metadata.node_config import NodeConfig

T = TypeVar("T")

START_MS = 1_700_000_000_000
LOG_DIR = "/logs"


@dataclass(slots=True)
class FakeClock:
    """Time that moves when told to; the wall clock runs along from `START_MS`."""

    timers: Timers
    elapsed_ms: int = 0

    def now_ms(self) -> int:
        return START_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return self.elapsed_ms

    def advance(self, ms: int) -> None:
        """Let time pass, and run what is due at its own moment."""
        end = self.elapsed_ms + ms
        while (due := self.timers.next_ms()) is not None and due <= end:
            self.elapsed_ms = max(self.elapsed_ms, due)
            self.timers.run_due(due)
        self.elapsed_ms = end


class FakeDice:
    """Chance from a fixed seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class InlineWorkers:
    """Does the work at once, on the spot."""

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        try:
            result: T | BaseException = work()
        except Exception as error:
            result = error
        if done is not None:
            done(result)


@dataclass(slots=True)
class FakeForwarder:
    """A controller channel whose answers the test gives: `calls` holds what was asked."""

    calls: list[tuple[Any, Pending[Any]]] = field(default_factory=list)

    def forward(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        raise AssertionError("handlers do not forward by themselves")

    def call(self, request: Message, *, timeout_ms: int) -> Pending[Message | ApiError]:
        pending: Pending[Any] = Pending()
        self.calls.append((request, pending))
        return pending

    def answer(self, response: Message | ApiError) -> Any:
        """Answer the oldest open call; return what it asked."""
        request, pending = self.calls.pop(0)
        pending.complete(response)
        return request


def node_config(properties: Mapping[str, str] | None = None) -> NodeConfig:
    """Return the configuration of broker 1, with Kafka's defaults but for `properties`."""
    return NodeConfig.parse(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "log.dirs": LOG_DIR,
            **(properties or {}),
        }
    )
