"""The event loop's lag: the time between when a timer was due and when it ran.

Whatever holds the loop (a handler, a scrape, the garbage collector, a machine without a free core)
shows here, and delays every connection of the node. The node's own timers are measured; at rest
these are few, and one more a second is set for it. More would be most of a node's work at rest.
"""

import asyncio

from ottla.base.metrics import Histogram, latency_ns

INTERVAL_SECONDS = 1.0
NS = 1_000_000_000


class LoopLag:
    """Measures while it is started. `lag`: the results."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lag: Histogram = latency_ns()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to measure."""
        due = self._loop.time() + INTERVAL_SECONDS
        self._timer = self._loop.call_at(due, self._ran, due)

    def _ran(self, due: float) -> None:
        self.timer_ran(due)
        self.start()

    def timer_ran(self, due: float) -> None:
        """Note that a timer runs now that was due at `due`, of the loop's clock."""
        # The loop runs what is due within its clock's resolution: a little early is in time.
        self.lag.observe(max(0, int((self._loop.time() - due) * NS)))

    def stop(self) -> None:
        """Stop to measure."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
