"""Measures the latency of a session's requests, waits for a connection included.

Source: ZooKeeperClient.handleRequests and its ZooKeeperRequestLatencyMs, Kafka 3.9.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.base.metrics import Histogram
from ottla.base.pending import Pending
from ottla.base.zookeeper import (
    OpenSession,
    Operation,
    Result,
    Session,
    SessionState,
    Stat,
    Watcher,
    ZkError,
    ZnodeData,
)

T = TypeVar("T")

TicksNs = Callable[[], int]


def measured(open_session: OpenSession, ticks_ns: TicksNs, latency: Histogram) -> OpenSession:
    """Return a function that opens the same sessions, with latencies observed in `latency`."""

    def open_measured(on_state: Callable[[SessionState], None]) -> Session:
        return MeasuredSession(open_session(on_state), ticks_ns, latency)

    return open_measured


class MeasuredSession:
    """See the module, and `ottla.base.zookeeper.Session`."""

    def __init__(self, session: Session, ticks_ns: TicksNs, latency: Histogram) -> None:
        self._session = session
        self._ticks_ns = ticks_ns
        self._latency = latency

    @property
    def id(self) -> int:
        """Return the session's id."""
        return self._session.id

    @property
    def state(self) -> SessionState:
        """Return the session's state."""
        return self._session.state

    def get(self, path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        """Read a node."""
        return self._timed(self._ticks_ns(), self._session.get(path, watch))

    def exists(self, path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        """Read a node's stat."""
        return self._timed(self._ticks_ns(), self._session.exists(path, watch))

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children."""
        return self._timed(self._ticks_ns(), self._session.children(path, watch))

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        """Do all or nothing."""
        return self._timed(self._ticks_ns(), self._session.multi(operations))

    def close(self) -> Pending[None]:
        """End the session."""
        return self._session.close()

    def _timed(self, sent_ns: int, answer: Pending[T]) -> Pending[T]:
        answer.then(lambda _: self._latency.observe(self._ticks_ns() - sent_ns))
        return answer
