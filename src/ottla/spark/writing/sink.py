"""`format("ottla")` of `df.write` and `df.writeStream`: rows to topics, as Arrow batches.

Columns, as in Spark's Kafka sink: `value` (string or binary), and optionally `key` (string or
binary), `headers`, `topic`, `partition`; also `timestamp`, which Spark's sink lacks: the time of
the record, null = now. Other columns are ignored, as in Spark's sink.

At-least-once, as Spark's sink: retries within a task never write a row twice, and rows of a task
keep their order within a partition, but a task that Spark reruns writes its rows again, as does a
micro-batch that had not ended when a streaming query was stopped. Nothing is rolled back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition
from ottla.spark.errors import OptionError, WriteError
from ottla.spark.raw_options import log
from ottla.spark.schema import HEADERS
from ottla.spark.writing.partitioner import by_key, in_runs
from ottla.spark.writing.producing import RawProducer
from ottla.spark.writing.write_options import WriteOptions

# pyspark is not type-checked, hence its classes are Any to mypy.
# mypy: disable-error-code="misc"

BUFFER_BYTES: Final = 16 * 1024 * 1024
"""Bytes buffered before sending, so that batches are large enough."""
RUN_BYTES: Final = 256 * 1024
"""Rows without a key go to partitions in runs of about this size."""
FIRST_BATCH: Final = 0
AT_LEAST_ONCE: Final = (
    "this streaming query writes at-least-once: a micro-batch that is repeated after a failure or "
    "a restart writes its rows again"
)

_BYTES: Final = (StringType, BinaryType)
_COLUMNS: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "key": (_BYTES, "string or binary"),
    "value": (_BYTES, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType,), "int"),
    "timestamp": ((TimestampType, TimestampNTZType), "timestamp"),
}


@dataclass(frozen=True, slots=True)
class Committed(WriterCommitMessage):
    """The result of one task. `restamped`: topics whose brokers replaced the rows' timestamps."""

    rows: int
    restamped: tuple[str, ...] = ()


