"""The disk port: the operating system's and the one in memory must behave alike.

Method: every check runs over both; what only one can do (short writes, locks between processes)
follows by itself.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.base.ports import Disk
from ottla.host.disk import VECTORS_MAX, OsDisk
from ottla.testing.disk import MemoryDisk


@pytest.fixture(params=["system", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A disk and an empty folder on it."""
    if request.param == "system":
        yield OsDisk(), str(tmp_path)
        return
    disk = MemoryDisk()
    disk.mkdir("/folder")
    yield disk, "/folder"


def test_appends_go_to_the_end_and_reads_are_positional(place: tuple[Disk, str]) -> None:
    disk, folder = place
    file = disk.open(f"{folder}/a", create=True)
    assert file.append((b"abc",)) == 3
    assert file.append((b"", bytearray(b"de"), memoryview(b"xfgx")[1:3])) == 4
    assert file.size() == 7
    assert file.read_at(0, 100) == b"abcdefg"
    assert file.read_at(5, 1) == b"f"
    assert file.read_at(7, 10) == b""
    assert file.fileno() >= 0
    file.close()
    again = disk.open(f"{folder}/a")
    again.append((b"h",))
    assert disk.read_bytes(f"{folder}/a") == b"abcdefgh"
    again.close()
    again.close()


def test_writes_in_place_do_not_move_the_end(place: tuple[Disk, str]) -> None:
    disk, folder = place
    file = disk.open(f"{folder}/a", create=True)
    file.append((b"0123456789",))
    file.write_at(2, b"xy")
    file.append((b"+",))
    assert file.read_at(0, 100) == b"01xy456789+"
    file.write_at(13, b"z")
    file.append((b"!",))
    assert file.read_at(0, 100) == b"01xy456789+\0\0z!"
    file.close()


def test_truncation_cuts_and_extends_and_appends_follow_it(place: tuple[Disk, str]) -> None:
    disk, folder = place
    file = disk.open(f"{folder}/a", create=True)
    file.append((b"0123456789",))
    file.truncate(4)
    file.append((b"x",))
    assert file.read_at(0, 100) == b"0123x"
    file.truncate(7)
    assert file.read_at(0, 100) == b"0123x\0\0"
    file.sync()
    file.close()


def test_a_closed_file_refuses(place: tuple[Disk, str]) -> None:
    disk, folder = place
    file = disk.open(f"{folder}/a", create=True)
    file.close()
    with pytest.raises(OSError):
        file.read_at(0, 1)
    with pytest.raises(OSError):
        file.append((b"x",))


def test_many_buffers_are_one_append(place: tuple[Disk, str]) -> None:
    disk, folder = place
    file = disk.open(f"{folder}/a", create=True)
    buffers = [b"%d," % number for number in range(2 * VECTORS_MAX + 3)]
    assert file.append(buffers) == sum(map(len, buffers))
    assert file.read_at(0, 1 << 20) == b"".join(buffers)
    file.close()


