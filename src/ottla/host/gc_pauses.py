"""Keeps the pauses of Python's garbage collector short.

A collection of the oldest generation traverses all long-lived objects: a tenth of a second for a
broker with 5,000 partitions, in which nothing is answered. So the objects that survive a long
collection are frozen (`gc.freeze`), and the next one traverses only those created since. Frozen
objects are still freed by their reference counts; only cycles among them are not found. Once twice
as many objects are frozen as after the last full collection, there is a full collection again.
"""

import gc
import time
from collections.abc import Callable
from typing import Any, Protocol

PAUSE_NS = 10_000_000
"""Objects that survive a longer collection are frozen."""

GROWTH_MIN = 1_000_000
"""Objects that may be frozen after a full collection before there is another one."""


class Collector(Protocol):
    """What is needed of the module `gc`."""

    def freeze(self) -> None:
        """Freeze all tracked objects."""
        ...

    def unfreeze(self) -> None:
        """Move frozen objects to the oldest generation."""
        ...

    def get_freeze_count(self) -> int:
        """Return the number of frozen objects."""
        ...


class GcPauseLimiter:
    """Measures each collection with `ticks_ns`."""

    def __init__(
        self, collector: Collector = gc, ticks_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self._collector = collector
        self._ticks_ns = ticks_ns
        self._began_ns = 0
        self._kept = 0
        self._is_full = True
        """The next collection of the oldest generation is a full one."""

    def on_collection(self, phase: str, info: dict[str, Any]) -> None:
        """Observe a collection: one of `gc.callbacks`."""
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
    """Install the limiter in this process."""
    gc.callbacks.append(GcPauseLimiter().on_collection)