Messages = list[Committed | None]
"""The results of tasks; None = the task has failed."""


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of one query; one task for each of Spark's partitions."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Committed:
        """Write one task's rows; return once the cluster has acknowledged all of them."""
        return write_task(self.options, iterator)

    def commit(self, messages: Messages) -> None:
        """Log the number of rows. Tasks have already waited for the acknowledgements."""
        log.info("%s", _written_text(messages))
        _warn_restamped(messages)

    def abort(self, messages: Messages) -> None:
        """Log the rows that remain: a log has no rollback."""
        log.warning("write failed: %s", _left_text(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of one streaming query.

    Spark makes one of it to plan each micro-batch and another one to end it, in other processes:
    nothing is kept but what tasks return.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options

    def write(self, iterator: Iterator[Any]) -> Committed:
        """Write one task's rows; return once the cluster has acknowledged all of them."""
        return write_task(self.options, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Log the number of rows; with the first micro-batch, what a query guarantees."""
        log.info("micro-batch %d: %s", batchId, _written_text(messages))
        if batchId == FIRST_BATCH:
            log.warning(AT_LEAST_ONCE)
            _warn_restamped(messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Log the rows that remain: a log has no rollback."""
        log.warning("micro-batch %d failed: %s", batchId, _left_text(messages))


def write_task(options: WriteOptions, iterator: Iterator[Any]) -> Committed:
    """Write the rows of one task; return once the cluster has acknowledged all of them.

    Raises: WriteError.
    """
    with ClusterClient(options.cluster) as client:
        producer = RawProducer(client, options)
        router = Router(producer, options.topic)
        has_times = False
        for table in gathered(iterator):
            has_times |= _check_times(table)
            producer.write(router.route(table))
        producer.finish()
        return Committed(producer.written, tuple(sorted(producer.restamped)) if has_times else ())


def _written_text(messages: Messages) -> str:
    tasks = [each for each in messages if each is not None]
    return f"{sum(each.rows for each in tasks)} rows written by {len(tasks)} tasks"


def _left_text(messages: Messages) -> str:
    rows = sum(each.rows for each in messages if each is not None)
    return (
        f"{rows} rows of finished tasks, and some of unfinished tasks, remain in the topics "
        "(writing is at-least-once)"
    )


def _warn_restamped(messages: Messages) -> None:
    topics = {topic for each in messages if each is not None for topic in each.restamped}
    for topic in sorted(topics):
        log.warning(
            "topic %s has message.timestamp.type=LogAppendTime: its brokers have replaced the "
            "timestamps of the rows by their own time",
            topic,
        )


def _check_times(rows: Any) -> bool:
    """Tell whether rows have timestamps. Raises: WriteError for one before 1970."""
    if "timestamp" not in rows.schema.names:
        return False
    column = rows.column("timestamp")
    if column.null_count == len(column):
        return False
    earliest = pc.min(column)
    if earliest.cast(pa.int64()).as_py() < 0:
        raise WriteError(
            f"a row has the timestamp {earliest.as_py().isoformat()}: expected 1970 or later, or "
            "null for the time of writing"
        )
    return True


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise OptionError unless rows of this schema can be written."""
    types = {field.name: field.dataType for field in schema}
    if "value" not in types:
        raise OptionError(f"no column value among {', '.join(types)}: expected string or binary")
    if topic is None and "topic" not in types:
        raise OptionError("no topic: expected the option topic or a column topic")
    for name, (kinds, expected) in _COLUMNS.items():
        found = types.get(name)
        if name == "topic" and topic is not None:
            continue  # The option overrides the column.
        if found is not None and not isinstance(found, kinds):
            raise OptionError(f"column {name} is {found.simpleString()}: expected {expected}")
    headers = types.get("headers")
    if headers is not None and headers.simpleString() != HEADERS.simpleString():
        raise OptionError(
            f"column headers is {headers.simpleString()}: expected {HEADERS.simpleString()}"
        )


def gathered(iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield larger batches, joined from Spark's."""
    waiting: list[Any] = []
    size = 0
    for batch in iterator:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= BUFFER_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


class Router:
    """Assigns rows to partitions: the column's, the key's, else runs from one to the next."""

    def __init__(self, producer: RawProducer, topic: str | None) -> None:
        self._producer = producer
        self._topic = topic
        self._counts: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def route(self, batch: Any) -> dict[TopicPartition, Any]:
        """Return the rows of each partition, in their original order."""
        routed: dict[TopicPartition, Any] = {}
        for topic, rows in self._by_topic(batch):
            targets = self._targets(topic, rows)
            order = np.argsort(targets, kind="stable")
            sorted_targets = targets[order]
            partitions, firsts = np.unique(sorted_targets, return_index=True)
            ordered = rows if (order[1:] > order[:-1]).all() else rows.take(pa.array(order))
            bounds = [*firsts.tolist(), len(order)]
            for index, partition in enumerate(partitions.tolist()):
                count = bounds[index + 1] - bounds[index]
                routed[topic, partition] = ordered.slice(bounds[index], count)
        return routed

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        if self._topic is not None:
            yield self._topic, batch
            return
        column = batch.column("topic")
        if column.null_count:
            raise WriteError(
                "a row has a null topic: expected the option topic, or a topic in every row"
            )
        for topic in sorted(column.unique().to_pylist()):
            yield topic, batch.filter(pc.equal(column, topic))

    def _targets(self, topic: str, rows: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        count = self._count(topic)
        names = rows.schema.names
        absent = pa.nulls(rows.num_rows, pa.binary())
        keys = rows.column("key") if "key" in names else absent
        keyed = keys.is_valid().to_numpy(zero_copy_only=False)
        targets = np.zeros(rows.num_rows, np.int64)
        if keyed.any():
            targets[keyed] = by_key(keys.filter(pa.array(keyed)), count)
        has_partition = np.zeros(rows.num_rows, np.bool_)
        if "partition" in names:
            column = rows.column("partition")
            has_partition = column.is_valid().to_numpy(zero_copy_only=False)
            explicit = column.drop_null().to_numpy()
            if len(explicit) and not 0 <= explicit.min() <= explicit.max() < count:
                wrong = explicit.min() if explicit.min() < 0 else explicit.max()
                raise WriteError(
                    f"a row names partition {wrong} of topic {topic}: expected 0 to {count - 1}"
                )
            targets[has_partition] = explicit
        free = ~keyed & ~has_partition
        if free.any():
            targets[free] = self._spread(topic, int(free.sum()), rows.nbytes, count)
        return targets

    def _spread(
        self, topic: str, rows: int, size: int, count: int
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        first = self._next.get(topic)
        if first is None:
            first = _task_number()  # So that tasks begin on different partitions.
        targets = in_runs(rows, count, first=first % count, runs=1 + size // RUN_BYTES)
        self._next[topic] = int(targets[-1]) + 1
        return targets

    def _count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = self._producer.partition_count(topic)
        return count


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
