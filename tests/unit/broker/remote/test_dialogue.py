"""Dialogues wait for promises and times; a cancelled one is never resumed, and cleans up."""

import logging

import pytest

from ottla.base.pending import Pending, completed
from ottla.base.timers import Timers
from ottla.broker.remote.dialogue import Dialogue, Running, Slots, Task, Wakeup, wait
from tests.unit.log.support import FakeClock


class Harness:
    def __init__(self) -> None:
        self.clock = FakeClock(0)
        self.timers = Timers()
        self.events: list[str] = []

    def task(self, dialogue: Dialogue[None]) -> Task:
        made = Task(dialogue, self.timers, self.clock)
        made.start()
        return made

    def running(self, dialogue: Dialogue[int]) -> Running[int]:
        return Running(dialogue, self.timers, self.clock, on_bug=-1)

    def pass_ms(self, ms: int) -> None:
        self.clock.ms += ms
        self.timers.run_due(self.clock.ms)


def test_it_waits_for_promises_and_times() -> None:
    harness = Harness()
    promise: Pending[int] = Pending()

    def steps() -> Dialogue[None]:
        value = yield from wait(promise)
        harness.events.append(f"value {value}")
        yield 100
        harness.events.append("time")

    task = harness.task(steps())
    assert not harness.events
    promise.complete(7)
    harness.pass_ms(99)
    assert harness.events == ["value 7"]
    harness.pass_ms(1)
    assert harness.events == ["value 7", "time"]
    assert task.is_over


def test_many_promises_that_are_there_do_not_nest() -> None:
    harness = Harness()

    def steps() -> Dialogue[None]:
        for _ in range(10_000):
            yield from wait(completed(1))
        harness.events.append("end")

    harness.task(steps())
    assert harness.events == ["end"]


def test_a_cancelled_dialogue_cleans_up_and_a_late_value_does_nothing() -> None:
    harness = Harness()
    promise: Pending[int] = Pending()

    def steps() -> Dialogue[None]:
        try:
            yield from wait(promise)
            harness.events.append("resumed")
        finally:
            harness.events.append("cleaned up")
            promise.complete(1)

    task = harness.task(steps())
    task.cancel()
    task.cancel()
    assert harness.events == ["cleaned up"]
    assert task.is_over


def test_a_dialogue_may_cancel_itself() -> None:
    harness = Harness()
    tasks: list[Task] = []
    promise: Pending[int] = Pending()

    def steps() -> Dialogue[None]:
        yield from wait(promise)
        tasks[0].cancel()
        yield 10
        harness.events.append("resumed")

    tasks.append(harness.task(steps()))
    promise.complete(1)
    harness.pass_ms(100)
    assert not harness.events


def test_an_exception_ends_the_task_and_is_raised() -> None:
    harness = Harness()
    promise: Pending[int] = Pending()

    def steps() -> Dialogue[None]:
        yield from wait(promise)
        raise KeyError("bug")

    task = harness.task(steps())
    try:
        promise.complete(1)
    except KeyError:
        harness.events.append("raised")
    assert harness.events == ["raised"]
    assert task.is_over


def waiting(harness: Harness, wakeup: Wakeup) -> Dialogue[None]:
    while True:
        yield from wakeup.wait(1_000)
        harness.events.append(f"at {harness.clock.ms}")


def test_a_wakeup_comes_in_a_turn_of_its_own() -> None:
    harness = Harness()
    wakeup = Wakeup(harness.timers, harness.clock)
    harness.task(waiting(harness, wakeup))
    wakeup.notify()
    wakeup.notify()
    assert not harness.events
    harness.pass_ms(0)
    assert harness.events == ["at 0"]
    harness.pass_ms(999)
    assert harness.events == ["at 0"]
    harness.pass_ms(1)
    assert harness.events == ["at 0", "at 1000"]


def test_an_event_during_work_is_not_lost() -> None:
    harness = Harness()
    wakeup = Wakeup(harness.timers, harness.clock)
    work: Pending[int] = Pending()

    def steps() -> Dialogue[None]:
        yield from wait(work)
        yield from wakeup.wait(1_000)
        harness.events.append("woken")

    harness.task(steps())
    wakeup.notify()
    work.complete(1)
    harness.pass_ms(0)
    assert harness.events == ["woken"]


