"""Runs a manager of the active controller over one term: of deletions, or of disablements.

After each event a manager says which orders to send, what to decide and when to wake it
(`ottla.controller.manager_events.Ready`); the runner does that. One decision is made at a time: the
manager learns of its end once its records are committed.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers
from ottla.controller.manager_events import Ready, TimePassed, WorkDecided, WorkRefused
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage

RETRY_AFTER_FAILURE_MS: Final = 10_000
"""The delay of the next attempt after an exception, which is a bug."""

Order = TypeVar("Order")
Work = TypeVar("Work")
Reply = TypeVar("Reply")
_Order = TypeVar("_Order", contravariant=True)
_Work = TypeVar("_Work", contravariant=True)


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


class Manager(Protocol[Order, Work]):
    """A manager of one term: see `ottla.controller.manager_events`."""

    def step(self, event: Any, *, now_ms: int, is_idle: bool) -> Ready[Order, Work]:
        """Handle one event. `is_idle`: whether the caller would decide at once."""
        ...


class Owner(Protocol[_Order, _Work, Reply]):
    """What is particular to the runner of one kind of manager."""

    def send(self, orders: tuple[_Order, ...]) -> None:
        """Queue orders in the brokers' channels."""
        ...

    def decide(self, image: ClusterImage, work: _Work) -> Decision[Reply]:
        """Make the decision."""
        ...

    def decided(self, reply: Reply) -> None:
        """Report a decision whose records are committed."""
        ...

    def refused(self, work: _Work, error: ApiError) -> None:
        """Report a decision that could not be written; the manager has it retried."""
        ...

    def failed(self) -> None:
        """Log the exception that is handled now, which is a bug, and have it go on later."""
        ...


class ManagerRunner(Generic[Order, Work, Reply]):
    """See the module. Once it is stopped, events, and the ends of decisions, are ignored."""

    def __init__(
        self,
        manager: Manager[Order, Work],
        runtime: DecisionRunner,
        owner: Owner[Order, Work, Reply],
        *,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._manager = manager
        self._runtime = runtime
        self._owner = owner
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self._is_over = False

    def stop(self) -> None:
        """End: the term is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def step(self, event: Any, *, is_idle: bool = True) -> None:
        """Process an event. `is_idle`: whether a decision may be made at once."""
        if self._is_over:
            return
        now_ms = self._clock.monotonic_ms()
        ready = self._manager.step(event, now_ms=now_ms, is_idle=is_idle)
        self.wake_at(ready.wake_at_ms)
        try:
            if ready.orders:
                self._owner.send(ready.orders)
        finally:  # Whatever failed: the manager waits for the end of this decision.
            if ready.work is not None:
                self._decide(ready.work)

    def wake_at(self, due_ms: int | None) -> None:
        """Step `TimePassed` then, and not before; None = never."""
        if not self._is_over:
            self._timer = self._timers.move(self._timer, due_ms, self._tick)

    def _tick(self) -> None:
        with self._guarded():
            self.step(TimePassed(self._clock.now_ms()))

    def _decide(self, work: Work) -> None:
        wrote_records = False

        def decide(image: ClusterImage) -> Decision[Reply]:
            nonlocal wrote_records
            decision = self._owner.decide(image, work)
            wrote_records = bool(decision.step.records)
            return decision

        def decided(reply: Reply | ApiError) -> None:
            if self._is_over:
                return
            with self._guarded():
                if isinstance(reply, ApiError):
                    self._owner.refused(work, reply)
                    self.step(WorkRefused(), is_idle=False)
                else:
                    self._owner.decided(reply)
                    # Without records there is nothing to follow: other work runs before the next.
                    self.step(WorkDecided(), is_idle=wrote_records)

        self._runtime.run(decide).then(decided)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Let other timers and listeners run after an exception."""
        try:
            yield
        except Exception:
            self._owner.failed()
