"""Delayed operations: requests that wait for bytes to fetch, for replicas, or for their deadline.

A delayed operation is registered under each key that can wake it (a partition). Waking runs its
`attempt`, which answers the request and returns True, or returns False to wait on. Whatever comes
first, a successful attempt, the deadline or the end of the connection, removes it under all keys.
Operations of one key are woken in the order in which they were added.

Source: Kafka's DelayedOperationPurgatory; here one loop owns everything, so that there are no
locks, no second attempt after adding, and no purge of completed operations.
"""

from collections.abc import Callable, Hashable, Iterable

from ottla.base.pending import Pending, nothing
from ottla.base.timers import Timer, Timers


class DelayedOperation:
    """A waiting request. `wanted_bytes`: to be appended before an attempt can succeed."""

    __slots__ = (
        "_attempt",
        "_closed",
        "_expire",
        "_is_trying",
        "_keys",
        "_purgatory",
        "_timer",
        "_woken_meanwhile",
        "done",
        "wanted_bytes",
    )

    def __init__(
        self,
        purgatory: "Purgatory",
        keys: tuple[Hashable, ...],
        attempt: Callable[[], bool],
        expire: Callable[[], None],
        wanted_bytes: int,
    ) -> None:
        self._purgatory = purgatory
        self._keys = keys
        self._attempt = attempt
        self._expire = expire
        self._closed: Pending[None] | None = None
        self._timer: Timer | None = None
        self._is_trying = False
        self._woken_meanwhile = False
        self.wanted_bytes = wanted_bytes
        self.done = False

    def try_now(self) -> bool:
        """Attempt to answer; return whether the request is answered (now or before).

        The response may lead the connection to handle its next request at once, which may wake this
        operation again: attempts are repeated then, not nested. A request answered twice would be
        subtracted twice from the purgatory's count.
        """
        if self.done:
            return True
        if self._is_trying:
            self._woken_meanwhile = True
            return False
        self._is_trying = True
        try:
            while True:
                self._woken_meanwhile = False
                if self._attempt():
                    self._leave()
                    return True
                if not self._woken_meanwhile:
                    return False
        finally:
            self._is_trying = False

    def abandon(self, _none: None = None) -> None:
        """Drop the request unanswered: its connection is closed."""
        self._leave()

    def hasten(self, deadline_ms: int) -> None:
        """Bring the deadline forward; an earlier one stays."""
        timer = self._timer
        if not self.done and timer is not None and timer.at_ms > deadline_ms:
            timer.cancel()
            self._timer = self._purgatory._timers.at(deadline_ms, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        if not self.done:
            expire = self._expire
            self._leave()
            expire()

    def _leave(self) -> None:
        if self.done:
            return
        self.done = True
        # They mostly refer to this operation: without them it is no work for the garbage collector.
        self._attempt, self._expire = _is_done, nothing
        if self._timer is not None:
            self._timer.cancel()
        if self._closed is not None:
            self._closed.forget(self.abandon)
        self._purgatory._remove(self, self._keys)


def _is_done() -> bool:
    return True


class Purgatory:
    """The delayed operations of one kind, by key. `count`: how many there are."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_key: dict[Hashable, dict[DelayedOperation, None]] = {}
        self.count = 0

    def add(
        self,
        keys: Iterable[Hashable],
        *,
        attempt: Callable[[], bool],
        expire: Callable[[], None],
        deadline_ms: int,
        wanted_bytes: int = 0,
        closed: "Pending[None] | None" = None,
    ) -> DelayedOperation:
        """Keep a request until an attempt succeeds or `deadline_ms` (monotonic) has come.

        `attempt` is not run now: the caller has just found that it would fail. When `closed`
        completes the request is dropped: the peer chooses the deadline, up to weeks.
        """
        operation = DelayedOperation(self, tuple(keys), attempt, expire, wanted_bytes)
        for key in operation._keys:
            self._by_key.setdefault(key, {})[operation] = None
        operation._timer = self._timers.at(deadline_ms, operation._time_out)
        self.count += 1
        if closed is not None:
            operation._closed = closed
            closed.then(operation.abandon)
        return operation

    def wake(self, key: Hashable, grown_bytes: int | None = None) -> int:
        """Let the requests of `key` try again; return how many were answered.

        `grown_bytes`: what was appended since the last wake; a request that wants more waits on.
        None means that the key changed in another way (leadership, deletion): all requests try.
        """
        waiting = self._by_key.get(key)
        if waiting is None:
            return 0
        answered = 0
        for operation in tuple(waiting):
            if grown_bytes is not None:
                operation.wanted_bytes -= grown_bytes
                if operation.wanted_bytes > 0:
                    continue
            answered += operation.try_now()
        return answered

    def wake_each(self, keys: Iterable[Hashable]) -> None:
        """Let the requests of several changed keys try again, each request once.

        A follower's fetch waits on all its partitions: waking it for each of a thousand partitions
        that one metadata change touched would read them a million times.
        """
        by_key = self._by_key
        for operation in {each: None for key in keys for each in by_key.get(key, ())}:
            operation.try_now()

    def hasten(self, key: Hashable, deadline_ms: int) -> None:
        """Bring the deadlines of the requests of `key` forward."""
        for operation in self._by_key.get(key, ()):
            operation.hasten(deadline_ms)

    def waits_on(self, key: Hashable) -> bool:
        """Tell whether any request would be woken by `key`."""
        return key in self._by_key

    def _remove(self, operation: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        self.count -= 1
        for key in keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(operation, None)
                if not waiting:
                    del self._by_key[key]
