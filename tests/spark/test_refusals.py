"""What cannot be meant or is not done must fail with a sentence that says what to do.

Method: a table of queries and the pieces of message that reach the user through Spark.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.testing import Cluster

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t", "startingoffset": "earliest"}, "did you mean startingOffsets"),
        ({}, "expected exactly one of subscribe, subscribePattern and assign"),
        ({"subscribe": "t", "startingOffsets": "latest"}, "expected earliest or JSON"),
        ({"subscribe": "t", "kafka__security__protocol": "SSL"}, "expected PLAINTEXT"),
        ({"subscribe": "t", "kafka__auto__offset__reset": "latest"}, "use startingOffsets"),
        ({"topic": "t", "subscribe": "t"}, "option topic is only for writing"),
    ],
)
def test_options_of_reading(
    load: Callable[..., Any], options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        load(**options).count()


def test_no_bootstrap_servers(spark: Any) -> None:
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers is missing"):
        spark.read.format("ottla").option("subscribe", "t").load()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("value string", "column value string: expected binary"),
        ("price double", "column price: expected some of key, value"),
        ("headers array<struct<key:string,value:binary>>", "includeHeaders=true"),
    ],
)
def test_schemas(load: Callable[..., Any], schema: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        load("t", schema=schema).count()


def test_partitions_that_are_not_named(
    load: Callable[..., Any], make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    with pytest.raises(Exception, match=f"does not name {topic}-1: expected every partition"):
        load(topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}').count()


def test_nobody_listens(spark: Any) -> None:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:1")
    reader = reader.option("kafka.default.api.timeout.ms", "100").option("subscribe", "t")
    with pytest.raises(Exception, match=r"no broker answers at 127.0.0.1:1 within"):
        reader.load().count()


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        ("'v' as value", {}, "no topic: expected the option topic or a column topic"),
        ("'v' as text", {"topic": "t"}, "no column value among text"),
        ("id as value", {"topic": "t"}, "column value is bigint: expected string or binary"),
        ("'v' as value, 1.5 as partition", {"topic": "t"}, "column partition is"),
        ("'v' as value, 'x' as headers", {"topic": "t"}, "column headers is string"),
        ("'v' as value", {"topic": "t", "kafka__acks": "0"}, "expected all, -1 or 1"),
        ("'v' as value", {"subscribe": "t"}, "only for reading"),
        ("'v' as value, cast(null as string) as topic", {}, "a row has a null topic"),
        (
            "'v' as value, 9 as partition",
            {"topic": "small"},
            "partition 9 of topic small: expected 0",
        ),
    ],
)
def test_writing(
    spark: Any, save: Callable[..., None], expression: str, options: dict[str, str], message: str
) -> None:
    frame = spark.range(1).selectExpr(*expression.split(", "))
    with pytest.raises(Exception, match=message):
        save(frame, **options)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("overwrite", "save mode overwrite is not supported"),
        ("error", "ErrorIfExists"),
        ("ignore", "Ignore"),
    ],
)
def test_modes(spark: Any, cluster: Cluster, mode: str, message: str) -> None:
    writer = spark.range(1).selectExpr("'v' as value").write.format("ottla").mode(mode)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap).option("topic", "t")
    with pytest.raises(Exception, match=message):
        writer.save()


def test_streams(spark: Any, cluster: Cluster) -> None:
    stream = spark.readStream.format("ottla").option("subscribe", "t")
    stream = stream.option("kafka.bootstrap.servers", cluster.bootstrap)
    stream = stream.option("endingOffsets", "latest")
    with pytest.raises(Exception, match="endingOffsets is only for batch queries"):
        stream.load().writeStream.format("noop").start().processAllAvailable()


@pytest.mark.parametrize(
    ("expression", "mode", "options", "message"),
    [
        ("string(value)", "append", {}, "no topic: expected the option topic"),
        ("value", "append", {"topic": "t"}, "column value is bigint: expected string or binary"),
        ("string(count(1)) value", "complete", {"topic": "t"}, "output mode complete is not supp"),
        ("string(value)", "update", {"topic": "t"}, "does not support Update mode"),
        ("string(value)", "append", {"topic": "t", "subscribe": "t"}, "only for reading"),
    ],
)
def test_streams_that_cannot_be_written(
    spark: Any,
    cluster: Cluster,
    tmp_path: Path,
    expression: str,
    mode: str,
    options: dict[str, str],
    message: str,
) -> None:
    rows = spark.readStream.format("rate").load().selectExpr(expression)
    writer = rows.writeStream.format("ottla").outputMode(mode).options(**options)
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
    with pytest.raises(Exception, match=message):
        writer.option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
