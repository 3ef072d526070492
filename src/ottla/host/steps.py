"""Linear dialogues with the world, written once: a start, a stop.

Steps are a generator that yields what it waits for and is sent its outcome. On the loop `walk`
drives it, and may be cancelled: what has been done then stands still. `follow` drives it without
a loop, by callbacks, which is how a simulated node starts and stops by the same steps; what it
returns leaves them where they are, too.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from ottla.base.pending import Pending
from ottla.host.waiting import outcome_of

T = TypeVar("T")

Steps = Generator[Any, Any, T]
"""Yields `Pending`s, or awaitables where only `walk` will drive it."""


def wait(pending: Pending[T]) -> Steps[T]:
    """Return the value of `pending` once it is there."""
    value: T = yield pending
    return value


async def walk(steps: Steps[T]) -> T:
    """Drive `steps` on the running loop."""
    try:
        waits = next(steps)
        while True:
            try:
                value = await _outcome(waits)
            except Exception as error:
                waits = steps.throw(error)
            else:
                waits = steps.send(value)
    except StopIteration as end:
        result: T = end.value
        return result


async def _outcome(waits: Pending[Any] | Awaitable[Any]) -> Any:
    return await (outcome_of(waits) if isinstance(waits, Pending) else waits)


def follow(steps: Steps[T], ended: Callable[[T | Exception], None]) -> Callable[[], None]:
    """Drive `steps` by callbacks; tell `ended` the result or the exception.

    Returns: what leaves them, between two steps: they go no further, and `ended` is not told.
    """
    is_left = False

    def leave() -> None:
        nonlocal is_left
        is_left = True
        steps.close()

    def go_on(value: Any) -> None:
        # A loop, not a call in a call: many steps in a row may have their outcomes already.
        while not is_left:
            try:
                waits = steps.send(value)
            except StopIteration as end:
                ended(end.value)
                return
            except Exception as error:
                ended(error)
                return
            assert isinstance(waits, Pending), f"{waits} needs a loop"
            if not waits.done:
                waits.then(go_on)
                return
            value = waits.value

    go_on(None)
    return leave
