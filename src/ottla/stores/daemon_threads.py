"""Threads for operations that may hang: none of them keeps the process, or another one, waiting.

A pool of the standard library waits for its threads when the interpreter ends, and has a fixed
number of them, which operations that hang use up. Here an operation gets an idle thread or a new
one; whoever calls bounds how many run at once. Threads are kept for a while, since most operations
are shorter than the start of a thread, which takes the interpreter lock from the event loop.
"""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

IDLE_SECONDS_MAX: Final = 10.0
"""After so long without work a thread ends."""

_Work = Callable[[], None]


class DaemonThreads:
    """See the module."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._lock: Final = threading.Lock()
        self._idle: list[SimpleQueue[_Work]] = []

    def run(self, work: _Work) -> None:
        """Run `work`, which must not raise, in a thread of its own."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            thread = threading.Thread(
                target=self._serve, args=(inbox,), name=self._name, daemon=True
            )
            thread.start()
        inbox.put(work)

    def _serve(self, inbox: "SimpleQueue[_Work]") -> None:
        while True:
            try:
                work = inbox.get(timeout=IDLE_SECONDS_MAX)
            except Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                continue  # It was given work at the last moment.
            work()
            del work  # Idle, it keeps nothing of its last operation.
            with self._lock:
                self._idle.append(inbox)
