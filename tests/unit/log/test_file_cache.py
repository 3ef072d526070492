"""The bound on open files: least recently used goes first, pinned ones stay; slices are bounded.

Method: a disk in memory counts what is open, and may run out of descriptors.
"""

import errno
import sys

import pytest

from ottla.base.limits import COPIED_BYTES_MAX
from ottla.log.file_cache import FileCache, FileSlice, Handle, OutOfDescriptors, SliceCopy
from ottla.testing.disk import MemoryDisk


def cache(capacity: int) -> tuple[MemoryDisk, FileCache]:
    disk = MemoryDisk()
    disk.mkdir("/d")
    for name in "abcdef":
        disk.write_atomic(f"/d/{name}", name.encode())
    return disk, FileCache(disk, capacity)


def test_files_open_once_and_the_oldest_closes() -> None:
    disk, files = cache(2)
    a, b, c = (files.handle(f"/d/{name}") for name in "abc")
    first = a.file()
    assert a.file() is first
    b.file()
    a.file()
    c.file()
    assert (a.is_open, b.is_open, c.is_open) == (True, False, True)
    assert disk.open_files == len(files) == 2
    assert b.file().read_at(0, 1) == b"b"
    assert not a.is_open


def test_pinned_files_outlive_the_bound() -> None:
    disk, files = cache(2)
    handles = [files.handle(f"/d/{name}") for name in "abcdef"]
    for handle in handles[:3]:
        handle.pin()
    handles[3].file()
    assert [handle.is_open for handle in handles] == [True, True, True, True, False, False]
    handles[4].file()
    assert not handles[3].is_open
    for handle in handles[:3]:
        handle.unpin()
    handles[5].file()
    assert disk.open_files == len(files) == 2, "within the bound again"


def test_to_open_a_file_looks_at_no_pinned_ones() -> None:
    """A flush of thousands of logs would else take a walk over all their files for each."""
    disk, files = cache(2)
    for number in range(1_000):
        disk.write_atomic(f"/d/{number}", b"")
    handles = [files.handle(f"/d/{number}") for number in range(1_000)]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        for handle in handles:
            handle.pin()
    finally:
        sys.setprofile(None)
    assert len(files) == 1_000
    assert calls < 1_000 * 100


def test_a_pinned_file_closes_with_its_last_pin() -> None:
    _, files = cache(2)
    a = files.handle("/d/a")
    file = a.pin()
    a.pin()
    a.close()
    assert a.is_open
    a.unpin()
    assert file.read_at(0, 1) == b"a"
    a.unpin()
    assert not a.is_open
    assert a.file().read_at(0, 1) == b"a"
    a.close()
    a.close()
    assert len(files) == 0


def test_a_handle_follows_a_rename_open_or_not() -> None:
    disk, files = cache(2)
    a, b = files.handle("/d/a"), files.handle("/d/b")
    a.file()
    disk.rename("/d", "/e")
    a.moved("/e/a")
    b.moved("/e/b")
    assert a.file().path == "/e/a"
    assert b.file().read_at(0, 1) == b"b"


def test_missing_files_leave_no_trace() -> None:
    disk, files = cache(2)
    with pytest.raises(FileNotFoundError):
        files.handle("/d/none").file()
    assert len(files) == 0
    assert files.handle("/d/new").file(create=True).size() == 0
    assert disk.open_files == 1


def test_slices_pin_until_released() -> None:
    disk, files = cache(1)
    a, b = files.handle("/d/a"), files.handle("/d/b")
    piece = FileSlice(a, 0, 1)
    b.file()
    assert a.is_open
    assert len(piece) == piece.length == 1
    disk.remove("/d/a")
    a.close()
    assert piece.read() == b"a"
    piece.release()
    piece.release()
    assert not a.is_open


def handles_of(files: FileCache, names: str = "abcdef") -> list[Handle]:
    return [files.handle(f"/d/{name}") for name in names]


def test_slices_pin_half_of_the_files_and_others_are_copied() -> None:
    disk, files = cache(4)
    handles = handles_of(files)
    pieces = [files.slice(handle, 0, 1, 1) for handle in handles]
    assert [type(piece) for piece in pieces] == [FileSlice] * 2 + [SliceCopy] * 4
    assert [piece.read() for piece in pieces] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [piece.length for piece in pieces] == [1] * 6
    assert isinstance(files.slice(handles[0], 0, 1, 1), FileSlice), "it is open in any case"
    assert disk.open_files_max <= 4
    for piece in pieces:
        piece.release()
    assert isinstance(files.slice(handles[5], 0, 1, 1), FileSlice)


def test_a_copy_is_short_but_has_its_first_batch() -> None:
    disk, files = cache(1)
    disk.write_atomic("/d/a", bytes(2 * COPIED_BYTES_MAX))
    [a] = handles_of(files, "a")
    assert files.slice(a, 0, 2 * COPIED_BYTES_MAX, 10).length == COPIED_BYTES_MAX
    assert files.slice(a, 9, 2 * COPIED_BYTES_MAX - 9, COPIED_BYTES_MAX + 1).length == (
        COPIED_BYTES_MAX + 1
    )


def test_idle_files_are_closed_where_the_process_has_no_more_descriptors() -> None:
    disk, files = cache(6)
    handles = handles_of(files)
    for handle in handles[:4]:
        handle.file()
    disk.descriptors = 4
    assert handles[4].file().read_at(0, 1) == b"e"
    assert [handle.is_open for handle in handles] == [False, False, True, True, True, False]
    assert isinstance(files.slice(handles[5], 0, 1, 1), FileSlice)


def test_without_any_descriptor_files_are_read_one_at_a_time_and_not_pinned() -> None:
    disk, files = cache(20)
    handles = handles_of(files)
    held = [files.slice(handle, 0, 1, 1) for handle in handles[:2]]
    disk.descriptors = 2
    for handle, content in zip(handles[2:], [b"c", b"d", b"e", b"f"], strict=True):
        piece = files.slice(handle, 0, 1, 1)
        assert isinstance(piece, SliceCopy)
        assert piece.read() == content
        with pytest.raises(OutOfDescriptors, match="No file descriptor is left to open /d/"):
            handle.pin()
        assert disk.open_files <= 3
    held[0].release()
    assert isinstance(files.slice(handles[5], 0, 1, 1), FileSlice)


def test_other_errors_than_a_shortage_are_raised_as_they_are() -> None:
    disk, files = cache(2)
    handles = handles_of(files)
    handles[0].file()
    disk.fail("open", errno.EIO, times=2)
    for use in (handles[1].file, handles[1].pin):
        with pytest.raises(OSError, match="open failed"):
            use()
    assert handles[0].is_open
