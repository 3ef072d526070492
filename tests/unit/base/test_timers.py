"""Timers run when due, in order of deadline and then of setting, and never after a cancel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.timers import ALIGNMENT_MS, Timers, aligned


@given(st.integers(0, 10**12), st.integers(0, 10**7))
def test_an_aligned_wait_ends_in_time_and_not_at_once(now_ms: int, wait_ms: int) -> None:
    due_ms = aligned(now_ms, wait_ms)
    assert now_ms + wait_ms - ALIGNMENT_MS < due_ms <= now_ms + wait_ms
    assert due_ms > now_ms or wait_ms == 0


def test_long_waits_that_begin_at_about_the_same_time_end_together() -> None:
    assert {aligned(now_ms, 500) for now_ms in (10_000, 10_001, 10_499)} == {10_500}
    assert aligned(10_501, 499) == 11_000
    assert aligned(10_002, 499) == 10_501


def test_equal_deadlines_run_in_the_order_of_setting() -> None:
    ran: list[str] = []
    timers = Timers()
    for name in "abc":
        timers.at(10, lambda name=name: ran.append(name))  # type: ignore[misc]
    timers.at(5, lambda: ran.append("early"))
    assert timers.run_due(9) == 1
    assert timers.run_due(10) == 3
    assert ran == ["early", "a", "b", "c"]


def test_a_timer_set_while_running_waits_for_the_next_turn() -> None:
    ran: list[int] = []
    timers = Timers()
    timers.at(1, lambda: timers.at(1, lambda: ran.append(1)) and None)
    timers.at(1, lambda: timers.at(2, lambda: ran.append(2)) and None)
    assert timers.run_due(1) == 2
    assert ran == []
    assert timers.next_ms() == 1
    assert timers.run_due(1) == 1
    assert ran == [1]
    assert timers.next_ms() == 2


def test_a_timer_that_sets_itself_for_the_past_does_not_hold_the_loop() -> None:
    ran: list[str] = []
    timers = Timers()

    def again() -> None:
        ran.append("again")
        timers.at(-1, again)

    timers.at(0, again)
    timers.at(1, lambda: ran.append("other"))
    assert timers.run_due(5) == 2
    assert ran == ["again", "other"]
    assert timers.run_due(5) == 1
    assert len(timers) == 1


def test_a_failing_callback_loses_no_other_timer() -> None:
    ran: list[str] = []
    timers = Timers()

    def fail() -> None:
        timers.at(0, lambda: ran.append("set before the failure"))
        raise RuntimeError("a bug")

    timers.at(1, fail)
    timers.at(2, lambda: ran.append("after"))
    with pytest.raises(RuntimeError, match="a bug"):
        timers.run_due(5)
    assert timers.run_due(5) == 2
    assert ran == ["set before the failure", "after"]


def test_cancelling_what_was_just_set_keeps_the_count() -> None:
    timers = Timers()
    timers.at(0, lambda: timers.at(0, lambda: None).cancel())
    timers.at(0, lambda: None)
    assert timers.run_due(0) == 2
    assert len(timers) == 0
    assert timers.next_ms() is None


def test_on_earlier_is_called_for_an_earlier_deadline_only() -> None:
    notified: list[int] = []
    timers = Timers(on_earlier=notified.append)
    timers.at(10, lambda: None)
    timers.at(20, lambda: None)
    timers.at(5, lambda: None)
    assert notified == [10, 5]


def test_on_earlier_is_called_for_a_postponed_deadline() -> None:
    """A loop once slept until the session of 10 s ended, with an answer that was due at once."""
    notified: list[int] = []
    timers = Timers(on_earlier=notified.append)
    timers.at(5, lambda: timers.at(5, lambda: None) and None)
    timers.at(6, lambda: timers.at(10_000, lambda: None) and None)
    timers.run_due(6)
    assert timers.next_ms() == 5
    assert notified[-1] == 5


def test_a_timer_is_moved_only_where_it_waits_for_another_time() -> None:
    ran: list[int] = []
    timers = Timers()
    first = timers.move(None, 5, lambda: ran.append(5))
    assert timers.move(first, 5, lambda: ran.append(-1)) is first
    later = timers.move(first, 7, lambda: ran.append(7))
    timers.run_due(7)
    assert ran == [7]
    again = timers.move(later, 7, lambda: ran.append(70))  # The one before has run.
    assert again is not later
    assert timers.move(again, None, lambda: None) is None
    timers.run_due(7)
    assert ran == [7]
    assert timers.move(None, None, lambda: None) is None


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
