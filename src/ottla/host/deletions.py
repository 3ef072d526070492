"""Drives the deletion manager of the active controller: decisions, orders, timer.

The manager says what to decide, and what to order from brokers once that is committed; the driver
makes the decisions, one at a time, so that all events meanwhile are decided together. Both modes
share it; how orders reach brokers, and how responses are handled, is in
`ottla.host.kraft.deletion_channel` (KRaft) and `ottla.host.zookeeper.controller_term`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import (
    DeletionWork,
    IllegalTransition,
    Replica,
    decide,
)
from ottla.controller.step import Decision
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage

log = logging.getLogger(__name__)

RETRY_AFTER_FAILURE_MS: Final = 10_000
"""The delay of the timer after an exception, which is a bug."""

SendOrders = Callable[[ClusterImage, Iterable[DeletionOrder]], None]


@dataclass(frozen=True, slots=True)
class DeletionsAnswered:
    """A broker's response to a request to delete replicas: the error of each."""

    broker_id: int
    broker_epoch: int
    results: Mapping[Replica, Error]


@dataclass(frozen=True, slots=True)
class OrdersDropped:
    """A broker's request to delete replicas will have no response."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[Replica, ...]


class DecisionRunner(Protocol):
    """Makes decisions; see `ottla.broker.api.base.ControllerPort`."""

    def run(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Pending[Any | ApiError]:
        """Decide; answer once the decision's records are committed and listeners were called."""
        ...


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
        self._manager = manager
        self._runtime = runtime
        self._send = send
        self._clock = clock
        self._timers = timers
        self._marked = marked
        self._timer: Timer | None = None
        self._image = EMPTY
        self._is_deciding = self._is_over = False

    def start(self, image: ClusterImage) -> None:
        """Begin with the stored ledger: every queued deletion is processed once (KAFKA-1681)."""
        self._image = image
        self._order(self._manager.elected(image, now_ms=self._clock.monotonic_ms()))
        self._decide_next()

    def stop(self) -> None:
        """End: the term is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._manager.resigned()

    def changed(self, delta: ClusterDelta) -> None:
        """Process a committed change, after it was sent to brokers."""
        self._image = delta.image
        self._order(self._manager.observe(delta, now_ms=self._clock.monotonic_ms()))
        self._decide_next()

    def answered(self, event: DeletionsAnswered) -> None:
        """Process a broker's response."""
        now_ms = self._clock.monotonic_ms()
        self._manager.responded(event.broker_id, event.broker_epoch, event.results, now_ms=now_ms)
        self._decide_next()

    def dropped(self, event: OrdersDropped) -> None:
        """Process that orders will have no response."""
        now_ms = self._clock.monotonic_ms()
        self._manager.dropped(event.broker_id, event.broker_epoch, event.replicas, now_ms=now_ms)
        self._decide_next()

    def set_ineligible_topics(
        self, *, preferred_elections: Iterable[str], reassignments: Iterable[str]
    ) -> None:
        """Set the topics with elections and reassignments that are requested and not done."""
        self._manager.set_ineligible_topics(
            preferred_elections=preferred_elections, reassignments=reassignments
        )
        self._decide_next()

    def markers_changed(self, marked: Collection[str]) -> None:
        """Set the topics that have a deletion marker."""
        self._manager.markers_changed(marked)
        self._decide_next()

    def _order(self, orders: Iterable[DeletionOrder]) -> None:
        listed = tuple(orders)
        if listed:
            self._send(self._image, listed)

    def _decide_next(self) -> None:
        """Decide what is pending, and set the timer."""
        if self._is_over:
            return
        if not self._is_deciding:
            work = self._manager.take_work()
            if work is not None:
                self._decide(work)
        self._arm()

    def _decide(self, work: DeletionWork) -> None:
        wall_ms = self._clock.now_ms()
        wrote_records = False

        def decide_now(image: ClusterImage) -> Decision[tuple[IllegalTransition, ...]]:
            nonlocal wrote_records
            decision = decide(image, work, wall_ms=wall_ms, marked=self._marked())
            wrote_records = bool(decision.step.records)
            return decision

        self._is_deciding = True
        self._runtime.run(decide_now).then(lambda reply: self._decided(work, reply, wrote_records))

    def _decided(
        self,
        work: DeletionWork,
        reply: tuple[IllegalTransition, ...] | ApiError,
        wrote_records: bool,
    ) -> None:
        self._is_deciding = False
        if isinstance(reply, ApiError):
            self._refused(work, reply)
            return
        self._manager.decided()
        for move in reply:
            log.error(
                "illegal replica state change from %s to %s: %s", move.source, move.target, move
            )
        if wrote_records:
            self._decide_next()
        else:  # It was answered at once: let other work run before the next decision.
            self._arm()

    def _refused(self, work: DeletionWork, error: ApiError) -> None:
        """Have it retried, so that a topic that cannot be written does not block the others."""
        if error.error is Error.NOT_CONTROLLER:
            self.stop()  # The next controller decides on what is stored.
        if self._is_over:
            return
        if len(work.topics) > 1:
            log.info(
                "writing %d topic deletions together failed: %s; retrying in halves",
                len(work.topics),
                error,
            )
        else:
            found = (self._image.deletions.of(each) for each in work.topics)
            what = next((f"the deletion of {each.name}" for each in found if each), "receipts")
            log.error("writing %s failed: %s; retrying", what, error)
        self._manager.refused(now_ms=self._clock.monotonic_ms())
        self._arm()

    def _arm(self) -> None:
        """Set the timer; at once, where there is something to decide."""
        if self._is_over:
            return
        due_ms = self._manager.next_due_ms
        if self._manager.has_work and not self._is_deciding:
            due_ms = self._clock.monotonic_ms()
        self._timer = self._timers.move(self._timer, due_ms, self._tick)

    def _tick(self) -> None:
        clock = self._clock
        try:
            self._order(self._manager.tick(now_ms=clock.monotonic_ms(), wall_ms=clock.now_ms()))
            self._decide_next()
        except Exception:  # Other timers must run, and this one must run again.
            log.exception("the timer of topic deletions failed; retrying")
            retry_ms = clock.monotonic_ms() + RETRY_AFTER_FAILURE_MS
            self._timer = self._timers.at(retry_ms, self._tick)
