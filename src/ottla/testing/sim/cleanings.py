"""Log cleaning of a simulated node: in its worker threads, without a child process."""

from collections.abc import Callable
from typing import Any

from ottla.log.cleaner.cleaner_job import CleanedSegment, CleaningJob
from ottla.log.cleaner.cleaner_rewrite import clean
from ottla.log.cleaner.log_cleaner import Result
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.scheduler import SimWorkers


class SimCleanings:
    """Cleanings in the node's threads. See `ottla.host.node_ports.CleaningRunner`."""

    def __init__(self, disk: SimDisk, workers: SimWorkers) -> None:
        self._disk = disk
        self._workers = workers

    def run(self, job: CleaningJob, on_result: Callable[[Result], None]) -> Callable[[], None]:
        """Rewrite a segment at a time."""
        results = clean(self._disk, job)
        is_cancelled = False

        def one() -> Result:
            return next(results)

        def took(result: Any) -> None:
            if is_cancelled:
                return
            on_result(result)
            if isinstance(result, CleanedSegment):
                self._workers.submit(one, took)

        def cancel() -> None:
            nonlocal is_cancelled
            is_cancelled = True

        self._workers.submit(one, took)
        return cancel

    def close(self) -> None:
        """Do nothing: a thread's work is never half done."""
