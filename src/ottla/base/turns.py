"""Work on the loop in bounded turns, so that no request holds up the others.

The loop is single-threaded, so a long handler blocks every connection. Requests are of two kinds.
*Light*: the connection's last request was quick. It is handled when it arrives, until TURN_NS are
spent in one turn of the loop; further ones wait in order. *Heavy*: the connection's last request
was slow, or the request is long work, a generator that yields wherever it may be interrupted. All
heavy work together gets SLICE_NS of each turn, round robin: one request of a connection, or a slice
of long work, then the next. Long work of the node itself, such as applying metadata, has SLICE_NS
of its own, so that it ends whatever peers send.

So a turn is bounded by TURN_NS, twice SLICE_NS and the longest single steps. Long work has its
request decoded; to bound memory only a limited amount of it runs at once, and later requests wait
undecoded. Small requests do not wait for large ones.
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
"""Long work: a generator that yields where it may be interrupted and returns its result."""


def at_once(steps: Steps[T]) -> T:
    """Run all steps now; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


TURN_NS = 10_000_000
"""Time for handlers in one turn of the loop; later requests wait for the next turn."""

SLICE_NS = 4_000_000
"""Time for heavy work in one turn, and for long work before it yields to the next."""

HEAVY_NS = 2_000_000
"""A request that takes longer makes its connection heavy, until one takes less."""

NOTED_NS = 1_000_000
"""Shorter turns are not ended by a callback, which would cost a call for each."""

CallNextTurn = Callable[[Callable[[], None]], object]


class _Long:
    """One piece of long work. `begin` returns its steps, called with its first slice.

    Fields: `queue`: where it waits for its next slice; `admission`: the limit that it counts
            against, with `weight`; None = no limit; `gone`: completes when the work is cancelled.
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
    """Admits work while the running weight is within a limit; one piece may always run."""

    __slots__ = ("_limit", "running", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0
        self.running = 0
        self.waiting: deque[_Long] = deque()

    def take(self, weight: int) -> bool:
        """Admit a piece; return False if it must wait."""
        if self.running and self.used + weight > self._limit:
            return False
        self.running += 1
        self.used += weight
        return True

    def give_back(self, weight: int) -> None:
        """Release the weight of a piece that ended."""
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
        """Count the time of one request; return whether its connection is heavy now."""
        self._spent_ns += spent_ns
        if self._spent_ns > NOTED_NS and not self._is_armed:
            self._arm()
        return spent_ns > HEAVY_NS

    def wait(self, handle: Callable[[], None], *, heavy: bool) -> None:
        """Queue `handle` for a later turn. It calls `spend` itself."""
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
        """Run long work, its first slice at once if possible; return the promise of its result.

        `size`: bytes of its request. `keep` is called if the work does not begin before this
        returns. Once `gone` is completed the work is cancelled, and the promise never completes.
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
        """Run long work of the node itself from the next turn on; return the promise of its result.

        Once `gone` is completed the work is cancelled, and the promise never completes.
        """
        work = _Long(lambda: steps, gone, self._own)
        self._queue(work)
        return work.outcome

    def _queue(self, work: _Long) -> None:
        work.queue.append(partial(self._slice, work))
        self._arm()

    def _slice(self, work: _Long) -> None:
        """Run one slice; queue the rest, or end."""
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
        """Admit waiting work."""
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
        """Begin a turn of the loop: run the queues, light work before heavy."""
        self._is_armed = False
        self._spent_ns = 0
        try:
            self._drain(self._light, TURN_NS)
            spent_ns = self._spent_ns
            self._drain(self._heavy, SLICE_NS)
            self._drain(self._own, SLICE_NS)
            # The time of heavy work does not count against this turn's light work.
            self._spent_ns = spent_ns
        finally:
            if self._light or self._heavy or self._own:
                self._arm()

    def _drain(self, queue: deque[Callable[[], None]], limit_ns: int) -> None:
        """Handle at least one entry, and further ones until the time is over."""
        ticks_ns = self.ticks_ns
        until_ns = ticks_ns() + limit_ns
        for _ in range(len(queue)):
            queue.popleft()()
            if ticks_ns() >= until_ns:
                return
