"""Refused and closed connections: counted by reason, logged at most once a minute with the count.

A peer can be refused thousands of times per second; a line for each would fill the disk.
"""

import asyncio
import logging
from collections import Counter
from enum import Enum

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0


class Refusal(Enum):
    """Why a connection was refused or closed; the value is the label in metrics."""

    MAX_CONNECTIONS = "max-connections"
    MAX_CONNECTIONS_PER_IP = "max-connections-per-ip"
    DESCRIPTORS = "descriptors"
    REQUEST = "request"
    SLOW_REQUEST = "slow-request"
    UNREAD = "unread"
    LOST = "lost"


class Refusals:
    """Those of one listener. `counts`: since the start."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: str) -> None:
        self.counts: Counter[Refusal] = Counter()
        self.listener = listener
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._unlogged = 0

    def note(self, why: Refusal, detail: str) -> None:
        """Count one; `detail`: the connection and the reason."""
        self.counts[why] += 1
        self._unlogged += 1
        self._last = detail
        if self._timer is None:
            self._log_count()

    def _log_count(self) -> None:
        self._timer = None
        if not self._unlogged:
            return
        log.warning(
            "listener %s: refused or closed %d connections in %d s; the last one: %s",
            self.listener,
            self._unlogged,
            LOG_SECONDS,
            self._last,
        )
        self._unlogged = 0
        self._timer = self._loop.call_later(LOG_SECONDS, self._log_count)

    def close(self) -> None:
        """Log the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._log_count()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
