"""Passes come every so often, one at a time, and follow each other while more waits.

Method: a clock by hand; work whose answers are given by the test.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.host.periodic import Periodic

from .world import World

INTERVAL_MS = 1_000


class Work:
    """Passes that wait for their answers."""

    def __init__(self) -> None:
        self.passes: list[Pending[bool | ApiError]] = []

    def __call__(self) -> Pending[bool | ApiError]:
        self.passes.append(Pending())
        return self.passes[-1]


def started() -> tuple[World, Work, Periodic]:
    world, work = World(), Work()
    periodic = Periodic(work, interval_ms=INTERVAL_MS, clock=world.clock, timers=world.timers)
    periodic.start()
    return world, work, periodic


def test_one_pass_after_each_interval() -> None:
    world, work, _ = started()
    world.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 0
    world.advance(1)
    assert len(work.passes) == 1
    world.advance(5 * INTERVAL_MS)
    assert len(work.passes) == 1, "the first one is not done yet"
    work.passes[0].complete(False)
    world.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 1
    world.advance(1)
    assert len(work.passes) == 2


def test_the_next_pass_follows_at_once_while_more_waits() -> None:
    world, work, _ = started()
    world.advance(INTERVAL_MS)
    work.passes[0].complete(True)
    assert len(work.passes) == 1, "others have their turn first"
    world.advance(0)
    assert len(work.passes) == 2


def test_a_pass_that_failed_is_made_again_at_the_usual_time() -> None:
    world, work, _ = started()
    world.advance(INTERVAL_MS)
    work.passes[0].complete(ApiError(Error.UNKNOWN_SERVER_ERROR))
    world.advance(INTERVAL_MS - 1)
    assert len(work.passes) == 1
    world.advance(1)
    assert len(work.passes) == 2


def test_a_pass_is_asked_for() -> None:
    world, work, periodic = started()
    periodic.now()
    assert len(work.passes) == 1
    periodic.now()
    assert len(work.passes) == 1
    work.passes[0].complete(False)
    world.advance(0)
    assert len(work.passes) == 2, "what was asked for meanwhile is not forgotten"


def test_who_stopped_makes_no_pass_until_started_again() -> None:
    world, work, periodic = started()
    periodic.now()
    periodic.stop()
    work.passes[0].complete(True)
    periodic.now()
    world.advance(2 * INTERVAL_MS)
    assert len(work.passes) == 1
    periodic.start()
    world.advance(INTERVAL_MS)
    assert len(work.passes) == 2
