"""Passes run at an interval, one at a time, and follow each other while more is left.

Method: a manual clock; work whose answers are given by the test.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.host.controller.periodic import Periodic

from ..harness import Harness

INTERVAL_MS = 1_000


class Work:
    """Passes that wait for their answers."""

    def __init__(self) -> None:
        self.passes: list[Pending[bool | ApiError]] = []

    def __call__(self) -> Pending[bool | ApiError]:
        self.passes.append(Pending())
        return self.passes[-1]


def started() -> tuple[Harness, Work, Periodic]:
    harness, work = Harness(), Work()
    periodic = Periodic(work, interval_ms=INTERVAL_MS, clock=harness.clock, timers=harness.timers)
    periodic.start()
    return harness, work, periodic


def test_a_pass_that_is_wanted_before_the_start_is_made_then() -> None:
    harness, work = Harness(), Work()
    periodic = Periodic(work, interval_ms=INTERVAL_MS, clock=harness.clock, timers=harness.timers)
    periodic.now()
    assert not work.passes
    periodic.start()
    harness.advance(1)
    assert len(work.passes) == 1


def test_one_pass_after_each_interval() -> None:
    harness, work, _ = started()
    harness.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 0
    harness.advance(1)
    assert len(work.passes) == 1
    harness.advance(5 * INTERVAL_MS)
    assert len(work.passes) == 1, "the first one is not done yet"
    work.passes[0].complete(False)
    harness.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 1
    harness.advance(1)
    assert len(work.passes) == 2


def test_the_next_pass_follows_at_once_while_more_waits() -> None:
    harness, work, _ = started()
    harness.advance(INTERVAL_MS)
    work.passes[0].complete(True)
    assert len(work.passes) == 1, "others have their turn first"
    harness.advance(0)
    assert len(work.passes) == 2


def test_a_pass_that_failed_is_made_again_at_the_usual_time() -> None:
    harness, work, _ = started()
    harness.advance(INTERVAL_MS)
    work.passes[0].complete(ApiError(Error.UNKNOWN_SERVER_ERROR))
    harness.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 1
    harness.advance(1)
    assert len(work.passes) == 2


def test_a_pass_is_requested() -> None:
    harness, work, periodic = started()
    periodic.now()
    assert len(work.passes) == 1
    periodic.now()
    assert len(work.passes) == 1
    work.passes[0].complete(False)
    harness.advance(0)
    assert len(work.passes) == 2, "what was asked for meanwhile is not forgotten"


def test_a_stopped_one_makes_no_pass_until_started_again() -> None:
    harness, work, periodic = started()
    periodic.now()
    periodic.stop()
    work.passes[0].complete(True)
    periodic.now()
    harness.advance(2 * INTERVAL_MS)
    assert len(work.passes) == 1
    periodic.start()
    harness.advance(INTERVAL_MS)
    assert len(work.passes) == 2
