"""Applies metadata changes to a broker, and retries those that fail.

A change that fails is counted and logged. Later changes are applied as they come, because they may
be of other topics; the failed one is retried with backoff, as the delta between the last image that
was applied completely and the newest one. Applying a delta twice is idempotent.

Source: BrokerMetadataPublisher and its FaultHandler, which counts and does not retry.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import ClusterImage

log = logging.getLogger(__name__)

RETRY_MS = 100
"""The backoff after a first failure; it doubles."""

RETRY_MAX_MS = 10_000
assert RETRY_MS <= RETRY_MAX_MS

OnImage = Callable[[ClusterDelta], None]


@dataclass(frozen=True, slots=True)
class MetadataErrors:
    """A broker's counts as in Kafka: failures to apply a change, and to load metadata."""

    apply: int = 0
    load: int = 0


class Publication:
    """See the module.

    Fields: `errors`: how often applying a change failed, retries included; `is_closed`: nothing is
            retried or applied any more.
    """

    def __init__(self, on_image: OnImage, *, clock: Clock, timers: Timers) -> None:
        self.errors = 0
        self._on_image = on_image
        self._clock = clock
        self._timers = timers
        self._applied: ClusterImage | None = None
        self._newest: ClusterImage | None = None
        self._failures = 0
        self._timer: Timer | None = None
        self.is_closed = False

    @property
    def is_whole(self) -> bool:
        """Tell whether every change was applied."""
        return self._applied is None

    def hand_over(self, delta: ClusterDelta) -> None:
        """Apply a change; never raises."""
        self._newest = delta.image
        if not self._apply(delta) and self._applied is None:
            self._applied = delta.before
            self._schedule_retry()

    def close(self) -> None:
        """Retry nothing any more."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _apply(self, delta: ClusterDelta) -> bool:
        try:
            self._on_image(delta)
        except Exception:
            self.errors += 1
            log.exception(
                "applying metadata up to offset %d failed; retrying in %d ms",
                delta.image.position[0],
                self._delay_ms,
            )
            return False
        return True

    @property
    def _delay_ms(self) -> int:
        return min(RETRY_MS << min(self._failures, 16), RETRY_MAX_MS)

    def _schedule_retry(self) -> None:
        if self.is_closed:
            return
        at_ms = self._clock.monotonic_ms() + self._delay_ms
        self._failures += 1
        self._timer = self._timers.at(at_ms, self._retry)

    def _retry(self) -> None:
        assert self._applied is not None
        assert self._newest is not None
        if not self._apply(delta_between(self._applied, self._newest)):
            self._schedule_retry()
            return
        log.info("metadata applied up to offset %d", self._newest.position[0])
        self._applied = None
        self._failures = 0
