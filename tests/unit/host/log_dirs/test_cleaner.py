"""Log cleanings in child processes: results, failures, early ends.

Method: a real log in a directory, real child processes, an event loop that the results come back
to.
"""

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.host.log_dirs import cleaner
from ottla.host.log_dirs.cleaner import COMMAND, ProcessRunner, cleaner_settings
from ottla.log.cleaner.cleaner_job import (
    CleanedSegment,
    CleanerDied,
    CleaningEnd,
    CleaningFailed,
    CleaningJob,
    SegmentPlan,
)
from ottla.log.cleaner.log_cleaner import Result
from ottla.metadata.node_config import NodeConfig
from ottla.records.builder import concatenate, encode_batch
from ottla.records.record import iter_records

TIMEOUT_S = 30


def make_job(path: Path, **changes: Any) -> CleaningJob:
    batches = [encode_batch([(b"k%d" % (n % 2), b"%d" % n, (), n)]) for n in range(10)]
    data = concatenate(batches, base_offset=0)
    (path / "00000000000000000000.log").write_bytes(data)
    job = CleaningJob(
        directory=str(path),
        token="t",
        groups=((SegmentPlan(0, 10, len(data)),),),
        first_dirty=0,
        now_ms=1_000,
        delete_retention_ms=1_000,
        map_bytes=1 << 20,
        map_load_factor=0.9,
        index_interval_bytes=4096,
        write_bytes=1 << 16,
        bytes_per_second=float("inf"),
    )
    return replace(job, **changes)


async def results_of(job: CleaningJob) -> list[Result]:
    runner = ProcessRunner(asyncio.get_running_loop())
    found: list[Result] = []
    over = asyncio.Event()

    def take(result: Result) -> None:
        found.append(result)
        if not isinstance(result, CleanedSegment):
            over.set()

    runner.run(job, take)
    await asyncio.wait_for(over.wait(), TIMEOUT_S)
    runner.close()
    return found


def test_a_cleaning_reports_its_segments_and_its_end(tmp_path: Path) -> None:
    segment, end = asyncio.run(results_of(make_job(tmp_path)))
    assert isinstance(segment, CleanedSegment)
    assert isinstance(end, CleaningEnd)
    assert (end.end_offset, end.records_kept) == (10, 2)
    data = (tmp_path / "00000000000000000000.log.t.tmp").read_bytes()
    assert [each.offset for each in iter_records(data)] == [8, 9]
    assert len(data) == segment.size


def test_failures_come_back_as_what_they_are(tmp_path: Path) -> None:
    missing = make_job(tmp_path, groups=((SegmentPlan(5, 10, 10),),))
    assert isinstance(asyncio.run(results_of(missing))[0], FileNotFoundError)
    damaged = make_job(tmp_path, groups=((SegmentPlan(0, 10, 100),),))
    assert isinstance(asyncio.run(results_of(damaged))[0], CleaningFailed)
    (fault,) = asyncio.run(results_of(make_job(tmp_path, map_load_factor=0.0)))
    assert isinstance(fault, ZeroDivisionError)
    assert "cleaner_rewrite.py" in "".join(traceback.format_exception(fault))


NO_MEMORY = """
from ottla.host.log_dirs import cleaner_process

def clean(*given):
    raise MemoryError

cleaner_process.clean = clean
cleaner_process.main()
"""
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize("code", [NO_MEMORY, KILLED], ids=["no memory", "killed"])
def test_a_process_for_want_of_memory_may_succeed_another_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(cleaner, "COMMAND", (sys.executable, "-P", "-c", code))
    (result,) = asyncio.run(results_of(make_job(tmp_path)))
    assert isinstance(result, CleanerDied)


def test_a_child_ends_when_its_broker_does(tmp_path: Path) -> None:
    """The pipe to its standard input closes, as it does when the broker is killed."""
    job = make_job(tmp_path, bytes_per_second=1.0)
    reading, writing = os.pipe()
    with subprocess.Popen(COMMAND, stdin=reading, stdout=subprocess.DEVNULL) as child:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(job, pipe)
            pipe.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.5)  # It is at work, and slow.
        assert child.wait(TIMEOUT_S) == 1
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_cleaning_that_is_given_up_is_killed(tmp_path: Path) -> None:
    async def run() -> None:
        runner = ProcessRunner(asyncio.get_running_loop())
        ended = asyncio.Event()
        cancel = runner.run(make_job(tmp_path, bytes_per_second=1.0), lambda result: ended.set())
        await asyncio.sleep(0)
        cancel()
        runner.close()
        assert not any(thread.is_alive() for thread in runner._threads)

    asyncio.run(run())


def test_a_process_that_cannot_be_started_is_no_failure_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an OSError of a log file, which takes the log directory offline."""
    monkeypatch.setattr(cleaner, "COMMAND", (str(tmp_path / "python"),))
    (result,) = asyncio.run(results_of(make_job(tmp_path)))
    assert isinstance(result, CleanerDied)


def test_a_cleaning_without_a_thread_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    (result,) = asyncio.run(results_of(make_job(tmp_path)))
    assert isinstance(result, CleanerDied)


def test_the_brokers_properties_become_settings() -> None:
    given = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "2@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "log.cleaner.threads": "3",
        "log.cleaner.backoff.ms": "7",
        "log.cleaner.dedupe.buffer.size": "9999999",
        "log.cleaner.io.max.bytes.per.second": "5000",
        "log.cleaner.io.buffer.size": "77",
    }
    settings = cleaner_settings(NodeConfig.parse(given).values)
    assert settings.enabled
    assert (settings.threads, settings.backoff_ms, settings.map_bytes) == (3, 7, 9_999_999)
    assert (settings.bytes_per_second, settings.write_bytes) == (5000, 77)
    none = cleaner_settings(NodeConfig.parse(given | {"log.cleaner.threads": "0"}).values)
    assert not none.enabled
