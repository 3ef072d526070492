"""Timers as a heap of deadlines. The owner of the clock reads the next one and runs those due.

Milliseconds are monotonic. Equal deadlines run in the order in which they were set, so that a
replay is exact. A cancelled timer stays in the heap until its deadline, without its callback; when
more than half of the heap is cancelled it is rebuilt, so a busy server's heap stays bounded.
"""

import heapq
from collections.abc import Callable
from typing import Final

ALIGNMENT_MS: Final = 500
"""Between two times at which aligned waits end."""


def aligned(now_ms: int, wait_ms: int) -> int:
    """Return when a wait that begins now is over: a long one a little early, with others.

    For waits that nobody needs exactly, and of which a node has few at a time. At rest a wake-up
    costs a node more than what is to be done then; what ends together shares one. A wait that is
    repeated ends early only once: from then on it begins when the others do.
    """
    due_ms = now_ms + wait_ms
    return due_ms if wait_ms < ALIGNMENT_MS else due_ms - due_ms % ALIGNMENT_MS


class Timer:
    """A handle for cancelling; `callback` is None once run or cancelled."""

    __slots__ = ("_timers", "at_ms", "callback")

    def __init__(self, timers: "Timers", at_ms: int, callback: Callable[[], None]):
        self._timers = timers
        self.at_ms = at_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Drop the callback; harmless after it ran."""
        if self.callback is not None:
            self.callback = None
            self._timers._note_dead()


class Timers:
    """The heap. `on_earlier` is called when a new first deadline is set, to re-arm a wake-up."""

    def __init__(self, on_earlier: Callable[[int], None] | None = None) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        """(deadline, order, timer); the order is unique."""
        self._dead = 0
        self._order = 0
        self.on_earlier = on_earlier

    def at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `at_ms` (monotonic milliseconds) has come."""
        self._order += 1
        timer = Timer(self, at_ms, callback)
        heapq.heappush(self._heap, (at_ms, self._order, timer))
        if self._heap[0][2] is timer and self.on_earlier is not None:
            self.on_earlier(at_ms)
        return timer

    def move(
        self, timer: Timer | None, at_ms: int | None, callback: Callable[[], None]
    ) -> Timer | None:
        """Replace `timer` by one at `at_ms`; return it, or `timer` if it has that time already.

        `at_ms`: monotonic milliseconds, None = no timer.
        """
        if timer is not None:
            if timer.callback is not None and timer.at_ms == at_ms:
                return timer
            timer.cancel()
        return None if at_ms is None else self.at(at_ms, callback)

    def next_ms(self) -> int | None:
        """Return the first live deadline, or None."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> int:
        """Run all timers that are due, in order; return how many ran.

        A timer set by a callback waits for the next call, even if it is due at once: a timer that
        always sets itself again for a past time must not hold the thread for ever.
        """
        ran = 0
        newest = self._order
        put_off: list[tuple[int, int, Timer]] = []
        try:
            while self._heap and self._heap[0][0] <= now_ms:
                entry = heapq.heappop(self._heap)
                _, order, timer = entry
                if timer.callback is None:
                    self._dead -= 1
                elif order > newest:
                    put_off.append(entry)
                else:
                    callback, timer.callback = timer.callback, None
                    ran += 1
                    callback()
        finally:
            for entry in put_off:
                if entry[2].callback is None:
                    self._dead = max(0, self._dead - 1)
                else:
                    heapq.heappush(self._heap, entry)
            if put_off and self._heap and self.on_earlier is not None:
                # Meanwhile `on_earlier` may have been called with a later deadline than these.
                self.on_earlier(self._heap[0][0])
        return ran

    def __len__(self) -> int:
        return len(self._heap) - self._dead

    def _note_dead(self) -> None:
        self._dead += 1
        if self._dead > 64 and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._dead = 0
