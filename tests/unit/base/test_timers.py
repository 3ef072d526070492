"""Timers run when due, in order of deadline and then of setting, and never after a cancel."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.timers import Timers


def test_equal_deadlines_run_in_the_order_of_setting() -> None:
    ran: list[str] = []
    timers = Timers()
    for name in "abc":
        timers.at(10, lambda name=name: ran.append(name))  # type: ignore[misc]
    timers.at(5, lambda: ran.append("early"))
    assert timers.run_due(9) == 1
    assert timers.run_due(10) == 3
    assert ran == ["early", "a", "b", "c"]


def test_a_timer_set_while_running_runs_when_due() -> None:
    ran: list[int] = []
    timers = Timers()
    timers.at(1, lambda: timers.at(1, lambda: ran.append(1)) and None)
    timers.at(1, lambda: timers.at(2, lambda: ran.append(2)) and None)
    timers.run_due(1)
    assert ran == [1]
    assert timers.next_ms() == 2


def test_the_host_is_told_of_an_earlier_deadline_only() -> None:
    told: list[int] = []
    timers = Timers(on_earlier=told.append)
    timers.at(10, lambda: None)
    timers.at(20, lambda: None)
    timers.at(5, lambda: None)
    assert told == [10, 5]


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=300))
def test_exactly_the_living_run(plan: list[tuple[int, bool]]) -> None:
    ran: list[int] = []
    timers = Timers()
    for number, (at_ms, cancelled) in enumerate(plan):
        timer = timers.at(at_ms, lambda number=number: ran.append(number))  # type: ignore[misc]
        if cancelled:
            timer.cancel()
            timer.cancel()
    living = [number for number, (_, cancelled) in enumerate(plan) if not cancelled]
    assert len(timers) == len(living)
    timers.run_due(50)
    assert ran == sorted(living, key=lambda number: (plan[number][0], number))
    assert timers.next_ms() is None
