"""A directory as a store: what a crash, a full disk or other processes leave."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.object_store import Call, Failure, Pool, StoreError
from ottla.stores import file_backend
from ottla.stores.file_backend import STALLED_SECONDS_MIN, UNFINISHED_SECONDS_MAX, FileBackend
from ottla.stores.store import Store
from tests.object_store_checks import SECONDS_MAX, Tool
from tests.unit.stores.support import RealBench


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Tool]:
    bench = RealBench(lambda: FileBackend(str(tmp_path / "store")), tmp_path)
    yield Tool(bench)
    bench.close()


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_objects_are_plain_files(tool: Tool, tmp_path: Path) -> None:
    tool.put("orders-abc/0/0001.log", b"x")
    tool.put_if_absent("orders-abc/0/manifest/1", b"y")
    assert files_below(tmp_path / "store") == ["orders-abc/0/0001.log", "orders-abc/0/manifest/1"]


def test_empty_directories_are_removed(tool: Tool, tmp_path: Path) -> None:
    tool.put("t/0/manifest/1", b"x")
    tool.put("t/1/a", b"x")
    tool.delete("t/0/manifest/1")
    assert sorted(os.listdir(tmp_path / "store" / "t")) == ["1"]
    tool.delete("t/1/a")
    assert os.listdir(tmp_path / "store") == []


def test_a_directory_that_goes_while_an_object_is_made(tool: Tool) -> None:
    """Puts and deletes of one directory, at once: every put that succeeds is there."""
    stop = threading.Event()
    bench = tool.bench
    assert isinstance(bench, RealBench)
    other = RealBench(bench._backend, bench._directory)
    deleting = Tool(other)
    tool.put("t/kept", b"x")  # The store's own directory is there.

    def delete_all() -> None:
        while not stop.is_set():
            deleting.delete("t/0/gone")

    thread = threading.Thread(target=delete_all)
    thread.start()
    try:
        for number in range(50):
            assert tool.put("t/0/gone", b"x") is None
            assert tool.put(f"t/0/{number}", b"x") is None
            assert tool.get(f"t/0/{number}") == b"x"
            tool.delete(f"t/0/{number}")
    finally:
        stop.set()
        thread.join()
        other.close()


def test_a_full_disk(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_backend.os, "write", full)
    assert tool.put("a", b"x") is Failure.UNAVAILABLE
    monkeypatch.undo()
    assert files_below(tmp_path / "store") == []
    assert tool.put("a", b"x") is None


def test_a_failed_sync_is_a_failed_put(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.put("a", b"old")

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(file_backend.os, "fsync", failing)
    assert tool.put("a", b"new") is Failure.UNAVAILABLE
    monkeypatch.undo()
    assert tool.get("a") == b"old"
    assert files_below(tmp_path / "store") == ["a"]


class Hanging:
    """A function that waits until the mount is back."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.is_called, self.is_back = threading.Event(), threading.Event()

    def __call__(self, *arguments: object) -> None:
        self.is_called.set()
        self.is_back.wait(SECONDS_MAX)
        self._function(*arguments)


def give_up(tool: Tool, call: Call[Any], hanging: Hanging) -> None:
    """Cancel a copier's operation that hangs; then the mount is back, and it ends."""
    bench, store = tool.bench, tool.store
    assert isinstance(bench, RealBench)
    assert isinstance(store, Store)
    bench.run_until_real(hanging.is_called.is_set)
    call.cancel()
    # After another operation, the store's thread has seen the cancellation.
    tool.head("other")
    assert store.under_way(Pool.COPIER) == 1, "it keeps its place"
    hanging.is_back.set()
    bench.run_until(lambda: store.under_way(Pool.COPIER) == 0)


