"""Sequences of asynchronous steps as generators, which can be cancelled.

A dialogue yields a promise and is given its value, or yields a number of milliseconds and is given
None when they have passed, or yields an operation of the object store and is given its result. Once
cancelled it is never resumed, whatever comes later: the operation is cancelled, too, and its
`finally` clauses run, which must not wait.

    def copy() -> Dialogue[bool]:
        error = yield from wait(metadata.append(record))
        ...
    task = Task(copy(), timers, clock)
"""

import logging
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from ottla.base.object_store import Call, StoreError
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timer, Timers

logger = logging.getLogger(__name__)

T = TypeVar("T")

Dialogue = Generator[Pending[Any] | Call[Any] | int, Any, T]


def wait(promise: Pending[T]) -> Dialogue[T]:
    """Wait for a promise; return its value."""
    value: T = yield promise
    return value


def wait_for_call(call: Call[T]) -> Dialogue[T | StoreError]:
    """Wait for an operation of the object store; return its result."""
    result: T | StoreError = yield call
    return result


class Task:
    """A dialogue that runs. It begins with `start`, not before.

    An exception of the dialogue is a bug: it ends the task and is raised to whoever resumed it.
    """

    __slots__ = (
        "_awaited",
        "_call",
        "_clock",
        "_dialogue",
        "_is_running",
        "_timer",
        "_timers",
        "is_over",
    )

    def __init__(self, dialogue: Dialogue[None], timers: Timers, clock: Clock) -> None:
        self._dialogue = dialogue
        self._timers = timers
        self._clock = clock
        self._timer: Timer | None = None
        self._awaited: Pending[Any] | None = None
        self._call: Call[Any] | None = None
        self._is_running = False
        self.is_over = False

    def start(self) -> None:
        """Run up to the first wait."""
        self._resume(None)

    def cancel(self) -> None:
        """End it where it waits; harmless once it is over."""
        if self.is_over:
            return
        self.is_over = True
        self._forget()
        if not self._is_running:
            self._dialogue.close()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._awaited is not None:
            self._awaited.forget(self._resume)
            self._awaited = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _resume(self, value: Any) -> None:
        if self.is_over:
            return
        self._timer = self._awaited = self._call = None
        self._is_running = True
        try:
            self._run(value)
        except BaseException:
            self.is_over = True
            raise
        finally:
            self._is_running = False

    def _run(self, value: Any) -> None:
        while True:
            try:
                awaited = self._dialogue.send(value)
            except StopIteration:
                self.is_over = True
                return
            if self.is_over:  # Cancelled by what it did itself.
                self._dialogue.close()
                return
            if isinstance(awaited, int):
                due_ms = self._clock.monotonic_ms() + awaited
                self._timer = self._timers.at(due_ms, lambda: self._resume(None))
                return
            promise = awaited if isinstance(awaited, Pending) else awaited.result
            if not promise.done:
                self._call = None if isinstance(awaited, Pending) else awaited
                self._awaited = promise
                promise.then(self._resume)
                return
            value = promise.value  # Not by `then`: many of these would nest too deep.


class Running(Generic[T]):
    """A dialogue with a result. `outcome`: the result; it stays open when it is cancelled.

    Any exception is a bug, as these dialogues return the errors that they expect. It is logged, and
    the result is `on_bug`.
    """

    __slots__ = ("_task", "outcome")

    def __init__(self, dialogue: Dialogue[T], timers: Timers, clock: Clock, *, on_bug: T) -> None:
        self.outcome: Pending[T] = Pending()
        self._task = Task(self._run(dialogue, on_bug), timers, clock)

    def start(self) -> None:
        """Run up to the first wait."""
        self._task.start()

    def cancel(self) -> None:
        """End it where it waits; harmless once it is over."""
        self._task.cancel()

    def end(self, result: T) -> None:
        """End it where it waits, with `result`; harmless once it is over."""
        if not self._task.is_over:
            self._task.cancel()
            self.outcome.complete(result)

    def _run(self, dialogue: Dialogue[T], on_bug: T) -> Dialogue[None]:
        try:
            result = yield from dialogue
        except Exception:
            logger.exception("remote read failed")
            result = on_bug
        if not self._task.is_over:
            self.outcome.complete(result)


class Wakeup:
    """An event that one dialogue waits for; one that comes while it works is not lost.

    The dialogue is resumed by a timer, in a turn of its own: events come from hot paths.
    """

    __slots__ = ("_clock", "_is_set", "_timer", "_timers", "_waiting")

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._is_set = False
        self._waiting: Pending[None] | None = None
        self._timer: Timer | None = None

    def notify(self) -> None:
        """Resume the dialogue now, or have its next wait return at once."""
        if self._is_set:
            return
        self._is_set = True
        if self._waiting is not None:
            self._arm(0)

    def wait(self, timeout_ms: int) -> Dialogue[None]:
        """Wait for the next event, or at most for so long."""
        assert self._waiting is None, "two dialogues wait for one event"
        self._waiting = Pending()
        self._arm(0 if self._is_set else timeout_ms)
        try:
            yield self._waiting
        finally:
            self._waiting = None
            self._disarm()
        self._is_set = False

    def _arm(self, after_ms: int) -> None:
        self._disarm()
        waiting = self._waiting
        assert waiting is not None
        due_ms = self._clock.monotonic_ms() + after_ms
        self._timer = self._timers.at(due_ms, lambda: _complete(waiting))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _complete(waiting: Pending[None]) -> None:
    waiting.complete(None)


class Slots:
    """A bound on what runs at once: `with_slot` dialogues wait in order."""

    def __init__(self, count: int) -> None:
        assert count > 0
        self._count = count
        self.free = count
        """Negative: more are taken than may be now."""
        self._waiting: list[Pending[None]] = []

    def acquire(self) -> Dialogue[None]:
        """Wait for a slot. The caller gives it back with `release`, also when it is cancelled."""
        if self.free > 0:
            self.free -= 1
            return
        turn: Pending[None] = Pending()
        self._waiting.append(turn)
        try:
            yield turn
        except GeneratorExit:
            if turn.done:
                self.release()  # It was given the slot, and is cancelled before it could take it.
            else:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        """Give a slot back: the one that waits longest gets it."""
        self.free += 1
        self._hand_out()

    def resize(self, count: int) -> None:
        """Have another number of slots; one that is taken stays so until it is given back."""
        assert count > 0
        self.free += count - self._count
        self._count = count
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.free > 0:
            self.free -= 1
            self._waiting.pop(0).complete(None)
