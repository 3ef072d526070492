"""A session that has expired is detected within its timeout.

Method: a fake loop, whose timers the test fires.
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ottla.base.pending import Pending
from ottla.host.zookeeper.session_probe import SOON_SECONDS, SessionProbe

TIMEOUT = 18.0


class Handle:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Scene:
    """A probe, the pauses it makes and the questions it asks."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []
        self.probes: list[Pending[None]] = []
        loop = cast(asyncio.AbstractEventLoop, self)
        self.probe = SessionProbe(loop, self.ask, TIMEOUT)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.handles.append(Handle(seconds, callback))
        return self.handles[-1]

    def ask(self) -> Pending[None]:
        self.probes.append(Pending())
        return self.probes[-1]

    def pauses(self) -> list[float]:
        """Return how long the timers have yet to run, all of them that do."""
        return [each.seconds for each in self.handles if not each.is_cancelled]

    def pass_pause(self) -> None:
        """Let the one timer end."""
        (handle,) = (each for each in self.handles if not each.is_cancelled)
        self.handles.clear()
        handle.callback()


def test_it_probes_once_per_session_timeout() -> None:
    scene = Scene()
    scene.probe.connected(is_first=True)
    for count in range(1, 4):
        assert scene.pauses() == [TIMEOUT]
        scene.pass_pause()
        assert (len(scene.probes), scene.pauses()) == (count, [])
        scene.probes[-1].complete(None)


def test_it_probes_soon_after_the_session_has_moved() -> None:
    scene = Scene()
    scene.probe.connected(is_first=True)
    scene.probe.stop()
    assert scene.pauses() == []
    scene.probe.connected(is_first=False)
    assert scene.pauses() == [SOON_SECONDS]
    scene.pass_pause()
    scene.probes[0].complete(None)
    assert scene.pauses() == [TIMEOUT]


def test_a_response_over_a_previous_connection_changes_nothing() -> None:
    scene = Scene()
    scene.probe.connected(is_first=True)
    scene.pass_pause()
    scene.probe.stop()
    scene.probe.connected(is_first=False)
    scene.probes[0].complete(None)
    assert scene.pauses() == [SOON_SECONDS]


def test_it_stops_once_the_session_is_over() -> None:
    scene = Scene()
    scene.probe.connected(is_first=True)
    scene.pass_pause()
    scene.probe.stop()
    scene.probes[0].complete(None)
    assert scene.pauses() == []
