"""Operations share threads one after the other, and none waits for one that hangs."""

import gc
import threading
import time
import weakref

import pytest

from ottla.stores import daemon_threads
from ottla.stores.daemon_threads import DaemonThreads

NAME = "test-daemon"
SECONDS_MAX = 30.0


def count() -> int:
    return sum(each.name == NAME for each in threading.enumerate())


def wait_for_count(wanted: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while count() != wanted:
        assert time.monotonic() < until, count()
        time.sleep(0.005)


def run(threads: DaemonThreads) -> None:
    """Run something, and wait for its end and for the thread to be idle."""
    done = threading.Event()
    threads.run(done.set)
    assert done.wait(SECONDS_MAX)
    until = time.monotonic() + SECONDS_MAX
    while not threads._idle:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_count(0)
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS_MAX", 0.2)


def test_an_idle_thread_is_used_again_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS_MAX", SECONDS_MAX)
    threads = DaemonThreads(NAME)
    for _ in range(20):
        run(threads)
        assert count() == 1
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS_MAX", 0.05)
    run(threads)
    wait_for_count(0)
    assert threads._idle == []
    run(threads)
    assert all(each.daemon for each in threading.enumerate() if each.name == NAME)
    wait_for_count(0)


def test_what_hangs_holds_up_nothing() -> None:
    threads = DaemonThreads(NAME)
    release = threading.Event()
    for _ in range(5):
        threads.run(lambda: release.wait(SECONDS_MAX) and None)
    run(threads)
    assert count() == 6
    release.set()
    wait_for_count(0)


def test_an_idle_thread_keeps_nothing_of_its_last_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS_MAX", 1.0)

    class Content:
        def use(self) -> None:
            """Do nothing."""

    threads = DaemonThreads(NAME)
    content = Content()
    kept = weakref.ref(content)
    threads.run(content.use)
    del content
    run(threads)
    run(threads)
    gc.collect()
    assert kept() is None
    wait_for_count(0)


def test_work_that_comes_as_a_thread_ends_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_threads, "IDLE_SECONDS_MAX", 0.0)
    threads = DaemonThreads(NAME)
    done = threading.Semaphore(0)
    for _ in range(500):
        threads.run(lambda: done.release())
    for _ in range(500):
        assert done.acquire(timeout=SECONDS_MAX)
    wait_for_count(0)
