"""The event loop's lag: the time between when a timer was due and when it ran.

Whatever holds the loop (a handler, a scrape, the garbage collector, a machine without a free core)
shows here, and delays every connection of the node.
"""

import asyncio

from ottla.base.metrics import Histogram, latency_ns

INTERVAL_SECONDS = 0.1
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
        # The loop runs what is due within its clock's resolution: a little early is in time.
        self.lag.observe(max(0, int((self._loop.time() - due) * NS)))
        self.start()

    def stop(self) -> None:
        """Stop to measure."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
