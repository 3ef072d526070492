"""Sequential asynchronous procedures, such as a start or a stop, for the loop and the simulator.

Steps are a generator that yields what it waits for and is sent the outcome. On the event loop
`drive_async` runs it, and may be cancelled: steps already done are not undone. `drive` runs it by
callbacks without a loop, as a simulated node does; what it returns abandons the steps, and does not
undo them either.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers

T = TypeVar("T")

Steps = Generator[Any, Any, T]
"""Yields `Pending`s, or awaitables where only `drive_async` is used."""


def wait(pending: Pending[T]) -> Steps[T]:
    """Return the value of `pending` once it is complete."""
    value: T = yield pending
    return value


def within(limit_ms: int, pending: Pending[Any], clock: Clock, timers: Timers) -> Pending[bool]:
    """Return whether a promise is kept within a time; the promise itself stays as it is."""
    outcome: Pending[bool] = Pending()

    def give_up() -> None:
        outcome.complete(False)

    def kept(_: Any) -> None:
        timer.cancel()
        outcome.complete(True)

    timer = timers.at(clock.monotonic_ms() + limit_ms, give_up)
    pending.then(kept)
    return outcome


async def outcome_of(pending: Pending[T]) -> T:
    """Wait for a promise. Cancelling the wait leaves the promise as it is."""
    if pending.done:
        return pending.value
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def keep(value: T) -> None:
        if not future.done():
            future.set_result(value)

    pending.then(keep)
    return await future


async def drive_async(steps: Steps[T]) -> T:
    """Run `steps` on the running loop."""
    try:
        awaited = next(steps)
        while True:
            try:
                value = await _outcome(awaited)
            except Exception as error:
                awaited = steps.throw(error)
            else:
                awaited = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def _outcome(awaited: Pending[Any] | Awaitable[Any]) -> Any:
    return await (outcome_of(awaited) if isinstance(awaited, Pending) else awaited)


def drive(steps: Steps[T], ended: Callable[[T | Exception], None]) -> Callable[[], None]:
    """Run `steps` by callbacks; call `ended` with the result or the exception.

    Returns: a function that abandons them between two steps; `ended` is not called then.
    """
    is_abandoned = False

    def abandon() -> None:
        nonlocal is_abandoned
        is_abandoned = True
        steps.close()

    def resume(value: Any) -> None:
        # A loop, not recursion: many steps in a row may have their outcomes already.
        while not is_abandoned:
            try:
                awaited = steps.send(value)
            except StopIteration as end:
                ended(end.value)
                return
            except Exception as error:
                ended(error)
                return
            assert isinstance(awaited, Pending), f"{awaited} needs a loop"
            if not awaited.done:
                awaited.then(resume)
                return
            value = awaited.value

    resume(None)
    return abandon
