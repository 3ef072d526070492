"""Lineage: which of a segment's records are the log's, by hand and offset by offset.

Method: the cases of KAFKA-16511 and KAFKA-15241 with their numbers; then a plain model: a log is
the epoch of each of its offsets, and segments are cut out of the histories of several leaders.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.turns import at_once
from ottla.tiered.lineage import Lineage, visible_in_steps, visible_segments
from ottla.tiered.segment_metadata import Epochs
from tests.unit.tiered.support import DELETING, FINISHED, STARTED, segment, segment_id


def test_epochs_of_offsets() -> None:
    lineage = Lineage([(5, 10), (7, 15), (9, 100)], 200)
    assert [lineage.epoch_of(each) for each in (0, 9, 10, 14, 15, 99, 100, 500)] == [
        -1, -1, 5, 5, 7, 7, 9, 9,
    ]  # fmt: skip
    assert [lineage.end_of(each) for each in (4, 5, 6, 7, 9, 10)] == [-1, 15, -1, 100, 200, -1]
    assert [lineage.start_of(each) for each in (4, 5, 6, 7, 9, 10)] == [-1, 10, -1, 15, 100, -1]
    assert (lineage.first_epoch, lineage.latest_epoch) == (5, 9)
    assert lineage.epochs == (5, 7, 9)
    assert lineage.entries == ((5, 10), (7, 15), (9, 100))


def test_no_entries() -> None:
    lineage = Lineage([], 0)
    assert (lineage.first_epoch, lineage.latest_epoch, lineage.epoch_of(0)) == (-1, -1, -1)
    assert lineage.shared_end(segment(1, 0, 9)) == -1


CACHE = ((5, 10), (7, 15), (9, 100))


@pytest.mark.parametrize(
    ("cache", "start", "end", "epochs", "shared"),
    [
        # In the lineage.
        (CACHE, 10, 14, ((5, 10),), 14),
        (CACHE, 14, 150, ((5, 14), (7, 15), (9, 100)), 150),
        (CACHE, 5, 50, ((3, 5), (5, 8), (7, 15)), 50),  # Older entries are gone with the log start.
        (CACHE, 5, 9, ((5, 5),), 9),  # Below the log start: the epoch of its end is known.
        (((7, 51), (9, 100)), 14, 150, ((5, 14), (7, 15), (9, 100)), 150),  # KAFKA-16511
        (((7, 51), (9, 100)), 14, 50, ((5, 14), (7, 15)), 50),
        (CACHE, 10, 20, ((5, 10), (6, 15), (7, 15)), 20),  # Epoch 6 has no records.
        (CACHE, 10, 20, ((5, 10), (7, 15), (9, 21)), 20),  # Nor epoch 9.
        (CACHE, 100, 199, ((9, 100),), 199),
        # Not, or not wholly.
        (CACHE, 100, 200, ((9, 100),), 199),  # It ends behind the log's end.
        (CACHE, 200, 210, ((9, 200),), -1),
        (CACHE, 5, 9, ((4, 5),), -1),
        (CACHE, 5, 9, ((6, 5),), -1),
        (CACHE, 10, 20, ((5, 10),), 14),  # KAFKA-15241: epoch 5 ended sooner.
        (CACHE, 12, 20, ((5, 12), (6, 18)), 14),
        (CACHE, 15, 20, ((6, 15),), -1),
        (CACHE, 10, 20, ((6, 10),), -1),
        (CACHE, 10, 120, ((5, 10), (7, 15), (8, 90)), 89),
        (CACHE, 10, 120, ((5, 10), (7, 15)), 99),
        (CACHE, 5, 20, ((3, 5), (6, 8)), -1),
    ],
)
def test_shared_end(cache: Epochs, start: int, end: int, epochs: Epochs, shared: int) -> None:
    lineage = Lineage(cache, 200)
    each = segment(1, start, end, epochs)
    assert lineage.shared_end(each) == shared
    assert lineage.contains(each) == (shared == end)


@st.composite
def histories(draw: st.DrawFn) -> list[list[int]]:
    """Draw logs of leaders, the epoch of each offset: each continues a part of an earlier one."""
    logs: list[list[int]] = [[]]
    for epoch in range(draw(st.integers(1, 5))):
        before = draw(st.sampled_from(logs))
        kept = draw(st.integers(0, len(before)))
        logs.append(before[:kept] + [epoch] * draw(st.integers(0, 8)))
    return logs


def entries(log: list[int], start: int, end: int) -> Epochs:
    """Return the leader epochs of [start, end)."""
    found: list[tuple[int, int]] = []
    for offset in range(start, end):
        if not found or found[-1][0] != log[offset]:
            found.append((log[offset], offset))
    return tuple(found)


@given(histories(), st.data())
def test_against_the_epoch_of_each_offset(logs: list[list[int]], data: st.DataObject) -> None:
    log = data.draw(st.sampled_from(logs))
    copied = data.draw(st.sampled_from([each for each in logs if each] or [[0]]))
    log_start = data.draw(st.integers(0, len(log)))
    start = data.draw(st.integers(0, len(copied) - 1))
    end = data.draw(st.integers(start, len(copied) - 1))
    lineage = Lineage(entries(log, log_start, len(log)), len(log))
    shared = lineage.shared_end(segment(1, start, end, entries(copied, start, end + 1)))
    if log_start == len(log) or end < log_start:
        assert shared in (-1, end)
        return
    expected = -1
    for offset in range(max(start, log_start), end + 1):
        if offset >= len(log) or log[offset] != copied[offset]:
            break
        expected = offset
    assert shared == expected


def test_visible_segments() -> None:
    lineage = Lineage([(1, 0)], 100)
    found = visible_segments(
        [
            segment(1, 0, 9, state=FINISHED),
            segment(2, 0, 19, state=FINISHED),  # Covers the first.
            segment(3, 5, 15, state=FINISHED),  # Covered by the second.
            segment(4, 15, 29, state=FINISHED),  # Overlaps with it.
            segment(5, 30, 39, state=STARTED),
            segment(6, 30, 39, state=DELETING),
            segment(7, 30, 39, ((2, 30),), state=FINISHED),  # Another history.
            segment(8, 30, 120, state=FINISHED),  # Behind the log's end.
        ],
        lineage,
    )
    assert [(each.segment.segment_id, each.end_offset) for each in found] == [
        (segment_id(2), 19),
        (segment_id(4), 29),
        (segment_id(8), 99),
    ]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.booleans()), max_size=12),
    st.integers(1, 4),
)
def test_visible_segments_are_the_same_in_steps(
    ranges: list[tuple[int, int, bool]], step: int
) -> None:
    lineage = Lineage([(0, 0)], 20)
    segments = [
        segment(
            number, start, start + more, epochs=((0, start),), state=FINISHED if ok else DELETING
        )
        for number, (start, more, ok) in enumerate(ranges)
    ]
    found = visible_segments(segments, lineage)
    ordered = sorted(segments, key=lambda each: each.start_offset)
    assert at_once(visible_in_steps(ordered, lineage, step)) == found
    ends = [each.end_offset for each in found]
    starts = [each.segment.start_offset for each in found]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))
    # Whatever is readable is within one of them; none is within another.
    for each in segments:
        if each.state is FINISHED:
            assert any(
                seen.segment.start_offset <= each.start_offset
                and each.end_offset <= seen.end_offset
                for seen in found
            )
