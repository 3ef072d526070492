"""A controller's decisions: queued, decided, appended to a back end, answered once committed.

A decision is made on the back end's image. Where the back end is pipelined that is the image of all
that was appended, and a decision is made at once; elsewhere decisions are queued, and each one is
appended before the next one is made. After a conflict with another writer, or where it is unknown
whether it was written, it is decided again on what is stored now; so a decider may be called
several times, and only its last decision counts. A step may go first: what follows from a change
that others made is decided before what is queued, which must not be decided between the two.
Replies and effects come in the order of the decisions, once the records are committed, and after
all listeners were called; a decision that fails is answered at once.

The back ends are those of `ottla.controller.metadata_port`; both modes use this runtime.

Source: the event threads of QuorumController, and of KafkaController of Kafka 3.9, of which this is
the part that writes.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH
from ottla.base.metrics import Histogram, latency_ms
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.controller.elections.statistics import ElectionStatistics
from ottla.controller.metadata_port import Appended, Committed, Conflict, Fenced, MetadataPort
from ottla.controller.step import Decision, Step
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage

log = logging.getLogger(__name__)

R = TypeVar("R")

ATTEMPTS_PER_LINE = 10
"""A decision that is retried is logged after this many attempts each."""


@dataclass(slots=True)
class DecisionMetrics:
    """The metrics of a node's controller, over all its terms.

    Fields: `records_appended`: by decisions that are committed; `queue_time`: how long decisions
            were queued; `commit_latency`: from a decision to the commit of its records;
            `statistics`: of all that was committed since the start.
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
    goes_first: bool = False
    answer: Pending[R | ApiError] = field(default_factory=Pending)
    attempts: int = 0
    is_queued: bool = False