def test_missing_files_are_file_not_found(place: tuple[Disk, str]) -> None:
    disk, folder = place
    for attempt in (
        lambda: disk.open(f"{folder}/none"),
        lambda: disk.size(f"{folder}/none"),
        lambda: disk.modified_ms(f"{folder}/none"),
        lambda: disk.read_bytes(f"{folder}/none"),
        lambda: disk.listdir(f"{folder}/none"),
        lambda: disk.sync_dir(f"{folder}/none"),
        lambda: disk.rename(f"{folder}/none", f"{folder}/other"),
        lambda: disk.open(f"{folder}/none/a", create=True),
        lambda: disk.write_atomic(f"{folder}/none/a", b""),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    disk.remove(f"{folder}/none")
    disk.remove(f"{folder}/none/a")
    disk.rmtree(f"{folder}/none")
    assert not disk.exists(f"{folder}/none")
    assert not disk.is_dir(f"{folder}/none")


def test_a_file_in_place_of_a_directory_is_not_a_directory(place: tuple[Disk, str]) -> None:
    disk, folder = place
    disk.open(f"{folder}/a", create=True).close()
    disk.mkdir(f"{folder}/b/c")
    for attempt in (
        lambda: disk.open(f"{folder}/a/x", create=True),
        lambda: disk.size(f"{folder}/a/x"),
        lambda: disk.modified_ms(f"{folder}/a/x"),
        lambda: disk.read_bytes(f"{folder}/a/x"),
        lambda: disk.write_atomic(f"{folder}/a/x", b""),
        lambda: disk.listdir(f"{folder}/a"),
        lambda: disk.sync_dir(f"{folder}/a"),
        lambda: disk.mkdir(f"{folder}/a/x"),
        lambda: disk.remove(f"{folder}/a/x"),
        lambda: disk.rmtree(f"{folder}/a"),
        lambda: disk.rmtree(f"{folder}/a/x"),
        lambda: disk.rename(f"{folder}/a/x", f"{folder}/y"),
        lambda: disk.rename(f"{folder}/b", f"{folder}/a"),
    ):
        with pytest.raises(NotADirectoryError):
            attempt()
    assert not disk.exists(f"{folder}/a/x")
    assert not disk.is_dir(f"{folder}/a/x")
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{folder}/a")
    for replace in (
        lambda: disk.rename(f"{folder}/a", f"{folder}/b"),
        lambda: disk.write_atomic(f"{folder}/b", b""),
        lambda: disk.open(f"{folder}/b"),
        lambda: disk.read_bytes(f"{folder}/b"),
        lambda: disk.remove(f"{folder}/b"),
    ):
        with pytest.raises(IsADirectoryError):
            replace()
    assert disk.listdir(folder) == ["a", "b"]


def test_directories(place: tuple[Disk, str]) -> None:
    disk, folder = place
    disk.mkdir(f"{folder}/b/c")
    disk.mkdir(f"{folder}/b/c")
    disk.open(f"{folder}/a", create=True).close()
    disk.open(f"{folder}/b/c/d", create=True).close()
    assert disk.listdir(folder) == ["a", "b"]
    assert disk.is_dir(f"{folder}/b")
    assert not disk.is_dir(f"{folder}/a")
    disk.sync_dir(f"{folder}/b")
    disk.rename(f"{folder}/b", f"{folder}/e")
    assert disk.exists(f"{folder}/e/c/d")
    disk.mkdir(f"{folder}/f/g")
    with pytest.raises(OSError) as caught:
        disk.rename(f"{folder}/e", f"{folder}/f")
    assert caught.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    disk.rmtree(f"{folder}/e")
    assert disk.listdir(folder) == ["a", "f"]


def test_a_rename_replaces_and_open_files_follow_their_content(place: tuple[Disk, str]) -> None:
    disk, folder = place
    old = disk.open(f"{folder}/old", create=True)
    old.append((b"old",))
    new = disk.open(f"{folder}/new", create=True)
    new.append((b"new!",))
    disk.rename(f"{folder}/new", f"{folder}/old")
    assert disk.listdir(folder) == ["old"]
    assert disk.read_bytes(f"{folder}/old") == b"new!"
    assert old.read_at(0, 10) == b"old"
    disk.remove(f"{folder}/old")
    new.append((b"+",))
    assert new.read_at(0, 10) == b"new!+"
    old.close()
    new.close()


def link(disk: Disk, path: str, target: str) -> None:
    if isinstance(disk, MemoryDisk):
        disk.link(path, target)
    else:
        os.symlink(target, path)


def test_links_are_followed_but_renamed_and_removed_themselves(place: tuple[Disk, str]) -> None:
    disk, folder = place
    disk.mkdir(f"{folder}/there")
    disk.write_atomic(f"{folder}/there/a", b"data")
    link(disk, f"{folder}/link", f"{folder}/there")
    link(disk, f"{folder}/file", f"{folder}/there/a")
    assert disk.is_link(f"{folder}/link")
    assert not any(disk.is_link(f"{folder}/{each}") for each in ("there", "none", "there/a/x"))
    assert disk.exists(f"{folder}/link")
    assert disk.is_dir(f"{folder}/link")
    assert not disk.is_dir(f"{folder}/file")
    assert disk.listdir(f"{folder}/link") == ["a"]
    assert (disk.read_bytes(f"{folder}/link/a"), disk.size(f"{folder}/file")) == (b"data", 4)
    disk.mkdir(f"{folder}/link")
    disk.mkdir(f"{folder}/link/below")
    for create in (False, True):
        file = disk.open(f"{folder}/file", create=create)
        assert file.append((b"+",)) == 1
        file.close()
    disk.sync_dir(f"{folder}/link")
    disk.rename(f"{folder}/link", f"{folder}/renamed")
    disk.rmtree(f"{folder}/renamed")
    disk.remove(f"{folder}/file")
    assert disk.listdir(folder) == ["there"]
    assert disk.listdir(f"{folder}/there") == ["a", "below"]
    assert disk.read_bytes(f"{folder}/there/a") == b"data++"


def test_a_link_that_leads_nowhere_is_there_itself(place: tuple[Disk, str]) -> None:
    disk, folder = place
    link(disk, f"{folder}/link", f"{folder}/none")
    assert disk.is_link(f"{folder}/link")
    assert not disk.exists(f"{folder}/link")
    assert not disk.is_dir(f"{folder}/link")
    assert disk.listdir(folder) == ["link"]
    for attempt in (
        lambda: disk.listdir(f"{folder}/link"),
        lambda: disk.read_bytes(f"{folder}/link/a"),
        lambda: disk.size(f"{folder}/link"),
        lambda: disk.open(f"{folder}/link"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{folder}/link")
    disk.rmtree(f"{folder}/link")
    assert disk.listdir(folder) == []


def test_atomic_writes_replace_as_a_whole(place: tuple[Disk, str]) -> None:
    disk, folder = place
    disk.write_atomic(f"{folder}/a", b"long content")
    disk.write_atomic(f"{folder}/a", b"short")
    assert disk.read_bytes(f"{folder}/a") == b"short"
    assert disk.size(f"{folder}/a") == 5
    assert disk.listdir(folder) == ["a"]


def test_a_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, folder = place
    release = disk.lock(f"{folder}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{folder}/.lock")
    release()
    release()
    disk.lock(f"{folder}/.lock")()


def test_space_is_known(place: tuple[Disk, str]) -> None:
    disk, folder = place
    assert 0 < disk.free_bytes(folder) <= disk.total_bytes(folder)


def test_modification_times_are_wall_clock_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    os.utime(path, ns=(0, 1_234_567_890_123_000_000))
    assert OsDisk().modified_ms(str(path)) == 1_234_567_890_123


def test_a_lock_excludes_other_processes(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    attempt = f"from ottla.host.disk import OsDisk; OsDisk().lock({path!r})"
    release = OsDisk().lock(path)
    held = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    assert b"BlockingIOError" in held.stderr
    release()
    free = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    assert free.returncode == 0, free.stderr


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than asked, as when a signal comes: the rest follows."""
    whole = os.pwrite
    monkeypatch.setattr("ottla.host.disk._pwrite", lambda fd, data, at: whole(fd, data[:3], at))
    whole_vectors = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: whole_vectors(fd, [data[0][:1]], at))
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    assert file.append((b"0123456789",)) == 10
    assert file.append((b"abc", b"defgh")) == 8
    file.write_at(1, b"yyyyy")
    assert file.read_at(0, 100) == b"0yyyyy6789abcdefgh"
    file.close()


def test_an_append_after_a_failed_one_covers_the_torn_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OsDisk().open(str(tmp_path / "a"), create=True)
    file.append((b"good",))
    whole = os.pwrite
    calls: list[int] = []

    def failing(descriptor: int, data: bytes, position: int) -> int:
        calls.append(position)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")
        return whole(descriptor, data[:2], position)

    monkeypatch.setattr("ottla.host.disk._pwrite", failing)
    with pytest.raises(OSError):
        file.append((b"torn",))
    assert file.size() == 6
    monkeypatch.undo()
    file.append((b"!",))
    assert file.read_at(0, 5) == b"good!"
    file.close()


def test_a_failed_atomic_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, path = OsDisk(), str(tmp_path / "a")
    disk.write_atomic(path, b"old")

    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError):
        disk.write_atomic(path, b"new")
    assert disk.read_bytes(path) == b"old"
    assert disk.listdir(str(tmp_path)) == ["a"]
