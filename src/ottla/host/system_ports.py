"""The ports over the operating system: clocks, randomness, worker threads, timers on the loop."""

import asyncio
import logging
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ottla.base.timers import Timers

T = TypeVar("T")
log = logging.getLogger(__name__)


BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """Return the id of this boot of the machine; "" where there is none."""
    try:
        with open(BOOT_ID_PATH) as file:
            return file.read().strip()
    except OSError:
        return ""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return wall-clock milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds of the clock that never goes back."""
        return time.monotonic_ns() // 1_000_000


class SystemDice:
    """The machine's entropy."""

    def random_bytes(self, count: int) -> bytes:
        """Return `count` bytes fit for UUIDs."""
        return os.urandom(count)

    def below(self, bound: int) -> int:
        """Return an integer of [0, bound)."""
        return random.randrange(bound)


class ThreadWorkers:
    """A bounded pool; results come back to the loop in the order in which work ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 4) -> None:
        self._loop = loop
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ottla-worker")

    def start(self) -> None:
        """Start all threads. Raises: RuntimeError where the system has none left.

        The pool would start each when it is needed. Where that fails the work is done by another
        thread, or later, but its end is never reported: a log would wait for its flush for ever.
        """
        all_run = threading.Barrier(self._threads + 1)
        try:
            for _ in range(self._threads):
                self._pool.submit(all_run.wait)
            all_run.wait()
        except RuntimeError:
            all_run.abort()
            raise

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        """Run `work` on a thread, then `done` on the loop."""
        future = self._pool.submit(work)
        future.add_done_callback(lambda ended: self._hand_over(ended, done))

    def _hand_over(
        self, ended: "Future[T]", done: Callable[[T | BaseException], None] | None
    ) -> None:
        if ended.cancelled():
            return
        error = ended.exception()
        if done is None:
            if error is not None:
                log.error("a task of a worker thread failed", exc_info=error)
            return
        outcome = error if error is not None else ended.result()
        try:
            self._loop.call_soon_threadsafe(done, outcome)
        except RuntimeError:  # The loop has closed.
            log.debug("a worker thread's task ended after the event loop")

    def close(self) -> None:
        """Wait for what runs; drop what has not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class LoopTimers:
    """Drives a `Timers` heap from an asyncio loop with a single armed wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: SystemClock) -> None:
        self._loop = loop
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self.on_wake: Callable[[float], None] | None = None
        """Called at each wake-up with the loop time at which it was due."""
        self.timers = Timers(on_earlier=self._arm)

    def _arm(self, at_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        # One millisecond more: the clock is truncated to whole milliseconds, and waking a little
        # early would spin until the deadline.
        delay_ms = max(0, at_ms - self._clock.monotonic_ms()) + 1
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake)

    def _wake(self) -> None:
        handle, self._handle = self._handle, None
        if self.on_wake is not None and handle is not None:
            self.on_wake(handle.when())
        try:
            self.timers.run_due(self._clock.monotonic_ms())
        except Exception:
            log.exception("a timer callback failed")
        next_ms = self.timers.next_ms()
        if next_ms is not None and self._handle is None:
            self._arm(next_ms)

    def close(self) -> None:
        """Disarm; no timer runs any more."""
        if self._handle is not None:
            self._handle.cancel()
        self.timers.on_earlier = None
