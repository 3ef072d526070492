"""Exponential backoff with jitter: how long to wait after so many failures in a row.

Source: Kafka's ExponentialBackoff; KIP-580.
"""

from dataclasses import dataclass

from ottla.base.ports import Dice


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait doubles with each failure, from `first_ms` to `max_ms`, and varies by a fifth.

    Fields: `first_ms`, `max_ms`: milliseconds, before the jitter.
    """

    first_ms: int = 100
    max_ms: int = 1_000

    def delay_ms(self, failures: int, dice: Dice) -> int:
        """Return the wait after the `failures`-th failure in a row, counted from 1."""
        assert failures >= 1
        delay_ms = min(self.first_ms << min(failures - 1, 30), self.max_ms)
        jitter_ms = delay_ms // 5
        return delay_ms - jitter_ms + dice.below(2 * jitter_ms + 1)
