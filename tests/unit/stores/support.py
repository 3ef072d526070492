"""The bench of `tests.object_store_checks` over stores of this process, in real time."""

import queue
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ottla.base.object_store import Call, FileSource, Pool, StoreError
from ottla.host.system_ports import SystemClock
from ottla.stores.backend import Backend
from ottla.stores.store import PoolLimits, Store
from tests.object_store_checks import SECONDS_MAX

T = TypeVar("T")


class RealBench:
    """Stores over backends of one content; this thread is the loop of their callers."""

    def __init__(
        self, backend: Callable[[], Backend], directory: Path, limits: PoolLimits | None = None
    ) -> None:
        self._backend = backend
        self._directory = directory
        self._limits = limits
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.clock = SystemClock()
        self.stores: list[Store] = []

    def open(self) -> Store:
        limits = None if self._limits is None else dict.fromkeys(Pool, self._limits)
        store = Store(self._backend(), clock=self.clock, post=self.post, limits=limits)
        self.stores.append(store)
        return store

    def post(self, call: Callable[[], None]) -> None:
        """Have `call` called on this thread."""
        self._posted.put(call)

    def deadline(self, seconds: float = SECONDS_MAX) -> int:
        return self.clock.monotonic_ms() + int(seconds * 1000)

    def wait(self, call: Call[T]) -> T | StoreError:
        self.run_until(lambda: call.result.done)
        return call.result.value

    def run_until(self, holds: Callable[[], bool], seconds: float = 2 * SECONDS_MAX) -> None:
        until = time.monotonic() + seconds
        while not holds():
            self._posted.get(timeout=max(0.001, until - time.monotonic()))()

    def run_until_real(self, holds: Callable[[], bool]) -> None:
        """Wait for what another thread does, without running what it posted."""
        until = time.monotonic() + SECONDS_MAX
        while not holds():
            assert time.monotonic() < until
            time.sleep(0.001)

    def file(self, data: bytes) -> FileSource:
        path = self._directory / f"source-{secrets.token_hex(4)}"
        path.write_bytes(data)
        return FileSource(str(path), len(data))

    def close(self) -> None:
        for store in self.stores:
            store.close()
