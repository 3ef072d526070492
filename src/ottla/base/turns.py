"""Work on the loop cut into turns, so that no request holds up the others.

The loop does one thing after the other, so whoever holds it holds up every connection. Work comes
in two kinds. *Light* is a request of a connection whose last one was quick: it is handled when it
arrives, until TURN_NS are spent in one turn of the loop; what comes after that waits in order.
*Heavy* is a request of a connection whose last one was slow, and long work, which is a generator
that yields wherever it may be interrupted. All heavy work together gets SLICE_NS of each turn,
round robin: one request of a connection, or a slice of long work, and then the next one's. Long
work of the node itself, which follows what the cluster decided, has SLICE_NS of its own: it must
come to its end whatever peers send.

So a turn is bounded by TURN_NS, twice SLICE_NS and the longest single steps, whatever peers send.
Long work has its request decoded, so only so much of it goes on at once, to bound memory: what came
later waits as the bytes that it was received as. Small requests do not wait for large ones.
"""

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from ottla.base.limits import (
    LONG_RUNNING_MAX,
    LONG_SMALL_BYTES_MAX,
    LONG_SMALL_RUNNING_BYTES_MAX,
    STEPS_PER_SLICE_MAX,
)
from ottla.base.pending import Pending

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Long work: yields where it may be interrupted, returns its result."""


def at_once(steps: Steps[T]) -> T:
    """Do all steps now; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


TURN_NS = 10_000_000
"""Of handlers in one turn of the loop, before what arrives has to wait for the next one."""

SLICE_NS = 4_000_000
"""Of heavy work in one turn, and of long work before it yields to the next."""

HEAVY_NS = 2_000_000
"""A request that took longer makes its connection a heavy one, until one takes less."""

NOTED_NS = 1_000_000
"""Spent before a turn's end is waited for: the end of every short turn would cost a call each."""

CallNextTurn = Callable[[Callable[[], None]], object]


class _Long:
    """One piece of long work. `begin` makes its steps, when it is its turn for the first time.

    Fields: `queue`: where it waits for its next slice; `admission`: what it was let in by, and
            with which `weight`; None = it needs none.
    """

    __slots__ = ("admission", "begin", "gone", "outcome", "queue", "steps", "weight")

    def __init__(
        self,
        begin: Callable[[], Steps[Any]],
        gone: Pending[None],
        queue: deque[Callable[[], None]],
        admission: "_Admission | None" = None,
        weight: int = 0,
    ) -> None:
        self.begin = begin
        self.gone = gone
        self.queue = queue
        self.admission = admission
        self.weight = weight
        self.outcome: Pending[Any] = Pending()
        self.steps: Steps[Any] | None = None


