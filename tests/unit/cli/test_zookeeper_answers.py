"""What the tools make of ZooKeeper's answers: refusals name the znode, silence ends.

Method: kazoo's own exceptions from a fake of its client. A wait without a limit, in which kazoo
would stay until a server comes back, fails at once.
"""

from collections.abc import Callable
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError

from ottla.base.zookeeper import Create, SetData
from ottla.cli import zookeeper_client
from ottla.cli.errors import CommandError
from ottla.cli.zookeeper_client import WriteConflict, ZooKeeperClient

from .conftest import Run

TIMEOUT = 7.0


class Answer:
    """kazoo's result object of one request."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        assert timeout == TIMEOUT, "it would be waited for without end"
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeKazoo:
    """Gives every request the same outcome."""

    chroot = ""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.ended: list[str] = []

    def _asked(self, path: str) -> Answer:
        return Answer(self.outcome)

    get_async = get_children_async = ensure_path_async = _asked

    def transaction(self) -> "FakeKazoo":
        return self

    def create(self, path: str, data: bytes, **options: bool) -> None:
        """Part of a transaction."""

    def set_data(self, path: str, data: bytes, version: int) -> None:
        """Part of a transaction."""

    def commit_async(self) -> Answer:
        return Answer(self.outcome)

    # The blocking twins wait without a limit.
    def commit(self) -> Any:
        return self.commit_async().get()

    def ensure_path(self, path: str) -> Any:
        return self._asked(path).get()

    def stop(self) -> None:
        self.ended.append("stopped")

    def close(self) -> None:
        self.ended.append("closed")


def a_client(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> ZooKeeperClient:
    monkeypatch.setattr(zookeeper_client, "_start", lambda connect, timeout: FakeKazoo(outcome))
    return ZooKeeperClient("zk:1", TIMEOUT)


WRITE = [Create("/a/b", b""), SetData("/c", b"", 3)]

ACTS: list[tuple[Callable[[ZooKeeperClient], object], str, str]] = [
    (lambda client: client.read("/a/b"), "/a/b", "read"),
    (lambda client: client.children("/a/b"), "/a/b", "read"),
    (lambda client: client.make_parents("/a/b"), "/a", "written"),
    (lambda client: client.write(WRITE), "/a/b", "written"),
]
"""What is done, the znode that it names, and what that may not be."""


@pytest.mark.parametrize(("act", "path", "verb"), ACTS)
def test_errors_of_zookeeper_name_the_znode(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Any], object], path: str, verb: str
) -> None:
    with pytest.raises(CommandError) as caught:
        act(a_client(monkeypatch, exceptions.NoAuthError()))
    assert str(caught.value) == f"ZooKeeper refuses {path}: it may not be {verb} (NoAuthError)"
    with pytest.raises(CommandError) as caught:
        act(a_client(monkeypatch, exceptions.QuotaExceededError()))
    assert str(caught.value) == f"ZooKeeper refuses {path}: QuotaExceededError"


@pytest.mark.parametrize(("act", "path", "verb"), ACTS)
@pytest.mark.parametrize(
    "error",
    [
        KazooTimeoutError(),
        exceptions.ConnectionLoss(),
        exceptions.OperationTimeoutError(),
        exceptions.SessionExpiredError(),
        exceptions.ConnectionClosedError(),
    ],
)
def test_silence_ends_with_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Any], object],
    path: str,
    verb: str,
    error: Exception,
) -> None:
    """A write without a response may have been done."""
    with pytest.raises(CommandError) as caught:
        act(a_client(monkeypatch, error))
    doubt = "" if verb == "read" else f"; whether {path} was written is not known"
    assert str(caught.value) == f"ZooKeeper zk:1 does not answer: {type(error).__name__}{doubt}"


def test_a_znode_that_is_not_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    client = a_client(monkeypatch, exceptions.NoNodeError())
    assert client.read("/a") is None
    assert client.children("/a") == []


def test_one_operation_ends_the_whole_write(monkeypatch: pytest.MonkeyPatch) -> None:
    rolled_back = exceptions.RolledBackError()
    client = a_client(monkeypatch, [rolled_back, exceptions.BadVersionError()])
    with pytest.raises(WriteConflict) as overtaken:
        client.write(WRITE)
    assert overtaken.value.path == "/c"
    client = a_client(monkeypatch, [rolled_back, exceptions.NoAuthError()])
    with pytest.raises(CommandError, match=r"refuses /c: it may not be written \(NoAuthError\)$"):
        client.write(WRITE)
    a_client(monkeypatch, ["/a/b", None]).write(WRITE)


class Starting(FakeKazoo):
    """A client whose server takes the session, and then says `outcome` of the chroot."""

    def start(self, timeout: float) -> None:
        """Connect."""

    exists_async = FakeKazoo._asked

    def exists(self, path: str) -> Any:
        return self._asked(path).get()


def test_so_is_the_first_question(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Starting(exceptions.ConnectionLoss())
    monkeypatch.setattr("kazoo.client.KazooClient", lambda **options: made)
    ran = run("topics", "--list", "--zookeeper", "zk:1", "--timeout", str(TIMEOUT))
    assert ran == (
        1,
        "",
        "ottla topics: --zookeeper zk:1: ZooKeeper zk:1 does not answer: ConnectionLoss\n",
    )
    assert made.ended == ["stopped", "closed"]
