"""Plans must cover the requested offsets exactly: no offset twice, none left out, losses named.

Method: hypothesis over ranges and cutting options, compared with the plain set of offsets;
tables for limits.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID
from ottla.spark.errors import OptionError
from ottla.spark.options import Edge, Limit, Offsets, Since, SinceEach
from ottla.spark.planning import (
    PartitionFacts,
    Range,
    check_named,
    cut,
    resolve,
    timestamps_of,
)


def facts(
    partition: int = 0, earliest: int = 10, latest: int = 100, size: int | None = None
) -> PartitionFacts:
    return PartitionFacts(
        topic="t",
        topic_id=NO_UUID,
        partition=partition,
        earliest=earliest,
        latest=latest,
        size_bytes=size,
    )


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    found = []
    for partition in range(draw(st.integers(0, 5))):
        earliest = draw(st.integers(0, 2**62))
        latest = earliest + draw(st.integers(1, 5000))
        start = draw(st.integers(earliest, latest - 1))
        end = draw(st.integers(start + 1, latest))
        size = draw(st.none() | st.integers(0, 2**40))
        whole = facts(partition, earliest, latest, size)
        is_open = end == latest and draw(st.booleans())
        if is_open and draw(st.booleans()):
            start = end
        found.append(Range(facts=whole, start=start, end=end, is_open=is_open))
    return found


@given(
    ranges(),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 6000),
    st.integers(2**28, 2**40),
)
def test_pieces_are_disjoint_and_their_union_is_the_range(
    whole: list[Range], min_partitions: int | None, max_records: int | None, split_bytes: int
) -> None:
    pieces = cut(
        whole, min_partitions=min_partitions, max_records=max_records, split_bytes=split_bytes
    )
    assert all(piece.start < piece.end for piece in pieces if piece not in whole)
    for each in whole:
        mine = [piece for piece in pieces if piece.facts is each.facts]
        assert [piece.is_open for piece in mine] == [False] * (len(mine) - 1) + [each.is_open]
        assert [piece.start for piece in mine] == [each.start, *(p.end for p in mine[:-1])]
        assert mine[-1].end == each.end
    if max_records is not None:
        assert all(len(piece) <= max_records for piece in pieces)
    if min_partitions is not None:
        offsets = sum(len(each) for each in whole)
        # Rounded up for each range, so never less than requested, and hardly more.
        assert len(pieces) >= min(min_partitions, offsets)


def test_large_ranges_are_cut_more_often() -> None:
    small = Range(facts=facts(0, 0, 100), start=0, end=100)
    large = Range(facts=facts(1, 0, 900), start=0, end=900)
    pieces = cut([small, large], min_partitions=10)
    assert [len(piece) for piece in pieces] == [100] * 10
    assert len(cut([small, large], min_partitions=2)) == 2
    assert len(cut([small, large])) == 2


def test_ranges_are_cut_by_bytes_where_sizes_are_known() -> None:
    known = Range(facts=facts(0, 0, 1000, 1 << 30), start=500, end=1000)
    assert known.size_bytes == 1 << 29
    assert len(cut([known])) == 4
    assert len(cut([Range(facts=facts(0, 0, 1000), start=0, end=1000)])) == 1


def resolved(
    starting: Limit, ending: Limit = Edge.LATEST, **found: Any
) -> tuple[list[tuple[int, int]], list[str]]:
    key = ("t", 0)
    done, losses = resolve(
        [facts()],
        starting=starting,
        starting_found={key: found.get("starting_found")},
        latest_where_none_since=found.get("latest", False),
        ending=ending,
        ending_found={key: found.get("ending_found")},
    )
    return [(each.start, each.end) for each in done], losses


def at(offset: int) -> Offsets:
    return Offsets({("t", 0): offset})


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (Edge.EARLIEST, Edge.LATEST, [(10, 100)]),
        (at(-2), at(-1), [(10, 100)]),
        (at(20), at(30), [(20, 30)]),
        (at(10), at(100), [(10, 100)]),
        (at(30), at(30), []),
        (at(100), Edge.LATEST, [(100, 100)]),
        (at(100), at(100), []),
        (Edge.EARLIEST, at(5), []),
    ],
)
def test_limits_within_the_log(starting: Limit, ending: Limit, expected: list[Any]) -> None:
    assert resolved(starting, ending) == (expected, [])


@pytest.mark.parametrize(
    ("starting", "ending", "expected", "loss"),
    [
        (at(0), Edge.LATEST, [(10, 100)], "t-0: offsets 0 to 9 are no longer available"),
        (at(0), at(5), [], "offsets 0 to 9"),
        (at(101), Edge.LATEST, [], "starts at 101, the log ends at 100"),
        (at(20), at(200), [(20, 100)], "ends at 200, the log at 100"),
    ],
)
def test_losses_are_named(starting: Limit, ending: Limit, expected: list[Any], loss: str) -> None:
    done, losses = resolved(starting, ending)
    assert done == expected
    assert any(loss in each for each in losses)


@pytest.mark.parametrize(
    ("ending", "found"), [(Edge.LATEST, None), (at(-1), None), (at(100), None), (Since(5), None)]
)
def test_only_an_end_at_the_latest_offset_is_open(ending: Limit, found: int | None) -> None:
    [done], _ = resolve(
        [facts()],
        starting=Edge.EARLIEST,
        starting_found={},
        latest_where_none_since=False,
        ending=ending,
        ending_found={("t", 0): found},
    )
    assert done.is_open == (ending in (Edge.LATEST, at(-1)))


@pytest.mark.parametrize(
    ("starting", "ending", "found"),
    [
        (at(30), at(20), {}),
        (at(300), at(200), {}),
        (at(5), at(3), {}),
        (at(30), Since(5), {"ending_found": 20}),
        (Since(7), Since(5), {"starting_found": 30, "ending_found": 20}),
        (Since(7), at(20), {"starting_found": 30}),
    ],
)
def test_a_start_beyond_the_end_is_refused(
    starting: Limit, ending: Limit, found: dict[str, int]
) -> None:
    with pytest.raises(OptionError, match=r"t-0: the query starts at offset \d+, beyond its end"):
        resolved(starting, ending, **found)


def test_limits_by_timestamp() -> None:
    since = Since(5)
    assert resolved(since, starting_found=40) == ([(40, 100)], [])
    assert resolved(Edge.EARLIEST, since, ending_found=40) == ([(10, 40)], [])
    assert resolved(Edge.EARLIEST, since) == ([(10, 100)], [])  # None that new: up to the end.
    assert resolved(since, latest=True) == ([(100, 100)], [])
    with pytest.raises(OptionError, match="no record of t-0 is as new"):
        resolved(since)
    # The log was cut after the search.
    assert resolved(since, starting_found=4) == ([(10, 100)], [])
    # Records came before the search.
    assert resolved(since, starting_found=102) == ([(100, 100)], [])


def test_every_partition_must_be_named() -> None:
    keys = [("t", 0), ("t", 1)]
    check_named(Edge.EARLIEST, keys, "startingOffsets")
    check_named(Since(1), keys, "startingOffsets")
    check_named(Offsets(dict.fromkeys(keys, 1)), keys, "startingOffsets")
    with pytest.raises(OptionError, match="startingOffsets does not name t-1: expected every"):
        check_named(at(1), keys, "startingOffsets")
    extra = SinceEach({("t", 0): 1, ("t", 1): 1, ("u", 0): 1})
    with pytest.raises(OptionError, match="endingOffsets names u-0: not among"):
        check_named(extra, keys, "endingOffsets")
    many = [("t", number) for number in range(9)]
    with pytest.raises(OptionError, match="t-5 and 3 more"):
        check_named(at(1), many, "startingOffsets")


def test_timestamps_to_search_for() -> None:
    keys = [("t", 0), ("t", 1)]
    assert timestamps_of(Since(7), keys) == {("t", 0): 7, ("t", 1): 7}
    assert timestamps_of(SinceEach({("t", 0): 3}), keys) == {("t", 0): 3}
    assert timestamps_of(Edge.LATEST, keys) == {}
