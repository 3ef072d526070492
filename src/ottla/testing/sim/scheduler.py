"""Virtual time: an event scheduler, and the clocks, timers and threads of simulated processes.

Time is whole microseconds since the start of the history. Events of equal time run in the order in
which they were scheduled, so that the seed determines everything. Events of a process wait while
the process is paused or busy, and are dropped once it has died.
"""

import heapq
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, TypeVar

from ottla.base.timers import Timers

T = TypeVar("T")

START_MS = 1_700_000_000_000
"""Wall-clock milliseconds at the start of every history."""

Call = Callable[[], None]

STARTING_US = 1 << 62
"""`held_until_us` of a process that has not finished its start."""

_push, _pop = heapq.heappush, heapq.heappop

_CANCELLED: Call = lambda: None  # noqa: E731  A name for "nothing", compared by identity.


class Event:
    """A scheduled call."""

    __slots__ = ("call", "process")

    def __init__(self, process: "Process | None", call: Call) -> None:
        self.process = process
        self.call = call

    def cancel(self) -> None:
        """Cancel it."""
        self.call = _CANCELLED


class ProcessDied(BaseException):
    """A process ends in the middle of a step; no code of the product may catch it."""


class Process:
    """One incarnation of a process; its events end with it.

    Fields: `after`: called after each event of the process. `busy_until_us`: until when a disk call
            blocks its event loop. `held_until_us`: the end of its last pause, or of its start.
    """

    def __init__(self, name: str, incarnation: int = 0) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.busy_until_us = 0
        self.held_until_us = STARTING_US
        self.after: Call | None = None
        self.waiting: deque[Event] = deque()
        self.draining = False


class Scheduler:
    """The event heap. `failed` is called with the process's name and each uncaught exception."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self.now_us = 0
        self.steps = 0
        self._failed = failed
        self._order = 0
        self._heap: list[tuple[int, int, Event]] = []

    @property
    def now_ms(self) -> int:
        """Return whole milliseconds since the start."""
        return self.now_us // 1000

    def at(self, at_us: int, call: Call, process: Process | None = None) -> Event:
        """Schedule `call` at a time, in a process, or outside of all."""
        self._order += 1
        event = Event(process, call)
        _push(self._heap, (at_us if at_us > self.now_us else self.now_us, self._order, event))
        return event

    def after(self, delay_us: int, call: Call, process: Process | None = None) -> Event:
        """Schedule `call` after a delay."""
        self._order += 1
        event = Event(process, call)
        now_us = self.now_us
        _push(self._heap, (now_us + delay_us if delay_us > 0 else now_us, self._order, event))
        return event

    def resume(self, process: Process) -> None:
        """Resume a paused process; the events that came meanwhile run in order."""
        process.paused = False
        process.held_until_us = max(process.held_until_us, self.now_us)
        if process.waiting:
            self._drain_later(process)

    def _drain_later(self, process: Process) -> None:
        if not process.draining:
            process.draining = True
            self.at(process.busy_until_us, lambda: self._drain(process))

    def _drain(self, process: Process) -> None:
        """Run the waiting events, until the process is busy or paused again."""
        process.draining = False
        while process.waiting and process.alive and not process.paused:
            if process.busy_until_us > self.now_us:
                self._drain_later(process)
                return
            self._do(process.waiting.popleft(), process)

    def _do(self, event: Event, process: Process) -> None:
        self.steps += 1
        try:
            event.call()
        except ProcessDied:
            assert not process.alive
        except Exception as error:
            self._failed(process.name, error)
        after = process.after
        if after is not None and process.alive:
            after()

    def run_until(self, end_us: int) -> None:
        """Run all events up to a time."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            at_us, _order, event = _pop(heap)
            if event.call is _CANCELLED:
                continue
            self.now_us = at_us
            process = event.process
            if process is None:
                self.steps += 1
                event.call()
            elif not process.alive:
                continue
            elif process.paused or process.waiting or process.busy_until_us > at_us:
                process.waiting.append(event)
                if not process.paused:
                    self._drain_later(process)
            else:
                self._do(event, process)
        self.now_us = end_us


