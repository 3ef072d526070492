"""Descriptors are divided so that connections cannot take those of files.

Method: the plan by table; the limit of this process is lowered to its open descriptors.
"""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from ottla.host.log_dirs.descriptors import (
    ACCEPTS_HELD,
    METADATA_FILES,
    NEEDED,
    OTHERS,
    SPARES_OF_OWNER,
    UNLIMITED,
    SocketBudget,
    SpareDescriptors,
    check_limit,
    plan,
    raise_limit,
)
from ottla.host.log_dirs.disk import OsDisk


@pytest.mark.parametrize("limit", [NEEDED, 256, 1024, 20_000, 1 << 20])
def test_the_parts_fit(limit: int) -> None:
    parts = plan(limit)
    others = METADATA_FILES + OTHERS + ACCEPTS_HELD * parts.accepts
    assert parts.log_files + parts.sockets + others <= limit
    assert parts.sockets > 0
    assert check_limit(limit) is None


def test_too_small_a_limit_is_named() -> None:
    fault = check_limit(NEEDED - 1)
    assert fault is not None
    assert str(NEEDED - 1) in fault
    assert str(NEEDED) in fault


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1024), None),
        ((1024, 1 << 30), (UNLIMITED, 1 << 30)),
        ((1024, resource.RLIM_INFINITY), (UNLIMITED, resource.RLIM_INFINITY)),
        ((1 << 20, 1 << 30), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_the_soft_limit_is_raised(
    limits: tuple[int, int], raised: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, wanted: found.append(wanted))
    raise_limit()
    assert found == ([] if raised is None else [raised])


def test_sockets_are_counted() -> None:
    budget = SocketBudget(2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    budget.give_back()
    assert budget.take()


@contextmanager
def none_left() -> Iterator[None]:
    """Use up all descriptors but for none, with little work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        # A limit is one of numbers: not below those that are in use.
        highest = max(int(number) for number in os.listdir("/dev/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, highest + 20), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while True:
            try:
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield


def uses(disk: OsDisk, directory: str) -> dict[str, Callable[[], object]]:
    return {
        "open": lambda: disk.open(f"{directory}/new", create=True).close(),
        "read": lambda: disk.read_bytes(f"{directory}/old"),
        "write": lambda: disk.write_atomic(f"{directory}/other", b"x"),
        "sync": lambda: disk.sync_dir(directory),
        "lock": lambda: disk.lock(f"{directory}/lock")(),
        "list": lambda: disk.listdir(directory),
    }


@pytest.mark.parametrize("name", ["open", "read", "write", "sync", "lock", "list"])
def test_the_disk_has_spare_descriptors(name: str, tmp_path: Path) -> None:
    disk = OsDisk()
    disk.write_atomic(f"{tmp_path}/old", b"x")
    act = uses(disk, str(tmp_path))[name]
    with none_left():
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        act()
    assert disk.spares.used > 0
    disk.spares.close()


def test_spares_are_set_aside_again_and_run_out() -> None:
    spares = SpareDescriptors(2)

    def open_one() -> int:
        return spares.opening(lambda: os.open(os.devnull, os.O_RDONLY))

    with none_left():
        held = [open_one(), open_one()]
        with pytest.raises(OSError, match="Too many open files"):
            open_one()
    held.append(open_one())
    with none_left():
        held += [open_one(), open_one()]
    for each in held:
        os.close(each)
    spares.close()


def test_a_file_that_stays_open_takes_no_spare(tmp_path: Path) -> None:
    disk = OsDisk()
    with none_left(), pytest.raises(OSError, match="Too many open files"):
        disk.open(f"{tmp_path}/new", create=True, spare=False)
    assert disk.spares.used == 0
    disk.spares.close()


def test_other_threads_wait_for_a_descriptor_and_leave_some_to_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spares = SpareDescriptors(SPARES_OF_OWNER)
    opened: list[int] = []
    tried = Event()

    def open_it() -> int:
        try:
            return os.open(os.devnull, os.O_RDONLY)
        finally:
            tried.set()

    worker = Thread(target=lambda: opened.append(spares.opening(open_it)))
    with none_left():
        worker.start()
        assert tried.wait(10)
        held = [spares.opening(open_it) for _ in range(SPARES_OF_OWNER)]
        assert not opened
        os.close(held.pop())
        worker.join(10)
    assert len(opened) == 1
    assert len(caplog.messages) == 1, "one line a minute"
    assert "raise the limit (ulimit -n)" in caplog.text
    for each in (*held, *opened):
        os.close(each)
    spares.close()


def test_other_errors_are_not_tried_again() -> None:
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        raise FileNotFoundError(errno.ENOENT, "no")

    spares = SpareDescriptors(1)
    with pytest.raises(FileNotFoundError):
        spares.opening(fail)
    assert calls == 1
    spares.close()
