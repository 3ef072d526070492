"""An object store as planning and tasks read it: blocking, with retries, several reads at once."""

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from ottla.base.backoff import Backoff
from ottla.base.object_store import Call, Failure, ObjectInfo, ObjectStore, Page, Pool, StoreError
from ottla.base.ports import Buffer, Clock
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.options import ReadOptions
from ottla.stores.opening import open_store
from ottla.stores.store import Post
from ottla.stores.uri import StoreUriError, parse_store_uri

T = TypeVar("T")

POOL: Final = Pool.FETCHER
READS_AT_ONCE: Final = 8
"""Of small objects, while a query is planned; below the running operations of a pool."""
ATTEMPT_MS_MAX: Final = 30_000
RETRIES: Final = Backoff(first_ms=200, max_ms=5_000)

Open = Callable[[Clock, Post], ObjectStore]
Read = tuple[str, int, int]
"""Name of an object, first byte, length."""


class ObjectMissingError(Exception):
    """The store has no object of this name."""


class StoreSession:
    """One store. Use as a context manager.

    `uri`: as `ottla.remote.storage.uri`; `timeout_ms`: for one operation with all its retries.
    `open_with`: opens another store than that of the URI, for tests.
    Raises: OptionError for the URI; ObjectMissingError; RemoteStorageError.
    """

    def __init__(self, uri: str, *, timeout_ms: int, open_with: Open | None = None) -> None:
        self._clock = _Clock()
        self._dice = _Dice()
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timeout_ms = timeout_ms
        try:
            parsed = parse_store_uri(uri)
            self._store: Any = (
                open_store(parsed, clock=self._clock, post=self._posted.put)
                if open_with is None
                else open_with(self._clock, self._posted.put)
            )
        except StoreUriError as error:
            raise OptionError(f"option ottla.remote.storage.uri={error}") from None
        self.uri = str(parsed)

    def __enter__(self) -> "StoreSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; idempotent. Returns at once."""
        # It waits for the end of the store's thread, which nobody here needs to.
        threading.Thread(target=self._store.close, daemon=True).start()

    def read(self, name: str, start: int, length: int) -> Buffer:
        """Return a range of an object; it is shorter only at the object's end."""
        return self._finish((name, start, length), self._begin((name, start, length)))

    def read_ahead(self, reads: Iterable[Read], at_once: int) -> Iterator[Buffer]:
        """Yield what `read` returns for each; so many are under way at once."""
        for outcome in self.try_reads(reads, at_once):
            if isinstance(outcome, ObjectMissingError):
                raise outcome
            yield outcome

    def try_reads(
        self, reads: Iterable[Read], at_once: int = READS_AT_ONCE
    ) -> Iterator[Buffer | ObjectMissingError]:
        """As `read_ahead`, but yield the error of a missing object."""
        waiting: deque[tuple[Read, Call[Buffer]]] = deque()
        coming = iter(reads)
        try:
            while True:
                while len(waiting) < at_once and (following := next(coming, None)) is not None:
                    waiting.append((following, self._begin(following)))
                if not waiting:
                    return
                read, call = waiting.popleft()
                try:
                    found: Buffer | ObjectMissingError = self._finish(read, call)
                except ObjectMissingError as error:
                    found = error
                yield found
        finally:
            for _, call in waiting:
                call.cancel()

    def exists(self, name: str) -> bool:
        """Tell whether the store has an object."""
        found = self._retried(self._head(name), lambda: self._head(name))
        if isinstance(found, StoreError) and found.failure is not Failure.NOT_FOUND:
            raise self._error(found, name)
        return not isinstance(found, StoreError)

    def list_page(self, prefix: str, after: str = "") -> Page:
        """Return one page of the objects below a directory, those after a name."""
        found = self._retried(self._list(prefix, after), lambda: self._list(prefix, after))
        if isinstance(found, StoreError):
            raise self._error(found, f"listing {prefix or 'it'}")
        return found

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, by name."""
        after = ""
        while True:
            page = self.list_page(prefix, after)
            yield from page.objects
            if page.is_last or not page.objects:
                return
            after = page.objects[-1].name

    def check(self, prefix: str) -> None:
        """Raise RemoteStorageError where the store cannot be listed: it may lack nothing then."""
        self.list_page(prefix)

    # -- operations ----------------------------------------------------------------------------

    def _begin(self, read: Read) -> Call[Buffer]:
        name, start, length = read
        return self._store.get_range(  # type: ignore[no-any-return]
            name, start, length, pool=POOL, deadline_ms=self._deadline_ms()
        )

    def _head(self, name: str) -> Call[Any]:
        return self._store.head(  # type: ignore[no-any-return]
            name, pool=POOL, deadline_ms=self._deadline_ms()
        )

    def _list(self, prefix: str, after: str) -> Call[Page]:
        return self._store.list_page(  # type: ignore[no-any-return]
            prefix, after=after, pool=POOL, deadline_ms=self._deadline_ms()
        )

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + min(ATTEMPT_MS_MAX, self._timeout_ms)

    def _finish(self, read: Read, call: Call[Buffer]) -> Buffer:
        name, start, _ = read
        found = self._retried(call, lambda: self._begin(read))
        if not isinstance(found, StoreError):
            return found
        if found.failure is Failure.NOT_FOUND:
            raise ObjectMissingError(f"{self.uri} has no object {name}")
        if found.failure is Failure.INVALID and start == 0:
            return b""  # No range of an empty object can be read.
        raise self._error(found, name)

    def _error(self, error: StoreError, what: str) -> RemoteStorageError:
        return RemoteStorageError(
            f"the object store {self.uri} could not be read: {error} ({what})"
        )

    def _retried(self, call: Call[T], again: Callable[[], Call[T]]) -> T | StoreError:
        """Return the result of an operation that may be repeated."""
        until_ms = self._clock.monotonic_ms() + self._timeout_ms
        failures = 0
        while True:
            result = self._wait(call)
            if not isinstance(result, StoreError) or not result.is_retriable:
                return result
            failures += 1
            pause_ms = RETRIES.delay_ms(failures, self._dice)
            if self._clock.monotonic_ms() + pause_ms >= until_ms:
                return result
            time.sleep(pause_ms / 1_000)
            call = again()

    def _wait(self, call: Call[T]) -> T | StoreError:
        while not call.result.done:
            self._posted.get()()
        return call.result.value


def open_session(options: ReadOptions) -> StoreSession:
    """Return a session with the object store of the options."""
    assert options.remote_storage is not None
    return StoreSession(options.remote_storage, timeout_ms=options.store_timeout_ms)


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class _Dice:
    def random_bytes(self, count: int) -> bytes:
        return random.randbytes(count)

    def below(self, bound: int) -> int:
        return random.randrange(bound)
