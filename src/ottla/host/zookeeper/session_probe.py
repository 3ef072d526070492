"""Probes periodically whether a session that seems alive has expired.

A server can keep the connection of an expired session: if a session expires just as it moves to
that server, the server accepts it after it has processed the expiry, and answers its pings and
reads forever. Only writes are rejected then, and a broker may write nothing for days, while it is
dead for all others. Seen with ZooKeeper 3.9, in one of thirty sessions that expired while they
moved.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ottla.base.pending import Pending

SOON_SECONDS: Final = 1.0
"""After a later connection: by then all servers have processed an expiry that was under way."""


class SessionProbe:
    """Probes one session, a while after each answer.

    `ask`: sends a write that changes nothing; the handler of its response acts on it.
    `seconds`: the interval, a session's timeout: others take as long to notice a dead one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ask: Callable[[], Pending[Any]], seconds: float
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connected(self, *, is_first: bool) -> None:
        """Start to probe: there is a connection."""
        self.stop()
        pause = self._seconds if is_first else min(self._seconds, SOON_SECONDS)
        self._timer = self._loop.call_later(pause, self._probe)

    def stop(self) -> None:
        """Stop until there is a connection again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        timer = self._timer
        self._ask().then(lambda _: self._answered(timer))

    def _answered(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is self._timer and timer is not None:  # Else it was stopped or started again.
            self._timer = self._loop.call_later(self._seconds, self._probe)
