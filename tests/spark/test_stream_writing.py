"""Rows of a streaming query must be in the topic in order, and twice only where that is documented.

Method: text files, one a micro-batch, streamed into a topic with a checkpoint. A query that starts
again continues. A query that had not committed its last micro-batch repeats it: its entry is
removed from the checkpoint, as if the driver had died between the write and the commit.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

LINES = 300
BEGIN_S = 1_700_000_000
WITHIN_SECONDS = 180


@pytest.fixture
def stream(spark: Any, cluster: Cluster, tmp_path: Path) -> Callable[..., Any]:
    """Stream all files that are new into a topic; return the query, which has ended."""

    def stream(topic: str, *columns: str, **options: str) -> Any:
        reader = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "in"))
        writer = reader.selectExpr(*columns or ("value",)).writeStream.format("ottla")
        writer = writer.option("topic", topic).options(**options)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WITHIN_SECONDS)
        return query

    (tmp_path / "in").mkdir()
    return stream


def add_file(tmp_path: Path, number: int) -> list[bytes]:
    """Add a file for a micro-batch; Spark takes files in the order of their times, in ms."""
    lines = [f"{number}-{line:04}" for line in range(LINES)]
    path = tmp_path / "in" / f"{number}.txt"
    # Spark must not see it with another time.
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("\n".join(lines))
    os.utime(hidden, (BEGIN_S + number, BEGIN_S + number))
    hidden.rename(path)
    return [line.encode() for line in lines]


def values(load: Callable[..., Any], topic: str, partition: int) -> list[bytes]:
    rows = load(topic).where(f"partition = {partition}").orderBy("offset").collect()
    return [bytes(row.value) for row in rows]


def test_each_row_once_in_order_over_a_restart_and_twice_after_a_failure(
    stream: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = make_topic(2)
    columns = ("value", "int(substring_index(value, '-', -1)) % 2 partition")
    written = [add_file(tmp_path, 0), add_file(tmp_path, 1)]
    query = stream(topic, *columns)
    assert sum(each.sink.numOutputRows for each in query.recentProgress) == 2 * LINES
    batches = {
        number: [row for lines in written for row in lines[number::2]] for number in range(2)
    }
    for number, expected in batches.items():
        assert values(load, topic, number) == expected
    # It continues from its checkpoint.
    third = add_file(tmp_path, 2)
    stream(topic, *columns)
    for number, expected in batches.items():
        assert values(load, topic, number) == expected + third[number::2]
    # The last micro-batch is written, and its commit is not recorded: it is repeated, only it.
    commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    stream(topic, *columns)
    for number, expected in batches.items():
        assert values(load, topic, number) == expected + 2 * third[number::2]


def test_columns(
    stream: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topic = make_topic()
    lines = add_file(tmp_path, 0)
    stream(
        topic,
        "value",
        "concat('k', value) key",
        "array(named_struct('key', 'h', 'value', binary(value))) headers",
        "timestamp_seconds(1700000000 + int(substring_index(value, '-', -1))) timestamp",
        **{"kafka.compression.type": "zstd"},
    )
    rows = load(topic, includeHeaders="true").orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == lines
    assert [bytes(row.key) for row in rows] == [b"k" + line for line in lines]
    headers = [[tuple(each) for each in row.headers] for row in rows]
    assert headers == [[("h", line)] for line in lines]
    times = [row.timestamp.astimezone(UTC) for row in rows]
    assert times == [datetime.fromtimestamp(1_700_000_000 + n, UTC) for n in range(LINES)]


def test_timestamps_that_cannot_be_written(
    stream: Callable[..., Any], make_topic: Callable[..., str], tmp_path: Path
) -> None:
    add_file(tmp_path, 0)
    early = "timestamp_seconds(-1) timestamp"
    with pytest.raises(Exception, match=r"timestamp 1969-12-31T23:59:59\+00:00: expected 1970"):
        stream(make_topic(), "value", early)
    limited = make_topic(message_timestamp_before_max_ms="1000")
    with pytest.raises(Exception, match=r"INVALID_TIMESTAMP"):
        stream(limited, "value", "timestamp_seconds(1) timestamp")
