"""`format("ottla")`: topics as Spark tables, in batch, and as streams to read.

Columns, options and their defaults are those of Spark's own Kafka connector: to migrate a job,
change the format's name. Differences: a user's schema may leave columns out; unknown options
are errors; records go from the broker's batches to Arrow without becoming Python objects; topics
are identified by topic id.

Spark plans a Python source once for each `load`, at the first action. The start, an explicit end
and the list of partitions are fixed then. Where the end is latest, each action reads what is
available when its tasks run, as with Spark's connector.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.spark.errors import OptionError
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task, plan
from ottla.spark.raw_options import RawOptions, log
from ottla.spark.schema import columns_of, source_schema
from ottla.spark.streaming.options import StreamOptions
from ottla.spark.streaming.reader import StreamReader
from ottla.spark.tasks import read_task
from ottla.spark.writing.sink import BatchWriter, StreamWriter
from ottla.spark.writing.write_options import WriteOptions

# pyspark is not type-checked, hence its classes are Any to mypy.
# mypy: disable-error-code="misc"


class BatchReader(DataSourceReader):
    """Plans and reads one `load`; connects only when it plans or reads.

    It accepts no filters, on purpose. Spark 4.3 keeps the plan of a source for all queries on the
    same loaded DataFrame, so after `df.where("offset < 5").count()` a source that had accepted
    the filter would return five rows for `df.count()` too.
    """

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return what each task reads."""
        return list(plan(self.options))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one task; depends on nothing but the task and the log."""
        if isinstance(partition, Task):
            yield from read_task(partition, self.options, self.columns)
        # Else Spark replaces an empty plan by one partition without a value.


class OttlaDataSource(DataSource):
    """Topics of an Ottla or Kafka cluster.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option(
        "subscribe", "orders").load()
    df.write.format("ottla").option("kafka.bootstrap.servers", "localhost:9092").option(
        "topic", "orders").mode("append").save()
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # A misspelt option fails early.
        for each in RawOptions.of(dict(options)).warnings():
            log.warning("%s", each)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "ottla"

    def schema(self) -> StructType:
        """Return the columns; checks all options. Spark does not say yet whether it is a stream."""
        options = dict(self.options)
        try:
            return source_schema(ReadOptions.of(options).include_headers)
        except OptionError:
            with suppress(OptionError):
                return source_schema(StreamOptions.of(options).read.include_headers)
            raise

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader of the full or a narrower schema."""
        options = ReadOptions.of(dict(self.options))
        for each in RawOptions.of(dict(self.options)).batch_warnings():
            log.warning("%s", each)
        return BatchReader(options, columns_of(schema, options.include_headers))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return a batch writer for rows of this schema."""
        if overwrite:
            raise OptionError('save mode overwrite is not supported: expected mode("append")')
        return BatchWriter(WriteOptions.of(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Return a stream reader of the full or a narrower schema."""
        options = StreamOptions.of(dict(self.options))
        return StreamReader(options, columns_of(schema, options.read.include_headers))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        """Return a writer of micro-batches with rows of this schema."""
        if overwrite:
            raise OptionError("output mode complete is not supported: a log is only appended to")
        return StreamWriter(WriteOptions.of(dict(self.options)), schema)
