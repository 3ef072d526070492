"""Drives the deletion manager of the active controller, in both modes.

The manager says what to decide, which orders to send and when to wake it
(`ottla.controller.deletion.deletion_manager`); the driver does that. How orders reach brokers, and
how responses become events, is in `ottla.host.kraft.deletion_channel` (KRaft) and
`ottla.host.zookeeper.controller_term`.
"""

import logging
from collections.abc import Callable, Collection, Iterable

from ottla.base.errors import ApiError, Error
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.controller.deletion.deletion_events import Event
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import DeletionWork, IllegalTransition, decide
from ottla.controller.manager_events import Committed, Elected
from ottla.controller.step import Decision
from ottla.host.controller.manager_runner import (
    RETRY_AFTER_FAILURE_MS,
    DecisionRunner,
    ManagerRunner,
)
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage

log = logging.getLogger(__name__)

SendOrders = Callable[[ClusterImage, Iterable[DeletionOrder]], None]


class DeletionDriver:
    """The deletions of one term.

    `send` queues orders in the brokers' channels; `marked` returns the topics that have a deletion
    marker now, where there are markers (see `deletion_policy.decide`).
    """

    def __init__(
        self,
        manager: DeletionManager,
        runtime: DecisionRunner,
        send: SendOrders,
        *,
        clock: Clock,
        timers: Timers,
        marked: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        self._runner = ManagerRunner(manager, runtime, self, clock=clock, timers=timers)
        self._send = send
        self._clock = clock
        self._marked = marked
        self._image = EMPTY

    def start(self, image: ClusterImage) -> None:
        """Begin with the stored ledger: every queued deletion is processed once (KAFKA-1681)."""
        self._image = image
        self.step(Elected(image))

    def stop(self) -> None:
        """End: the term is over."""
        self._runner.stop()

    def changed(self, delta: ClusterDelta) -> None:
        """Process a committed change, after it was sent to brokers."""
        self._image = delta.image
        self.step(Committed(delta))

    def step(self, event: Event) -> None:
        """Process an event."""
        self._runner.step(event)

    # -- for the runner ------------------------------------------------------------------------

    def send(self, orders: tuple[DeletionOrder, ...]) -> None:
        """Do as `Owner.send`."""
        self._send(self._image, orders)

    def decide(
        self, image: ClusterImage, work: DeletionWork
    ) -> Decision[tuple[IllegalTransition, ...]]:
        """Do as `Owner.decide`."""
        return decide(image, work, wall_ms=self._clock.now_ms(), marked=self._marked())

    def decided(self, reply: tuple[IllegalTransition, ...]) -> None:
        """Do as `Owner.decided`."""
        for move in reply:
            log.error(
                "illegal replica state change from %s to %s: %s", move.source, move.target, move
            )

    def refused(self, work: DeletionWork, error: ApiError) -> None:
        """Do as `Owner.refused`: a topic that cannot be written does not block the others."""
        if error.error is Error.NOT_CONTROLLER:
            self.stop()  # The next controller decides on what is stored.
        elif len(work.topics) > 1:
            log.info(
                "writing %d topic deletions together failed: %s; retrying in halves",
                len(work.topics),
                error,
            )
        else:
            found = (self._image.deletions.of(each) for each in work.topics)
            what = next((f"the deletion of {each.name}" for each in found if each), "receipts")
            log.error("writing %s failed: %s; retrying", what, error)

    def failed(self) -> None:
        """Do as `Owner.failed`."""
        log.exception("processing topic deletions failed; retrying")
        self._runner.wake_at(self._clock.monotonic_ms() + RETRY_AFTER_FAILURE_MS)
