"""A controller waits for the controlled shutdowns of other brokers before it stops.

When a whole cluster is stopped at once, each broker needs a controller for its controlled shutdown.
A combined node that stopped first would take its vote away from the slower ones, whose controlled
shutdowns then time out.
"""

import logging
from collections.abc import Callable

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.metadata.image import ClusterImage

log = logging.getLogger(__name__)

GRACE_MS = 100
"""How long a controller waits for others to begin a controlled shutdown: they may have been stopped
at the same moment."""

OTHER_SHUTDOWNS_MS_MAX = 5_000
"""How long it waits for controlled shutdowns under way: a broker that dies never ends its own."""

STALLED_MS = 1_000
"""How long the metadata may not advance meanwhile: a working quorum commits at least twice a
second.
Without a majority of voters no controlled shutdown can be granted."""

POLL_MS = 10


def others_shut_down(
    image: Callable[[], ClusterImage], own_id: int, clock: Clock, timers: Timers
) -> Pending[None]:
    """Return a promise kept once no other broker is in controlled shutdown, or at a timeout."""
    done: Pending[None] = Pending()
    begin_ms = advanced_ms = clock.monotonic_ms()
    position = image().position

    def check() -> None:
        nonlocal advanced_ms, position
        now_ms = clock.monotonic_ms()
        if image().position != position:
            advanced_ms, position = now_ms, image().position
        running, shutting_down = _others(image(), own_id)
        limit_ms = OTHER_SHUTDOWNS_MS_MAX if shutting_down else GRACE_MS if running else 0
        if now_ms - begin_ms < limit_ms and now_ms - advanced_ms < STALLED_MS:
            timers.at(now_ms + POLL_MS, check)
            return
        if shutting_down:
            log.warning(
                "controller stops before the controlled shutdown of brokers %s has ended",
                shutting_down,
            )
        done.complete(None)

    check()
    return done


def _others(image: ClusterImage, own_id: int) -> tuple[list[int], list[int]]:
    """Return the other unfenced brokers: those running, those in controlled shutdown."""
    others = [each for each in image.broker_ids() if each != own_id]
    unfenced = [each for each in others if not image.brokers[each].fenced]
    shutting_down = [each for each in unfenced if image.brokers[each].in_controlled_shutdown]
    return [each for each in unfenced if each not in shutting_down], shutting_down
