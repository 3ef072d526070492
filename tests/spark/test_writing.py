"""Rows written must be in the topic once, where Kafka's own producer would have put them.

Method: frames written and read back, with Spark and with confluent-kafka.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

pytestmark = pytest.mark.spark


def test_write_and_read_back(
    spark: Any, load: Callable[..., Any], save: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    frame = spark.range(20_000).selectExpr(
        "cast(id % 100 as string) as key", "concat('value ', id) as value"
    )
    save(frame, topic)
    rows = load(topic).selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(map(tuple, rows)) == sorted((str(i % 100), f"value {i}") for i in range(20_000))


def test_partitions_of_keys_are_those_of_other_producers(
    spark: Any,
    load: Callable[..., Any],
    save: Callable[..., None],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    ours, theirs = make_topic(7), make_topic(7)
    keys = [f"key-{number}" * (number % 5) for number in range(200)]
    save(spark.createDataFrame([(key, "v") for key in keys], "key string, value string"), ours)
    produce(theirs, [(key.encode(), b"v") for key in keys], partitioner="murmur2")
    placed = [
        Counter(
            (row.key, row.partition) for row in load(topic).select("key", "partition").collect()
        )
        for topic in (ours, theirs)
    ]
    assert placed[0] == placed[1]


def test_rows_without_keys_are_spread(
    spark: Any, load: Callable[..., Any], save: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    topic = make_topic(4)
    save(spark.range(4000).selectExpr("repeat('x', 1000) as value").repartition(1), topic)
    counts = Counter(row.partition for row in load(topic, schema="partition int").collect())
    assert counts == dict.fromkeys(range(4), 1000)


def test_columns_say_where_rows_go(
    spark: Any, load: Callable[..., Any], save: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    one, two = make_topic(3), make_topic(3)
    rows = [(one, 2, "a"), (two, 0, "b"), (one, 0, "c"), (one, None, "d")]
    frame = spark.createDataFrame(rows, "topic string, partition int, value string")
    save(frame)
    found = load(f"{one},{two}").selectExpr("topic", "partition", "cast(value as string)").collect()
    assert {tuple(row) for row in found} >= set(rows[:3])
    assert len(found) == 4
    save(frame, two)  # The option wins over the column.
    assert load(two).count() == 5


def test_headers_timestamps_and_nulls(
    spark: Any, load: Callable[..., Any], save: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    when = datetime(2020, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
    rows = [
        (b"k", None, [("a", b"1"), ("b", None)], when),
        (None, b"v", None, None),
        (b"", b"", [], when),
    ]
    schema = (
        "key binary, value binary, headers array<struct<key:string,value:binary>>, "
        "timestamp timestamp"
    )
    save(spark.createDataFrame(rows, schema).coalesce(1), topic)
    first, second, third = load(topic, includeHeaders="true").orderBy("offset").collect()
    assert (first.key, first.value) == (b"k", None)
    assert [tuple(each) for each in first.headers] == [("a", b"1"), ("b", None)]
    assert first.timestamp.astimezone(UTC) == when
    assert (second.key, second.value, second.headers) == (None, b"v", None)
    assert second.timestamp.year > 2020
    assert (third.key, third.value, third.headers) == (b"", b"", None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(
    spark: Any,
    load: Callable[..., Any],
    save: Callable[..., None],
    make_topic: Callable[..., str],
    codec: str,
) -> None:
    topic = make_topic()
    save(
        spark.range(3000).selectExpr("cast(id as string) as value").coalesce(1),
        topic,
        kafka__compression__type=codec,
    )
    rows = load(topic).orderBy("offset").selectExpr("int(string(value))").collect()
    assert [row[0] for row in rows] == list(range(3000))


def test_what_is_read_can_be_written(
    load: Callable[..., Any],
    save: Callable[..., None],
    make_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    source, target = make_topic(2), make_topic(2)
    produce(source, [(b"k%d" % (i % 5), b"v%d" % i) for i in range(100)], headers=[("h", b"x")])
    save(load(source, includeHeaders="true"), target)
    columns = ("key", "value", "partition", "timestamp", "headers")
    copied, original = (
        sorted(map(str, load(topic, includeHeaders="true").select(*columns).collect()))
        for topic in (target, source)
    )
    assert copied == original


def test_small_limits_of_a_topic(
    spark: Any, load: Callable[..., Any], save: Callable[..., None], make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes="2000")
    save(spark.range(500).selectExpr("repeat(cast(id as string), 50) as value"), topic)
    assert load(topic).select("value").distinct().count() == 500
    with pytest.raises(Exception, match=r"raise the topic's max\.message\.bytes"):
        save(spark.range(1).selectExpr("repeat('x', 3000) as value"), topic)


def test_topics_come_into_being_where_the_cluster_makes_them(
    spark: Any, load: Callable[..., Any], save: Callable[..., None]
) -> None:
    save(spark.range(3).selectExpr("cast(id as string) as value"), "made-by-writing")
    assert load("made-by-writing").count() == 3
