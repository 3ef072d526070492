"""Pools, deadlines and cancellation, over a backend whose operations end when the test says so."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from pathlib import Path

import pytest

from ottla.base.object_store import (
    Call,
    Failure,
    ObjectInfo,
    Page,
    Pool,
    Source,
    StoreError,
    check_name,
)
from ottla.base.ports import Buffer
from ottla.stores.backend import OperationFailed
from ottla.stores.store import PoolLimits
from tests.object_store_checks import SECONDS_MAX
from tests.unit.stores.support import RealBench


class HeldBackend:
    """`head` waits until `release` is set; then its result is `outcome`.

    `hangs`: also once it is cancelled.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs
        self.release = threading.Event()
        self.outcome: BaseException | None = None
        self.running = 0
        self.running_max = 0
        self.cancelled = 0

    async def head(self, name: str) -> ObjectInfo:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        try:
            while not self.release.is_set():
                await self._wait()
        finally:
            self.running -= 1
        if self.outcome is not None:
            raise self.outcome
        return ObjectInfo(name, 1, 2)

    async def _wait(self) -> None:
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled += 1
            if not self.hangs:
                raise

    async def put(self, name: str, source: Source) -> None:
        raise AssertionError

    async def put_if_absent(self, name: str, data: Buffer) -> None:
        raise AssertionError

    async def remove_unfinished(self, prefix: str) -> None:
        raise AssertionError

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        return b"x"

    async def list_page(self, prefix: str, after: str, limit: int) -> Page:
        raise AssertionError

    async def delete_many(self, names: Sequence[str]) -> Mapping[str, StoreError]:
        raise AssertionError


def bench_of(backend: HeldBackend, path: Path, limits: PoolLimits | None = None) -> RealBench:
    return RealBench(lambda: backend, path, limits)


def failure_of(result: object) -> Failure | None:
    return result.failure if isinstance(result, StoreError) else None


@pytest.mark.parametrize("hangs", [False, True])
def test_a_result_comes_by_the_deadline(hangs: bool, tmp_path: Path) -> None:
    backend = HeldBackend(hangs=hangs)
    bench = bench_of(backend, tmp_path)
    store = bench.open()
    result = bench.wait(store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline(0.05)))
    assert failure_of(result) is Failure.TIMED_OUT
    if hangs:
        bench.run_until_real(lambda: backend.cancelled == 1)
        assert store.under_way(Pool.FETCHER) == 1, "it goes on, and keeps its place"
        backend.release.set()
    bench.run_until(lambda: store.under_way(Pool.FETCHER) == 0)
    assert backend.cancelled == 1
    bench.close()


def test_pools_are_bounded_and_apart(tmp_path: Path) -> None:
    backend = HeldBackend()
    bench = bench_of(backend, tmp_path, PoolLimits(running_max=2, queued_max=3))
    store = bench.open()
    calls = [store.head("a", pool=Pool.COPIER, deadline_ms=bench.deadline()) for _ in range(7)]
    assert [failure_of(call.result.value) for call in calls if call.result.done] == [
        Failure.BUSY,
        Failure.BUSY,
    ]
    # Another pool goes on.
    read = store.get_range("a", 0, 1, pool=Pool.FETCHER, deadline_ms=bench.deadline())
    assert bench.wait(read) == b"x"
    assert sum(call.result.done for call in calls) == 2
    backend.release.set()
    bench.run_until(lambda: all(call.result.done for call in calls))
    assert backend.running_max == 2
    assert [failure_of(call.result.value) for call in calls[:5]] == [None] * 5
    bench.run_until(lambda: store.under_way(Pool.COPIER) == 0)
    bench.close()


def test_places_that_hang_are_not_given_again(tmp_path: Path) -> None:
    backend = HeldBackend(hangs=True)
    bench = bench_of(backend, tmp_path, PoolLimits(running_max=1, queued_max=5))
    store = bench.open()
    first = store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline(0.02))
    second = store.head("b", pool=Pool.FETCHER, deadline_ms=bench.deadline(0.1))
    assert failure_of(bench.wait(first)) is Failure.TIMED_OUT
    assert failure_of(bench.wait(second)) is Failure.BUSY, "it was never sent"
    assert backend.running_max == 1
    backend.release.set()
    third = store.head("c", pool=Pool.FETCHER, deadline_ms=bench.deadline())
    assert bench.wait(third) == ObjectInfo("c", 1, 2)
    bench.close()


