"""Drives the deletion manager of the active controller, in both modes.

The manager says what to decide, which orders to send and when to wake it
(`ottla.controller.deletion.deletion_manager`); the driver does that. How orders reach brokers, and
how responses become events, is in `ottla.host.kraft.deletion_channel` (KRaft) and
`ottla.host.zookeeper.controller_term`.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Protocol

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.deletion.deletion_events import Event
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import DeletionWork, IllegalTransition, decide
from ottla.controller.manager_events import (
    Committed,
    Elected,
    TimePassed,
    WorkDecided,
    WorkRefused,
)
from ottla.controller.step import Decision
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage

log = logging.getLogger(__name__)

RETRY_AFTER_FAILURE_MS: Final = 10_000
"""The delay of the timer after an exception, which is a bug."""

SendOrders = Callable[[ClusterImage, Iterable[DeletionOrder]], None]


class DecisionRunner(Protocol):
    """Makes decisions; see `ottla.broker.api.base.ControllerPort`."""

    def run(self, decide: Callable[[ClusterImage], Decision[Any]]) -> Pending[Any | ApiError]:
        """Decide; answer once the decision's records are committed and listeners were called."""
        ...


class TermRuntime(DecisionRunner, Protocol):
    """What a term begins with; see `ottla.host.controller.controller_runtime.ControllerRuntime`."""

    epoch: int

    @property
    def committed_image(self) -> ClusterImage:
        """Return the image that listeners have got."""
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
        self._is_over = False

    def start(self, image: ClusterImage) -> None:
        """Begin with the stored ledger: every queued deletion is processed once (KAFKA-1681)."""
        self._image = image
        self.step(Elected(image))

    def stop(self) -> None:
        """End: the term is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def changed(self, delta: ClusterDelta) -> None:
        """Process a committed change, after it was sent to brokers."""
        self._image = delta.image
        self.step(Committed(delta))

    def step(self, event: Event, *, is_idle: bool = True) -> None:
        """Process an event. `is_idle`: whether a decision may be made at once."""
        if self._is_over:
            return
        now_ms = self._clock.monotonic_ms()
        ready = self._manager.step(event, now_ms=now_ms, is_idle=is_idle)
        self._timer = self._timers.move(self._timer, ready.wake_at_ms, self._tick)
        try:
            if ready.orders:
                self._send(self._image, ready.orders)
        finally:  # Whatever failed: the manager waits for the end of this decision.
            if ready.work is not None:
                self._decide(ready.work)

    def _tick(self) -> None:
        try:
            self.step(TimePassed(self._clock.now_ms()))
        except Exception:  # Other timers must run, and this one must run again.
            log.exception("the timer of topic deletions failed; retrying")
            retry_ms = self._clock.monotonic_ms() + RETRY_AFTER_FAILURE_MS
            self._timer = self._timers.move(self._timer, retry_ms, self._tick)

    def _decide(self, work: DeletionWork) -> None:
        wall_ms = self._clock.now_ms()
        wrote_records = False

        def decide_now(image: ClusterImage) -> Decision[tuple[IllegalTransition, ...]]:
            nonlocal wrote_records
            decision = decide(image, work, wall_ms=wall_ms, marked=self._marked())
            wrote_records = bool(decision.step.records)
            return decision

        def decided(reply: tuple[IllegalTransition, ...] | ApiError) -> None:
            if isinstance(reply, ApiError):
                self._refused(work, reply)
                return
            for move in reply:
                log.error(
                    "illegal replica state change from %s to %s: %s", move.source, move.target, move
                )
            # Without records there is nothing to follow: other work runs before the next decision.
            self.step(WorkDecided(), is_idle=wrote_records)

        self._runtime.run(decide_now).then(decided)

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
        self.step(WorkRefused(), is_idle=False)
