"""Flushes take turns: as many at once as may hold their files open, in the order of their requests.

Method: flushes that only note that they began, and leave when the test says so.
"""

import pytest

from ottla.base.limits import FILES_PER_FLUSH
from ottla.log.flush_queue import FlushQueue


class Flushes:
    """A queue with room for so many flushes of three files."""

    def __init__(self, files_max: int) -> None:
        self.queue = FlushQueue(files_max)
        self.begun: list[int] = []

    def enter(self, number: int, files: int = 3) -> None:
        def begin() -> None:
            self.begun.append(number)
            self.queue.take(files)

        self.queue.enter(begin)


def test_flushes_begin_while_there_is_room_and_then_in_order() -> None:
    flushes = Flushes(6)
    for number in range(5):
        flushes.enter(number)
    assert flushes.begun == [0, 1]
    flushes.queue.leave(3)
    assert flushes.begun == [0, 1, 2]
    flushes.queue.leave(3)
    flushes.queue.leave(3)
    assert flushes.begun == [0, 1, 2, 3, 4]


def test_one_flush_begins_however_little_room_there_is() -> None:
    flushes = Flushes(0)
    flushes.enter(0)
    flushes.enter(1)
    assert flushes.begun == [0]
    flushes.queue.leave(3)
    assert flushes.begun == [0, 1]


def test_a_flush_may_hold_half_of_what_is_left_but_always_a_few() -> None:
    queue = FlushQueue(100)
    assert queue.room == 50
    queue.take(50)
    assert queue.room == 25
    queue.take(50)
    assert queue.room == FILES_PER_FLUSH


def test_a_flush_that_begins_another_one_or_holds_nothing_blocks_none() -> None:
    flushes = Flushes(3)
    flushes.queue.enter(lambda: flushes.enter(0))
    flushes.enter(1)
    assert flushes.begun == [0]
    flushes.queue.leave(3)
    assert flushes.begun == [0, 1]


def test_a_flush_that_fails_to_begin_blocks_none() -> None:
    def fails() -> None:
        raise ValueError("no such log")

    flushes = Flushes(3)
    flushes.enter(0)
    flushes.queue.enter(fails)
    flushes.enter(1)
    with pytest.raises(ValueError, match="no such log"):
        flushes.queue.leave(3)
    assert flushes.begun == [0, 1]
