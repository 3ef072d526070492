"""Options must choose topics, partitions, offsets and tasks as Spark's Kafka source does.

Method: small topics whose values say their place; counts of Spark's partitions.
"""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.spark

T0 = 1_700_000_000_000


@pytest.fixture
def ten(make_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    """A topic of two partitions with values 0 to 9 in each, one a second."""
    topic = make_topic(2)
    for partition in range(2):
        produce(
            topic,
            [(None, b"%d" % number) for number in range(10)],
            partition=partition,
            timestamps=[T0 + 1000 * number for number in range(10)],
        )
    return topic


def values(frame: Any) -> list[list[int]]:
    """Return the values of both partitions."""
    rows = frame.orderBy("partition", "offset").select("partition", "value").collect()
    return [[int(value) for at, value in rows if at == partition] for partition in range(2)]


def test_topics(
    load: Callable[..., Any], make_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    names = [make_topic(name=f"family-{letter}") for letter in "abc"]
    for name in names[:2]:
        produce(name, [(None, name.encode())])
    found = load(",".join(names)).select("topic").collect()
    assert sorted(row.topic for row in found) == names[:2]
    assert load(subscribePattern="family-[bc]").count() == 1
    assert load(subscribePattern="family").count() == 0
    assert load(subscribePattern=".*nothing-like-it.*").collect() == []
    assert load(assign=f'{{"{names[0]}":[0],"{names[2]}":[0]}}').count() == 1
    assert load(names[2]).count() == 0


def test_offsets(load: Callable[..., Any], ten: str) -> None:
    frame = load(
        ten,
        startingOffsets=f'{{"{ten}":{{"0":4,"1":-2}}}}',
        endingOffsets=f'{{"{ten}":{{"0":7,"1":-1}}}}',
    )
    assert values(frame) == [[4, 5, 6], list(range(10))]
    assert values(load(assign=f'{{"{ten}":[1]}}')) == [[], list(range(10))]


def test_timestamps(load: Callable[..., Any], ten: str) -> None:
    frame = load(ten, startingTimestamp=str(T0 + 2500), endingTimestamp=str(T0 + 5000))
    assert values(frame) == [[3, 4], [3, 4]]
    each = f'{{"{ten}":{{"0":{T0 + 8000},"1":{T0 + 9000}}}}}'
    assert values(load(ten, startingOffsetsByTimestamp=each)) == [[8, 9], [9]]
    assert values(load(ten, endingOffsetsByTimestamp=each))[0] == list(range(8))
    late = {"startingTimestamp": str(T0 + 10_000)}
    assert load(ten, startingOffsetsByTimestampStrategy="latest", **late).count() == 0
    with pytest.raises(Exception, match=r"no record of .* is as new"):
        load(ten, **late).count()


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "1"}, 2),
        ({"minPartitions": "6"}, 6),
        ({"maxRecordsPerPartition": "4"}, 6),
        ({"maxRecordsPerPartition": "4", "minPartitions": "20"}, 20),
        ({"minPartitions": "1000"}, 20),
    ],
)
def test_tasks(load: Callable[..., Any], ten: str, options: dict[str, str], tasks: int) -> None:
    frame = load(ten, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert values(frame) == [list(range(10))] * 2


def test_options_in_any_case(load: Callable[..., Any], ten: str) -> None:
    assert load(SUBSCRIBE=ten, MINPARTITIONS="4").rdd.getNumPartitions() == 4


def test_small_fetches(load: Callable[..., Any], ten: str) -> None:
    options = {"kafka__max__partition__fetch__bytes": "1", "isolation": "read_committed"}
    assert values(load(ten, verifyCrc="false", **options)) == [list(range(10))] * 2


def test_filters_never_leak_from_one_query_into_another(
    spark: Any, load: Callable[..., Any], ten: str
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        frame = load(ten)
        assert frame.where("partition = 1 and offset < 3").count() == 3
        assert frame.count() == 20
        both = frame.where("offset < 1").union(frame.where("offset < 4"))
        assert both.count() == 2 + 8
    finally:
        spark.conf.set(name, before)


def test_each_action_reads_up_to_the_latest_offset_of_its_time(
    load: Callable[..., Any], produce: Callable[..., None], ten: str, make_topic: Callable[..., str]
) -> None:
    ended = load(ten, endingOffsets=f'{{"{ten}":{{"0":10,"1":10}}}}')
    empty = make_topic(100)
    frame = load(f"{ten},{empty}")
    assert frame.count() == ended.count() == 20
    produce(ten, [(None, b"more")])
    for partition in range(0, 100, 9):
        produce(empty, [(None, b"new")], partition=partition)
    assert ended.count() == 20
    assert frame.count() == 20 + 1 + 12
    produce(ten, [(None, b"more")])
    assert frame.where("value = 'more'").count() == 2


def test_a_start_beyond_the_end_is_refused(load: Callable[..., Any], ten: str) -> None:
    bounds = {
        "startingOffsets": f'{{"{ten}":{{"0":8,"1":0}}}}',
        "endingOffsets": f'{{"{ten}":{{"0":4,"1":9}}}}',
    }
    with pytest.raises(Exception, match="-0: the query starts at offset 8, beyond its end at 4"):
        load(ten, **bounds).count()
    bounds["endingOffsets"] = "latest"
    bounds["startingOffsets"] = f'{{"{ten}":{{"0":11,"1":0}}}}'
    with pytest.raises(Exception, match="-0: the query starts at 11, the log ends at 10"):
        load(ten, **bounds).count()
    assert load(ten, failOnDataLoss="false", **bounds).count() == 10
