"""The table that `ottla pipeline export` makes must be the topic, continued by each run.

Method: the command in this process and its Spark session; the table is read by Spark itself and
compared with the topic. One run is killed as a process of its own.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ottla.cli.main import main
from ottla.client.cluster import ClientConfig
from ottla.spark.jobs.export import ExportOptions, Source, export, exported
from ottla.testing import Cluster
from tests.spark.conftest import QUICK

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000
COLUMNS = ("partition", "offset", "key", "value", "timestamp", "timestampType", "topic", "headers")
KILLED_ROWS = 150_000
WITHIN_SECONDS = 90.0


def rows(frame: Any) -> list[str]:
    return sorted(map(str, frame.select(*COLUMNS).collect()))


@pytest.fixture
def run(
    spark: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Run the command; return its code, and its JSON or its error."""
    assert spark is not None

    def run(topic: str, to: Path, *words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(
            ["pipeline", "export", "--bootstrap-server", cluster.bootstrap, "--topic", topic,
             "--to", str(to), "--json", *words]
        )  # fmt: skip
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if not code else captured.err

    return run


def test_each_run_adds_what_is_new(
    spark: Any,
    run: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, to = make_topic(2), tmp_path / "table"
    times = [BEGIN_MS + number * DAY_MS // 100 for number in range(300)]
    for partition in range(2):
        messages = [(b"k%d" % number, b"v%d" % number) for number in range(300)]
        produce(topic, messages, partition=partition, timestamps=times, headers=[("h", b"x")])
    code, plan = run(topic, to, "--plan")
    assert (code, len(plan["plan"]["partitions"])) == (0, 2)
    assert not to.exists()
    code, first = run(topic, to)
    assert (code, first["rows"], first["recovered"]) == (0, 600, None)
    whole = load(topic, includeHeaders="true")
    table = spark.read.parquet(str(to))
    assert rows(table) == rows(whole)
    dates = {str(row.date) for row in table.select("date").distinct().collect()}
    assert dates == {"2023-11-14", "2023-11-15", "2023-11-16", "2023-11-17"}
    assert run(topic, to)[1]["run"] is None
    produce(topic, [(None, None), (b"", b"")], partition=1)
    assert run(topic, to)[1]["rows"] == 2
    assert rows(spark.read.parquet(str(to))) == rows(load(topic, includeHeaders="true"))
    assert rows(exported(spark, str(to))) == rows(load(topic, includeHeaders="true"))
    code, error = run(topic, to, "--partition-by", "none")
    assert (code, "the target has the partitioning date" in error) == (1, True)


def test_a_delta_table_is_that_of_the_package(
    run: Callable[..., Any],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, to = make_topic(1), tmp_path / "delta"
    versions = []
    for begin in (0, 100):
        times = [BEGIN_MS + number * DAY_MS // 50 for number in range(begin, begin + 100)]
        produce(
            topic, [(None, b"v%d" % each) for each in range(begin, begin + 100)], timestamps=times
        )
        assert run(topic, to, "--format", "delta")[1]["rows"] == 100
        table = DeltaTable(to)
        versions.append(table.version())
    assert versions[0] < versions[1]
    assert table.metadata().partition_columns == ["date"]
    found = table.to_pyarrow_table(columns=["offset", "value", "timestamp", "date"]).to_pylist()
    assert sorted((each["offset"], each["value"]) for each in found) == [
        (number, b"v%d" % number) for number in range(200)
    ]
    assert {each["timestamp"].date() == each["date"] for each in found} == {True}
    # What its first run added is a version of its own.
    former = DeltaTable(to, version=versions[0]).to_pyarrow_table(columns=["offset"])
    assert sorted(former["offset"].to_pylist()) == list(range(100))
    assert run(topic, to, "--format", "delta")[1]["run"] is None
    assert DeltaTable(to).version() == versions[1]


def test_a_run_that_is_killed(
    spark: Any,
    cluster: Cluster,
    load: Callable[..., Any],
    save: Callable[..., None],
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic, to = make_topic(2), tmp_path / "table"
    frame = spark.range(KILLED_ROWS).selectExpr(
        "cast(id as string) as key", "repeat('v', 99) value"
    )
    save(frame, topic)
    settings = " ".join(f"--conf {key}='{value}'" for key, value in QUICK.items())
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "pipeline", "export", "--bootstrap-server",
         cluster.bootstrap, "--topic", topic, "--to", str(to)],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + WITHIN_SECONDS
        while not list(to.glob("_ottla/journal/*.json")):
            assert process.poll() is None, "the export ended before it was killed"
            assert time.monotonic() < until, "the export did not begin"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    source = Source(topic=topic, cluster=ClientConfig(bootstrap=cluster.bootstrap))
    result = export(spark, ExportOptions(source=source, to=str(to)))
    assert result.recovered in ("discarded", "completed")
    table = spark.read.parquet(str(to))
    assert table.count() == KILLED_ROWS
    assert table.select("partition", "offset").distinct().count() == KILLED_ROWS
    assert load(topic).count() == KILLED_ROWS
