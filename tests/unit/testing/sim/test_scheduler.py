"""Events run in order; those of a process wait while it is paused and end with it.

Method: the scheduler alone, with lists of calls.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.testing.sim.scheduler import (
    DiskPace,
    Process,
    Scheduler,
    SimClock,
    SimDice,
    SimTimers,
    SimWorkers,
    below,
)


def scheduler(problems: list[str] | None = None) -> Scheduler:
    def failed(where: str, error: BaseException) -> None:
        assert problems is not None, (where, error)
        problems.append(f"{where}: {error}")

    return Scheduler(failed)


def test_events_of_equal_time_run_in_the_order_of_scheduling() -> None:
    place, calls = scheduler(), []
    for at_us, name in ((20, "c"), (10, "a"), (10, "b"), (30, "never")):
        place.at(at_us, lambda name=name: calls.append((place.now_us, name)))  # type: ignore[misc]
    place.at(15, lambda: calls.append((0, "cancelled"))).cancel()
    place.run_until(25)
    assert calls == [(10, "a"), (10, "b"), (20, "c")]
    assert place.now_us == 25


def test_events_of_a_paused_process_run_later_in_order() -> None:
    place, process, calls = scheduler(), Process("p"), []
    process.paused = True
    for at_us in (10, 20):
        place.at(at_us, lambda at_us=at_us: calls.append(at_us), process)  # type: ignore[misc]
    place.run_until(30)
    assert calls == []
    place.resume(process)
    place.at(30, lambda: calls.append(30), process)
    place.run_until(31)
    assert calls == [10, 20, 30]


def test_events_of_a_dead_process_are_dropped() -> None:
    place, process, calls = scheduler(), Process("p"), []
    place.at(10, lambda: calls.append(1), process)
    process.paused = True
    place.at(5, lambda: calls.append(2), process)
    place.run_until(7)
    process.alive = False
    place.resume(process)
    place.run_until(20)
    assert calls == []


def test_a_busy_process_keeps_the_order() -> None:
    """An event must not be overtaken by one that was scheduled earlier but is due later."""
    place, process, calls = scheduler(), Process("p"), []
    place.at(100, lambda: calls.append("due at 100"), process)

    def long() -> None:
        calls.append("long")
        process.busy_until_us = 100

    place.at(10, long, process)
    place.run_until(20)
    place.at(50, lambda: calls.append("due at 50"), process)
    place.run_until(200)
    assert calls == ["long", "due at 50", "due at 100"]


def test_an_uncaught_exception_is_reported_and_the_process_goes_on() -> None:
    problems: list[str] = []
    place, process, calls = scheduler(problems), Process("p"), []

    def fails() -> None:
        raise ValueError("as it happens")

    place.at(1, fails, process)
    place.at(2, lambda: calls.append(2), process)
    place.run_until(3)
    assert (problems, calls) == (["p: as it happens"], [2])


@given(
    st.integers(-100_000, 100_000),
    st.integers(0, 10**12),
    st.integers(0, 10**7),
    st.integers(1, 99),
)
def test_a_drifting_clock_and_its_timers_agree(
    drift_ppm: int, booted_us: int, first_ms: int, wait_ms: int
) -> None:
    place = scheduler()
    clock = SimClock(place, drift_ppm=drift_ppm, booted_us=booted_us)
    at_ms = clock.monotonic_ms() + first_ms + wait_ms
    when_us = clock.when_us(at_ms)
    place.now_us = when_us
    assert clock.monotonic_ms() == at_ms
    place.now_us = when_us - 1
    assert clock.monotonic_ms() < at_ms


def test_timers_run_when_their_own_clock_says_so() -> None:
    place = scheduler()
    clock = SimClock(place, drift_ppm=100_000)
    timers, calls = SimTimers(place, clock), []
    timers.at(220, lambda: calls.append(clock.monotonic_ms()))
    early = timers.at(110, lambda: calls.append(-1))
    timers.at(115, lambda: timers.at(0, lambda: calls.append(clock.monotonic_ms())))
    early.cancel()
    place.run_until(99_000)
    assert calls == []
    place.run_until(300_000)
    assert calls == [115, 220]


def test_a_job_runs_in_between_and_is_done_at_the_end() -> None:
    place, process = scheduler(), Process("p")
    pace = DiskPace(Random(1))
    workers = SimWorkers(place, process, Random(2), pace)
    calls: list[object] = []

    def work() -> str:
        assert pace.in_thread
        calls.append("at work")
        return "done"

    workers.submit(work, calls.append)
    place.run_until(200)
    assert "done" not in calls
    place.run_until(pace.slowest_us)
    assert calls == ["at work", "done"]
    assert not pace.in_thread


def test_what_work_raises_is_its_outcome() -> None:
    problems: list[str] = []
    place, process = scheduler(problems), Process("p")
    workers = SimWorkers(place, process, Random(2), DiskPace(Random(1)))

    def fails() -> None:
        raise OSError("as it happens")

    outcomes: list[object] = []
    workers.submit(fails, outcomes.append)
    workers.submit(fails)
    place.run_until(10_000)
    assert isinstance(outcomes[0], OSError)
    assert problems == ["p: as it happens"]


def test_dice_are_a_stream_of_their_own() -> None:
    one, other = SimDice(Random(1)), SimDice(Random(1))
    assert one.random_bytes(4) == other.random_bytes(4)
    assert {one.below(3) for _ in range(50)} == {0, 1, 2}
    with pytest.raises(ValueError, match="empty"):
        one.below(0)


@given(seed=st.integers(0, 1 << 32), bounds=st.lists(st.integers(1, 1 << 40), max_size=20))
def test_what_is_drawn_below_a_bound_is_what_python_draws(seed: int, bounds: list[int]) -> None:
    ours, pythons = Random(seed), Random(seed)
    assert [below(ours, each) for each in bounds] == [pythons.randrange(each) for each in bounds]
    assert ours.getstate() == pythons.getstate()
