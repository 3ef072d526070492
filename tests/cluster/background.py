"""Work that goes on in threads while nodes are stopped, killed and started."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

ABANDONED_SECONDS = 1.0
"""How long threads are waited for, all together, once the test has failed anyway."""


class Background:
    """Threads that run from the begin of a `with` block to its end.

    Fields: `errors`: what went wrong in any of them; at the end of the block there is nothing.
    Order:  `begun` once all threads run; `ending` at the end of a block that did not fail; then
            `_stop` is set and the threads get `patience` seconds, all together. Let that be less
            than the test has: where its own time is over, nobody hears what was wrong.
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
            patience = self._patience if kind is None else ABANDONED_SECONDS
            deadline = time.monotonic() + patience
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        if kind is None:
            self.errors += [
                f"a thread goes on after {patience:g} s:\n{_whereabouts(thread)}"
                for thread in self._threads
                if thread.is_alive()
            ]
            self.check_errors()

    def check_errors(self) -> None:
        """Check that nothing went wrong so far."""
        assert not self.errors, "\n".join(self.errors)

    def begun(self) -> None:
        """Wait until the threads are at work, where that matters."""

    def ending(self) -> None:
        """Wait for a last sign of work, where that matters."""

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(repr(error))


def _whereabouts(thread: threading.Thread) -> str:
    """Return what a thread is at."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "it ended just now"
