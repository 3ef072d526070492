"""What index objects say must lead to every offset, whatever they leave out.

Method: hypothesis draws batches and which of them are indexed; each range is looked for between
the two positions. Tables for the other indexes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_OFFSET
from ottla.log.indexes.offset_index import ENTRY
from ottla.log.indexes.time_index import ENTRY as TIME_ENTRY
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import ProducerEntry
from ottla.tiered.segment_files import (
    AbortedTransaction,
    SegmentPositions,
    aborted_in,
    first_open_offset,
    offset_before,
)

START = 100


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12), st.data())
def test_all_of_a_range_is_between_its_positions(
    batches: list[tuple[int, bool]], data: st.DataObject
) -> None:
    places: list[tuple[int, int]] = []  # Position and last offset of each batch, of 10 bytes.
    entries, offset = b"", START
    for number, (count, is_indexed) in enumerate(batches):
        offset += count
        places.append((10 * number, offset - 1))
        if is_indexed and offset - 1 > START:
            entries += ENTRY.pack(offset - 1 - START, 10 * number)
    size = 10 * len(batches)
    index = SegmentPositions(entries, START, size)
    low = data.draw(st.integers(START, offset - 1))
    high = data.draw(st.integers(low + 1, offset))
    begin, end = index.position_of(low), index.end_position_of(high)
    firsts = [START, *(last + 1 for _, last in places)]
    for first, (position, last) in zip(firsts, places, strict=False):
        if first < high and last >= low:
            assert begin <= position < end
    cut = index.cut_at(data.draw(st.integers(0, size)))
    assert cut == NO_OFFSET or cut - 1 in [last for _, last in places]


def test_an_index_is_as_close_as_its_entries() -> None:
    entries = b"".join(ENTRY.pack(*each) for each in [(9, 0), (19, 100), (29, 200), (39, 300)])
    index = SegmentPositions(entries, START, 400)
    assert [index.position_of(each) for each in (100, 108, 109, 119, 125, 139)] == [
        0, 0, 0, 100, 100, 300,
    ]  # fmt: skip
    assert [index.end_position_of(each) for each in (101, 110, 111, 120, 140)] == [
        100, 100, 200, 200, 400,
    ]  # fmt: skip
    assert [index.cut_at(each) for each in (0, 150, 399)] == [110, 120, 140]
    assert SegmentPositions(b"", START, 400).end_position_of(110) == 400
    assert SegmentPositions(b"", START, 400).cut_at(200) == NO_OFFSET


@pytest.mark.parametrize(
    "data",
    [
        b"1234567",
        ENTRY.pack(5, 50) + ENTRY.pack(5, 60),
        ENTRY.pack(5, 50) + ENTRY.pack(6, 50),
        ENTRY.pack(5, 400),
    ],
)
def test_damage(data: bytes) -> None:
    with pytest.raises(ValueError, match="index"):
        SegmentPositions(data, START, 400)


def test_only_own_markers_count() -> None:
    entries = [
        AbortedTransaction(7, 90, 105, 106),
        AbortedTransaction(8, 95, 115, 116),
        AbortedTransaction(7, 110, 125, 126),
        AbortedTransaction(9, 112, 145, 146),  # Behind what is this segment's.
    ]
    found, complete = aborted_in(entries, (100, 130), 106, 120)
    assert [each.first_offset for each in found] == [95, 110]
    assert complete
    # The entry that completes the search is of a history that was cut off.
    assert aborted_in(entries, (100, 120), 106, 120) == ([entries[1]], False)


def test_the_first_open_transaction() -> None:
    entries = [ProducerEntry(producer_id=1, epoch=0, transaction_start=each) for each in (-1, 70)]
    entries[1].producer_id = 2
    assert first_open_offset(encode_snapshot(entries)) == 70
    assert first_open_offset(encode_snapshot(entries[:1])) == NO_OFFSET
    with pytest.raises(ValueError, match="CRC"):
        first_open_offset(encode_snapshot(entries)[:-1] + b"x")


def test_where_records_may_be_as_new_as_a_timestamp() -> None:
    data = TIME_ENTRY.pack(1_000, 5) + TIME_ENTRY.pack(2_000, 9)
    # The record at the entry may be the first with exactly its timestamp.
    assert [offset_before(data, START, each) for each in (0, 1_000, 1_001, 2_000, 2_001)] == [
        100, 100, 105, 105, 109,
    ]  # fmt: skip
