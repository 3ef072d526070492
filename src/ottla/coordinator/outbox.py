"""Responses to pending requests are completed after the state change, not within it.

A completed response lets its connection process the client's next request at once. If it was
completed in the middle of a change (the third of ten members of a generation), that request would
meet a half-changed group. So responses are posted, and completed by a timer that is
due at once, when the call that posted them has ended.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers

T = TypeVar("T")


class Outbox:
    """Responses in the order in which they were posted."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._completions: deque[Callable[[], bool]] = deque()
        self._is_armed = False

    def post(self, pending: Pending[T], answer: T) -> None:
        """Complete the promise soon, in this or the next turn of the loop."""
        self._completions.append(partial(pending.complete, answer))
        self._arm()

    def _arm(self) -> None:
        if self._completions and not self._is_armed:
            self._is_armed = True
            self._timers.at(self._clock.monotonic_ms(), self._deliver)

    def _deliver(self) -> None:
        self._is_armed = False
        try:
            for _ in range(len(self._completions)):
                self._completions.popleft()()
        finally:
            self._arm()  # A callback that raises must not prevent the other responses.
