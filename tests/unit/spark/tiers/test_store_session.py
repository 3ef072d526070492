"""A session must return what the store has, retry what may pass, and name what does not.

Method: a directory as the store, and a backend whose next operations fail as a test says.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.object_store import Failure, ObjectInfo, Page
from ottla.base.ports import Buffer, Clock
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession
from ottla.stores.backend import OperationFailed
from ottla.stores.file_backend import FileBackend
from ottla.stores.store import Post, Store


class Faulty(FileBackend):
    """Fails as `faults` says, before it does anything."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.faults: deque[Failure] = deque()
        self.operations = 0

    def _fail(self) -> None:
        self.operations += 1
        if self.faults:
            raise OperationFailed(self.faults.popleft(), "as told")

    async def get_range(self, name: str, start: int, length: int) -> Buffer:
        self._fail()
        return await super().get_range(name, start, length)

    async def head(self, name: str) -> ObjectInfo:
        self._fail()
        return await super().head(name)

    async def list_page(self, prefix: str, after: str, limit: int) -> Page:
        self._fail()
        return await super().list_page(prefix, after, limit)


@pytest.fixture
def backend(tmp_path: Path) -> Faulty:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"0123456789")
    (tmp_path / "a" / "empty").write_bytes(b"")
    return Faulty(str(tmp_path))


@pytest.fixture
def session(backend: Faulty, tmp_path: Path) -> Iterator[StoreSession]:
    def store(clock: Clock, post: Post) -> Store:
        return Store(backend, clock=clock, post=post)

    with StoreSession(tmp_path.as_uri(), timeout_ms=3_000, open_with=store) as opened:
        yield opened


def test_reads(session: StoreSession) -> None:
    assert bytes(session.read("a/one", 2, 3)) == b"234"
    assert bytes(session.read("a/one", 8, 100)) == b"89"
    assert bytes(session.read("a/empty", 0, 100)) == b""
    assert session.exists("a/one")
    assert not session.exists("a/two")
    assert [each.name for each in session.list_page("a").objects] == ["a/empty", "a/one"]
    reads = [("a/one", number, 1) for number in range(10)]
    assert b"".join(map(bytes, session.read_ahead(reads, 3))) == b"0123456789"


def test_reads_ahead_are_few(session: StoreSession, backend: Faulty) -> None:
    found = session.read_ahead([("a/one", number, 1) for number in range(10)], 3)
    assert bytes(next(found)) == b"0"
    session.read("a/one", 0, 1)
    assert backend.operations <= 4
    found.close()  # type: ignore[attr-defined]


def test_missing_objects(session: StoreSession) -> None:
    with pytest.raises(ObjectMissingError, match="has no object a/two"):
        session.read("a/two", 0, 1)
    reads = [("a/one", 0, 1), ("a/two", 0, 1), ("a/one", 1, 1)]
    first, second, third = session.try_reads(reads)
    assert isinstance(second, ObjectMissingError)
    assert not isinstance(first, ObjectMissingError)
    assert not isinstance(third, ObjectMissingError)
    assert bytes(first) + bytes(third) == b"01"
    with pytest.raises(ObjectMissingError):
        list(session.read_ahead(reads, 2))


def test_what_may_pass_is_tried_again(session: StoreSession, backend: Faulty) -> None:
    backend.faults += [Failure.UNAVAILABLE, Failure.BUSY]
    assert bytes(session.read("a/one", 0, 1)) == b"0"
    backend.faults += [Failure.TIMED_OUT]
    assert session.list_page("a").is_last


def test_what_does_not_pass_is_named(session: StoreSession, backend: Faulty) -> None:
    backend.faults += [Failure.DENIED]
    with pytest.raises(RemoteStorageError, match=r"store file:///.*: denied: as told \(a/one\)"):
        session.read("a/one", 0, 1)
    assert backend.operations == 1
    backend.faults += [Failure.UNAVAILABLE] * 100
    with pytest.raises(RemoteStorageError, match="unavailable: as told"):
        session.exists("a/one")


def test_a_directory_that_is_not_there_is_no_empty_store(tmp_path: Path) -> None:
    with StoreSession((tmp_path / "no").as_uri(), timeout_ms=500) as session:
        with pytest.raises(RemoteStorageError, match="there is no such directory"):
            session.check("a")
        with pytest.raises(ObjectMissingError):
            session.read("a/one", 0, 1)


def test_a_bad_uri() -> None:
    with pytest.raises(OptionError, match=r"option ottla.remote.storage.uri=ftp://x: expected"):
        StoreSession("ftp://x", timeout_ms=1)
