"""A worker's job stops before each operation that changes the disk, until the scheduler resumes it.

Method: a scheduler with one process; the job's operations call `pause`, as a simulated disk does.
"""

from collections.abc import Callable
from random import Random

import pytest

from ottla.testing.sim import split_jobs
from ottla.testing.sim.scheduler import DiskPace, Process, Scheduler
from ottla.testing.sim.split_jobs import SplitJobs


@pytest.fixture(autouse=True)
def gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_jobs, "GAPS_US", (2_000,))


class Bench:
    def __init__(self, seed: int = 1) -> None:
        self.failed: list[BaseException] = []
        self.scheduler = Scheduler(lambda _name, error: self.failed.append(error))
        self.process = Process("p")
        self.log: list[str] = []
        pace = DiskPace(Random(seed))
        self.jobs = SplitJobs(self.scheduler, self.process, Random(seed), lambda: 1.0, pace)
        self.ended: list[object] = []

    def work(self, *names: str) -> Callable[[], str]:
        def run() -> str:
            try:
                for name in names:
                    self.jobs.pause()
                    self.log.append(name)
            finally:
                self.log.append("unwound")
            return "done"

        return run

    def begin(self, *names: str) -> None:
        self.scheduler.after(
            0, lambda: self.jobs.run(self.work(*names), self.ended.append), self.process
        )


def test_events_happen_between_the_operations() -> None:
    bench = Bench()
    bench.begin("a", "b", "c")
    while bench.log != ["a"]:
        bench.scheduler.run_until(bench.scheduler.now_us + 1)
    bench.log.append("an event")
    bench.scheduler.run_until(1_000_000)
    assert bench.log == ["a", "an event", "b", "c", "unwound"]
    assert bench.ended == ["done"]


def test_the_same_seed_stops_at_the_same_moments() -> None:
    def moments(seed: int) -> list[int]:
        bench = Bench(seed)
        bench.begin("a", "b", "c", "d")
        found = []
        for at_us in range(0, 10_000, 5):
            before = len(bench.log)
            bench.scheduler.run_until(at_us)
            found += [at_us] * (len(bench.log) - before)
        return found

    assert moments(3) == moments(3)
    assert moments(3) != moments(4)


def test_nothing_more_of_it_happens_once_its_process_has_died() -> None:
    bench = Bench()
    bench.begin("a", "b", "c")
    while bench.log != ["a"]:
        bench.scheduler.run_until(bench.scheduler.now_us + 1)
    bench.process.alive = False
    bench.jobs.abort()
    bench.scheduler.run_until(1_000_000)
    assert bench.log == ["a", "unwound"]
    assert bench.ended == []


def test_what_it_raises_is_its_outcome() -> None:
    bench = Bench()

    def fails() -> None:
        bench.jobs.pause()
        raise OSError("broken")

    bench.scheduler.after(0, lambda: bench.jobs.run(fails, bench.ended.append), bench.process)
    bench.scheduler.run_until(1_000_000)
    (error,) = bench.ended
    with pytest.raises(OSError, match="broken"):
        raise error  # type: ignore[misc]
