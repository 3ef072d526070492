"""A copy has the bytes of the file that was meant, whatever the kernel can do, or it fails.

Method: real files; the kernel's call is replaced where it must be short, refuse or fail.
"""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.object_store import Failure, FileSource
from ottla.stores import file_copies
from ottla.stores.backend import OperationFailed
from ottla.stores.file_copies import Check, copy_file, in_kernel, through_buffer

SIZES = [0, 1, 4095, 4096, 100_001]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces a file, of which some are synced; 40,000 is not a multiple of a piece."""
    monkeypatch.setattr(file_copies, "UNSYNCED_BYTES_MAX", 40_000)
    monkeypatch.setattr(file_copies, "PIECE_BYTES", 15_000)


def source_of(directory: Path, size: int) -> FileSource:
    path = directory / "source"
    path.write_bytes(random.Random(size).randbytes(size))
    return FileSource(str(path), size)


def copied(source: FileSource, directory: Path, check: Check = lambda: None) -> bytes:
    """Copy into a new file as a put does; return what it has."""
    target = directory / "target"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        copy_file(source, descriptor, check)
    finally:
        os.close(descriptor)
    return target.read_bytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("copy", [in_kernel, through_buffer])
def test_all_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: file_copies.Copy, size: int
) -> None:
    monkeypatch.setattr(file_copies, "FIRST", copy)
    source = source_of(tmp_path, size)
    assert copied(source, tmp_path) == Path(source.path).read_bytes()


def short(source: int, target: int, position: int, length: int) -> int:
    return in_kernel(source, target, position, min(length, 3_000))


def refusing(number: int, after: int) -> Callable[[int, int, int, int], int]:
    """Return a copy that fails at a position."""

    def copy(source: int, target: int, position: int, length: int) -> int:
        if position >= after:
            raise OSError(number, os.strerror(number))
        return in_kernel(source, target, position, min(length, after - position))

    return copy


def nothing(source: int, target: int, position: int, length: int) -> int:
    return 0


@pytest.mark.parametrize(
    "copy",
    [
        short,
        nothing,
        refusing(errno.EXDEV, 0),
        refusing(errno.ENOSYS, 0),
        refusing(errno.EOPNOTSUPP, 5_000),
        refusing(errno.EINVAL, 50_000),
    ],
)
def test_what_the_kernel_does_not_copy_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: file_copies.Copy
) -> None:
    monkeypatch.setattr(file_copies, "FIRST", copy)
    source = source_of(tmp_path, 100_001)
    assert copied(source, tmp_path) == Path(source.path).read_bytes()


def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        return write(descriptor, data[:1_000], position)

    monkeypatch.setattr(file_copies, "FIRST", through_buffer)
    monkeypatch.setattr(file_copies.os, "pwrite", pwrite)
    source = source_of(tmp_path, 20_001)
    assert copied(source, tmp_path) == Path(source.path).read_bytes()


def test_a_full_disk_is_an_error_and_no_reason_to_try_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def buffered(source: int, target: int, position: int, length: int) -> int:
        tried.append(position)
        return through_buffer(source, target, position, length)

    monkeypatch.setattr(file_copies, "through_buffer", buffered)
    monkeypatch.setattr(file_copies, "FIRST", refusing(errno.ENOSPC, 40_000))
    with pytest.raises(OSError, match="No space left"):
        copied(source_of(tmp_path, 100_001), tmp_path)
    assert not tried


@pytest.mark.parametrize("copy", [in_kernel, through_buffer])
def test_a_file_that_is_not_the_one_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: file_copies.Copy
) -> None:
    """Another size at the beginning, and one that becomes shorter during the copy."""
    monkeypatch.setattr(file_copies, "FIRST", copy)
    source = source_of(tmp_path, 100_001)
    for wrong in (100_000, 100_002):
        with pytest.raises(OperationFailed) as caught:
            copied(FileSource(source.path, wrong), tmp_path)
        assert caught.value.error.failure is Failure.SOURCE
        (tmp_path / "target").unlink()

    def cut_off(source: int, target: int, position: int, length: int) -> int:
        if position:
            os.truncate(tmp_path / "source", position)
        return copy(source, target, position, length)

    monkeypatch.setattr(file_copies, "FIRST", cut_off)
    with pytest.raises(OperationFailed, match="15000 bytes, not 100001"):
        copied(source, tmp_path)


def test_a_copy_that_is_given_up_ends_before_its_next_piece(tmp_path: Path) -> None:
    checks: list[None] = []

    def check() -> None:
        checks.append(None)
        if len(checks) == 3:
            raise OperationFailed(Failure.CANCELLED, "given up")

    with pytest.raises(OperationFailed, match="given up"):
        copied(source_of(tmp_path, 100_001), tmp_path, check)
    assert (tmp_path / "target").stat().st_size == 30_000


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed) as caught:
        copied(FileSource(str(tmp_path / "nothing"), 5), tmp_path)
    assert caught.value.error.failure is Failure.SOURCE


def test_pieces_are_short_and_what_waits_for_the_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces others get the core. Without syncs the kernel would delay all who write,
    once a share of the memory is dirty."""
    events: list[int] = []

    def noted(source: int, target: int, position: int, length: int) -> int:
        events.append(length)
        return in_kernel(source, target, position, length)

    monkeypatch.setattr(file_copies, "FIRST", noted)
    monkeypatch.setattr(file_copies.os, "fdatasync", lambda descriptor: events.append(-1))
    monkeypatch.setattr(file_copies.time, "sleep", lambda seconds: events.append(0))
    copied(source_of(tmp_path, 100_000), tmp_path)
    first = [15_000, 0, 15_000, 0, 10_000, -1]
    assert events == [*first, *first, 15_000, 0, 5_000]
