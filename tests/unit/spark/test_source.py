"""The format must do with Spark's protocol what Spark's workers expect of it.

Method: the calls that Spark's workers make, without Spark.
"""

import importlib
import pickle
import sys

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

import pyspark_ottla
from ottla.spark.errors import OptionError
from ottla.spark.planner import Task
from ottla.spark.source import BatchReader, OttlaDataSource
from ottla.spark.splits import Split
from ottla.spark.writing.sink import StreamWriter

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


def test_spark_finds_the_format() -> None:
    assert pyspark_ottla.DefaultSource is OttlaDataSource
    assert issubclass(OttlaDataSource, DataSource)
    assert OttlaDataSource.name() == "ottla"


def test_what_the_format_lacks_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ottla.spark.source", None)
        patch.delattr(pyspark_ottla, "DefaultSource")
        importlib.reload(pyspark_ottla)
        assert not hasattr(pyspark_ottla, "DefaultSource"), "Spark would take it for the format"
    importlib.reload(pyspark_ottla)
    assert 'format("ottla") is not available: ' in caplog.text
    assert "ottla.spark.source" in caplog.text


def test_a_reader_can_be_pickled_and_accepts_no_filters() -> None:
    source = OttlaDataSource(OPTIONS)
    reader = source.reader(source.schema())
    # Spark refuses a reader of its own filters where its pushdown is off, which is the default.
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
    again = pickle.loads(pickle.dumps(reader))
    assert isinstance(again, BatchReader)
    assert (again.options, again.columns) == (reader.options, reader.columns)


def test_an_empty_plan_reads_nothing() -> None:
    source = OttlaDataSource(OPTIONS)
    reader = source.reader(source.schema())
    assert list(reader.read(InputPartition(None))) == []


def test_tasks_can_be_pickled() -> None:
    task = Task((Split("t", bytes(16), 0, 1, 2, True), Split("t", bytes(16), 1, 2, 2, True, True)))
    assert pickle.loads(pickle.dumps(task)) == task


def test_refusals() -> None:
    with pytest.raises(OptionError, match="did you mean subscribe"):
        OttlaDataSource({"subscribes": "t"})
    source = OttlaDataSource(OPTIONS)
    schema = StructType([StructField("value", StringType())])
    with pytest.raises(OptionError, match="overwrite is not supported"):
        source.writer(schema, True)
    with pytest.raises(OptionError, match="column value string: expected binary"):
        source.streamReader(schema)
    with pytest.raises(OptionError, match="output mode complete is not supported"):
        source.streamWriter(schema, True)


def test_options_without_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    source = OttlaDataSource(OPTIONS | {"kafka.linger.ms": "5", "maxOffsetsPerTrigger": "5"})
    assert "option kafka.linger.ms has no effect" in caplog.text
    source.streamReader(source.schema())
    assert "maxOffsetsPerTrigger" not in caplog.text
    source.reader(source.schema())
    assert "option maxOffsetsPerTrigger has no effect in a batch query" in caplog.text


def test_options_of_tables_and_of_streams_are_both_known_before_it_is_known_which_it_is() -> None:
    for more in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}):
        OttlaDataSource(OPTIONS | more).schema()
    with pytest.raises(OptionError, match="expected earliest or JSON"):
        OttlaDataSource(OPTIONS | {"startingOffsets": "soon"}).schema()
    narrow = OttlaDataSource(OPTIONS | {"startingOffsets": "latest", "includeHeaders": "true"})
    assert "headers" in narrow.schema().fieldNames()
    with pytest.raises(OptionError, match="a batch query cannot start there"):
        narrow.reader(narrow.schema())


def test_a_stream_is_written_with_the_options_of_writing(caplog: pytest.LogCaptureFixture) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "checkpointLocation": "/c"}
    writer = OttlaDataSource(options).streamWriter(
        StructType([StructField("value", StringType())]), False
    )
    assert isinstance(writer, StreamWriter)
    assert pickle.loads(pickle.dumps(writer)).options == writer.options
    assert caplog.text == ""
    with pytest.raises(OptionError, match="only for reading"):
        OttlaDataSource(OPTIONS).streamWriter(StructType(), False)
