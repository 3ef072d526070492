"""A dialogue runs the same with a loop and without one, and stands still where it is cancelled.

Method: one small dialogue, driven both ways.
"""

import asyncio

import pytest

from ottla.base.pending import Pending, completed
from ottla.host.steps import Steps, drive, drive_async, wait


def dialogue(first: Pending[int], said: list[str]) -> Steps[int]:
    value = yield from wait(first)
    said.append(f"first {value}")
    for index in range(10_000):
        yield completed(index)
    if value < 0:
        raise ValueError("below zero")
    said.append("end")
    return value * 2


def test_steps_are_driven_by_callbacks() -> None:
    first: Pending[int] = Pending()
    said: list[str] = []
    ends: list[int | Exception] = []
    drive(dialogue(first, said), ends.append)
    assert (said, ends) == ([], [])
    first.complete(21)
    assert (said, ends) == (["first 21", "end"], [42])


def test_an_exception_of_a_step_is_reported() -> None:
    ends: list[int | Exception] = []
    drive(dialogue(completed(-1), []), ends.append)
    assert isinstance(ends[0], ValueError)
    with pytest.raises(ValueError, match="below zero"):
        asyncio.run(drive_async(dialogue(completed(-1), [])))


def test_abandoned_steps_go_no_further() -> None:
    first: Pending[int] = Pending()
    said: list[str] = []
    ends: list[int | Exception] = []
    leave = drive(dialogue(first, said), ends.append)
    leave()
    first.complete(21)
    assert (said, ends) == ([], [])


def test_abandoning_steps_that_have_ended_has_no_effect() -> None:
    ends: list[int | Exception] = []
    drive(dialogue(completed(1), []), ends.append)()
    assert ends == [2]


def test_steps_are_driven_on_a_loop_and_may_wait_for_coroutines() -> None:
    def steps() -> Steps[int]:
        doubled = yield from dialogue(completed(1), [])
        yield asyncio.sleep(0)
        try:
            yield fails()
        except OSError:
            doubled += 1
        return doubled

    async def fails() -> None:
        raise OSError("as it happens")

    assert asyncio.run(drive_async(steps())) == 3


def test_steps_that_are_cancelled_stand_still() -> None:
    first: Pending[int] = Pending()
    said: list[str] = []

    async def run() -> None:
        task = asyncio.ensure_future(drive_async(dialogue(first, said)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        first.complete(1)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert said == []
