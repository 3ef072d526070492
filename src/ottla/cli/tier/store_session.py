"""An object store as a command uses it: one operation after the other, each waited for."""

import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from ottla.base.object_store import StoreError
from ottla.base.pending import Pending
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.store_calls import StoreCalls
from ottla.cli.errors import CommandError
from ottla.host.system_ports import SystemClock, SystemDice
from ottla.stores.uri import StoreUriError, parse_store_uri

T = TypeVar("T")


class StoreSession:
    """See the module. Raises: CommandError for a bad URI."""

    def __init__(self, uri: str, timeout_seconds: float) -> None:
        from ottla.stores.opening import open_store

        self._clock = SystemClock()
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._timeout_ms = int(timeout_seconds * 1_000)
        try:
            parsed = parse_store_uri(uri)
            self._store = open_store(parsed, clock=self._clock, post=self._posted.put)
        except StoreUriError as error:
            raise CommandError(f"--remote-storage {error}") from None
        self.uri = str(parsed)
        self.calls = StoreCalls(self._store, self._clock, SystemDice())

    def __enter__(self) -> "StoreSession":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    @property
    def until_ms(self) -> int:
        """Return when operations that begin now are given up, monotonic."""
        return self._clock.monotonic_ms() + self._timeout_ms

    def run(self, dialogue: Dialogue[T | StoreError]) -> T:
        """Run a dialogue to its end. Raises: CommandError where the store fails."""
        value: Any = None
        while True:
            try:
                awaited = dialogue.send(value)
            except StopIteration as end:
                result: T | StoreError = end.value
                if isinstance(result, StoreError):
                    raise CommandError(f"store {self.uri}: {result}") from None
                return result
            if isinstance(awaited, int):
                time.sleep(awaited / 1_000)
                value = None
                continue
            promise = awaited if isinstance(awaited, Pending) else awaited.result
            while not promise.done:
                self._posted.get()()
            value = promise.value
