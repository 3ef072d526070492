"""Drives the deletion manager of the controller that rules: wishes, orders, clock.

The manager says what to decide, and what to order once that is a fact; here the decisions are
made, one at a time, so that all that was heard meanwhile is decided at once. Both modes share it;
how orders reach brokers, and what becomes of answers, is theirs: `ottla.host.deletion_channel`
(KRaft), `ottla.host.zookeeper.controller_term`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.deletion_manager import DeletionManager
from ottla.controller.deletion_orders import DeletionOrder
from ottla.controller.deletion_policy import IllegalMove, Replica, Wish, decide
from ottla.controller.step import Decision
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage

log = logging.getLogger(__name__)

RETRY_AFTER_FAILURE_MS: Final = 10_000
"""How long the timer is left alone after an error of this software."""

SendOrders = Callable[[ClusterImage, Iterable[DeletionOrder]], None]


@dataclass(frozen=True, slots=True)
class DeletionsAnswered:
    """A broker was ordered to delete replicas; how each of these ended."""

    broker_id: int
    broker_epoch: int
    results: Mapping[Replica, Error]


@dataclass(frozen=True, slots=True)
class OrdersDropped:
    """What a broker was ordered to delete will have no answer."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[Replica, ...]


class DecisionRunner(Protocol):
    """Makes decisions; see `ottla.broker.api.base.ControllerPort`."""

    def run(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Pending[Any | ApiError]:
        """Decide; answer once the decision's records are facts, and everybody has heard."""
        ...


class DeletionDriver:
    """The deletions of one term of office.

    `send` puts orders into the brokers' channels; `marked` tells the topics that bear a marker
    now, where deletions are marked (see `deletion_policy.decide`).
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
        """Begin on what is stored: everything in the queue is looked at once (KAFKA-1681)."""
        self._image = image
        self._order(self._manager.elected(image, now_ms=self._clock.monotonic_ms()))
        self._decide_next()

    def stop(self) -> None:
        """Forget everything: the office is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._manager.resigned()

    def changed(self, delta: ClusterDelta) -> None:
        """Hear of a change that is a fact, after brokers were told of it."""
        self._image = delta.image
        self._order(self._manager.follow(delta, now_ms=self._clock.monotonic_ms()))
        self._decide_next()

    def answered(self, event: DeletionsAnswered) -> None:
        """Hear what a broker answered."""
        now_ms = self._clock.monotonic_ms()
        self._manager.answered(event.broker_id, event.broker_epoch, event.results, now_ms=now_ms)
        self._decide_next()

    def dropped(self, event: OrdersDropped) -> None:
        """Hear that orders will not be answered."""
        now_ms = self._clock.monotonic_ms()
        self._manager.dropped(event.broker_id, event.broker_epoch, event.replicas, now_ms=now_ms)
        self._decide_next()

    def halted_by(self, *, electing: Iterable[str], reassigning: Iterable[str]) -> None:
        """Hear of which topics elections and reassignments are asked for and not done yet."""
        self._manager.halted_by(electing=electing, reassigning=reassigning)
        self._decide_next()

    def markers_changed(self, marked: Collection[str]) -> None:
        """Hear which topics bear a marker now."""
        self._manager.marked(marked)
        self._decide_next()

    def _order(self, orders: Iterable[DeletionOrder]) -> None:
        listed = tuple(orders)
        if listed:
            self._send(self._image, listed)

    def _decide_next(self) -> None:
        """Decide what is to be decided, and be there when something is due."""
        if self._is_over:
            return
        if not self._is_deciding:
            wish = self._manager.take_wish()
            if wish is not None:
                self._decide(wish)
        self._arm()

    def _decide(self, wish: Wish) -> None:
        wall_ms = self._clock.now_ms()
        wrote_records = False

        def decide_now(image: ClusterImage) -> Decision[tuple[IllegalMove, ...]]:
            nonlocal wrote_records
            decision = decide(image, wish, wall_ms=wall_ms, marked=self._marked())
            wrote_records = bool(decision.step.records)
            return decision

        self._is_deciding = True
        self._runtime.run(decide_now).then(lambda reply: self._decided(wish, reply, wrote_records))

    def _decided(
        self, wish: Wish, reply: tuple[IllegalMove, ...] | ApiError, wrote_records: bool
    ) -> None:
        self._is_deciding = False
        if isinstance(reply, ApiError):
            self._refused(wish, reply)
            return
        self._manager.decided()
        for move in reply:
            log.error(
                "illegal replica state change from %s to %s: %s", move.source, move.target, move
            )
        if wrote_records:
            self._decide_next()
        else:  # It waited for nobody: let others have their turn before the next decision.
            self._arm()

    def _refused(self, wish: Wish, error: ApiError) -> None:
        """Have it decided again, so that what cannot be written holds up nothing else."""
        if error.error is Error.NOT_CONTROLLER:
            self.stop()  # The next controller decides on what is stored.
        if self._is_over:
            return
        if len(wish.topics) > 1:
            log.info(
                "writing %d topic deletions together failed: %s; retrying in halves",
                len(wish.topics),
                error,
            )
        else:
            found = (self._image.deletions.of(each) for each in wish.topics)
            what = next((f"the deletion of {each.name}" for each in found if each), "receipts")
            log.error("writing %s failed: %s; retrying", what, error)
        self._manager.refused(now_ms=self._clock.monotonic_ms())
        self._arm()

    def _arm(self) -> None:
        """Be there when something is due; at once, where there is something to decide."""
        if self._is_over:
            return
        due_ms = self._manager.next_due_ms
        if self._manager.has_wish and not self._is_deciding:
            due_ms = self._clock.monotonic_ms()
        self._timer = self._timers.move(self._timer, due_ms, self._tick)

    def _tick(self) -> None:
        clock = self._clock
        try:
            self._order(self._manager.tick(now_ms=clock.monotonic_ms(), wall_ms=clock.now_ms()))
            self._decide_next()
        except Exception:  # Whoever runs timers has others to run, and this one must come again.
            log.exception("the timer of topic deletions failed; retrying")
            retry_ms = clock.monotonic_ms() + RETRY_AFTER_FAILURE_MS
            self._timer = self._timers.at(retry_ms, self._tick)
