"""A token bucket: a bound on the rate of copied bytes, of read bytes, or of deleted segments.

What is to be spent is charged as a whole beforehand, so that one segment may exceed what is there;
the next one then waits until that is paid. On average the rate is kept.

Source: KIP-956; RLMQuotaManager (check, then spend).
"""

from ottla.base.metrics import Histogram
from ottla.base.ports import Clock
from ottla.broker.remote.dialogue import Dialogue

UNLIMITED = 2**63 - 1
"""Kafka's default of remote.log.manager.copy.max.bytes.per.second, and of fetch.max…."""

RECHECK_MS = 1_000
"""A rate that was raised holds after this time for those who wait, too."""

MS_PER_SECOND = 1_000


class TokenBucket:
    """See the module.

    Fields: `per_second`: the rate, may be changed at any time. `window_seconds`: what is left
            unused for so long may be spent at once.
    """

    def __init__(self, clock: Clock, *, per_second: int, window_seconds: int) -> None:
        assert per_second > 0
        assert window_seconds > 0
        self._clock = clock
        self._since_ms = clock.monotonic_ms()
        self.per_second = per_second
        self._window_seconds = window_seconds
        self._milli_tokens = per_second * window_seconds * MS_PER_SECOND

    def change_rate(self, per_second: int) -> None:
        """Apply another rate from now on."""
        assert per_second > 0
        self._refill()
        self.per_second = per_second
        self._refill()

    def wait_ms(self) -> int:
        """Return how long to wait before anything may be spent; 0 = now."""
        self._refill()
        if self._milli_tokens > 0:
            return 0
        return -self._milli_tokens // self.per_second + 1

    def spend(self, count: int) -> None:
        """Charge `count`, also where less is there; a negative one is given back."""
        self._refill()
        self._milli_tokens -= count * MS_PER_SECOND

    def _refill(self) -> None:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._since_ms) * self.per_second
        self._since_ms = now_ms
        full = self.per_second * self._window_seconds * MS_PER_SECOND
        self._milli_tokens = min(full, self._milli_tokens + earned)


def wait_to_spend(quota: TokenBucket, throttle_time: Histogram) -> Dialogue[None]:
    """Wait until anything may be spent, and count the milliseconds if there were any."""
    waited_ms = 0
    while wait_ms := min(quota.wait_ms(), RECHECK_MS):
        waited_ms += wait_ms
        yield wait_ms
    if waited_ms:
        throttle_time.observe(waited_ms)
