"""Periodic operations of an active controller: unclean elections, preferred leader rebalance.

One pass is bounded, so that heartbeats are handled in between; where more is left, the next pass
follows as soon as this one is committed. A pass that failed is retried after the usual interval.
"""

from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers


class Periodic:
    """Runs passes, one at a time, while it is started.

    `work` makes one pass; its answer says whether more is left.
    """

    def __init__(
        self,
        work: Callable[[], Pending[bool | ApiError]],
        *,
        interval_ms: int,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._work = work
        self._interval_ms = interval_ms
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._started = False
        self._is_busy = False
        self._is_wanted = False

    def start(self) -> None:
        """Make the first pass after one interval; at once where `now` was called before."""
        self._started = True
        self._arm(0 if self._is_wanted else self._interval_ms)

    def stop(self) -> None:
        """Stop."""
        self._started = self._is_wanted = False
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> None:
        """Make a pass at once, or after the one that is under way."""
        self._is_wanted = True
        self._run()

    def _arm(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.at(self._clock.monotonic_ms() + delay_ms, self._run)

    def _run(self) -> None:
        if self._started and not self._is_busy:
            self._is_busy, self._is_wanted = True, False
            self._work().then(self._done)

    def _done(self, answer: bool | ApiError) -> None:
        self._is_busy = False
        if self._started:
            more = self._is_wanted or (answer is True)
            self._arm(0 if more else self._interval_ms)