class _Admission:
    """Lets work begin while what runs is within a limit; one piece may always run."""

    __slots__ = ("_limit", "running", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self.running = 0
        self.waiting: deque[_Long] = deque()

    def take(self, weight: int) -> bool:
        """Let a piece begin, or say that it must wait."""
        if self.running and self.used + weight > self._limit:
            return False
        self.running += 1
        self.used += weight
        return True

    def give_back(self, weight: int) -> None:
        """Note the end of a piece."""
        self.running -= 1
        self.used -= weight


class Turns:
    """The turns of one loop.

    `ticks_ns` measures; `call_next_turn` calls back in the loop's next turn, once.
    """

    def __init__(self, ticks_ns: Callable[[], int], call_next_turn: CallNextTurn) -> None:
        self.ticks_ns = ticks_ns
        self._call_next_turn = call_next_turn
        self._spent_ns = 0
        self._is_armed = False
        self._light: deque[Callable[[], None]] = deque()
        self._heavy: deque[Callable[[], None]] = deque()
        self._own: deque[Callable[[], None]] = deque()
        self._small = _Admission(LONG_SMALL_RUNNING_BYTES_MAX)
        self._large = _Admission(LONG_RUNNING_MAX)
        self.delayed = 0
        """Requests that had to wait for another turn."""

    @property
    def long_count(self) -> int:
        """Return how many pieces of long work run or wait."""
        kinds = (self._small, self._large)
        return sum(each.running + len(each.waiting) for each in kinds)

    def may_handle(self, *, heavy: bool) -> bool:
        """Tell whether a request that arrives now may be handled at once."""
        if heavy:
            return not self._heavy and self._spent_ns < SLICE_NS
        return self._spent_ns < TURN_NS and not self._light

    def spend(self, spent_ns: int) -> bool:
        """Count the time of one request; tell whether it makes its connection a heavy one."""
        self._spent_ns += spent_ns
        if self._spent_ns > NOTED_NS and not self._is_armed:
            self._arm()
        return spent_ns > HEAVY_NS

    def wait(self, handle: Callable[[], None], *, heavy: bool) -> None:
        """Call `handle` once, when it is its turn. It calls `spend` itself."""
        self.delayed += 1
        (self._heavy if heavy else self._light).append(handle)
        self._arm()

    def run(
        self,
        begin: Callable[[], Steps[T]],
        *,
        size: int,
        gone: Pending[None],
        keep: Callable[[], None] = lambda: None,
    ) -> Pending[T | Exception]:
        """Do long work, the first slice at once where there is room; answer its result.

        `size`: bytes of its request. `keep` is called where the work cannot begin before this
        returns. Once `gone` is kept nobody wants the result: the work is dropped where it stands,
        and never answered.
        """
        is_small = size <= LONG_SMALL_BYTES_MAX
        admission, weight = (self._small, size) if is_small else (self._large, 1)
        work = _Long(begin, gone, self._heavy, admission, weight)
        if not admission.take(weight):
            keep()
            admission.waiting.append(work)
        elif self._spent_ns < SLICE_NS and not self._heavy:
            began_ns = self.ticks_ns()
            self._slice(work)
            self.spend(self.ticks_ns() - began_ns)
        else:
            keep()
            self._queue(work)
        return work.outcome

    def run_own(self, steps: Steps[T], *, gone: Pending[None]) -> Pending[T | Exception]:
        """Do long work of the node itself from the next turn on; answer its result.

        Once `gone` is kept the work is dropped where it stands, and never answered.
        """
        work = _Long(lambda: steps, gone, self._own)
        self._queue(work)
        return work.outcome

    def _queue(self, work: _Long) -> None:
        work.queue.append(partial(self._slice, work))
        self._arm()

    def _slice(self, work: _Long) -> None:
        """Work on until a slice is over; queue the rest, or end."""
        if work.gone.done:
            if work.steps is not None:
                work.steps.close()
            self._end(work)
            return
        ticks_ns = self.ticks_ns
        until_ns = ticks_ns() + SLICE_NS
        try:
            if work.steps is None:
                work.steps = work.begin()
            for _ in range(STEPS_PER_SLICE_MAX):
                next(work.steps)
                if ticks_ns() >= until_ns:
                    break
        except StopIteration as end:
            result: Any = end.value
        except Exception as error:
            result = error
        else:
            self._queue(work)
            return
        self._end(work)
        work.outcome.complete(result)

    def _end(self, work: _Long) -> None:
        """Let those begin that waited for this one."""
        admission = work.admission
        if admission is None:
            return
        admission.give_back(work.weight)
        waiting = admission.waiting
        while waiting:
            if waiting[0].gone.done:
                waiting.popleft()
            elif admission.take(waiting[0].weight):
                self._queue(waiting.popleft())
            else:
                return

    def _arm(self) -> None:
        if not self._is_armed:
            self._is_armed = True
            self._call_next_turn(self._turn)

    def _turn(self) -> None:
        """Begin a turn of the loop: first what waited, light before heavy."""
        self._is_armed = False
        self._spent_ns = 0
        try:
            self._drain(self._light, TURN_NS)
            spent_ns = self._spent_ns
            self._drain(self._heavy, SLICE_NS)
            self._drain(self._own, SLICE_NS)
            # Heavy work must not use up what the light one of this turn may take.
            self._spent_ns = spent_ns
        finally:
            if self._light or self._heavy or self._own:
                self._arm()

    def _drain(self, queue: deque[Callable[[], None]], limit_ns: int) -> None:
        """Handle at least one, and no more once the time is over."""
        ticks_ns = self.ticks_ns
        until_ns = ticks_ns() + limit_ns
        for _ in range(len(queue)):
            queue.popleft()()
            if ticks_ns() >= until_ns:
                return
