"""Awaits the promises of pure code on an asyncio loop."""

import asyncio
from typing import TypeVar

from ottla.base.pending import Pending

T = TypeVar("T")


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
