"""The bench on which drivers of ZooKeeper are checked (`tests.zookeeper_checks`), and its tools."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ottla.base.pending import Pending
from ottla.base.zookeeper import (
    Event,
    Operation,
    Session,
    SessionState,
    ZkCode,
    ZkError,
    ZnodeData,
)

T = TypeVar("T")


class Bench(Protocol):
    """What a check needs. Its tree is empty below the sessions' chroot when a check begins."""

    def open(self, on_state: Callable[[SessionState], None] = ...) -> Session:
        """Begin a session; it may connect later."""
        ...

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until something holds. Raises: AssertionError when it does not come."""
        ...

    def cut(self, session: Session) -> None:
        """Break a session's connection and let it make no other one."""
        ...

    def heal(self, session: Session) -> None:
        """Let a session connect again."""
        ...

    def hold_answers(self, session: Session) -> None:
        """Let what a session asks for arrive, and no answer come back, until it is cut."""
        ...

    def expire(self, session: Session) -> None:
        """Let the servers end a session, without its client's doing."""
        ...


def wait(bench: Bench, pending: Pending[T]) -> T:
    bench.until(lambda: pending.done)
    return pending.value


def done(bench: Bench, pending: Pending[T | ZkError]) -> T:
    value = wait(bench, pending)
    assert not isinstance(value, ZkError), value
    return value


def write(bench: Bench, session: Session, *operations: Operation) -> tuple[Any, ...]:
    return done(bench, session.multi(operations))


def refusal(bench: Bench, session: Session, *operations: Operation) -> tuple[ZkCode, int | None]:
    value = wait(bench, session.multi(operations))
    assert isinstance(value, ZkError), value
    return value.code, value.index


def code_of(value: object) -> ZkCode | None:
    return value.code if isinstance(value, ZkError) else None


def got(bench: Bench, session: Session, path: str) -> ZnodeData:
    return done(bench, session.get(path))


class Log:
    """What happened to a session, in order: answers by name, watches as their events."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def watcher(self, name: str) -> Callable[[Event], None]:
        return lambda event: self.said.append((name, event.kind, event.path))

    def note(self, name: str, pending: Pending[Any]) -> None:
        pending.then(lambda value: self.said.append((name, value)))

    @property
    def names(self) -> list[str]:
        return [each[0] for each in self.said]
