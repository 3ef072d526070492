"""The loop lag, measured on a loop whose clock the test moves."""

from collections.abc import Callable
from typing import Any, cast

from ottla.host.loop_lag import INTERVAL_SECONDS, LoopLag


class Handle:
    """A timer that can be cancelled."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """A clock and one timer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.armed: tuple[float, Callable[..., None], tuple[Any, ...], Handle] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, callback: Callable[..., None], *values: Any) -> Handle:
        self.armed = (due, callback, values, Handle())
        return self.armed[3]

    def run_late(self, seconds: float) -> None:
        assert self.armed is not None
        due, callback, values, handle = self.armed
        assert not handle.cancelled
        self.now = due + seconds
        callback(*values)


def test_lateness_is_counted_and_the_next_timer_armed() -> None:
    loop = FakeLoop()
    lag = LoopLag(cast(Any, loop))
    lag.start()
    for late in (0.0, 0.25, -0.000_001):
        loop.run_late(late)
    assert lag.lag.count == 3
    assert lag.lag.total == 250_000_000
    assert loop.armed is not None
    assert loop.armed[0] == loop.now + INTERVAL_SECONDS


def test_after_the_stop_nothing_is_armed() -> None:
    loop = FakeLoop()
    lag = LoopLag(cast(Any, loop))
    lag.stop()
    lag.start()
    lag.stop()
    assert loop.armed is not None
    assert loop.armed[3].cancelled
