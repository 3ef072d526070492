"""Work that goes on in threads while nodes are stopped, killed and started."""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

ABANDONED_SECONDS = 1.0
"""How long threads are waited for once the test has failed anyway."""


class Background:
    """Threads that run from the begin of a `with` block to its end.

    Fields: `errors`: what went wrong in any of them; at the end of the block there is nothing.
    Order:  `begun` once all threads run; `ending` at the end of a block that did not fail; then
            `_stop` is set and the threads get `patience` seconds each.
    """

    def __init__(self, works: Iterable[Callable[[], None]], *, patience: float) -> None:
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._patience = patience
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.begun()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.ending()
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(self._patience if kind is None else ABANDONED_SECONDS)
        if kind is None:
            assert self.errors == [], self.errors

    def begun(self) -> None:
        """Wait until the threads are at work, where that matters."""

    def ending(self) -> None:
        """Wait for a last sign of work, where that matters."""

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(repr(error))
