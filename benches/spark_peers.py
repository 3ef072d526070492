"""What tiered reads are measured beside: Spark's connector, a consumer, ready batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from clients import batches, new_consumer
from maven_jars import jars_of
from scanned_topics import PARTITIONS

# pyspark is not type-checked, hence its classes are Any to mypy.
# mypy: disable-error-code="misc"

CONNECTOR = "connector"
CONNECTOR_JARS = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
"""Of what Maven brings, the jars that Spark does not have."""
BATCH_ROWS = 16_384
"""Rows of a ready batch: about as many as a read of the topic yields at once."""


def connector_jars() -> str:
    """Return the value of `spark.jars` for Spark's own Kafka connector. Raises: NoJarsError."""
    found: list[Path] = sorted(jars_of(CONNECTOR).glob("*.jar"))
    return ",".join(str(each) for each in found if each.name.startswith(CONNECTOR_JARS))


def consume(bootstrap: str, topic: str, ends: dict[int, int]) -> None:
    """Read up to some offsets with confluent-kafka, and drop the messages."""
    partitions = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    consumer = new_consumer(bootstrap, partitions)
    left = sum(ends.values())
    while left > 0:
        messages = next(batches(consumer, left))
        left -= sum(each.offset() < ends[each.partition()] for each in messages)
    consumer.close()


class ReadyBatches(DataSource):
    """The ceiling of any source in Python: batches that are ready before the clock starts.

    Options: `bytes` of a value, `rows`, `tasks`; the columns are those of a topic.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ready"

    def schema(self) -> str:
        """Return the columns of a topic."""
        return (
            "key binary, value binary, topic string, partition int, offset long, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: Any) -> "ReadyReader":
        """Return the reader."""
        del schema
        options = self.options
        return ReadyReader(int(options["bytes"]), int(options["rows"]), int(options["tasks"]))


class ReadyReader(DataSourceReader):
    """Yields one batch again and again."""

    def __init__(self, size_bytes: int, rows: int, tasks: int) -> None:
        self.size_bytes, self.rows, self.tasks = size_bytes, rows, tasks

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        return [InputPartition(number) for number in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's share."""
        share = self.rows // self.tasks
        if partition.value == 0:
            share += self.rows % self.tasks
        batch = ready_batch(self.size_bytes, min(BATCH_ROWS, share))
        while share > 0:
            some = batch if share >= batch.num_rows else batch.slice(0, share)
            share -= some.num_rows
            yield some


def ready_batch(size_bytes: int, rows: int) -> pa.RecordBatch:
    """Return records as `fill` writes them."""
    value = b"x" * (size_bytes - 13)
    columns: list[pa.Array[Any]] = [
        pa.array([b"key-%09d" % number for number in range(rows)], pa.binary()),
        pa.array([value] * rows, pa.binary()),
        pa.array(["topic"] * rows, pa.string()),
        pa.array([0] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", "UTC")),
        pa.array([0] * rows, pa.int32()),
    ]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    return pa.RecordBatch.from_arrays(columns, names)
