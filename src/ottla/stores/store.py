"""An object store as the port describes it: pools, deadlines and cancellation over a backend.

One thread with an event loop of its own runs the operations, so that a store that hangs holds
neither the node's loop nor its disk workers. Each pool has its own bound for operations under way
and for those that are queued: purging cannot starve reads. A result is handed to the caller's loop
through `post`, which may be called from any thread.

An operation that is answered at its deadline, or cancelled, is given up: a write that has not
happened never does. It keeps its place in the pool until it has really ended. One that does not end
(a read from a file system that hangs) goes on holding its place; when all places are held so,
further operations are queued until their deadlines, then BUSY.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.base.object_store import (
    NAMES_PER_DELETE_MAX,
    OBJECTS_PER_PAGE_MAX,
    Call,
    Failure,
    ObjectInfo,
    Page,
    Pool,
    SettableCall,
    Source,
    StoreError,
    check_name,
)
from ottla.base.ports import Buffer, Clock
from ottla.stores.backend import Backend, OperationFailed

T = TypeVar("T")

Post = Callable[[Callable[[], None]], None]
"""Calls a function later on the caller's loop; may be called from any thread."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Operations under way at once, and operations that wait for a place."""

    running_max: int = 10
    queued_max: int = 100


class Store:
    """See `ottla.base.object_store.ObjectStore`. All methods are called on the caller's loop."""

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock,
        post: Post,
        limits: Mapping[Pool, PoolLimits] | None = None,
        name: str = "store",
    ) -> None:
        self._backend: Final = backend
        self._clock = clock
        self._post = post
        self._limits = {pool: (limits or {}).get(pool, PoolLimits()) for pool in Pool}
        self._under_way = dict.fromkeys(Pool, 0)
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._places = {pool: asyncio.Semaphore(self._limits[pool].running_max) for pool in Pool}
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def close(self) -> None:
        """Cancel what is under way, and end the thread; does not wait for a store that hangs."""
        if self._is_closed:
            return
        self._is_closed = True

        def stop(is_first: bool) -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            # The tasks see their cancellation and answer. The second one ends those that hang.
            if is_first:
                self._loop.call_later(0.025, stop, False)
            else:
                self._loop.call_later(0.025, self._loop.stop)

        self._loop.call_soon_threadsafe(stop, True)
        self._thread.join(timeout=1)

    def under_way(self, pool: Pool) -> int:
        """Return how many operations of a pool are running or queued."""
        return self._under_way[pool]

    def resize(self, pool: Pool, running_max: int, queued_max: int) -> None:
        """Have a pool run and queue another number of operations; those under way go on."""
        before, now = self._limits[pool], PoolLimits(running_max, queued_max)
        self._limits[pool] = now
        more = now.running_max - before.running_max
        if more and not self._is_closed:
            asyncio.run_coroutine_threadsafe(_resize(self._places[pool], more), self._loop)

    # -- operations ----------------------------------------------------------------------------

    def put(self, name: str, source: Source, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port."""
        check_name(name)
        return self._start(lambda: self._backend.put(name, source), pool, deadline_ms)

    def put_if_absent(self, name: str, data: Buffer, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port."""
        check_name(name)
        return self._start(lambda: self._backend.put_if_absent(name, data), pool, deadline_ms)

    def get_range(
        self, name: str, start: int, length: int, *, pool: Pool, deadline_ms: int
    ) -> Call[Buffer]:
        """See the port."""
        check_name(name)
        assert start >= 0
        assert length > 0
        return self._start(lambda: self._backend.get_range(name, start, length), pool, deadline_ms)

    def head(self, name: str, *, pool: Pool, deadline_ms: int) -> Call[ObjectInfo]:
        """See the port."""
        check_name(name)
        return self._start(lambda: self._backend.head(name), pool, deadline_ms)

    def list_page(
        self,
        prefix: str,
        *,
        after: str = "",
        limit: int = OBJECTS_PER_PAGE_MAX,
        pool: Pool,
        deadline_ms: int,
    ) -> Call[Page]:
        """See the port."""
        if prefix:
            check_name(prefix)
        assert 0 < limit <= OBJECTS_PER_PAGE_MAX
        return self._start(lambda: self._backend.list_page(prefix, after, limit), pool, deadline_ms)

    def delete_many(
        self, names: Sequence[str], *, pool: Pool, deadline_ms: int
    ) -> Call[Mapping[str, StoreError]]:
        """See the port."""
        assert 0 < len(names) <= NAMES_PER_DELETE_MAX
        for name in names:
            check_name(name)
        return self._start(lambda: self._backend.delete_many(names), pool, deadline_ms)

    def remove_unfinished(self, prefix: str, *, pool: Pool, deadline_ms: int) -> Call[None]:
        """See the port."""
        check_name(prefix)
        return self._start(lambda: self._backend.remove_unfinished(prefix), pool, deadline_ms)

    # -- one operation -------------------------------------------------------------------------

    def _start(
        self, operation: Callable[[], Awaitable[T]], pool: Pool, deadline_ms: int
    ) -> SettableCall[T]:
        call: SettableCall[T] = SettableCall()
        limits = self._limits[pool]
        if self._is_closed:
            call.result.complete(StoreError(Failure.CANCELLED, "the store is closed"))
            return call
        if self._under_way[pool] >= limits.running_max + limits.queued_max:
            call.result.complete(
                StoreError(Failure.BUSY, f"{self._under_way[pool]} {pool.value} operations wait")
            )
            return call
        self._under_way[pool] += 1

        def settle(outcome: T | StoreError) -> None:
            call.result.complete(outcome)

        def answer(outcome: T | StoreError) -> None:
            self._post(lambda: settle(outcome))

        seconds = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        running: Future[None] = asyncio.run_coroutine_threadsafe(
            self._run(operation, pool, seconds, answer), self._loop
        )
        call.on_cancel(running.cancel)
        return call

    async def _run(
        self,
        operation: Callable[[], Awaitable[T]],
        pool: Pool,
        seconds: float,
        answer: Callable[[T | StoreError], None],
    ) -> None:
        places, until = self._places[pool], self._loop.time() + seconds
        try:
            try:
                # Not `wait_for`: Python 3.11's ignores a cancellation that comes with the result.
                async with asyncio.timeout(seconds):
                    await places.acquire()
            except TimeoutError:
                answer(StoreError(Failure.BUSY, f"no {pool.value} operation ended in time"))
                return
            try:
                await self._run_in_place(operation, until, answer)
            finally:
                places.release()
        except asyncio.CancelledError:
            answer(StoreError(Failure.CANCELLED, "cancelled"))
            raise
        finally:
            self._post(lambda: self._ended(pool))

    async def _run_in_place(
        self,
        operation: Callable[[], Awaitable[T]],
        until: float,
        answer: Callable[[T | StoreError], None],
    ) -> None:
        task = self._loop.create_task(_outcome(operation))
        try:
            done, _ = await asyncio.wait({task}, timeout=until - self._loop.time())
            if done:
                answer(task.result())
                return
            answer(StoreError(Failure.TIMED_OUT, "no response by the deadline"))
        except asyncio.CancelledError:
            answer(StoreError(Failure.CANCELLED, "cancelled"))
            await self._ended_operation(task)
            raise
        await self._ended_operation(task)

    async def _ended_operation(self, task: "asyncio.Task[Any]") -> None:
        """Give an operation up that was answered, and wait until it has ended."""
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})

    def _ended(self, pool: Pool) -> None:
        self._under_way[pool] -= 1


async def _resize(places: asyncio.Semaphore, more: int) -> None:
    """Add places, or take some away as they become free."""
    for _ in range(more):
        places.release()
    for _ in range(-more):
        await places.acquire()


async def _outcome(operation: Callable[[], Awaitable[T]]) -> T | StoreError:
    """Return an operation's result or error; an exception of the backend is unexpected.

    It begins the operation itself: a task that is cancelled before its first step has begun none.
    """
    try:
        return await operation()
    except OperationFailed as failed:
        return failed.error
    except Exception as error:
        return StoreError(Failure.UNAVAILABLE, f"{type(error).__name__}: {error}")
