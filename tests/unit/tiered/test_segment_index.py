"""Lookups by leader epoch and offset: overlaps by hand, and a plain search as the model."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.tiered.segment_index import SegmentIndex
from ottla.tiered.segment_metadata import SegmentMetadata, epoch_ranges
from tests.unit.tiered.support import segment, segment_id


def test_segments_of_several_epochs() -> None:
    index = SegmentIndex([segment(1, 0, 99, ((0, 0), (2, 50)))])
    assert index.find(0, 49) == segment_id(1)
    assert index.find(0, 50) is None
    assert index.find(2, 49) is None
    assert index.find(2, 99) == segment_id(1)
    assert (index.highest_offset(0), index.highest_offset(1), index.highest_offset(2)) == (
        49,
        -1,
        99,
    )


def test_superset_hides_subset_until_it_is_deleted() -> None:
    # KAFKA-15168: two leaders uploaded the same offsets.
    subset, superset = segment(1, 10, 90), segment(2, 0, 100)
    for order in ((subset, superset), (superset, subset)):
        index = SegmentIndex(order)
        assert index.find(1, 50) == segment_id(2)
        assert index.highest_offset(1) == 100
        index.remove(superset)
        assert index.find(1, 50) == segment_id(1)
        assert index.find(1, 9) is None
        assert index.highest_offset(1) == 90
        index.remove(subset)
        assert index.find(1, 50) is None


def test_a_segment_that_is_added_twice() -> None:
    index = SegmentIndex([segment(1, 0, 9), segment(1, 0, 9)])
    index.remove(segment(1, 0, 9))
    assert index.find(1, 5) is None


@st.composite
def segments(draw: st.DrawFn) -> list[SegmentMetadata]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 20))
        end = start + draw(st.integers(0, 12))
        cuts = draw(st.lists(st.integers(start, end + 3), max_size=2).map(sorted))
        first = draw(st.integers(0, 2))
        epochs = tuple((first + i, offset) for i, offset in enumerate([start, *cuts]))
        found.append(segment(number, start, end, epochs))
    return found


@given(segments(), st.randoms(use_true_random=False))
def test_against_a_plain_search(added, random) -> None:  # type: ignore[no-untyped-def]
    index = SegmentIndex(added)
    left = list(added)
    while True:
        for epoch in range(6):
            ranges = [
                (each.segment_id, start, end)
                for each in left
                for of, start, end in epoch_ranges(each)
                if of == epoch
            ]
            assert index.highest_offset(epoch) == max((end for _, _, end in ranges), default=-1)
            for offset in range(40):
                found = index.find(epoch, offset)
                having = {each: end for each, start, end in ranges if start <= offset <= end}
                if not having:
                    assert found is None
                else:
                    assert found is not None
                    assert having[found] == max(having.values())  # The farthest of them.
        if not left:
            break
        index.remove(left.pop(random.randrange(len(left))))
