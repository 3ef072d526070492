"""Every kind of store passes the checks of the port: directory, memory, S3, the simulator's model.

S3 is moto's server, a process of its own; the others run here.
"""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeVar

import boto3
import pytest
from obstore.store import MemoryStore

from ottla.base.object_store import Call, FileSource, ObjectStore, Pool, StoreError
from ottla.stores.file_backend import FileBackend
from ottla.stores.obstore_backend import ObstoreBackend, s3_store
from ottla.stores.uri import S3Uri
from ottla.testing.sim.object_store import ObjectStoreFaults, ObjectStoreModel
from ottla.testing.sim.scheduler import Process, Scheduler, SimClock
from tests.object_store_checks import CHECKS, SECONDS_MAX, Bench, Tool
from tests.unit.stores.moto_server import MotoServer
from tests.unit.stores.support import RealBench

T = TypeVar("T")

each_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])


@each_check
def test_a_directory(check: Callable[[Bench], None], tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    bench = RealBench(lambda: FileBackend(root), tmp_path)
    check(bench)
    bench.close()


@each_check
def test_memory(check: Callable[[Bench], None], tmp_path: Path) -> None:
    store = MemoryStore()
    bench = RealBench(lambda: ObstoreBackend(store), tmp_path)
    check(bench)
    bench.close()


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@each_check
def test_s3(
    check: Callable[[Bench], None],
    tmp_path: Path,
    moto: MotoServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    bucket = f"bucket-{secrets.token_hex(6)}"
    boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1").create_bucket(Bucket=bucket)
    uri = S3Uri(bucket=bucket, prefix="a/prefix", endpoint=moto.url, region="us-east-1")
    bench = RealBench(lambda: ObstoreBackend(s3_store(uri)), tmp_path)
    check(bench)
    bench.close()


class SimulatedBench:
    """Clients of the simulator's model, each in a process of its own, in virtual time."""

    def __init__(self, seed: int, faults: ObjectStoreFaults | None = None) -> None:
        self.failures: list[BaseException] = []
        self.scheduler = Scheduler(lambda name, error: self.failures.append(error))
        self.model = ObjectStoreModel(self.scheduler, Random(seed), faults)
        self.files: dict[str, bytes] = {}
        self.clock = SimClock(self.scheduler)
        self.processes: list[Process] = []

    def open(self) -> ObjectStore:
        process = Process(f"node {len(self.processes)}")
        process.held_until_us = 0
        self.processes.append(process)
        return self.model.client(process, clock=self.clock, read_file=self._read)

    def _read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "No such file", path)
        return self.files[path]

    def deadline(self, seconds: float = SECONDS_MAX) -> int:
        return self.clock.monotonic_ms() + int(seconds * 1000)

    def wait(self, call: Call[T]) -> T | StoreError:
        while not call.result.done:
            assert self.scheduler.now_ms < 1_000_000, "nothing is left that could answer"
            self.scheduler.run_until(self.scheduler.now_us + 1_000)
        assert not self.failures
        return call.result.value

    def file(self, data: bytes) -> FileSource:
        path = f"/data/{len(self.files)}"
        self.files[path] = data
        return FileSource(path, len(data))


@each_check
@pytest.mark.parametrize("seed", range(3))
def test_the_simulators_model(check: Callable[[Bench], None], seed: int) -> None:
    check(SimulatedBench(seed))


def tool_with(faults: ObjectStoreFaults, seed: int = 1) -> tuple[SimulatedBench, Tool]:
    bench = SimulatedBench(seed, faults)
    return bench, Tool(bench)


def drawn(make: Callable[[int], T], wanted: Callable[[T], bool]) -> T:
    """Return the first of 100 seeds' results that is as wanted."""
    return next(filter(wanted, map(make, range(100))))


def test_a_model_that_is_down_refuses_and_recovers() -> None:
    bench, tool = tool_with(ObjectStoreFaults(is_down=True))
    failure = tool.put("a", b"x")
    assert failure is not None
    assert bench.model.objects == {}
    bench.model.faults.is_down = False
    assert tool.put("a", b"x") is None


def test_a_lost_answer_was_executed() -> None:
    bench, tool = tool_with(ObjectStoreFaults(lost_answers=1.0))
    assert tool.put_if_absent("a", b"x") is not None
    assert bench.model.objects == {"a": b"x"}


def test_a_lie_stores_nothing() -> None:
    bench, tool = tool_with(ObjectStoreFaults(lies=1.0))
    assert tool.put("a", b"x") is None
    assert bench.model.objects == {}
    assert bench.model.history[0].fault == "lie"


def test_what_hangs_ends_at_the_deadline_and_may_be_executed() -> None:
    def made(seed: int) -> tuple[object, dict[str, bytes]]:
        bench, tool = tool_with(ObjectStoreFaults(hanging=1.0), seed)
        return tool.put("a", b"x"), dict(bench.model.objects)

    results = [made(seed) for seed in range(20)]
    assert {result for result, _ in results} == {next(iter(results))[0]}
    assert {len(objects) for _, objects in results} == {0, 1}


def test_a_dead_process_s_write_still_arrives() -> None:
    bench, tool = tool_with(ObjectStoreFaults())
    tool.store.put("a", b"x", pool=Pool.COPIER, deadline_ms=bench.deadline())
    bench.processes[0].alive = False
    bench.scheduler.run_until(1_000_000)
    assert bench.model.objects == {"a": b"x"}


def test_partial_deletes_name_what_failed() -> None:
    bench, tool = tool_with(ObjectStoreFaults(partial_deletes=1.0))
    names = [f"t/{number}" for number in range(20)]
    for name in names:
        tool.put(name, b"x")
    failed = tool.delete(*names)
    assert 0 < len(failed) < 20
    assert sorted(failed) == sorted(bench.model.objects)


def test_late_listings_show_the_past() -> None:
    bench, tool = tool_with(ObjectStoreFaults(list_lag_ms=5_000))
    tool.put("a", b"x")
    assert tool.names() == []
    while bench.scheduler.now_ms < 6_000:
        tool.head("a")
    assert tool.names() == ["a"]
    tool.delete("a")
    assert tool.names() == ["a"]


def test_one_seed_has_one_history() -> None:
    def history(seed: int) -> list[object]:
        faults = ObjectStoreFaults(slow=0.2, refused=0.2, hanging=0.1, lost_answers=0.2, lies=0.1)
        bench, tool = tool_with(faults, seed)
        for number in range(20):
            tool.put(f"t/{number % 5}", b"x")
            tool.put_if_absent(f"u/{number % 7}", b"y")
        return list(bench.model.history)

    assert history(4) == history(4)
    assert history(4) != history(5)
