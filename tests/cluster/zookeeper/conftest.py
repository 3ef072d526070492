"""A real ZooKeeper for the tests of this directory, and sessions with it.

A test that harms its servers makes its own.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from ottla.base.pending import Pending
from ottla.base.zookeeper import (
    Create,
    Operation,
    Result,
    Session,
    SessionState,
    ZkError,
)
from ottla.host.steps import outcome_of
from ottla.host.zookeeper.kazoo.kazoo_session import open_kazoo_session

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
SESSION_TIMEOUT_MS = 1_000

_numbers = itertools.count(1)


@pytest.fixture
def chroot() -> str:
    """A part of the server that is the test's own."""
    return f"/test-{next(_numbers)}"


class Heard:
    """A session, and the states that its owner heard of."""

    def __init__(self) -> None:
        self.states: list[SessionState] = []
        self.session: Session

    async def until(self, state: SessionState) -> None:
        """Wait until the session's owner has heard of a state."""
        await until(lambda: bool(self.states) and self.states[-1] is state)


@asynccontextmanager
async def session_with(
    hosts: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
) -> AsyncIterator[Heard]:
    """Open a session, wait until it is connected, and close it at the end."""
    heard = Heard()
    opener = open_kazoo_session(
        hosts,
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=5_000,
        loop=asyncio.get_running_loop(),
    )
    heard.session = opener(heard.states.append)
    try:
        await heard.until(SessionState.CONNECTED)
        yield heard
    finally:
        await outcome_of(heard.session.close())


async def answer(pending: Pending[T | ZkError]) -> T:
    """Wait for an answer; raise it where it is a refusal."""
    value = await asyncio.wait_for(outcome_of(pending), PATIENCE_SECONDS)
    if isinstance(value, ZkError):
        raise value
    return value


async def refusal(pending: Pending[T | ZkError]) -> ZkError:
    """Wait for an answer that is a refusal."""
    value = await asyncio.wait_for(outcome_of(pending), PATIENCE_SECONDS)
    assert isinstance(value, ZkError), value
    return value


async def do(session: Session, *operations: Operation) -> tuple[Result, ...]:
    """Do operations as one; raise where they are refused."""
    return await answer(session.multi(operations))


async def make(session: Session, path: str, data: bytes = b"") -> None:
    """Create a node."""
    await do(session, Create(path, data))


async def until(look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not look():
            await asyncio.sleep(0.01)
