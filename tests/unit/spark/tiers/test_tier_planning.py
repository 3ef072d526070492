"""Places of a partition's offsets, how they are cut and what tasks get. See the module's picture.

Method: tables; that rows are right whatever the tiers hold is `test_tiered_planner`'s.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import Uuid
from ottla.log.indexes.offset_index import ENTRY
from ottla.spark.tiers.tier_planning import (
    Aborted,
    AbortedSearch,
    Cutting,
    Limits,
    Piece,
    Place,
    RemoteSegment,
    Tiers,
    cut_place,
    cuttings,
    limits_of,
    offsets_to_ask,
    packed,
    places_of,
    with_own_ranges,
)
from ottla.tiered.segment_files import AbortedTransaction, SegmentPositions

MB = 1024 * 1024


def segment(number: int, start: int, end: int, size: int = 1_000, **changes: bool) -> RemoteSegment:
    return RemoteSegment(
        topic="t",
        topic_id=Uuid(bytes(16)),
        partition=0,
        segment_id=Uuid(number.to_bytes(16, "big")),
        start_offset=start,
        end_offset=end,
        own=(start, end),
        size_bytes=size,
        max_timestamp_ms=0,
        **changes,
    )


ONE, TWO, THREE = with_own_ranges([segment(1, 0, 60), segment(2, 50, 100), segment(3, 120, 150)])
TIERS = Tiers(segments=(ONE, TWO, THREE), local_start=90, local_end=190, local_bytes=10_000)


def test_overlapping_segments_share_nothing() -> None:
    assert [each.own for each in TIERS.segments] == [(0, 60), (60, 100), (120, 150)]


def test_places() -> None:
    assert places_of(10, 180, TIERS) == [
        Place(10, 60, ONE, 833),
        Place(60, 100, TWO, 800),
        Place(100, 120, None, 2_000),  # A hole: brokers have it.
        Place(120, 150, THREE, 1_000),
        Place(150, 180, None, 3_000),
    ]
    assert places_of(70, 80, TIERS) == [Place(70, 80, TWO, 200)]
    assert places_of(160, 170, TIERS) == [Place(160, 170, None, 1_000)]
    assert places_of(5, 5, TIERS) == []


def test_places_are_cut_by_bytes_and_records() -> None:
    places = [Place(0, 60, ONE, 300 * MB), Place(60, 100, TWO, 10 * MB)]
    limits = limits_of(places, tasks_min=1, max_records=None)
    assert [each.pieces for each in cuttings(places, limits)] == [3, 1]
    limits = limits_of(places, tasks_min=1, max_records=7)
    assert [each.pieces for each in cuttings(places, limits)] == [9, 6]
    limits = limits_of(places, tasks_min=31, max_records=None)
    assert limits.size_bytes == 10 * MB
    # Never more pieces than offsets.
    assert cuttings([Place(0, 2, ONE, 900 * MB)], limits)[0].pieces == 2


def test_which_cuttings_need_an_index() -> None:
    assert not Cutting(Place(0, 60, ONE, 1), 1).needs_index
    assert Cutting(Place(0, 60, ONE, 1), 2).needs_index
    assert Cutting(Place(1, 60, ONE, 1), 1).needs_index
    assert Cutting(Place(0, 59, ONE, 1), 1).needs_index
    assert Cutting(Place(60, 100, TWO, 1), 1).needs_index  # It begins at 50.
    assert not Cutting(Place(150, 180, None, 1), 9).needs_index


INDEX = SegmentPositions(
    b"".join(ENTRY.pack(*each) for each in [(3, 0), (6, 100), (49, 200), (59, 900)]), 0, 1_000
)
"""Of segment 1: the batch of the offsets 7 to 49 has 700 of its 1000 bytes."""


def test_a_segment_is_cut_at_positions_of_its_index() -> None:
    limits = Limits(size_bytes=500, records=None)
    cut = list(cut_place(Cutting(Place(0, 60, ONE, 1_000), 2), INDEX, limits))
    assert [(each.start, each.end) for each in cut] == [(0, 50), (50, 60)]
    # Without an index, or with one that cannot cut so often, by offsets.
    cut = list(cut_place(Cutting(Place(0, 60, ONE, 1_000), 2), None, limits))
    assert [(each.start, each.end) for each in cut] == [(0, 30), (30, 60)]
    cut = list(cut_place(Cutting(Place(0, 60, ONE, 1_000), 12), INDEX, limits))
    assert [each.end for each in cut] == list(range(5, 61, 5))
    at_most = Limits(size_bytes=500, records=30)
    cut = list(cut_place(Cutting(Place(0, 60, ONE, 1_000), 2), INDEX, at_most))
    assert [(each.start, each.end) for each in cut] == [(0, 30), (30, 60)]


def test_small_neighbours_are_packed() -> None:
    pieces = [Piece(number, number + 1, ONE, size) for number, size in enumerate([4, 4, 4, 9, 1])]
    sizes = [
        [each.size_bytes for each in some]
        for some in packed(pieces, Limits(size_bytes=10, records=None))
    ]
    assert sizes == [[4, 4], [4], [9, 1]]
    assert len(packed(pieces, Limits(size_bytes=100, records=2))) == 3
    assert packed([], Limits(size_bytes=10, records=None)) == []


@pytest.mark.parametrize(
    ("start", "end", "latest", "offsets"),
    [
        (10, 180, 180, [100, 150]),
        (10, 100, 180, [100]),  # What is open at the end of the range is decided in the hole.
        (10, 80, 180, [100]),
        (120, 150, 180, [150]),
        (120, 150, 150, [150]),  # Markers may be behind the last stable offset.
        (105, 110, 180, []),  # Brokers name them with the records.
    ],
)
def test_where_brokers_are_asked(start: int, end: int, latest: int, offsets: list[int]) -> None:
    assert offsets_to_ask(places_of(start, end, TIERS), TIERS, latest) == offsets


def test_no_broker_is_asked_where_the_log_ends() -> None:
    ended = replace(TIERS, local_end=150)
    assert offsets_to_ask(places_of(120, 150, ended), ended, 150) == []


def entry(producer_id: int, first: int, last: int, stable: int = 0) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, stable)


def test_a_search_goes_on_behind_the_range_until_all_is_decided() -> None:
    search = AbortedSearch(10, 70, TIERS)
    assert search.next_segments() == [ONE, TWO]
    search.found(TWO, [entry(1, 65, 99)])
    search.found(ONE, [entry(2, 5, 20, 21), entry(3, 0, 5, 6), entry(4, 30, 70, 71)])
    assert search.next_segments() == [THREE]
    search.found(THREE, [entry(5, 20, 125), entry(6, 80, 130, 131)])
    assert search.next_segments() == []
    # The marker at 70 is not read from segment 1, and producers 3 and 6 have nothing in the range.
    assert {each.producer_id for each in search.entries} == {1, 2, 5}


def test_a_search_ends_once_all_is_decided() -> None:
    search = AbortedSearch(10, 70, TIERS)
    search.found(ONE, [])
    search.found(TWO, [entry(1, 65, 99, 100)])
    assert search.next_segments() == []


def test_segments_without_aborted_transactions_are_not_read() -> None:
    tiers = replace(
        TIERS, segments=tuple(replace(each, txn_index_empty=True) for each in (ONE, TWO))
    )
    assert AbortedSearch(0, 60, tiers).next_segments() == []


def test_aborted_transactions_of_a_piece() -> None:
    aborted = Aborted(
        entries=(entry(1, 10, 20), entry(2, 30, 45)),
        open_at=((100, ((3, 15), (4, 120))), (40, ((5, 12),))),
    )
    assert aborted.within(0, 11) == ((1, 10),)
    assert aborted.within(20, 30) == ((1, 10), (5, 12), (3, 15))
    assert aborted.within(21, 30) == ((5, 12), (3, 15))
    assert aborted.within(42, 50) == ((3, 15), (2, 30))
    assert aborted.within(110, 121) == ()
