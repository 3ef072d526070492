"""A controller's decisions, one after another, over a back end that others write to as well.

A decision is made on the back end's image and appended before the next one is made. After a
conflict with another writer, or where it is unknown whether it was written, it is decided again on
what is stored now; so a decider may be called several times, and only its last decision counts.
Replies and effects come once the records are committed, and after all listeners were called.

Not done: several appends under way at once; ZooKeeper answers in a millisecond or two.

Source: the event thread of KafkaController, Kafka 3.9, of which this is the part that writes.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.metrics import Histogram, latency_ms
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.controller.metadata_port import Appended, Committed, Conflict, Fenced, MetadataPort
from ottla.controller.statistics import ElectionStatistics
from ottla.controller.step import Decision, Step
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage

log = logging.getLogger(__name__)

R = TypeVar("R")

ATTEMPTS_PER_LINE = 10
"""A decision that is retried is logged after this many attempts each."""


@dataclass(slots=True)
class DecisionMetrics:
    """The metrics of a node's controller, over all its terms.

    Fields: `queue_time`: how long decisions were queued; `commit_latency`: from a decision to the
            commit of its records.
    """

    records_appended: int = 0
    queue_time: Histogram = field(default_factory=latency_ms)
    commit_latency: Histogram = field(default_factory=latency_ms)
    statistics: ElectionStatistics = field(default_factory=ElectionStatistics)


@dataclass(slots=True, eq=False)
class _QueuedDecision(Generic[R]):
    """A decision to make, and its promise."""

    decide: Callable[[ClusterImage], Decision[R]]
    deadline_ms: int | None
    since_ms: int
    answer: Pending[R | ApiError] = field(default_factory=Pending)
    attempts: int = 0
    is_queued: bool = False


class ControllerRuntime:
    """One controller in one term. See `ottla.broker.api.base.ControllerPort`.

    Hooks: `on_fenced`: another broker is the controller: called once, after queued decisions were
           answered NOT_CONTROLLER. `on_effect`: a decision's effect is due.
    """

    def __init__(
        self,
        store: MetadataPort,
        *,
        epoch: int,
        clock: Clock,
        on_fenced: Callable[[], None] = lambda: None,
        on_effect: Callable[[Any], None] = lambda effect: None,
        metrics: DecisionMetrics | None = None,
    ) -> None:
        self.epoch = epoch
        self.active = True
        self.metrics = DecisionMetrics() if metrics is None else metrics
        self._store = store
        self._clock = clock
        self._on_fenced = on_fenced
        self._on_effect = on_effect
        self._queue: deque[_QueuedDecision[Any]] = deque()
        self._current: _QueuedDecision[Any] | None = None
        self._hold_count = 0
        self._subscribers: list[Callable[[ClusterDelta], None]] = []
        store.subscribe(self._changed)

    @property
    def image(self) -> ClusterImage:
        """Return the back end's image, on which the next decision is made."""
        return self._store.image

    @property
    def idle(self) -> bool:
        """Tell whether nothing is under way and nothing is queued."""
        return self._current is None and not self._queue

    @property
    def queue_size(self) -> int:
        """Return the number of queued decisions, without the one under way."""
        return len(self._queue)

    # -- decisions -----------------------------------------------------------------------------

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide in turn; answer once the decision's records are committed.

        `deadline_ms` is monotonic and checked at the turn: REQUEST_TIMED_OUT.
        """
        queued: _QueuedDecision[R] = _QueuedDecision(
            decide, deadline_ms, self._clock.monotonic_ms()
        )
        if not self.active:
            queued.answer.complete(ApiError(Error.NOT_CONTROLLER))
            return queued.answer
        queued.is_queued = True
        self._queue.append(queued)
        self._decide_next()
        if queued.is_queued:
            # While nothing can be written, timed-out requests would pile up.
            queued.answer.then(lambda _: self._drop(queued))
        return queued.answer

    def run_step(self, decide: Callable[[ClusterImage], Step]) -> Pending[ApiError | None]:
        """Decide without a request; a failure is logged."""
        answer: Pending[ApiError | None] = self.run(lambda image: Decision(decide(image), None))
        answer.then(_note_failure)
        return answer

    def resign(self) -> None:
        """End the term: queued decisions are answered NOT_CONTROLLER; nothing is decided any more.

        The append under way may still be committed. Its caller does not learn that it was.
        """
        if not self.active:
            return
        self.active = False
        waiting = [] if self._current is None else [self._current]
        waiting += self._queue
        self._current = None
        self._queue.clear()
        for queued in waiting:
            queued.is_queued = False
            _guarded(queued.answer.complete, ApiError(Error.NOT_CONTROLLER))

    def _drop(self, queued: _QueuedDecision[Any]) -> None:
        if queued.is_queued:
            queued.is_queued = False
            self._queue.remove(queued)

    def _decide_next(self) -> None:
        """Decide what is queued. Not while listeners are called, nor recursively: they would get
        the next change before this one, and effects before both."""
        if self._hold_count:
            return
        self._hold_count += 1
        try:
            while self._current is None and self._queue and self.active:
                self._current = self._queue.popleft()
                self._current.is_queued = False
                self._decide(self._current)
        finally:
            self._hold_count -= 1

    def _decide(self, queued: _QueuedDecision[Any]) -> None:
        deadline_ms, started_ms = queued.deadline_ms, self._clock.monotonic_ms()
        if queued.attempts == 0:
            self.metrics.queue_time.observe(started_ms - queued.since_ms)
        if deadline_ms is not None and started_ms >= deadline_ms:
            self._answer(queued, ApiError(Error.REQUEST_TIMED_OUT))
            return
        queued.attempts += 1
        try:
            decision = queued.decide(self._store.image)
            if not decision.step.records:
                self._decided(queued, decision)
                return
            appended = self._store.append(decision.step, self.epoch)
        except ApiError as error:
            self._answer(queued, error)
        except Exception:
            log.exception("controller operation failed; nothing was written")
            self._answer(queued, ApiError(Error.UNKNOWN_SERVER_ERROR))
        else:
            appended.then(lambda outcome: self._appended(queued, decision, outcome, started_ms))

    def _appended(
        self,
        queued: _QueuedDecision[Any],
        decision: Decision[Any],
        outcome: Appended | ApiError,
        started_ms: int,
    ) -> None:
        if self._current is not queued:
            return  # The term has ended meanwhile.
        if isinstance(outcome, Committed):
            self.metrics.records_appended += len(decision.step.records)
            self.metrics.commit_latency.observe(self._clock.monotonic_ms() - started_ms)
            self._decided(queued, decision)
        elif isinstance(outcome, ApiError):
            self._answer(queued, outcome)
        elif isinstance(outcome, Fenced):
            log.warning(
                "controller epoch %d is fenced: another broker is the controller", self.epoch
            )
            self.resign()
            _guarded(lambda _none: self._on_fenced(), None)
        else:
            if queued.attempts % ATTEMPTS_PER_LINE == 0:
                what = sorted(outcome.keys) if isinstance(outcome, Conflict) else "unknown outcome"
                log.info(
                    "controller operation is retried, attempt %d: %s", queued.attempts + 1, what
                )
            self._current = None
            queued.is_queued = True
            self._queue.appendleft(queued)
        self._decide_next()

    def _decided(self, queued: _QueuedDecision[Any], decision: Decision[Any]) -> None:
        for effect in decision.step.effects:
            _guarded(self._on_effect, effect)
        self._answer(queued, decision.reply)

    def _answer(self, queued: _QueuedDecision[Any], reply: Any) -> None:
        if self._current is queued:
            self._current = None
        _guarded(queued.answer.complete, reply)

    # -- readers -------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with every change from now on, appended or observed, in order."""
        self._subscribers.append(listener)

    def unsubscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Remove a listener of `subscribe`."""
        self._subscribers.remove(listener)

    def _changed(self, delta: ClusterDelta) -> None:
        self._hold_count += 1
        try:
            self.metrics.statistics.observe(delta)
            for subscriber in tuple(self._subscribers):
                _guarded(subscriber, delta)
        finally:
            self._hold_count -= 1
        self._decide_next()


def _note_failure(outcome: ApiError | None) -> None:
    if outcome is not None and outcome.error is not Error.NOT_CONTROLLER:
        log.error("background controller operation failed: %s", outcome)


def _guarded(call: Callable[[Any], object], value: Any) -> None:
    """Call a listener; log its exception."""
    try:
        call(value)
    except Exception:
        log.exception("a controller listener failed")
