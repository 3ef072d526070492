"""An object store as a task uses it: one operation after the other, each waited for."""

import queue
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, TypeVar

from ottla.base.object_store import Call, Failure, ObjectInfo, Pool, StoreError
from ottla.base.ports import Buffer
from ottla.stores.opening import open_store
from ottla.stores.uri import StoreUriError, parse_store_uri

T = TypeVar("T")

ATTEMPT_MS_MAX: Final = 30_000
BACKOFF_S: Final = 0.2
BACKOFF_S_MAX: Final = 5.0


class StoreFailed(Exception):
    """An operation failed; `error` says why. The message names the store."""

    def __init__(self, uri: str, error: StoreError) -> None:
        super().__init__(f"store {uri}: {error}")
        self.error = error


class _Clock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class StoreAccess:
    """Use as a context manager. Operations that may succeed later are repeated for `timeout_s`.

    Raises: StoreUriError for a bad URI; StoreFailed.
    """

    def __init__(self, uri: str, timeout_s: float = 60.0) -> None:
        parsed = parse_store_uri(uri)
        self.uri: Final = str(parsed)
        self._timeout_s = timeout_s
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._clock = _Clock()
        self._store = open_store(parsed, clock=self._clock, post=self._posted.put)

    def __enter__(self) -> "StoreAccess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, by name."""
        while True:
            found, is_last = self.list_page(prefix, after)
            yield from found
            if is_last or not found:
                return
            after = found[-1].name

    def list_page(self, prefix: str, after: str) -> tuple[tuple[ObjectInfo, ...], bool]:
        """Return one page of a listing, and whether it is the last one."""
        page = self._repeat(
            lambda deadline_ms: self._store.list_page(
                prefix, after=after, pool=Pool.FETCHER, deadline_ms=deadline_ms
            )
        )
        return page.objects, page.is_last

    def read(self, name: str, start: int, length: int) -> Buffer:
        """Return bytes of an object, fewer at its end. Of an empty object nothing is to be read."""
        return self._repeat(
            lambda deadline_ms: self._store.get_range(
                name, start, length, pool=Pool.FETCHER, deadline_ms=deadline_ms
            )
        )

    def read_or_none(self, name: str, start: int, length: int) -> Buffer | None:
        """As `read`; None = there is no such object."""
        try:
            return self.read(name, start, length)
        except StoreFailed as failed:
            if failed.error.failure is Failure.NOT_FOUND:
                return None
            raise

    def _repeat(self, begin: Callable[[int], Call[T]]) -> T:
        until_ms = self._clock.monotonic_ms() + int(self._timeout_s * 1_000)
        backoff_s = BACKOFF_S
        while True:
            left_ms = until_ms - self._clock.monotonic_ms()
            call = begin(self._clock.monotonic_ms() + max(1, min(ATTEMPT_MS_MAX, left_ms)))
            while not call.result.done:
                self._posted.get()()
            result = _value(call)
            if not isinstance(result, StoreError):
                return result
            left_ms = until_ms - self._clock.monotonic_ms()
            if not result.is_retriable or left_ms <= backoff_s * 1_000:
                raise StoreFailed(self.uri, result)
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)


def _value(call: Call[T]) -> T | StoreError:
    return call.result.value


__all__ = ["StoreAccess", "StoreFailed", "StoreUriError"]
