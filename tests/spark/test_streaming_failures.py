"""A stream that fails at any point, or whose driver is killed there, loses and repeats nothing.

Method: a chain of failures of one query with a file sink and a checkpoint; before each start more
records are produced, and batches are small, so that each run has several. A failure is a call of
the stream reader that raises: then the query stops there and is started again in the same Spark
session. Or it is a driver of its own that gets SIGKILL: by the reader itself at a call, or from
outside as soon as Spark has written a file (its log of offsets, rows, the sink's log, its log of
commits). The rows that the sink has at the end are compared with the topic's. Each run draws a few
failures and one kill; `make soak` plays them all.

The query starts at the latest offsets: its first batch must begin where it was planned to begin,
although it is repeated when the topic is longer.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException

from ottla.testing import Cluster
from tests.drawn import FAULT_ROUNDS, drawn
from tests.spark.failing_source import FailingSource
from tests.spark.streaming_driver import query

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

PARTITIONS = 2
RECORDS = 400
PER_BATCH = 100
DRIVER_SECONDS = 180.0


class Point(NamedTuple):
    """Where a run fails: at the n-th call, before or after it; or when a file is written."""

    call: str
    when: str
    nth: int

    def __str__(self) -> str:
        return "-".join(map(str, self))


FIRST = [Point("initialOffset", when, 1) for when in ("before", "after")]
"""Spark calls it while no batch was committed."""
BEGUN = Point("latestOffset", "after", 2)
"""Then the first batch, which has no records, is committed; those after it have."""
JOURNALLED = Point("checkpoint/offsets", "written", 1)
"""Then the first batch is planned, and most likely not committed."""
CALLS = [
    *(Point("prepare", when, 1) for when in ("before", "after")),
    *(Point("latestOffset", when, nth) for when in ("before", "after") for nth in (1, 2, 3)),
    *(Point("partitions", when, nth) for when in ("before", "after") for nth in (1, 2, 3)),
    *(Point("read", when, nth) for when in ("before", "middle", "after") for nth in (1, 2, 3, 4)),
    *(Point("commit", when, nth) for when in ("before", "after") for nth in (1, 2)),
]
WRITTEN = [
    Point(name, "written", nth)
    for name in ("checkpoint/offsets", "rows", "rows/_spark_metadata", "checkpoint/commits")
    for nth in (1, 2, 3)
]


class Chain:
    """One query with its topic, its checkpoint and its rows, and its failures."""

    def __init__(self, cluster: Cluster, topic: str, directory: Path, produce: Any) -> None:
        self.topic = topic
        self.directory = directory
        self.produced = [0] * PARTITIONS
        self.reached: list[Point] = []
        self.begins: dict[str, int] = {}
        self.spec: dict[str, Any] = {
            "directory": str(directory),
            "options": {
                "kafka.bootstrap.servers": cluster.bootstrap,
                "subscribe": topic,
                "maxOffsetsPerTrigger": str(PER_BATCH),
            },
        }
        self._produce = produce

    def produce_more(self) -> None:
        for partition in range(PARTITIONS):
            begin = self.produced[partition]
            numbers = range(begin, begin + RECORDS // PARTITIONS)
            self._produce(
                self.topic, [(None, b"%d" % each) for each in numbers], partition=partition
            )
            self.produced[partition] = numbers.stop

    def failure(self, point: Point) -> dict[str, Any]:
        counters = self.directory / f"run-{time.monotonic_ns()}"
        counters.mkdir(parents=True)
        return {**point._asdict(), "counters": str(counters)}

    def fail(self, spark: Any, point: Point) -> None:
        """Run the query in this session until a call raises."""
        self.produce_more()
        failure = self.failure(point)
        running = query(spark, self.spec, failure)
        with pytest.raises(StreamingQueryException):
            running.awaitTermination()
        calls = Path(failure["counters"]) / f"{point.call}-{point.when}"
        assert calls.stat().st_size >= point.nth, f"{point} was not reached"
        self.failed(point)

    def kill(self, point: Point) -> None:
        """Run the query in a driver of its own until it is killed."""
        self.produce_more()
        failure = self.failure(point)
        is_outside = point.when == "written"
        before = set(self.written(point)) if is_outside else set()
        if is_outside:
            failure["call"] = ""
        command = [sys.executable, "-m", "tests.spark.streaming_driver"]
        arguments = [json.dumps(self.spec), json.dumps(failure)]
        with (self.directory / "drivers.log").open("ab") as log:
            driver = subprocess.Popen(
                [*command, *arguments],
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdout=log,
                stderr=log,
            )
        pids: list[int] = []
        try:
            if is_outside:
                pids = self.wait_for_files(driver, point, before, Path(failure["counters"]))
            code = driver.wait(DRIVER_SECONDS)
        finally:
            for pid in pids or [driver.pid]:
                kill(pid)
            driver.wait()
        log_text = (self.directory / "drivers.log").read_text()
        assert code == -signal.SIGKILL, f"{point} was not reached: {log_text[-2000:]}"
        self.failed(point)

    def failed(self, point: Point) -> None:
        """Note that a point was reached, and where the stream has begun, once that is known."""
        self.reached.append(point)
        first = self.directory / "checkpoint/offsets/0"
        if not self.begins and first.exists():
            position = json.loads(first.read_text().splitlines()[-1])
            self.begins = position["t"][self.topic]["b"]

    def wait_for_files(
        self, driver: Any, point: Point, before: set[Path], counters: Path
    ) -> list[int]:
        """Wait until so many new files are written, then kill the driver."""
        deadline = time.monotonic() + DRIVER_SECONDS
        while len(set(self.written(point)) - before) < point.nth:
            assert time.monotonic() < deadline, f"{point} is late"
            assert driver.poll() is None, f"{point} was not reached"
            time.sleep(0.001)
        pids: list[int] = json.loads((counters / "pids").read_text())
        for pid in pids:
            kill(pid)
        return pids

    def written(self, point: Point) -> Iterator[Path]:
        for path in (self.directory / point.call).glob("*"):
            if path.name.split(".")[0].isdecimal() or path.name.startswith("part-"):
                yield path

    def finish(self, spark: Any) -> None:
        """Read the rest, and compare all rows with the topic."""
        self.produce_more()
        self.spec["options"]["maxOffsetsPerTrigger"] = "10000"
        query(spark, self.spec, self.failure(Point("", "", 0))).awaitTermination()
        rows = spark.read.parquet(str(self.directory / "rows")).collect()
        found = sorted((each.partition, each.offset, int(bytes(each.value))) for each in rows)
        assert found == [
            (partition, offset, offset)
            for partition in range(PARTITIONS)
            for offset in range(self.begins[str(partition)], self.produced[partition])
        ]


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def chain(
    spark: Any,
    cluster: Cluster,
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> Chain:
    spark.dataSource.register(FailingSource)
    return Chain(cluster, make_topic(PARTITIONS), tmp_path, produce)


@pytest.mark.drawn(1, of="long tests of Spark")
def test_failures_and_a_killed_driver(spark: Any, chain: Chain) -> None:
    calls = [*drawn(FIRST, 1, FAULT_ROUNDS), BEGUN, *drawn(CALLS, 2, FAULT_ROUNDS)]
    [killed_at] = drawn([*CALLS, *WRITTEN], 1, "", name="killed")
    for point in calls:
        chain.fail(spark, point)
    chain.kill(killed_at)
    chain.finish(spark)
    assert chain.reached == [*calls, killed_at]


@pytest.mark.soak(FAULT_ROUNDS)
def test_killed_drivers(spark: Any, chain: Chain) -> None:
    points = [*FIRST, JOURNALLED, *CALLS, *WRITTEN]
    assert len(points) >= 40
    for point in points:
        chain.kill(point)
        print(f"killed at {point}", flush=True)
    chain.finish(spark)
    assert chain.reached == points
