"""Reads znodes: many at a time, with watches that are set again by each read.

Missing nodes are left out; any other error ends the read and is its outcome. Reads are sent in
order and pipelined, a bounded number at a time, so that thousands of topics load in the time of a
few round trips.

Source: KafkaZkClient (retryRequestsUntilConnected), ZooKeeperClient, Kafka 3.9, which bound the
requests in flight in the same way (zookeeper.max.in.flight.requests).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from ottla.base.pending import Pending
from ottla.base.zookeeper import Event, Session, Stat, ZkCode, ZkError, ZnodeData
from ottla.host.steps import Steps, wait

IN_FLIGHT_MAX = 500
"""How many reads may be unanswered at a time."""

K = TypeVar("K")
V = TypeVar("V")


def read_each(
    keys: Iterable[K], read: Callable[[K], Pending[V | ZkError]], limit: int = IN_FLIGHT_MAX
) -> Pending[dict[K, V] | ZkError]:
    """Read many; the outcome has those that exist, in the order of `keys`."""
    return _Reads(list(keys), read, limit).start()


class _Reads(Generic[K, V]):
    """Reads under way. A loop sends them, not recursion: many may be answered at once."""

    def __init__(
        self, keys: list[K], read: Callable[[K], Pending[V | ZkError]], limit: int
    ) -> None:
        self._outcome: Pending[dict[K, V] | ZkError] = Pending()
        self._keys = keys
        self._read = read
        self._limit = limit
        self._sent = self._answered = 0
        self._found: dict[int, V] = {}
        self._is_sending = False

    def start(self) -> Pending[dict[K, V] | ZkError]:
        """Send the first; return the promise that is kept when the last is answered."""
        self._send()
        return self._outcome

    def _send(self) -> None:
        if self._is_sending:
            return
        self._is_sending = True
        while self._may_send():
            index = self._sent
            self._sent += 1
            self._read(self._keys[index]).then(partial(self._take, index))
        self._is_sending = False
        if self._answered == len(self._keys):
            found = {key: self._found[n] for n, key in enumerate(self._keys) if n in self._found}
            self._outcome.complete(found)

    def _may_send(self) -> bool:
        is_more = self._sent < len(self._keys) and not self._outcome.done
        return is_more and self._sent - self._answered < self._limit

    def _take(self, index: int, answer: V | ZkError) -> None:
        self._answered += 1
        if not isinstance(answer, ZkError):
            self._found[index] = answer
        elif answer.code is not ZkCode.NO_NODE:
            self._outcome.complete(answer)
        self._send()


def reading(pending: Pending[V | ZkError]) -> Steps[V]:
    """Return what was read. Raises: ZkError."""
    answer = yield from wait(pending)
    if isinstance(answer, ZkError):
        raise answer
    return answer


def reading_or_none(pending: Pending[V | ZkError]) -> Steps[V | None]:
    """Return what was read, None where there is no such node. Raises: ZkError."""
    answer = yield from wait(pending)
    if not isinstance(answer, ZkError):
        return answer
    if answer.code is ZkCode.NO_NODE:
        return None
    raise answer


class Watched:
    """A session whose reads set watches: each node has at most one at a time.

    `changed` is called for each watch that fires. A watch on data exists only while its node does;
    one on a missing node (`exists`) fires when it is created.
    """

    def __init__(self, session: Session, changed: Callable[[Event], None]) -> None:
        self.session = session
        self._changed = changed
        self._data: set[str] = set()
        self._children: set[str] = set()

    def get(self, path: str) -> Pending[ZnodeData | ZkError]:
        """Read a node; watch its next change."""
        if path in self._data:
            return self.session.get(path)
        self._data.add(path)
        answer = self.session.get(path, self._saw_data)
        answer.then(partial(self._disarm_on_error, self._data, path))
        return answer

    def exists(self, path: str) -> Pending[Stat | ZkError | None]:
        """Read a node's stat; watch when it is created, changes or is deleted."""
        if path in self._data:
            return self.session.exists(path)
        self._data.add(path)
        answer = self.session.exists(path, self._saw_data)
        answer.then(lambda stat: self._disarm_on_error(self._data, path, stat))
        return answer

    def children(self, path: str) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children; watch their next change."""
        if path in self._children:
            return self.session.children(path)
        self._children.add(path)
        answer = self.session.children(path, self._saw_children)
        answer.then(partial(self._disarm_on_error, self._children, path))
        return answer

    def watches_data(self, path: str) -> bool:
        """Tell whether a node's data is watched."""
        return path in self._data

    def _disarm_on_error(self, armed: set[str], path: str, answer: object) -> None:
        if isinstance(answer, ZkError):
            armed.discard(path)

    def _saw_data(self, event: Event) -> None:
        self._data.discard(event.path)
        self._changed(event)

    def _saw_children(self, event: Event) -> None:
        self._children.discard(event.path)
        self._changed(event)


class Unwatched:
    """The same reads without a watch."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.get = session.get
        self.exists = session.exists
        self.children = session.children

    def watches_data(self, path: str) -> bool:
        """Tell that nothing is watched."""
        return False
