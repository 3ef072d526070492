"""Who stops last: a controller stays until the brokers that leave have left.

Where a whole cluster is told to stop at once, each broker needs a controller to let it go. A
node that is both would otherwise take its vote away from those that are a moment slower, which
then could only wait in vain and leave without a word.
"""

import logging
from collections.abc import Callable

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.metadata.image import ClusterImage

log = logging.getLogger(__name__)

GRACE_MS = 100
"""How long a controller waits for others to say that they leave too: they were perhaps told to
at the same moment."""

OTHER_SHUTDOWNS_MS_MAX = 5_000
"""How long it waits for those that said so: one that dies on its way never arrives."""

STALLED_MS = 1_000
"""How long the metadata may stand still meanwhile; a quorum that works commits twice a second
at least. Where the others' votes are gone already, nobody can be let go any more."""

POLL_MS = 10


def others_shut_down(
    image: Callable[[], ClusterImage], own_id: int, clock: Clock, timers: Timers
) -> Pending[None]:
    """Return a promise kept once no broker but `own_id` is on its way out, or time is up."""
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
    """Return the other unfenced brokers: those that stay, those that are on their way out."""
    others = [each for each in image.broker_ids() if each != own_id]
    unfenced = [each for each in others if not image.brokers[each].fenced]
    shutting_down = [each for each in unfenced if image.brokers[each].in_controlled_shutdown]
    return [each for each in unfenced if each not in shutting_down], shutting_down