def test_a_cancelled_wait_leaves_no_timer() -> None:
    harness = Harness()
    wakeup = Wakeup(harness.timers, harness.clock)
    harness.task(waiting(harness, wakeup)).cancel()
    assert len(harness.timers) == 0
    wakeup.notify()
    harness.task(waiting(harness, wakeup))
    harness.pass_ms(0)
    assert harness.events == ["at 0"]


def holding(harness: Harness, slots: Slots, name: str, until: Pending[int]) -> Dialogue[None]:
    yield from slots.acquire()
    try:
        harness.events.append(name)
        yield from wait(until)
    finally:
        slots.release()


def test_slots_are_given_in_order_and_given_back_by_whoever_is_cancelled() -> None:
    harness = Harness()
    slots = Slots(1)
    ends: list[Pending[int]] = [Pending() for _ in range(4)]
    tasks = [
        harness.task(holding(harness, slots, f"task {number}", end))
        for number, end in enumerate(ends)
    ]
    assert harness.events == ["task 0"]
    tasks[1].cancel()
    ends[0].complete(1)
    assert harness.events == ["task 0", "task 2"]
    tasks[2].cancel()
    assert harness.events == ["task 0", "task 2", "task 3"]
    tasks[3].cancel()
    assert slots.free == 1


def test_slots_grow_at_once_and_shrink_as_they_are_given_back() -> None:
    harness = Harness()
    slots = Slots(1)
    ends: list[Pending[int]] = [Pending() for _ in range(6)]
    for number, end in enumerate(ends):
        harness.task(holding(harness, slots, f"task {number}", end))
    slots.resize(3)
    assert harness.events == ["task 0", "task 1", "task 2"]
    slots.resize(1)
    ends[0].complete(1)
    ends[1].complete(1)
    assert harness.events == ["task 0", "task 1", "task 2"]
    ends[2].complete(1)
    assert harness.events[3:] == ["task 3"]
    slots.resize(2)
    assert harness.events[4:] == ["task 4"]
    for end in ends[3:]:
        end.complete(1)
    assert slots.free == 2


class Steps:
    """A dialogue that waits twice. `held`: between its start and its end."""

    def __init__(self) -> None:
        self.first: Pending[int] = Pending()
        self.second: Pending[int] = Pending()
        self.held = 0

    def run(self) -> Dialogue[int]:
        self.held += 1
        try:
            one = yield self.first
            two = yield self.second
            return int(one) + int(two)
        finally:
            self.held -= 1


def test_it_ends_with_its_result() -> None:
    steps = Steps()
    running = Harness().running(steps.run())
    running.start()
    steps.second.complete(2)
    steps.first.complete(1)
    assert running.outcome.value == 3
    running.cancel()
    assert steps.held == 0


def test_many_kept_promises_do_not_nest() -> None:
    def run() -> Dialogue[int]:
        for _ in range(5_000):
            yield completed(None)
        return 1

    running = Harness().running(run())
    running.start()
    assert running.outcome.value == 1


@pytest.mark.parametrize("ends", [True, False])
def test_it_is_closed_where_it_waits(ends: bool) -> None:
    steps = Steps()
    running = Harness().running(steps.run())
    running.start()
    running.end(7) if ends else running.cancel()
    assert (steps.held, running.outcome.done) == (0, ends)
    assert steps.first._listeners == []
    steps.first.complete(1)
    running.end(8)
    assert not ends or running.outcome.value == 7


def test_it_may_be_cancelled_by_one_of_its_own_steps() -> None:
    held: list[str] = []

    def run() -> Dialogue[int]:
        try:
            held.append("held")
            running.cancel()
            yield Pending()
            return 1
        finally:
            held.clear()

    running = Harness().running(run())
    running.start()
    assert not held
    assert not running.outcome.done


def test_a_bug_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def run() -> Dialogue[int]:
        yield completed(None)
        raise ZeroDivisionError

    running = Harness().running(run())
    with caplog.at_level(logging.ERROR):
        running.start()
    assert running.outcome.value == -1
    assert "remote read failed" in caplog.text