class ControllerRuntime:
    """One controller. See `ottla.broker.api.base.ControllerPort`.

    Fields: `active`: decisions are made, in controller epoch `epoch`.
    Hooks:  `on_fenced`: another controller is active: called once an epoch, after queued decisions
            were answered NOT_CONTROLLER. `on_effect`: a decision's effect is due.
    """

    def __init__(
        self,
        store: MetadataPort,
        *,
        clock: Clock,
        epoch: int = NO_EPOCH,
        on_fenced: Callable[[], None] = lambda: None,
        on_effect: Callable[[Any], None] = lambda effect: None,
        metrics: DecisionMetrics | None = None,
    ) -> None:
        """With an epoch it is active in it; else it begins with `begin`."""
        self.epoch = epoch
        self.active = epoch != NO_EPOCH
        self.metrics = DecisionMetrics() if metrics is None else metrics
        self._store = store
        self._clock = clock
        self._on_fenced = on_fenced
        self._on_effect = on_effect
        self._queue: deque[_QueuedDecision[Any]] = deque()
        self._first: deque[_QueuedDecision[Any]] = deque()
        """Decided before the queue."""
        self._under_way: dict[_QueuedDecision[Any], None] = {}
        self._hold_count = 0
        self._subscribers: list[Callable[[ClusterDelta], None]] = []
        store.subscribe(self._changed)

    def begin(self, epoch: int) -> Pending[ApiError | None]:
        """Begin another epoch; return the promise that what is in the image now is committed."""
        self.epoch = epoch
        self.active = True
        return self.run_step(lambda image: Step())

    @property
    def image(self) -> ClusterImage:
        """Return the back end's image, on which the next decision is made."""
        return self._store.image

    @property
    def committed_image(self) -> ClusterImage:
        """Return the image that subscribers have got."""
        return self._store.committed_image

    @property
    def idle(self) -> bool:
        """Tell whether nothing is under way and nothing is queued."""
        return not self._under_way and not self.queue_size

    @property
    def queue_size(self) -> int:
        """Return the number of queued decisions, without those under way."""
        return len(self._first) + len(self._queue)

    # -- decisions -----------------------------------------------------------------------------

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide in turn; answer once the decision's records are committed.

        `deadline_ms` is monotonic and checked at the turn: REQUEST_TIMED_OUT.
        """
        return self._run(_QueuedDecision(decide, deadline_ms, self._clock.monotonic_ms()))

    def run_step(
        self, decide: Callable[[ClusterImage], Step], *, first: bool = False
    ) -> Pending[ApiError | None]:
        """Decide without a request; a failure is logged. `first`: before what is queued."""
        queued: _QueuedDecision[None] = _QueuedDecision(
            lambda image: Decision(decide(image), None),
            deadline_ms=None,
            since_ms=self._clock.monotonic_ms(),
            goes_first=first,
        )
        answer = self._run(queued)
        answer.then(_note_failure)
        return answer

    def _run(self, queued: _QueuedDecision[R]) -> Pending[R | ApiError]:
        if not self.active:
            queued.answer.complete(ApiError(Error.NOT_CONTROLLER))
            return queued.answer
        queued.is_queued = True
        self._queue_of(queued).append(queued)
        self._decide_next()
        if queued.is_queued:
            # While nothing can be written, timed-out requests would pile up.
            queued.answer.then(lambda _: self._drop(queued))
        return queued.answer

    def _queue_of(self, queued: _QueuedDecision[Any]) -> deque[_QueuedDecision[Any]]:
        return self._first if queued.goes_first else self._queue

    def resign(self) -> None:
        """End the epoch: decisions are answered NOT_CONTROLLER; nothing is decided any more.

        What is under way may still be committed. Its caller does not learn that it was.
        """
        if not self.active:
            return
        self.active = False
        waiting = [*self._under_way, *self._first, *self._queue]
        self._under_way.clear()
        self._first.clear()
        self._queue.clear()
        for queued in waiting:
            queued.is_queued = False
            _guarded(queued.answer.complete, ApiError(Error.NOT_CONTROLLER))

    def _drop(self, queued: _QueuedDecision[Any]) -> None:
        if queued.is_queued:
            queued.is_queued = False
            self._queue_of(queued).remove(queued)

    def _decide_next(self) -> None:
        """Decide what is queued.

        Where an append ends before the next one begins, not while listeners are called, nor
        recursively: they would get the next change before this one, and effects before both.
        """
        is_pipelined = self._store.is_pipelined
        if self._hold_count and not is_pipelined:
            return
        self._hold_count += 1
        try:
            while self.queue_size and self.active and (is_pipelined or not self._under_way):
                queued = (self._first or self._queue).popleft()
                queued.is_queued = False
                self._under_way[queued] = None
                self._decide(queued)
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
        if queued not in self._under_way:
            return  # The epoch has ended meanwhile.
        if isinstance(outcome, Committed):
            if decision.step.records:
                self.metrics.records_appended += len(decision.step.records)
                self.metrics.commit_latency.observe(self._clock.monotonic_ms() - started_ms)
            for effect in decision.step.effects:
                _guarded(self._on_effect, effect)
            self._answer(queued, decision.reply)
        elif isinstance(outcome, ApiError):
            self._answer(queued, outcome)
        elif isinstance(outcome, Fenced):
            log.warning("controller epoch %d is fenced: another controller is active", self.epoch)
            self.resign()
            _guarded(lambda _none: self._on_fenced(), None)
        else:
            if queued.attempts % ATTEMPTS_PER_LINE == 0:
                what = sorted(outcome.keys) if isinstance(outcome, Conflict) else "unknown outcome"
                log.info(
                    "controller operation is retried, attempt %d: %s", queued.attempts + 1, what
                )
            del self._under_way[queued]
            queued.is_queued = True
            self._queue_of(queued).appendleft(queued)
        self._decide_next()

    def _answer(self, queued: _QueuedDecision[Any], reply: Any) -> None:
        self._under_way.pop(queued, None)
        _guarded(queued.answer.complete, reply)

    # -- readers -------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with every committed change from now on, whoever made it, in order."""
        self._subscribers.append(listener)

    def follow(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with the committed image, then as `subscribe` does."""
        image = self.committed_image
        if image.position != EMPTY.position:
            listener(delta_between(EMPTY, image))
        self.subscribe(listener)

    def unsubscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Remove a listener of `subscribe` or `follow`."""
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
