"""Steps run the same with a loop and without one, and stand still where they are cancelled.

Method: one small generator, driven both ways.
"""

import asyncio

import pytest

from ottla.base.pending import Pending, completed
from ottla.host.steps import Steps, drive, drive_async, wait


def steps_under_test(first: Pending[int], log: list[str]) -> Steps[int]:
    value = yield from wait(first)
    log.append(f"first {value}")
    for index in range(10_000):
        yield completed(index)
    if value < 0:
        raise ValueError("below zero")
    log.append("end")
    return value * 2


def test_steps_are_driven_by_callbacks() -> None:
    first: Pending[int] = Pending()
    log: list[str] = []
    ends: list[int | Exception] = []
    drive(steps_under_test(first, log), ends.append)
    assert (log, ends) == ([], [])
    first.complete(21)
    assert (log, ends) == (["first 21", "end"], [42])


def test_an_exception_of_a_step_is_reported() -> None:
    ends: list[int | Exception] = []
    drive(steps_under_test(completed(-1), []), ends.append)
    assert isinstance(ends[0], ValueError)
    with pytest.raises(ValueError, match="below zero"):
        asyncio.run(drive_async(steps_under_test(completed(-1), [])))


def test_abandoned_steps_go_no_further() -> None:
    first: Pending[int] = Pending()
    log: list[str] = []
    ends: list[int | Exception] = []
    leave = drive(steps_under_test(first, log), ends.append)
    leave()
    first.complete(21)
    assert (log, ends) == ([], [])


def test_abandoning_steps_that_have_ended_has_no_effect() -> None:
    ends: list[int | Exception] = []
    drive(steps_under_test(completed(1), []), ends.append)()
    assert ends == [2]


def test_steps_are_driven_on_a_loop_and_may_wait_for_coroutines() -> None:
    def steps() -> Steps[int]:
        doubled = yield from steps_under_test(completed(1), [])
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
    log: list[str] = []

    async def run() -> None:
        task = asyncio.ensure_future(drive_async(steps_under_test(first, log)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        first.complete(1)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert log == []
