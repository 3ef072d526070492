"""A topic as a stream: all rows once, through restarts, limits, new partitions and new topics.

Method: queries that write Parquet with a checkpoint, started again and again; rows are compared
with what was produced. Failures at every point: `test_streaming_failures`; tiers: `test_tiered`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from ottla.cli.main import main
from ottla.testing import Cluster

pytestmark = pytest.mark.spark

Row = tuple[int, int, bytes]


class Streams:
    """Queries from one topic into one directory."""

    def __init__(self, spark: Any, cluster: Cluster, topic: str, directory: Path) -> None:
        self.spark = spark
        self.topic = topic
        self.directory = directory
        self.options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}

    def start(self, *, schema: str | None = None, trigger: Any = None, **options: str) -> Any:
        reader = self.spark.readStream.format("ottla")
        for name, value in (self.options | options).items():
            reader = reader.option(name.replace("__", "."), value)
        if schema is not None:
            reader = reader.schema(schema)
        writer = reader.load().writeStream.format("parquet")
        writer = writer.option("path", str(self.directory / "rows"))
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, **options: Any) -> list[int]:
        """Read what there is now; return the number of rows of each batch."""
        query = self.start(**options)
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def rows(self) -> list[Row]:
        found = self.spark.read.parquet(str(self.directory / "rows")).collect()
        return sorted((each.partition, each.offset, bytes(each.value)) for each in found)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    return make_topic(2)


@pytest.fixture
def streams(spark: Any, cluster: Cluster, topic: str, tmp_path: Path) -> Streams:
    return Streams(spark, cluster, topic, tmp_path)


@pytest.fixture
def write(topic: str, produce: Callable[..., None]) -> Callable[..., list[Row]]:
    """Append records to a partition; return all rows of the topic."""
    counts: dict[int, int] = {}

    def write(partition: int, count: int) -> list[Row]:
        begin = counts.get(partition, 0)
        numbers = range(begin, begin + count)
        produce(topic, [(b"k", b"%d" % each) for each in numbers], partition=partition)
        counts[partition] = numbers.stop
        return [
            (number, offset, b"%d" % offset)
            for number, end in sorted(counts.items())
            for offset in range(end)
        ]

    return write


def lags(cluster: Cluster, group: str, capsys: pytest.CaptureFixture[str]) -> dict[int, list[str]]:
    """Return committed offset, log end offset and lag of each partition, as the command shows."""
    capsys.readouterr()
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe", "--group", group]
    assert main(["consumer-groups", *arguments]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    return {int(line[2]): line[3:6] for line in lines if line[0] == group}


def test_a_stream_goes_on_where_it_ended(
    streams: Streams,
    cluster: Cluster,
    topic: str,
    admin: AdminClient,
    write: Callable[..., list[Row]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(0, 300)
    rows = write(1, 100)
    options = {"maxOffsetsPerTrigger": "160", "commitGroup": f"lag-{topic}"}
    assert streams.run(startingOffsets="earliest", **options) == [160, 160, 80]
    assert streams.rows() == rows
    assert lags(cluster, f"lag-{topic}", capsys) == {0: ["300", "300", "0"], 1: ["100", "100", "0"]}
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    write(0, 5)
    rows = write(2, 7)
    lag = lags(cluster, f"lag-{topic}", capsys)
    assert (lag[0], lag[1]) == (["300", "305", "5"], ["100", "100", "0"])
    # Where a stream starts is of no interest once it has a checkpoint.
    assert streams.run(startingOffsets="latest", **options) == [12]
    assert streams.rows() == rows
    assert lags(cluster, f"lag-{topic}", capsys)[2] == ["7", "7", "0"]


def test_a_topic_that_is_re_created(
    streams: Streams, topic: str, admin: AdminClient, produce: Callable[..., None]
) -> None:
    produce(topic, [(None, b"old")] * 10, partition=0)
    assert streams.run(startingOffsets="earliest") == [10]
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    # Longer than before: offsets alone would not tell.
    produce(topic, [(None, b"new")] * 25, partition=0)
    with pytest.raises(Exception, match=f"{topic}: the topic was deleted and re-created"):
        streams.run()
    assert streams.run(onRecreate="restart") == [25]
    values = [value for _, _, value in streams.rows()]
    assert (values.count(b"old"), values.count(b"new")) == (10, 25)


def test_a_running_stream_of_some_columns(
    streams: Streams, write: Callable[..., list[Row]]
) -> None:
    write(0, 10)
    query = streams.start(
        schema="offset long, partition int, value binary", trigger={"processingTime": "0 seconds"}
    )
    try:
        query.processAllAvailable()  # The stream begins at the latest offsets.
        for partition, count in ((0, 20), (1, 5)):
            rows = write(partition, count)
            query.processAllAvailable()
        progress = query.lastProgress["sources"][0]
    finally:
        query.stop()
    assert streams.rows() == [each for each in rows if each[:2] >= (0, 10)]
    assert progress["latestOffset"] == progress["endOffset"]
    found = streams.spark.read.parquet(str(streams.directory / "rows"))
    assert sorted(found.columns) == ["offset", "partition", "value"]


def test_batches_are_as_large_as_so_many_bytes(
    streams: Streams, write: Callable[..., list[Row]]
) -> None:
    for _ in range(10):
        rows = write(0, 100)
    # A record takes about 10 bytes, as the broker's log does in all.
    batches = streams.run(startingOffsets="earliest", maxBytesPerTrigger="5000")
    assert streams.rows() == rows
    assert len(batches) > 1
    assert max(batches) < 1000
