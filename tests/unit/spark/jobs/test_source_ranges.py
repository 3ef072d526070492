"""Bounds must become the offsets that are there, and what is gone must be named.

Method: hypothesis over partitions and bounds, against the definition; a table of losses.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.records.builder import encode_batch
from ottla.spark.errors import OptionError
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.source_ranges import (
    EDGE,
    Bound,
    Source,
    TopicOffsets,
    find_ranges,
    resolve_ranges,
)
from ottla.spark.planning import PartitionFacts
from tests.unit.spark.fake_broker import TOPIC, FakeBroker

ID = Uuid(b"i" * 16)


def found(*edges: tuple[int, int], starts: Any = (), ends: Any = ()) -> TopicOffsets:
    return TopicOffsets(
        topic_id=ID,
        facts=tuple(
            PartitionFacts(
                topic="t", topic_id=ID, partition=number, earliest=earliest, latest=latest
            )
            for number, (earliest, latest) in enumerate(edges)
        ),
        starts_by_time=dict(starts),
        ends_by_time=dict(ends),
    )


EDGES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda two: (min(two), max(two)))
BOUNDS = st.one_of(
    st.just(EDGE),
    st.builds(Bound, offset=st.integers(0, 30)),
    st.builds(Bound, offsets=st.dictionaries(st.integers(0, 1), st.integers(0, 30), max_size=2)),
)


@given(
    st.tuples(EDGES, EDGES), BOUNDS, BOUNDS, st.dictionaries(st.integers(0, 1), st.integers(0, 30))
)
def test_what_is_wanted_and_there(
    edges: tuple[tuple[int, int], ...], start: Bound, end: Bound, continued: dict[int, int]
) -> None:
    result = resolve_ranges(found(*edges), start, end, continued)
    chosen = {each.partition: each for each in result.ranges}
    for number, (earliest, latest) in enumerate(edges):
        first = continued.get(number, start.offsets.get(number, start.offset))
        last = end.offsets.get(number, end.offset)
        wanted = {
            offset
            for offset in range(earliest, latest)
            if (first is None or offset >= first) and (last is None or offset < last)
        }
        each = chosen.get(number)
        assert set(range(each.start, each.end) if each else ()) == wanted
        is_lost = first is not None and not earliest <= first <= latest
        assert any(loss.startswith(f"t-{number}: ") for loss in result.losses) == is_lost
        assert earliest <= result.starts[number] <= latest


def test_bounds_by_time() -> None:
    topic = found((0, 9), (0, 9), starts={0: 4, 1: None}, ends={0: 7, 1: None})
    at = Bound(time_ms=1)
    assert resolve_ranges(topic, at, at, {}).ranges == (OffsetRange(0, 4, 7),)
    assert resolve_ranges(topic, EDGE, at, {}).ranges == (
        OffsetRange(0, 0, 7),
        OffsetRange(1, 0, 9),
    )
    assert dict(resolve_ranges(topic, at, EDGE, {}).starts) == {0: 4, 1: 9}


def test_records_that_come_while_times_are_looked_up_are_not_lost() -> None:
    at = Bound(time_ms=1)
    result = resolve_ranges(found((0, 9), starts={0: 11}), at, EDGE, {})
    assert (result.ranges, result.losses, dict(result.starts)) == ((), (), {0: 9})


def test_a_start_by_time_behind_an_open_transaction() -> None:
    with FakeBroker() as broker:
        for time_ms in (5, 50):
            broker.logs[0].append(encode_batch([(None, b"v", (), time_ms)] * 10))
        broker.logs[0].first_open = 8
        source = Source(topic=TOPIC, cluster=broker.options())
        at = Bound(time_ms=50)
        result = find_ranges(source, at, EDGE)
        assert (result.ranges, result.losses) == ((), ())
        result = find_ranges(replace(source, read_committed=False), at, EDGE)
        assert result.ranges == (OffsetRange(0, 10, 20),)


def test_losses() -> None:
    result = resolve_ranges(found((5, 9), (0, 3)), Bound(offset=4), EDGE, {})
    assert result.losses == (
        "t-0: offsets 4 to 4 are no longer available",
        "t-1: the job starts at 4, the log ends at 3",
    )
    assert result.ranges == (OffsetRange(0, 5, 9),)
    with pytest.raises(OptionError, match="the start names partition 2: topic t has 0 to 1"):
        resolve_ranges(found((0, 1), (0, 1)), Bound(offsets={2: 0}), EDGE, {})


def test_options_of_a_source() -> None:
    archive = Source(
        topic="t", cluster=None, remote_storage="file:///s", topic_id=ID, skip_lost=True
    ).options()
    assert (archive.cluster, archive.topic_ids) == (None, frozenset({ID}))
    assert archive.read_committed
    assert archive.include_headers
    assert not archive.fail_on_data_loss
    with pytest.raises(OptionError, match="nothing to read from: expected brokers"):
        Source(topic="t", cluster=None)
