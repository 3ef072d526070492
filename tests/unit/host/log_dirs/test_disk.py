"""The disk port: the operating system's and the one in memory must behave alike.

Method: every check runs over both; what only one can do (short writes, locks between processes)
follows by itself.
"""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.base.ports import Disk
from ottla.host.log_dirs.disk import VECTORS_MAX, OsDisk, OsFile
from ottla.testing.disk import MemoryDisk


@pytest.fixture(params=["system", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disk, str]]:
    """A disk and an empty directory on it."""
    if request.param == "system":
        yield OsDisk(), str(tmp_path)
        return
    disk = MemoryDisk()
    disk.mkdir("/directory")
    yield disk, "/directory"


def test_appends_go_to_the_end_and_reads_are_positional(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/a", create=True)
    assert file.append((b"abc",)) == 3
    assert file.append((b"", bytearray(b"de"), memoryview(b"xfgx")[1:3])) == 4
    assert file.size() == 7
    assert file.read_at(0, 100) == b"abcdefg"
    assert file.read_at(5, 1) == b"f"
    assert file.read_at(7, 10) == b""
    assert file.fileno() >= 0
    file.close()
    again = disk.open(f"{directory}/a")
    again.append((b"h",))
    assert disk.read_bytes(f"{directory}/a") == b"abcdefgh"
    again.close()
    again.close()


def test_writes_in_place_do_not_move_the_end(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/a", create=True)
    file.append((b"0123456789",))
    file.write_at(2, b"xy")
    file.append((b"+",))
    assert file.read_at(0, 100) == b"01xy456789+"
    file.write_at(13, b"z")
    file.append((b"!",))
    assert file.read_at(0, 100) == b"01xy456789+\0\0z!"
    file.close()


def test_truncation_cuts_and_extends_and_appends_follow_it(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/a", create=True)
    file.append((b"0123456789",))
    file.truncate(4)
    file.append((b"x",))
    assert file.read_at(0, 100) == b"0123x"
    file.truncate(7)
    assert file.read_at(0, 100) == b"0123x\0\0"
    file.sync()
    file.close()


def test_a_closed_file_refuses(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/a", create=True)
    file.close()
    with pytest.raises(OSError):
        file.read_at(0, 1)
    with pytest.raises(OSError):
        file.append((b"x",))


def test_many_buffers_are_one_append(place: tuple[Disk, str]) -> None:
    disk, directory = place
    file = disk.open(f"{directory}/a", create=True)
    buffers = [b"%d," % number for number in range(2 * VECTORS_MAX + 3)]
    assert file.append(buffers) == sum(map(len, buffers))
    assert file.read_at(0, 1 << 20) == b"".join(buffers)
    file.close()


def test_missing_files_are_file_not_found(place: tuple[Disk, str]) -> None:
    disk, directory = place
    for attempt in (
        lambda: disk.open(f"{directory}/none"),
        lambda: disk.size(f"{directory}/none"),
        lambda: disk.modified_ms(f"{directory}/none"),
        lambda: disk.read_bytes(f"{directory}/none"),
        lambda: disk.listdir(f"{directory}/none"),
        lambda: disk.sync_dir(f"{directory}/none"),
        lambda: disk.rename(f"{directory}/none", f"{directory}/other"),
        lambda: disk.open(f"{directory}/none/a", create=True),
        lambda: disk.write_atomic(f"{directory}/none/a", b""),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    disk.remove(f"{directory}/none")
    disk.remove(f"{directory}/none/a")
    disk.rmtree(f"{directory}/none")
    assert not disk.exists(f"{directory}/none")
    assert not disk.is_dir(f"{directory}/none")


def test_a_file_that_cannot_be_looked_up_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    """A vote was forgotten because its file could not be read for a moment."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    memory = MemoryDisk()
    memory.fail("exists", errno.ELOOP)
    for disk in (OsDisk(), memory):
        with pytest.raises(OSError) as caught:
            disk.exists(str(loop))
        assert caught.value.errno == errno.ELOOP


def test_a_file_in_place_of_a_directory_is_not_a_directory(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.open(f"{directory}/a", create=True).close()
    disk.mkdir(f"{directory}/b/c")
    for attempt in (
        lambda: disk.open(f"{directory}/a/x", create=True),
        lambda: disk.size(f"{directory}/a/x"),
        lambda: disk.modified_ms(f"{directory}/a/x"),
        lambda: disk.read_bytes(f"{directory}/a/x"),
        lambda: disk.write_atomic(f"{directory}/a/x", b""),
        lambda: disk.listdir(f"{directory}/a"),
        lambda: disk.sync_dir(f"{directory}/a"),
        lambda: disk.mkdir(f"{directory}/a/x"),
        lambda: disk.remove(f"{directory}/a/x"),
        lambda: disk.rmtree(f"{directory}/a"),
        lambda: disk.rmtree(f"{directory}/a/x"),
        lambda: disk.rename(f"{directory}/a/x", f"{directory}/y"),
        lambda: disk.rename(f"{directory}/b", f"{directory}/a"),
    ):
        with pytest.raises(NotADirectoryError):
            attempt()
    assert not disk.exists(f"{directory}/a/x")
    assert not disk.is_dir(f"{directory}/a/x")
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{directory}/a")
    for replace in (
        lambda: disk.rename(f"{directory}/a", f"{directory}/b"),
        lambda: disk.write_atomic(f"{directory}/b", b""),
        lambda: disk.open(f"{directory}/b"),
        lambda: disk.read_bytes(f"{directory}/b"),
        lambda: disk.remove(f"{directory}/b"),
    ):
        with pytest.raises(IsADirectoryError):
            replace()
    assert disk.listdir(directory) == ["a", "b"]


def test_directories(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.mkdir(f"{directory}/b/c")
    disk.mkdir(f"{directory}/b/c")
    disk.open(f"{directory}/a", create=True).close()
    disk.open(f"{directory}/b/c/d", create=True).close()
    assert disk.listdir(directory) == ["a", "b"]
    assert disk.is_dir(f"{directory}/b")
    assert not disk.is_dir(f"{directory}/a")
    disk.sync_dir(f"{directory}/b")
    disk.rename(f"{directory}/b", f"{directory}/e")
    assert disk.exists(f"{directory}/e/c/d")
    disk.mkdir(f"{directory}/f/g")
    with pytest.raises(OSError) as caught:
        disk.rename(f"{directory}/e", f"{directory}/f")
    assert caught.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    disk.rmtree(f"{directory}/e")
    assert disk.listdir(directory) == ["a", "f"]


def test_a_rename_replaces_and_open_files_follow_their_content(place: tuple[Disk, str]) -> None:
    disk, directory = place
    old = disk.open(f"{directory}/old", create=True)
    old.append((b"old",))
    new = disk.open(f"{directory}/new", create=True)
    new.append((b"new!",))
    disk.rename(f"{directory}/new", f"{directory}/old")
    assert disk.listdir(directory) == ["old"]
    assert disk.read_bytes(f"{directory}/old") == b"new!"
    assert old.read_at(0, 10) == b"old"
    disk.remove(f"{directory}/old")
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
    disk, directory = place
    disk.mkdir(f"{directory}/there")
    disk.write_atomic(f"{directory}/there/a", b"data")
    link(disk, f"{directory}/link", f"{directory}/there")
    link(disk, f"{directory}/file", f"{directory}/there/a")
    assert disk.is_link(f"{directory}/link")
    assert not any(disk.is_link(f"{directory}/{each}") for each in ("there", "none", "there/a/x"))
    assert disk.exists(f"{directory}/link")
    assert disk.is_dir(f"{directory}/link")
    assert not disk.is_dir(f"{directory}/file")
    assert disk.listdir(f"{directory}/link") == ["a"]
    assert (disk.read_bytes(f"{directory}/link/a"), disk.size(f"{directory}/file")) == (b"data", 4)
    disk.mkdir(f"{directory}/link")
    disk.mkdir(f"{directory}/link/below")
    for create in (False, True):
        file = disk.open(f"{directory}/file", create=create)
        assert file.append((b"+",)) == 1
        file.close()
    disk.sync_dir(f"{directory}/link")
    disk.rename(f"{directory}/link", f"{directory}/renamed")
    disk.rmtree(f"{directory}/renamed")
    disk.remove(f"{directory}/file")
    assert disk.listdir(directory) == ["there"]
    assert disk.listdir(f"{directory}/there") == ["a", "below"]
    assert disk.read_bytes(f"{directory}/there/a") == b"data++"


def test_a_link_that_leads_nowhere_is_there_itself(place: tuple[Disk, str]) -> None:
    disk, directory = place
    link(disk, f"{directory}/link", f"{directory}/none")
    assert disk.is_link(f"{directory}/link")
    assert not disk.exists(f"{directory}/link")
    assert not disk.is_dir(f"{directory}/link")
    assert disk.listdir(directory) == ["link"]
    for attempt in (
        lambda: disk.listdir(f"{directory}/link"),
        lambda: disk.read_bytes(f"{directory}/link/a"),
        lambda: disk.size(f"{directory}/link"),
        lambda: disk.open(f"{directory}/link"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    with pytest.raises(FileExistsError):
        disk.mkdir(f"{directory}/link")
    disk.rmtree(f"{directory}/link")
    assert disk.listdir(directory) == []


def test_atomic_writes_replace_as_a_whole(place: tuple[Disk, str]) -> None:
    disk, directory = place
    disk.write_atomic(f"{directory}/a", b"long content")
    disk.write_atomic(f"{directory}/a", b"short")
    assert disk.read_bytes(f"{directory}/a") == b"short"
    assert disk.size(f"{directory}/a") == 5
    assert disk.listdir(directory) == ["a"]


def test_a_lock_has_one_holder(place: tuple[Disk, str]) -> None:
    disk, directory = place
    release = disk.lock(f"{directory}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{directory}/.lock")
    release()
    release()
    disk.lock(f"{directory}/.lock")()


def test_space_is_known(place: tuple[Disk, str]) -> None:
    disk, directory = place
    assert 0 < disk.free_bytes(directory) <= disk.total_bytes(directory)


def test_a_modification_time_that_was_set_stays_until_the_next_write(
    place: tuple[Disk, str],
) -> None:
    disk, directory = place
    path = f"{directory}/a"
    file = disk.open(path, create=True)
    file.append([b"x"])
    written_ms = disk.modified_ms(path)
    disk.set_modified_ms(path, 1_234_567_890_123)
    file.sync()
    disk.rename(path, f"{directory}/b")
    assert disk.modified_ms(f"{directory}/b") == 1_234_567_890_123
    file.append([b"y"])
    assert disk.modified_ms(f"{directory}/b") >= written_ms
    file.close()
    with pytest.raises(FileNotFoundError):
        disk.set_modified_ms(path, 1)


def test_modification_times_are_wall_clock_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    os.utime(path, ns=(0, 1_234_567_890_123_000_000))
    assert OsDisk().modified_ms(str(path)) == 1_234_567_890_123


def test_a_lock_excludes_other_processes(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    attempt = f"from ottla.host.log_dirs.disk import OsDisk; OsDisk().lock({path!r})"
    release = OsDisk().lock(path)
    held = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    assert b"BlockingIOError" in held.stderr
    release()
    free = subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False)
    assert free.returncode == 0, free.stderr


@pytest.mark.parametrize(
    "operation",
    [
        lambda file: file.read_at(0, 1),
        lambda file: file.append((b"x",)),
        lambda file: file.append((b"x", b"y")),
        lambda file: file.write_at(0, b"x"),
        lambda file: file.truncate(1),
        lambda file: file.sync(),
    ],
    ids=["read_at", "append", "append of two", "write_at", "truncate", "sync"],
)
def test_an_error_of_an_open_file_names_the_file(
    operation: Callable[[OsFile], object], tmp_path: Path
) -> None:
    """The system's error of a descriptor has no name; a full disk is found by it."""
    path = str(tmp_path / "a")
    file = OsDisk().open(path, create=True)
    file.close()
    with pytest.raises(OSError, match=rf"\[Errno {errno.EBADF}\] .*'{re.escape(path)}'"):
        operation(file)


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may write less than requested, as after a signal: the rest follows."""
    whole = os.pwrite
    monkeypatch.setattr(
        "ottla.host.log_dirs.disk._pwrite", lambda fd, data, at: whole(fd, data[:3], at)
    )
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

    monkeypatch.setattr("ottla.host.log_dirs.disk._pwrite", failing)
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
