"""Asks now and then whether a session that seems to live is over.

A server can keep the connection of a session that has ended: where that happens just as the session
moves there, the server takes it in after its end has gone by, and answers its pings and reads for
ever. Only writes are refused then, and a broker may write nothing for days, while for all others it
is dead. Seen with ZooKeeper 3.9, in one of thirty sessions that were ended while they moved.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ottla.base.pending import Pending

SOON_SECONDS: Final = 1.0
"""After a later connection: by then all servers have heard of an end that was under way."""


class SessionProbe:
    """Probes one session, a while after each answer.

    `ask`: sends a write that changes nothing; whoever takes its answer acts on it.
    `seconds`: the pause, a session's timeout: as long as others take to notice a dead one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ask: Callable[[], Pending[Any]], seconds: float
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connected(self, *, is_first: bool) -> None:
        """Follow that there is a connection."""
        self.stop()
        pause = self._seconds if is_first else min(self._seconds, SOON_SECONDS)
        self._timer = self._loop.call_later(pause, self._probe)

    def stop(self) -> None:
        """Ask no more until there is a connection again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        timer = self._timer
        self._ask().then(lambda _: self._answered(timer))

    def _answered(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is self._timer and timer is not None:  # Else all has begun anew, or is over.
            self._timer = self._loop.call_later(self._seconds, self._probe)
