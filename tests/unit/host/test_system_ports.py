"""Threads pass their results to the loop, timers wake it, and neither does so after the end.

Method: a real loop and real threads, waited for with a deadline; a clock for timers by hand.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.host.system_ports import LoopTimers, SystemClock, SystemDice, ThreadWorkers


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(bounded())


async def eventually(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_results_and_failures_come_back_on_the_loop() -> None:
    async def test() -> None:
        loop_thread = threading.get_ident()
        workers = ThreadWorkers(asyncio.get_running_loop(), 2)
        outcomes: list[tuple[Any, bool]] = []

        def on_outcome(outcome: Any) -> None:
            outcomes.append((outcome, threading.get_ident() == loop_thread))

        def fail() -> int:
            raise OSError(5, "a test")

        workers.submit(threading.get_ident, on_outcome)
        await eventually(lambda: len(outcomes) == 1)
        assert outcomes[0][0] != loop_thread
        workers.submit(fail, on_outcome)
        await eventually(lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1][0], OSError)
        assert all(on_loop for _, on_loop in outcomes)
        workers.close()

    run(test)


def test_work_ends_though_no_thread_can_be_started_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first flush of a log that needed another thread was its last."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        workers = ThreadWorkers(asyncio.get_running_loop(), 3)
        workers.start()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        together = threading.Barrier(3)
        outcomes: list[Any] = []
        for _ in range(3):
            workers.submit(together.wait, outcomes.append)
        await eventually(lambda: len(outcomes) == 3)
        assert sorted(outcomes) == [0, 1, 2]
        workers.close()

    run(test)


def test_a_start_without_enough_threads_fails_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def start_two(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    async def test() -> None:
        workers = ThreadWorkers(asyncio.get_running_loop(), 3)
        monkeypatch.setattr(threading.Thread, "start", start_two)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            workers.start()
        workers.close()
        assert not any(thread.is_alive() for thread in started)

    run(test)


def test_a_failure_without_a_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        workers = ThreadWorkers(asyncio.get_running_loop(), 1)

        def fail() -> None:
            raise RuntimeError("a bug in a thread")

        workers.submit(fail)
        workers.close()

    with caplog.at_level(logging.ERROR):
        run(test)
    assert "a task of a worker thread failed" in caplog.text


def test_work_that_ends_after_the_loop_is_dropped() -> None:
    gate = threading.Event()
    workers: list[ThreadWorkers] = []
    outcomes: list[object] = []

    async def test() -> None:
        workers.append(ThreadWorkers(asyncio.get_running_loop(), 1))
        workers[0].submit(gate.wait, outcomes.append)

    run(test)
    gate.set()
    workers[0].close()
    assert outcomes == []


def test_a_timer_runs_and_arms_the_next_though_one_fails() -> None:
    async def test() -> None:
        clock = SystemClock()
        loop_timers = LoopTimers(asyncio.get_running_loop(), clock)
        ran: list[str] = []

        def fail() -> None:
            ran.append("failed")
            raise RuntimeError("a bug in a timer")

        now_ms = clock.monotonic_ms()
        loop_timers.timers.at(now_ms + 20, lambda: ran.append("late"))
        loop_timers.timers.at(now_ms + 1, fail)
        loop_timers.timers.at(now_ms + 1, lambda: ran.append("early"))
        await eventually(lambda: ran == ["failed", "early", "late"])
        loop_timers.close()

    run(test)


def test_a_timer_for_the_past_leaves_the_loop_to_others() -> None:
    async def test() -> None:
        clock = SystemClock()
        loop_timers = LoopTimers(asyncio.get_running_loop(), clock)
        turns = [0]

        def again() -> None:
            turns[0] += 1
            loop_timers.timers.at(clock.monotonic_ms() - 1_000, again)

        again()
        await eventually(lambda: turns[0] > 5)
        loop_timers.close()

    run(test)


def test_a_timer_set_by_a_timer_does_not_wait_for_one_that_another_sets() -> None:
    """Answers posted by one timer waited for the end of a session that the next one began."""

    async def test() -> None:
        clock = SystemClock()
        loop_timers = LoopTimers(asyncio.get_running_loop(), clock)
        ran: list[str] = []
        now_ms = clock.monotonic_ms() - 2  # The loop is late.

        def answer() -> None:
            loop_timers.timers.at(now_ms, lambda: ran.append("answered"))

        def begin_session() -> None:
            loop_timers.timers.at(now_ms + 3_600_000, lambda: ran.append("over"))

        loop_timers.timers.at(now_ms, answer)
        loop_timers.timers.at(now_ms + 1, begin_session)
        await eventually(lambda: ran == ["answered"])
        loop_timers.close()

    run(test)


def test_wake_ups_tell_when_they_were_due() -> None:
    async def test() -> None:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        loop_timers = LoopTimers(loop, clock)
        due: list[float] = []
        loop_timers.on_wake = due.append
        began, ran = loop.time(), []
        loop_timers.timers.at(clock.monotonic_ms() + 20, lambda: ran.append("first"))
        await eventually(lambda: ran == ["first"])
        loop_timers.close()
        assert len(due) == 1
        assert began + 0.019 <= due[0] <= loop.time()

    run(test)


def test_after_the_end_no_timer_runs() -> None:
    async def test() -> None:
        clock = SystemClock()
        loop_timers = LoopTimers(asyncio.get_running_loop(), clock)
        ran: list[str] = []
        loop_timers.timers.at(clock.monotonic_ms(), lambda: ran.append("before"))
        loop_timers.close()
        loop_timers.timers.at(clock.monotonic_ms(), lambda: ran.append("after"))
        await asyncio.sleep(0.02)
        assert ran == []

    run(test)


def test_clocks_and_dice() -> None:
    clock, dice = SystemClock(), SystemDice()
    assert clock.now_ms() > 1_700_000_000_000
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
    assert len(dice.random_bytes(16)) == 16
    assert dice.random_bytes(16) != dice.random_bytes(16)
    assert {dice.below(3) for _ in range(200)} == {0, 1, 2}
