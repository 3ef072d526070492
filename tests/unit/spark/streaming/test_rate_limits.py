"""A batch is as large as its limits say, shared out fairly, and always progresses.

Method: hypothesis over partitions and limits; a table for the connector's shares and for delays.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID
from ottla.spark.planning import PartitionFacts
from ottla.spark.streaming.advance import Unread
from ottla.spark.streaming.rate_limits import (
    Cut,
    cuts_by_bytes,
    ends_of,
    is_delayed,
    limited_by_offsets,
)
from ottla.spark.tiers.tier_planning import Place
from ottla.tiered.segment_files import SegmentPositions


def unread(partition: int, first: int, end: int, *, begin: int | None = None) -> Unread:
    facts = PartitionFacts(
        topic="t", topic_id=NO_UUID, partition=partition, earliest=first, latest=end
    )
    return Unread(facts=facts, begin=first if begin is None else begin, first=first, end=end)


@st.composite
def some_unread(draw: st.DrawFn) -> list[Unread]:
    found = []
    for partition in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, 2**62))
        found.append(unread(partition, first, first + draw(st.integers(0, 10**6))))
    return found


@given(some_unread(), st.integers(1, 10**7))
def test_limits_by_offsets(some: list[Unread], offsets_max: int) -> None:
    ends = ends_of(some, limited_by_offsets(some, offsets_max))
    counts = [ends[each.key] - each.first for each in some]
    assert all(0 <= count <= len(each) for count, each in zip(counts, some, strict=True))
    # No partition starves, and only those that get one offset each may exceed the limit.
    assert all(count >= 1 for count, each in zip(counts, some, strict=True) if len(each))
    assert sum(count for count in counts if count > 1) <= offsets_max
    total = sum(len(each) for each in some)
    if total <= offsets_max:
        assert sum(counts) == total
    else:
        # Shares are rounded down.
        assert sum(counts) > offsets_max - len(some)


@pytest.mark.parametrize(
    ("sizes", "offsets_max", "counts"),
    [
        ((100, 100), 50, (25, 25)),
        ((300, 100), 50, (37, 12)),
        ((1000, 1), 10, (9, 1)),
        ((10, 10, 10), 1, (1, 1, 1)),
        ((5, 0), 2, (2, 0)),
        ((5, 7), 100, (5, 7)),
    ],
)
def test_shares(sizes: tuple[int, ...], offsets_max: int, counts: tuple[int, ...]) -> None:
    some = [unread(number, 40, 40 + size) for number, size in enumerate(sizes)]
    ends = limited_by_offsets(some, offsets_max)
    assert tuple(ends["t", number] - 40 for number in range(len(sizes))) == counts


def test_what_is_lost_is_not_counted() -> None:
    """A limit counts what can be read: else lost offsets would take empty batches to pass."""
    [end] = limited_by_offsets([unread(0, 1000, 2000, begin=10)], 5).values()
    assert end == 1005


@st.composite
def some_places(draw: st.DrawFn) -> tuple[list[Unread], dict[tuple[str, int], list[Place]]]:
    some, places = [], {}
    for partition in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, 1000))
        found = []
        for _ in range(draw(st.integers(1, 4))):
            end = at + draw(st.integers(1, 1000))
            found.append(Place(at, end, None, draw(st.integers(0, 10**6))))
            at = end
        some.append(unread(partition, found[0].start, at))
        places["t", partition] = found
    return some, places


def bytes_of(places: list[Place], end: int) -> float:
    return sum(
        each.size_bytes * max(0, min(end, each.end) - each.start) / (each.end - each.start)
        for each in places
    )


@given(some_places(), st.integers(1, 5 * 10**6))
def test_limits_by_bytes(
    made: tuple[list[Unread], dict[tuple[str, int], list[Place]]], bytes_max: int
) -> None:
    some, places = made
    cuts = cuts_by_bytes(places, bytes_max)
    ends = ends_of(some, {key: cut.offset for key, cut in cuts.items()})
    for each in some:
        assert each.first < ends[each.key] <= each.end
    # One offset of each partition may be too much, and so may one byte.
    further = [each for each in some if ends[each.key] > each.first + 1]
    read = sum(bytes_of(places[each.key], ends[each.key]) for each in further)
    assert read <= bytes_max + len(some) + 1e-3
    if sum(place.size_bytes for found in places.values() for place in found) <= bytes_max:
        sized = {key: sum(place.size_bytes for place in found) for key, found in places.items()}
        assert all(
            sized[each.key] - bytes_of(places[each.key], ends[each.key]) < 1e-3 for each in some
        )


def test_a_cut_by_an_index() -> None:
    """The batch's true bytes say where it ends, not the mean of the segment's records."""
    # Batches of ten offsets at 0, 100, 9000; the second is large.
    entries = [(9, 0), (19, 100), (29, 9000)]
    data = b"".join(each.to_bytes(4) + at.to_bytes(4) for each, at in entries)
    positions = SegmentPositions(data, 500, 10_000)
    place = Place(500, 530, None, 10_000)
    assert Cut(place, 150).offset == 500
    assert Cut(place, 150).offset_by(positions) == 520
    assert Cut(place, 9500).offset == 528
    assert Cut(place, 9500).offset_by(positions) == 530
    assert Cut(place, 50).offset_by(positions) == 510
    # Behind the end of a batch there is always a whole one more.
    assert Cut(place._replace(start=510), 1).offset_by(positions) == 520
    assert Cut(place._replace(start=520), 1).offset_by(positions) == 530
    assert Cut(place._replace(start=515), 1).offset_by(positions) == 530


def test_places_without_known_sizes_are_not_limited() -> None:
    cuts = cuts_by_bytes({("t", 0): [Place(5, 9, None, 0)], ("t", 1): []}, 10)
    assert {key: cut.offset for key, cut in cuts.items()} == {("t", 0): 9}


@pytest.mark.parametrize(
    ("offsets", "waited_ms", "is_late"),
    [
        (5, None, False),  # The first batch after a start waits for nothing.
        (5, 0, True),
        (5, 999, True),
        (5, 1000, False),
        (10, 0, False),
        (0, 2000, False),
    ],
)
def test_delays(offsets: int, waited_ms: int | None, is_late: bool) -> None:
    some = [unread(0, 7, 7 + offsets), unread(1, 0, 0)]
    assert is_delayed(some, 10, waited_ms=waited_ms, delay_ms_max=1000) is is_late
