"""Jobs of a node's threads that are interrupted between disk operations, deterministically.

`SimWorkers` runs a job at one moment; a real thread syncs one file after the other while the loop
appends, truncates and rolls, and a machine may lose power in between. A split job has its own stack
(a greenlet) and never runs in parallel: the scheduler resumes it, and it runs up to its next
operation that changes the disk. The order of events depends on the event heap alone.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from greenlet import greenlet

from ottla.testing.sim.scheduler import DiskPace, Process, ProcessDied, Scheduler

T = TypeVar("T")

GAPS_US = (1, 300, 3_000, 60_000)
"""How long after one operation the next may come: less than one of these."""


class SplitJob:
    """One job. `outcome`: what it returned or raised, once `ended`."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.ended = False
        self.outcome: object = None
        self._work = work
        self._is_begun = False
        self._is_aborted = False
        self._stack = greenlet(self._run)

    def resume(self) -> None:
        """Go on to the next operation, or to the end. Called by the scheduler."""
        self._is_begun = True
        self._stack.switch()

    def _run(self) -> None:
        try:
            self.outcome = self._work()
        except BaseException as error:
            self.outcome = error
        self.ended = True

    def pause(self) -> None:
        """Switch back to the scheduler before an operation. Called by the job's disk."""
        if not self._is_aborted:
            self._stack.parent.switch()
        if self._is_aborted:
            raise ProcessDied

    def abort(self) -> None:
        """Stop it before its next operation: its process has died."""
        self._is_aborted = True
        while self._is_begun and not self.ended:
            self.resume()


class SplitJobs:
    """The split jobs of one process. `chance`: returns the chance that a job is split."""

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        random: Random,
        chance: Callable[[], float],
        pace: DiskPace,
    ) -> None:
        self._pace = pace
        self.current: SplitJob | None = None
        self._scheduler = scheduler
        self._process = process
        self._random = random
        self._chance = chance
        self._jobs: list[SplitJob] = []

    def takes_next(self) -> bool:
        """Draw whether the next job is split."""
        chance = self._chance()
        return chance > 0 and self._random.random() < chance

    def run(self, work: Callable[[], T], ended: Callable[[object], None]) -> None:
        """Begin a job now; `ended` is called with its outcome."""
        job = SplitJob(work)
        self._jobs.append(job)
        self._step(job, ended)

    def _step(self, job: SplitJob, ended: Callable[[object], None]) -> None:
        self.current = job
        self._pace.in_thread = True
        try:
            job.resume()
        finally:
            self._pace.in_thread = False
            self.current = None
        if not job.ended:
            gap_us = self._random.randrange(self._random.choice(GAPS_US))
            self._scheduler.after(gap_us, lambda: self._step(job, ended), self._process)
            return
        self._jobs.remove(job)
        if isinstance(job.outcome, ProcessDied):
            raise ProcessDied
        ended(job.outcome)

    def pause(self) -> None:
        """Called before each operation that changes the disk."""
        if self.current is not None:
            self.current.pause()

    def abort(self) -> None:
        """End all jobs where they are: the process has died."""
        for job in self._jobs:
            self.current = job
            job.abort()
        self.current = None
        self._jobs.clear()
