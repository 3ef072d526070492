"""Rows must be sorted to their topics and partitions without being lost, doubled or reordered.

Method: a whole task against a fake broker, without Spark; hypothesis over rows; tables of schemas.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType, _parse_datatype_json_string

from ottla.records.record import iter_records
from ottla.spark.errors import OptionError, WriteError
from ottla.spark.writing.partitioner import by_key
from ottla.spark.writing.sink import BatchWriter, Committed, StreamWriter, check_columns
from ottla.spark.writing.write_options import WriteOptions
from tests.drawn import examples
from tests.unit.spark.fake_broker import TOPIC, FakeBroker

PARTITIONS = 4
Row = tuple[str, bytes | None, int | None]
ROWS = st.lists(
    st.tuples(
        st.just(TOPIC),
        st.none() | st.binary(max_size=5),
        st.none() | st.integers(0, PARTITIONS - 1),
    ),
    max_size=40,
)


def schema_of(**types: str) -> StructType:
    fields = ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{{}}}}'
        for name, kind in types.items()
    )
    parsed: StructType = _parse_datatype_json_string(f'{{"type":"struct","fields":[{fields}]}}')
    return parsed


ALL = schema_of(topic="string", key="binary", partition="integer", value="binary")


def writer(broker: FakeBroker, topic: str | None = None) -> BatchWriter:
    raw = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"}
    if topic is not None:
        raw["topic"] = topic
    return BatchWriter(WriteOptions.of(raw), ALL)


def batch(rows: list[Row], first: int = 0) -> Any:
    topics, keys, partitions = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(topics, pa.string()),
            pa.array(keys, pa.binary()),
            pa.array(partitions, pa.int32()),
            pa.array([b"%d" % (first + number) for number in range(len(rows))], pa.binary()),
        ],
        names=["topic", "key", "partition", "value"],
    )


@settings(max_examples=examples(40), deadline=None)
@given(ROWS, ROWS)
def test_each_row_at_its_place_and_in_order(one: list[Row], two: list[Row]) -> None:
    with FakeBroker(partitions=PARTITIONS) as broker:
        done = writer(broker).write(iter([batch(one), batch(two, len(one))]))
        assert done.rows == len(one) + len(two)
        found = [
            [(record.key, int(record.value or b"")) for record in iter_records(bytes(log.data))]
            for log in broker.logs
        ]
    assert sorted(number for log in found for _, number in log) == list(range(done.rows))
    rows = one + two
    for partition, log in enumerate(found):
        assert [number for _, number in log] == sorted(number for _, number in log)
        for key, number in log:
            assert key == rows[number][1]
            if rows[number][2] is not None:
                assert partition == rows[number][2]
            elif key is not None:
                assert partition == by_key(pa.array([key]), PARTITIONS)[0]


def test_rows_that_cannot_be_placed() -> None:
    with FakeBroker(partitions=PARTITIONS) as broker:
        null: Any = None
        with pytest.raises(WriteError, match="null topic"):
            writer(broker).write(iter([batch([(null, b"k", None)])]))
        for partition in (-1, PARTITIONS):
            with pytest.raises(WriteError, match=f"partition {partition} of topic t: expect"):
                writer(broker).write(iter([batch([(TOPIC, b"k", partition)])]))
        assert all(not log.data for log in broker.logs)
        # The option wins over the column, whatever that holds.
        assert writer(broker, TOPIC).write(iter([batch([(null, b"k", None)])])).rows == 1


def timed(times: list[datetime | None]) -> Any:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"v"] * len(times), pa.binary()),
            pa.array(times, pa.timestamp("us", "UTC")),
        ],
        names=["value", "timestamp"],
    )


def test_timestamps() -> None:
    when = datetime(2020, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC)
    with FakeBroker() as broker:
        done = writer(broker, TOPIC).write(iter([timed([when, None])]))
        assert done == Committed(2)
        first, second = iter_records(bytes(broker.logs[0].data))
        assert first.timestamp == int(when.timestamp() * 1000)
        assert second.timestamp > datetime(2021, 1, 1, tzinfo=UTC).timestamp() * 1000
        for bad in (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime.min):
            with pytest.raises(WriteError, match=r"timestamp (1969|0001)-.*: expected 1970 or lat"):
                writer(broker, TOPIC).write(iter([timed([when, bad])]))
        assert broker.logs[0].end == 2


def test_timestamps_that_the_brokers_replace_are_named(caplog: pytest.LogCaptureFixture) -> None:
    when = datetime(2020, 2, 29, tzinfo=UTC)
    with FakeBroker() as broker:
        broker.log_append_ms = 5
        sink = writer(broker, TOPIC)
        without = sink.write(iter([timed([None])]))
        assert without == Committed(1)
        replaced = sink.write(iter([timed([when])]))
        assert replaced == Committed(1, (TOPIC,))
        sink.commit([without, None])
        assert caplog.text == ""
        sink.commit([without, replaced, replaced])
        assert caplog.text.count(f"topic {TOPIC} has message.timestamp.type=LogAppendTime") == 1


def test_a_streaming_query_says_once_what_it_guarantees(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker() as broker:
        raw = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "topic": TOPIC}
        sink = StreamWriter(WriteOptions.of(raw), schema_of(value="binary"))
        done = sink.write(iter([timed([None] * 3)]))
        for number in range(3):
            sink.commit([done, done], number)
        assert caplog.text.count("at-least-once") == 1
        sink.abort([done, None], 3)
        assert "micro-batch 3 failed: 3 rows of finished tasks" in caplog.text


def test_an_empty_task_sends_no_request() -> None:
    with FakeBroker() as broker:
        assert writer(broker).write(iter([batch([])])).rows == 0
        assert broker.received == []


@pytest.mark.parametrize(
    ("types", "topic", "message"),
    [
        ({"key": "binary"}, "t", "no column value among key"),
        ({"value": "string"}, None, "no topic"),
        ({"value": "long"}, "t", "column value is bigint: expected string or binary"),
        ({"value": "string", "key": "double"}, "t", "column key is double"),
        ({"value": "string", "partition": "long"}, "t", "column partition is bigint: expected int"),
        ({"value": "string", "topic": "binary"}, None, "column topic is binary: expected string"),
        ({"value": "string", "timestamp": "date"}, "t", "column timestamp is date"),
        ({"value": "string", "headers": "string"}, "t", "column headers is string: expected array"),
    ],
)
def test_schemas_that_cannot_be_written(
    types: dict[str, str], topic: str | None, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        check_columns(schema_of(**types), topic)


def test_schemas_that_can() -> None:
    check_columns(schema_of(value="string", offset="long", other="double"), "t")
    check_columns(schema_of(value="binary", topic="binary"), "t")
    check_columns(schema_of(value="binary", topic="string", timestamp="timestamp_ntz"), None)