@pytest.mark.parametrize("replaces", [True, False])
def test_a_put_that_was_given_up_while_the_mount_hung_never_lands(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    """Or it would land after its caller had deleted the object for the last time."""
    hanging = Hanging(os.fsync)
    monkeypatch.setattr(file_backend.os, "fsync", hanging)
    put = tool.store.put if replaces else tool.store.put_if_absent
    call = put("t/a", b"x", pool=Pool.COPIER, deadline_ms=tool.bench.deadline())
    give_up(tool, call, hanging)
    assert files_below(tmp_path / "store") == []


def test_a_deletion_that_was_given_up_deletes_no_more(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, deadline_ms = Hanging(os.unlink), tool.bench.deadline()
    for name in ("t/a", "t/b", "t/c"):
        tool.put(name, b"x")
    monkeypatch.setattr(file_backend.os, "unlink", hanging)
    call = tool.store.delete_many(["t/a", "t/b"], pool=Pool.COPIER, deadline_ms=deadline_ms)
    give_up(tool, call, hanging)
    assert tool.names() == ["t/b", "t/c"]


def test_the_content_is_synced_before_the_name_and_the_name_before_the_answer(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace, link = os.fsync, os.replace, os.link

    def noted_sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        done.append("sync directory" if os.path.isdir(path) else "sync file")
        sync(descriptor)

    monkeypatch.setattr(file_backend.os, "fsync", noted_sync)
    monkeypatch.setattr(
        file_backend.os, "replace", lambda a, b: (done.append("name"), replace(a, b))
    )
    monkeypatch.setattr(file_backend.os, "link", lambda a, b: (done.append("name"), link(a, b)))
    tool.put("t/a", b"x")
    assert done == ["sync file", "name", "sync directory", "sync directory"]
    done.clear()
    tool.put_if_absent("t/b", b"x")
    assert done == ["sync file", "name", "sync directory"], "the directory's own name is synced"


def test_unfinished_files_are_not_listed_and_go_in_time(tool: Tool, tmp_path: Path) -> None:
    tool.put("t/a", b"x")
    young, old = tmp_path / "store/t/b#12", tmp_path / "store/t/a#34"
    young.write_bytes(b"x")
    old.write_bytes(b"x")
    past = time.time() - UNFINISHED_SECONDS_MAX - 60
    os.utime(old, (past, past))
    assert tool.names() == ["t/a"]
    tool.delete("t/a")
    assert files_below(tmp_path / "store") == ["t/b#12"]


def test_unfinished_files_of_a_deleted_object_go_with_it(tool: Tool, tmp_path: Path) -> None:
    """Unless one is being written: such an object is deleted again, after some minutes."""
    tool.put("t/a", b"x")
    past = time.time() - STALLED_SECONDS_MIN - 60
    for name in ("a#12", "ab#12", "b#12"):
        path = tmp_path / "store/t" / name
        path.write_bytes(b"x")
        os.utime(path, (past, past))
    (tmp_path / "store/t/a#34").write_bytes(b"x")
    tool.delete("t/a")
    assert files_below(tmp_path / "store") == ["t/a#34", "t/ab#12", "t/b#12"]


def removed_unfinished(tool: Tool, prefix: str) -> StoreError | None:
    call = tool.store.remove_unfinished(prefix, pool=Pool.PURGE, deadline_ms=tool.bench.deadline())
    return tool.bench.wait(call)


def test_unfinished_files_below_a_directory_are_removed_with_it(tool: Tool, tmp_path: Path) -> None:
    """A purge asks for that when nobody writes there any more: so their age does not matter."""
    root = tmp_path / "store"
    for name in ("t/0/a#12", "t/0/manifest/1#12", "t/00/a#12"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    assert removed_unfinished(tool, "t/0") is None
    assert files_below(root) == ["t/00/a#12"]
    assert os.listdir(root / "t") == ["00"]
    tool.put("t/00/a", b"x")
    assert removed_unfinished(tool, "t") is None
    assert files_below(root) == ["t/00/a"]
    root.rename(tmp_path / "away")
    gone = removed_unfinished(tool, "t")
    assert gone is not None
    assert gone.failure is Failure.UNAVAILABLE


def test_a_write_whose_unfinished_file_was_removed_fails(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was suspended within a write while the topic was purged."""
    hanging = Hanging(os.fsync)
    monkeypatch.setattr(file_backend.os, "fsync", hanging)
    call = tool.store.put("t/0/a", b"x", pool=Pool.COPIER, deadline_ms=tool.bench.deadline())
    assert isinstance(tool.bench, RealBench)
    tool.bench.run_until_real(hanging.is_called.is_set)
    monkeypatch.undo()
    assert removed_unfinished(tool, "t/0") is None
    hanging.is_back.set()
    assert isinstance(tool.bench.wait(call), StoreError)
    assert os.listdir(tmp_path / "store") == []


WRITER = """
import asyncio, sys
from ottla.stores.file_backend import FileBackend
async def write():
    backend = FileBackend(sys.argv[1])
    data = bytes(3_000_000)
    print("begins", flush=True)
    for number in range(10**9):
        await backend.put("t/replaced", number.to_bytes(8, "big") + data)
        await backend.put_if_absent(f"t/{number}", data)
asyncio.run(write())
"""


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.05, 0.12])
def test_a_killed_writer_leaves_whole_objects(tool: Tool, tmp_path: Path, seconds: float) -> None:
    root = tmp_path / "store"
    root.mkdir()  # Else it may be killed before there is a store.
    command = [sys.executable, "-c", WRITER, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()
    for name in tool.names():
        found = tool.get(name)
        assert isinstance(found, bytes)
        assert len(found) == 3_000_000 + 8 * (name == "t/replaced")


def test_no_object_has_a_name_that_is_too_long(tool: Tool, tmp_path: Path) -> None:
    """Or the purge of a topic with such a name would never end."""
    tool.put("a", b"x")
    for prefix in ("t" * 256, "/".join(["t" * 200] * 25)):
        name = f"{prefix}/0/a"
        assert tool.put(name, b"x") is Failure.INVALID
        assert tool.put_if_absent(name, b"x") is Failure.INVALID
        assert tool.head(name) is Failure.NOT_FOUND
        assert tool.get(name) is Failure.NOT_FOUND
        assert tool.names(prefix) == []
        assert tool.delete(name) == {}
        assert removed_unfinished(tool, prefix) is None
    assert files_below(tmp_path / "store") == ["a"]


def test_a_store_below_a_file(tool: Tool, tmp_path: Path) -> None:
    tool.put("a", b"x")
    assert tool.put("a/b", b"x") in (Failure.INVALID, Failure.UNAVAILABLE)
    assert tool.get("a") == b"x"


def test_a_store_whose_directory_is_gone_is_not_empty(tool: Tool, tmp_path: Path) -> None:
    """Or a deletion would take the objects for deleted, until the mount is back."""
    tool.put("t/a", b"x")
    root, away = tmp_path / "store", tmp_path / "away"
    root.rename(away)
    for make in (lambda: None, root.touch):
        make()
        deadline_ms = tool.bench.deadline()
        listed = tool.store.list_page("t", pool=Pool.PURGE, deadline_ms=deadline_ms)
        deleted = tool.store.delete_many(["t/a"], pool=Pool.PURGE, deadline_ms=deadline_ms)
        for each in (tool.bench.wait(listed), tool.bench.wait(deleted)):
            assert isinstance(each, StoreError)
            assert each.failure is Failure.UNAVAILABLE
    root.unlink()
    away.rename(root)
    assert tool.names() == ["t/a"]
    tool.delete("t/a")
    assert tool.names() == []


def test_a_store_whose_directory_is_gone_is_not_made_again(tool: Tool, tmp_path: Path) -> None:
    """The objects would be on the disk below the mount point, and hidden once the mount is back."""
    tool.put("t/a", b"x")
    root, away = tmp_path / "store", tmp_path / "away"
    root.rename(away)
    assert tool.put("t/b", b"x") is Failure.UNAVAILABLE
    assert tool.put_if_absent("t/b", b"x") is Failure.UNAVAILABLE
    assert not root.exists()
    away.rename(root)
    assert tool.put("t/b", b"x") is None
    assert tool.names() == ["t/a", "t/b"]


def test_a_directory_that_was_only_listed_is_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    bench = RealBench(lambda: FileBackend(str(root)), tmp_path)
    tool = Tool(bench)
    assert tool.names() == []
    root.rmdir()
    assert tool.put("t/a", b"x") is Failure.UNAVAILABLE
    bench.close()


def test_a_store_that_may_not_be_written(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, *arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(file_backend.os, "open", refused)
    assert tool.put("a", b"x") is Failure.DENIED
    assert tool.get("a", 0, 1) is Failure.DENIED
