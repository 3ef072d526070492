"""What a job writes must be there as it was written, and a lost answer must not confuse it.

Method: a directory and a store in memory; attempts whose answers are replaced.
"""

from pathlib import Path
from typing import Any

import pytest

from ottla.base.object_store import Failure, StoreError
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.target_store import TargetStore, target_uri
from ottla.stores.uri import FileUri


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    where = str(tmp_path) if request.param == "directory" else f"memory://{tmp_path.name}"
    return TargetStore(where, 5)


def test_reads_and_writes(store: TargetStore, tmp_path: Path) -> None:
    with store:
        assert store.read_whole("a/b") is None
        store.put("a/b", b"1")
        store.put("a/b", b"2")
        assert store.read_whole("a/b") == b"2"
        (tmp_path / "local").write_bytes(b"3")
        store.put_file("c", str(tmp_path / "local"))
        assert store.read_whole("c") == b"3"
        assert store.put_if_absent("d", b"mine")
        assert not store.put_if_absent("d", b"other")
        assert store.read_whole("d") == b"mine"
        store.delete(["a/b", "missing"])
        assert store.read_whole("a/b") is None
        store.delete([])
        done: list[int] = []
        store.move([("c", "e/f")], done.append)
        store.move([("c", "e/f")], done.append)
        assert (store.read_whole("e/f"), store.read_whole("c"), done) == (b"3", None, [1, 1])
        with pytest.raises(RemoteStorageError, match=r"neither .*x nor .*y is there"):
            store.move([("x", "y")], done.append)


def test_an_answer_that_was_lost(store: TargetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is written, the answer lost: the second attempt finds its own object."""
    with store:
        real = store._wait
        answers: list[Any] = [StoreError(Failure.UNAVAILABLE, "the connection broke")]

        def wait(call: Any) -> Any:
            found = real(call)
            return answers.pop() if answers else found

        monkeypatch.setattr(store, "_wait", wait)
        assert store.put_if_absent("a", b"mine")
        answers.append(StoreError(Failure.UNAVAILABLE, "the connection broke"))
        assert not store.put_if_absent("a", b"other")


def test_refusals(store: TargetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = StoreError(Failure.DENIED, "no permission")
    monkeypatch.setattr(store, "_wait", lambda call: denied)
    for act in (
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(RemoteStorageError, match="could not be written: denied: no permission"):
            act()


def test_places() -> None:
    assert target_uri("/a/b c") == FileUri(path="/a/b c")
    assert target_uri("a") == FileUri(path=str(Path.cwd() / "a"))
    assert target_uri("file:///a/../b") == FileUri(path="/b")
    for bad in ("", " ", "hdfs://x/y", "s3://"):
        with pytest.raises(OptionError, match="state"):
            target_uri(bad, "state")


def test_large_objects_get_more_time(tmp_path: Path) -> None:
    with TargetStore(str(tmp_path), 5) as store:
        small, large = (store._write_deadline_ms(size) for size in (1_000, 500 * 1024 * 1024))
        assert large - small > 100_000
