"""Every column must hold what the producer wrote, in Spark's types.

Method: messages written with confluent-kafka, in all shapes and codecs; rows compared with them.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_all_columns(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = make_topic(2)
    messages = [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""), ("é".encode(), b"\xff\0")]
    times = [1_700_000_000_000 + 1500 * number for number in range(len(messages))]
    produce(topic, messages, partition=1, timestamps=times)
    rows = load(topic).orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == messages
    assert [row.offset for row in rows] == list(range(5))
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic, 1, 0)}
    # Spark hands out local times without a zone.
    found = [row.timestamp.astimezone(UTC) for row in rows]
    assert found == [datetime.fromtimestamp(each / 1000, UTC) for each in times]


def test_schema_is_that_of_the_kafka_source(load: Callable[..., Any]) -> None:
    fixed = (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int"
    )
    assert load("any").schema.simpleString() == f"{fixed}>"
    with_headers = load("any", includeHeaders="true").schema.simpleString()
    assert with_headers == f"{fixed},headers:array<struct<key:string,value:binary>>>"


def test_headers(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = make_topic()
    pairs = [("a", b"1"), ("a", None), ("é", b"")]
    produce(topic, [(None, b"with")], headers=pairs)
    produce(topic, [(None, b"without")])
    first, second = load(topic, includeHeaders="true").orderBy("offset").collect()
    assert [(each.key, each.value) for each in first.headers] == pairs
    assert second.headers is None


def test_log_append_time(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    produce(topic, [(None, b"v")], timestamps=[1_000_000])
    (row,) = load(topic).collect()
    assert row.timestampType == 1
    assert row.timestamp.year > 2000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
    codec: str,
) -> None:
    topic = make_topic()
    messages = [(b"key-%d" % (number % 9), b"value %d " % number * 5) for number in range(2000)]
    produce(topic, messages, compression_type=codec)
    rows = load(topic).orderBy("offset").select("key", "value").collect()
    assert [tuple(row) for row in rows] == messages


def test_a_narrow_schema(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = make_topic()
    produce(topic, [(None, b"a"), (None, b"b")])
    rows = load(topic, schema="offset long, value binary, topic string").collect()
    assert [tuple(row) for row in rows] == [(0, b"a", topic), (1, b"b", topic)]
    assert load(topic, schema="topic string, partition int").count() == 2


def test_all_records_once(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = make_topic(4)
    messages = [(b"key-%d" % (number % 1000), b"value-%d" % number) for number in range(100_000)]
    produce(topic, messages, compression_type="lz4")
    frame = load(topic, maxRecordsPerPartition="7000")
    rows = frame.select("key", "value", "partition", "offset").toArrow().to_pylist()
    assert sorted((row["key"], row["value"]) for row in rows) == sorted(messages)
    places = [(row["partition"], row["offset"]) for row in rows]
    ends = {number: sum(place[0] == number for place in places) for number in range(4)}
    assert sorted(places) == [(p, offset) for p in range(4) for offset in range(ends[p])]