def test_cancelled_calls_free_their_places(tmp_path: Path) -> None:
    backend = HeldBackend()
    bench = bench_of(backend, tmp_path, PoolLimits(running_max=1, queued_max=5))
    store = bench.open()
    long = bench.deadline(10 * SECONDS_MAX)  # Else the deadline would free them.
    calls: list[Call[ObjectInfo]] = [
        store.head("a", pool=Pool.FETCHER, deadline_ms=long) for _ in range(4)
    ]
    for call in calls:
        call.cancel()
        assert failure_of(call.result.value) is Failure.CANCELLED
    bench.run_until(lambda: store.under_way(Pool.FETCHER) == 0)
    backend.release.set()
    last = store.head("b", pool=Pool.FETCHER, deadline_ms=bench.deadline())
    assert bench.wait(last) == ObjectInfo("b", 1, 2)
    bench.close()


def test_errors_are_values(tmp_path: Path) -> None:
    backend = HeldBackend()
    backend.release.set()
    bench = bench_of(backend, tmp_path)
    store = bench.open()
    backend.outcome = OperationFailed(Failure.DENIED, "no")
    denied = bench.wait(store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline()))
    assert denied == StoreError(Failure.DENIED, "no")
    backend.outcome = KeyError("unexpected")
    unexpected = bench.wait(store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline()))
    assert unexpected == StoreError(Failure.UNAVAILABLE, "KeyError: 'unexpected'")
    bench.close()


def test_close_answers_what_is_under_way_and_does_not_wait(tmp_path: Path) -> None:
    backend = HeldBackend()
    bench = bench_of(backend, tmp_path)
    store = bench.open()
    call = store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline())
    bench.run_until_real(lambda: backend.running == 1)
    store.close()
    assert failure_of(bench.wait(call)) is Failure.CANCELLED
    after = store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline())
    assert failure_of(after.result.value) is Failure.CANCELLED
    store.close()


def test_an_operation_that_close_comes_before_is_not_left_half_begun(tmp_path: Path) -> None:
    """A coroutine that was made and is never awaited warns, at some time later."""
    backend = HeldBackend()
    bench = bench_of(backend, tmp_path)
    store = bench.open()
    closing = threading.Thread(target=store.close)
    made: list[Coroutine[None, None, ObjectInfo]] = []

    async def found(name: str) -> ObjectInfo:
        return ObjectInfo(name, 1, 2)

    def head(name: str) -> Awaitable[ObjectInfo]:
        closing.start()
        # The store's thread stands still meanwhile: what `close` does there comes next.
        bench.run_until_real(lambda: store._is_closed)
        time.sleep(0.01)
        made.append(found(name))
        return made[0]

    backend.head = head  # type: ignore[method-assign, assignment]
    bench.wait(store.head("a", pool=Pool.FETCHER, deadline_ms=bench.deadline()))
    closing.join()
    assert inspect.getcoroutinestate(made[0]) == inspect.CORO_CLOSED


def test_a_store_that_hangs_does_not_hold_up_close(tmp_path: Path) -> None:
    backend = HeldBackend(hangs=True)
    bench = bench_of(backend, tmp_path)
    store = bench.open()
    store.get_range("a", 0, 1, pool=Pool.FETCHER, deadline_ms=bench.deadline())
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "a/../b", ".", "a#1"])
def test_names_that_no_store_keeps_are_bugs(name: str) -> None:
    with pytest.raises(AssertionError):
        check_name(name)


def test_pools_grow_and_shrink_while_they_run(tmp_path: Path) -> None:
    backend = HeldBackend()
    bench = bench_of(backend, tmp_path, PoolLimits(running_max=1, queued_max=9))
    store = bench.open()

    def heads(count: int) -> list[Call[ObjectInfo]]:
        return [
            store.head("a", pool=Pool.COPIER, deadline_ms=bench.deadline()) for _ in range(count)
        ]

    calls = heads(5)
    bench.run_until_real(lambda: backend.running == 1)
    store.resize(Pool.COPIER, 3, 2)
    bench.run_until_real(lambda: backend.running == 3)
    assert failure_of(heads(1)[0].result.value) is Failure.BUSY
    backend.release.set()
    for call in calls:
        assert bench.wait(call) == ObjectInfo("a", 1, 2)
    bench.run_until(lambda: store.under_way(Pool.COPIER) == 0)
    assert backend.running_max == 3
    backend.release.clear()
    store.resize(Pool.COPIER, 1, 9)
    backend.running_max = 0
    calls = heads(4)
    bench.run_until_real(lambda: backend.running == 1)
    backend.release.set()
    for call in calls:
        assert bench.wait(call) == ObjectInfo("a", 1, 2)
    assert backend.running_max == 1
    bench.close()
