"""Keeping the pauses of Python's garbage collector short.

The collector looks for cycles among objects, and its oldest generation is all that live for long:
for a broker with 5,000 partitions a tenth of a second in which nothing is answered. So what
has survived such a look that took long is set aside (`gc.freeze`), and the next one is at what has
come since. What is set aside is freed as everything else once nobody refers to it; only cycles are
not found there. That there are none worth a pause is for the code to see to; once twice as much
is set aside as after the last look at everything, everything is looked at again.
"""

import gc
import time
from collections.abc import Callable
from typing import Any, Protocol

PAUSE_NS = 10_000_000
"""What survives a collection that took longer is set aside."""

GROWTH_MIN = 1_000_000
"""Objects that may be set aside after a look at everything before there is another one."""


class Collector(Protocol):
    """What is needed of the module `gc`."""

    def freeze(self) -> None:
        """Set aside all that is tracked."""
        ...

    def unfreeze(self) -> None:
        """Put what is set aside into the oldest generation."""
        ...

    def get_freeze_count(self) -> int:
        """Return how many objects are set aside."""
        ...


class GcPauseLimiter:
    """Follows each collection. `ticks_ns` measures."""

    def __init__(
        self, collector: Collector = gc, ticks_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._collector = collector
        self._ticks_ns = ticks_ns
        self._began_ns = 0
        self._kept = 0
        self._is_full = True
        """The next collection of the oldest generation looks at everything."""

    def on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Follow the collector: one of `gc.callbacks`."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began_ns = self._ticks_ns()
        elif self._ticks_ns() - self._began_ns > PAUSE_NS:
            self._set_aside()

    def _set_aside(self) -> None:
        self._collector.freeze()
        count = self._collector.get_freeze_count()
        if self._is_full:
            self._is_full = False
            self._kept = count
        elif count > 2 * self._kept + GROWTH_MIN:
            self._collector.unfreeze()
            self._is_full = True


def limit_gc_pauses() -> None:
    """Do so in this process from now on."""
    gc.callbacks.append(GcPauseLimiter().on_collection)
