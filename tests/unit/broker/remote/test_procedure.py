"""A procedure gives back what it holds, however it ends."""

import logging

import pytest

from ottla.base.pending import Pending, completed
from ottla.broker.remote.procedure import Procedure, Running


class Steps:
    """A procedure that waits twice. `held`: between its start and its end."""

    def __init__(self) -> None:
        self.first: Pending[int] = Pending()
        self.second: Pending[int] = Pending()
        self.held = 0

    def run(self) -> Procedure[int]:
        self.held += 1
        try:
            one = yield self.first
            two = yield self.second
            return int(one) + int(two)
        finally:
            self.held -= 1


def test_it_ends_with_its_result() -> None:
    steps = Steps()
    running = Running(steps.run(), on_bug=-1)
    running.start()
    steps.second.complete(2)
    steps.first.complete(1)
    assert running.outcome.value == 3
    running.cancel()
    assert steps.held == 0


def test_many_kept_promises_do_not_nest() -> None:
    def run() -> Procedure[int]:
        for _ in range(5_000):
            yield completed(None)
        return 1

    running = Running(run(), on_bug=-1)
    running.start()
    assert running.outcome.value == 1


@pytest.mark.parametrize("ends", [True, False])
def test_it_is_closed_where_it_waits(ends: bool) -> None:
    steps = Steps()
    running = Running(steps.run(), on_bug=-1)
    running.start()
    running.end(7) if ends else running.cancel()
    assert (steps.held, running.outcome.done) == (0, ends)
    assert steps.first._listeners == []
    steps.first.complete(1)
    running.end(8)
    assert not ends or running.outcome.value == 7


def test_it_may_be_cancelled_by_one_of_its_own_steps() -> None:
    held: list[str] = []

    def run() -> Procedure[int]:
        try:
            held.append("held")
            running.cancel()
            yield Pending()
            return 1
        finally:
            held.clear()

    running = Running(run(), on_bug=-1)
    running.start()
    assert not held
    assert not running.outcome.done


def test_a_bug_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    def run() -> Procedure[int]:
        yield completed(None)
        raise ZeroDivisionError

    running = Running(run(), on_bug=-1)
    with caplog.at_level(logging.ERROR):
        running.start()
    assert running.outcome.value == -1
    assert "remote read failed" in caplog.text
