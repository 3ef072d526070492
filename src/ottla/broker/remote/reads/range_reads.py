"""Ranges of objects, read with a deadline for each call, retries, and a bound on calls at once.

Callers that want the same range at once share one read; it is cancelled when the last of them has
left. A failure that may pass is retried after a backoff that doubles, a refused one as well: an
operator may mend the credentials meanwhile. A missing object and a range behind an object's end are
results at once.
"""

from functools import partial

from ottla.base.object_store import Call, Failure, ObjectStore, Pool, StoreError
from ottla.base.pending import Pending
from ottla.base.ports import Buffer, Clock
from ottla.base.timers import Timer, Timers
from ottla.broker.remote.dialogue import Dialogue

CALLS_MAX = 10
"""remote.log.reader.threads: calls to the store at once."""

CALL_MS = 10_000
"""How long one call may take."""

ATTEMPTS_MAX = 4

BACKOFF_MS = 100
"""Before the second attempt; it doubles with each further one."""

Range = tuple[str, int, int]
"""Object name, start, length."""


class StoreFailed(Exception):
    """A range could not be read. `error`: the store's last answer."""

    def __init__(self, name: str, error: StoreError) -> None:
        super().__init__(f"{name}: {error}")
        self.error = error

    @property
    def is_missing(self) -> bool:
        """Tell whether there is no such object."""
        return self.error.failure is Failure.NOT_FOUND


class RangeRead:
    """A range that is being read. `waiters`: the callers that have joined and not left."""

    __slots__ = ("attempts", "call", "range", "result", "timer", "waiters")

    def __init__(self, wanted: Range) -> None:
        self.range = wanted
        self.result: Pending[Buffer | StoreError] = Pending()
        self.waiters = 0
        self.attempts = 0
        self.call: Call[Buffer] | None = None
        self.timer: Timer | None = None


class RangeReads:
    """The reads under way.

    Fields: `calls`, `calls_max`: calls to the store at present, and at most; `attempts`,
            `failures`: calls made and failed so far; `bytes_read`: received.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        timers: Timers,
        *,
        calls_max: int = CALLS_MAX,
        call_ms: int = CALL_MS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self.calls_max = calls_max
        self._call_ms = call_ms
        self._reads: dict[Range, RangeRead] = {}
        self._queue: dict[RangeRead, None] = {}
        self.calls = 0
        self.attempts = 0
        self.failures = 0
        self.bytes_read = 0

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def queued(self) -> int:
        """Return how many reads wait for a call to end."""
        return len(self._queue)

    def resize(self, calls_max: int) -> None:
        """Apply another bound on calls at once; calls under way go on."""
        self.calls_max = calls_max
        self._advance()

    @property
    def is_busy(self) -> bool:
        """Tell whether a further read would have to wait for a call to end."""
        return self.calls >= self.calls_max

    def read(self, name: str, start: int, length: int) -> Dialogue[Buffer]:
        """Return the range's bytes; fewer where the object ends. Raises: StoreFailed."""
        read = self.join(name, start, length)
        try:
            yield read.result
        finally:
            self.leave(read)
        found = read.result.value
        if isinstance(found, StoreError):
            raise StoreFailed(name, found)
        return found

    def join(self, name: str, start: int, length: int) -> RangeRead:
        """Begin to read a range, or join those who wait for it."""
        wanted = (name, start, length)
        read = self._reads.get(wanted)
        if read is None:
            read = self._reads[wanted] = RangeRead(wanted)
            self._queue[read] = None
        read.waiters += 1
        self._advance()
        return read

    def leave(self, read: RangeRead) -> None:
        """Wait no longer; a read without waiters is cancelled, unless it has ended."""
        read.waiters -= 1
        if read.waiters or read.result.done:
            return
        del self._reads[read.range]
        self._queue.pop(read, None)
        if read.timer is not None:
            read.timer.cancel()
        call, read.call = read.call, None
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Cancel all reads, those ahead as well, which nobody waits for."""
        for read in tuple(self._reads.values()):
            read.waiters = 1
            self.leave(read)

    def _advance(self) -> None:
        while self._queue and self.calls < self.calls_max:
            read = next(iter(self._queue))
            del self._queue[read]
            self._call(read)

    def _call(self, read: RangeRead) -> None:
        name, start, length = read.range
        self.calls += 1
        self.attempts += 1
        read.attempts += 1
        deadline_ms = self._clock.monotonic_ms() + self._call_ms
        call = self._store.get_range(
            name, start, length, pool=Pool.FETCHER, deadline_ms=deadline_ms
        )
        read.call = call
        call.result.then(partial(self._answered, read, call))

    def _answered(self, read: RangeRead, call: Call[Buffer], found: Buffer | StoreError) -> None:
        self.calls -= 1
        try:
            if read.call is call:
                read.call = None
                self._note(read, found)
        finally:
            self._advance()

    def _note(self, read: RangeRead, found: Buffer | StoreError) -> None:
        if isinstance(found, StoreError):
            self.failures += found.failure is not Failure.NOT_FOUND
            if _may_pass(found) and read.attempts < ATTEMPTS_MAX:
                wait_ms = BACKOFF_MS << (read.attempts - 1)
                at_ms = self._clock.monotonic_ms() + wait_ms
                read.timer = self._timers.at(at_ms, partial(self._retry, read))
                return
        else:
            self.bytes_read += len(found)
        del self._reads[read.range]
        read.result.complete(found)

    def _retry(self, read: RangeRead) -> None:
        read.timer = None
        self._queue[read] = None
        self._advance()


def _may_pass(error: StoreError) -> bool:
    return error.is_retriable or error.failure is Failure.DENIED
