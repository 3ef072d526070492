"""A limit for the log lines of a failure that many requests meet again and again.

While an object store is down, each consumer that reads old records fails twice a second, for each
partition. One line in `INTERVAL_MS` reports it, with the number of the others.
"""

from typing import Final

from ottla.base.ports import Clock

INTERVAL_MS: Final = 10_000


class LogLimit:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_ms = clock.monotonic_ms()
        self._left_out = 0

    def admit(self) -> str | None:
        """Return what the failure's line ends with; None = it is left out."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms:
            self._left_out += 1
            return None
        count, self._left_out = self._left_out, 0
        self._due_ms = now_ms + INTERVAL_MS
        return f" ({count} others failed since the last such line)" if count else ""