class SimClock:
    """A node's clocks: the monotonic one drifts, the wall clock is off besides."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        drift_ppm: int = 0,
        booted_us: int = 0,
        wall_offset_ms: int = 0,
    ) -> None:
        self._scheduler = scheduler
        self._rate = 1_000_000 + drift_ppm
        self._booted_us = booted_us
        self.wall_offset_ms = wall_offset_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds since the machine's boot, by its own drifting clock."""
        return (self._scheduler.now_us + self._booted_us) * self._rate // 1_000_000_000

    def now_ms(self) -> int:
        """Return the node's wall-clock time."""
        booted_us = self._booted_us
        monotonic_ms = (self._scheduler.now_us + booted_us) * self._rate // 1_000_000_000
        return START_MS + self.wall_offset_ms + monotonic_ms - booted_us // 1000

    def when_us(self, at_ms: int) -> int:
        """Return the first moment at which `monotonic_ms` has reached `at_ms`."""
        return -(-at_ms * 1_000_000_000 // self._rate) - self._booted_us


class SimTimers(Timers):
    """A process's timers, driven by the scheduler."""

    def __init__(
        self, scheduler: Scheduler, clock: SimClock, process: Process | None = None
    ) -> None:
        super().__init__(on_earlier=self._arm)
        self._scheduler = scheduler
        self._clock = clock
        self._process = process
        self._armed: Event | None = None
        self._armed_ms = 0

    def _arm(self, at_ms: int) -> None:
        if self._armed is not None:
            if self._armed_ms <= at_ms:
                return
            self._armed.cancel()
        self._armed_ms = at_ms
        # A microsecond late: an event loop never wakes early.
        self._armed = self._scheduler.at(self._clock.when_us(at_ms) + 1, self._wake, self._process)

    def _wake(self) -> None:
        self._armed = None
        try:
            self.run_due(self._clock.monotonic_ms())
        finally:
            next_ms = self.next_ms()
            if next_ms is not None and self._armed is None:
                self._arm(max(next_ms, self._clock.monotonic_ms()))


class SimDice:
    """Random numbers from a stream of the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def random_bytes(self, count: int) -> bytes:
        """Return `count` bytes."""
        return self._random.randbytes(count)

    def below(self, bound: int) -> int:
        """Return an integer of [0, bound)."""
        return below(self._random, bound)


def below(random: Random, bound: int) -> int:
    """Return what `random.randrange(bound)` would, in half the time: it is drawn very often.

    Raises: ValueError for a bound below 1.
    """
    if bound <= 0:
        raise ValueError(f"the range below {bound} is empty")
    bits = bound.bit_length()
    drawn = random.getrandbits(bits)
    while drawn >= bound:
        drawn = random.getrandbits(bits)
    return drawn


class Split(Protocol):
    """Runs a job in steps; see `ottla.testing.sim.split_jobs`."""

    def takes_next(self) -> bool:
        """Draw whether the next job is split."""
        ...

    def run(self, work: Callable[[], T], ended: Callable[[object], None]) -> None:
        """Begin a job now; `ended` is called with its outcome."""
        ...


class SimWorkers:
    """A process's worker threads. `pace` draws how long a job takes.

    The job runs at one moment within that time, and `done` is called at its end: what the loop
    writes meanwhile may be covered or not, as with a sync in a thread. `split` may run a job in
    steps.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        random: Random,
        pace: "DiskPace",
        split: "Split | None" = None,
    ) -> None:
        self._split = split
        self._scheduler = scheduler
        self._process = process
        self._random = random
        self._disk = pace

    def submit(
        self, work: Callable[[], T], done: Callable[[T | BaseException], None] | None = None
    ) -> None:
        """Run `work` after a delay, then `done`."""
        whole_us = self._disk.job_us()
        first_us = self._random.randrange(whole_us + 1)
        self._scheduler.after(
            first_us, lambda: self._run(work, done, whole_us - first_us), self._process
        )

    def _run(
        self,
        work: Callable[[], T],
        done: Callable[[T | BaseException], None] | None,
        rest_us: int,
    ) -> None:
        if self._split is not None and self._split.takes_next():
            self._split.run(work, lambda outcome: self._ended(outcome, done, rest_us))
            return
        outcome: T | BaseException
        self._disk.in_thread = True
        try:
            outcome = work()
        except Exception as error:
            outcome = error
        finally:
            self._disk.in_thread = False
        self._ended(outcome, done, rest_us)

    def _ended(self, outcome: Any, done: Callable[[Any], None] | None, rest_us: int) -> None:
        if done is not None:
            ended = done
            self._scheduler.after(rest_us, lambda: ended(outcome), self._process)
        elif isinstance(outcome, BaseException):
            raise outcome


class DiskPace:
    """How long disk work takes, and whether a worker thread uses the disk now.

    Fields: `next_job_us`: how long the next job of a worker takes; None = it is drawn.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.in_thread = False
        self.slowest_us = 4_000
        self.next_job_us: int | None = None

    def work_us(self) -> int:
        """Draw how long the next job takes."""
        return self._random.randrange(200, self.slowest_us)

    def job_us(self) -> int:
        """Draw how long the next job of a worker takes."""
        given, self.next_job_us = self.next_job_us, None
        return self.work_us() if given is None else given
