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
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

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


def iceberg_table(to: Path, topic: str) -> Any:
    catalog = SqlCatalog("ottla", uri=f"sqlite:///{to}/_ottla/catalog.db")
    with closing(catalog):
        return catalog.load_table(("ottla", topic.replace("-", "_")))


def test_an_iceberg_table_is_that_of_the_package(
    spark: Any,
    run: Callable[..., Any],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> None:
    topic, to = make_topic(2), tmp_path / "iceberg"
    runs, snapshots = [], []
    for begin in (0, 100):
        numbers = range(begin, begin + 100)
        times = [BEGIN_MS + number * DAY_MS // 50 for number in numbers]
        for partition in range(2):
            messages = [(None, b"v%d" % each) for each in numbers]
            produce(topic, messages, timestamps=times, partition=partition, headers=[("h", b"x")])
        code, result = run(topic, to, "--format", "iceberg")
        assert (code, result["rows"], result["to"]) == (0, 200, to.as_uri())
        runs.append(result["run"])
        snapshots.append(iceberg_table(to, topic).current_snapshot())
        # What is there already is not added again.
        assert run(topic, to, "--format", "iceberg")[1]["run"] is None
    table = iceberg_table(to, topic)
    assert [each.snapshot_id for each in table.snapshots()] == [
        each.snapshot_id for each in snapshots
    ]
    assert [each.summary["ottla.export.run"] for each in snapshots] == runs
    assert snapshots[-1].summary["ottla.export.offsets"] == '{"0":200,"1":200}'
    expected = [
        {
            "key": None,
            "value": b"v%d" % number,
            "topic": topic,
            "partition": partition,
            "offset": number,
            "timestamp": (time := at(number)),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}],
            "date": time.date(),
        }
        for partition in range(2)
        for number in range(200)
    ]
    assert in_order(table.scan()) == expected
    assert in_order(table.scan(snapshot_id=snapshots[0].snapshot_id)) == [
        each for each in expected if each["offset"] < 100
    ]
    # A date is one partition, of which alone files are read; so is what a timestamp leaves.
    day = expected[60]["date"]
    for chosen in (f"date = '{day}'", f"timestamp >= '{day}T00:00:00+00:00' and date <= '{day}'"):
        scan = table.scan(row_filter=chosen)
        assert in_order(scan) == [each for each in expected if each["date"] == day]
        assert {each.file.partition[0] for each in scan.plan_files()} == {days_since_1970(day)}
    assert exported(spark, str(to)).count() == len(expected)


def at(number: int) -> datetime:
    return datetime.fromtimestamp((BEGIN_MS + number * DAY_MS // 50) / 1000, UTC)


def days_since_1970(day: date) -> int:
    return (day - date(1970, 1, 1)).days


def in_order(scan: Any) -> list[Any]:
    found = scan.to_arrow().to_pylist()
    return sorted(found, key=lambda each: (each["partition"], each["offset"]))


@pytest.mark.forms(1)
@pytest.mark.parametrize("format_name", ["parquet", "iceberg"])
def test_a_run_that_is_killed(
    format_name: str,
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
         cluster.bootstrap, "--topic", topic, "--to", str(to), "--format", format_name],
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
    result = export(spark, ExportOptions(source=source, to=str(to), format=format_name))
    assert result.recovered in ("discarded", "completed")
    if format_name == "iceberg":
        offsets = iceberg_table(to, topic).scan(selected_fields=("partition", "offset")).to_arrow()
        table = spark.createDataFrame(offsets)
    else:
        table = spark.read.parquet(str(to))
    assert table.count() == KILLED_ROWS
    assert table.select("partition", "offset").distinct().count() == KILLED_ROWS
    assert load(topic).count() == KILLED_ROWS
