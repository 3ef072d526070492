"""Reads of remote segments: by hand, and offset by offset against the histories of leaders."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.tiered.lineage import Lineage
from ottla.tiered.read_plan import plan_reads, slice_at, slices_from, transaction_indexes
from ottla.tiered.remote_log import RemoteLog
from tests.unit.tiered.support import (
    DELETING,
    FINISHED,
    copied,
    number_of,
    segment,
    segment_id,
    update,
)
from tests.unit.tiered.test_lineage import entries, histories

LINEAGE = Lineage([(1, 0)], 100)


def planned(remote: RemoteLog, lineage: Lineage, start: int, end: int) -> list[tuple[int, ...]]:
    plan = plan_reads(remote, lineage, start, end)
    assert plan.end_offset == (plan.slices[-1].end_offset if plan.slices else start)
    return [(number_of(each.segment), each.start_offset, each.end_offset) for each in plan.slices]


def test_segments_one_after_the_other() -> None:
    remote = copied(segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29))
    assert planned(remote, LINEAGE, 5, 25) == [(1, 5, 10), (2, 10, 20), (3, 20, 25)]
    assert planned(remote, LINEAGE, 5, 8) == [(1, 5, 8)]
    assert planned(remote, LINEAGE, 5, 100) == [(1, 5, 10), (2, 10, 20), (3, 20, 30)]
    assert planned(remote, LINEAGE, 30, 100) == []
    assert planned(remote, LINEAGE, 10, 10) == []


def test_overlapping_segments() -> None:
    remote = copied(segment(1, 0, 19), segment(2, 5, 9), segment(3, 15, 29))
    assert planned(remote, LINEAGE, 0, 100) == [(1, 0, 20), (3, 20, 30)]
    assert planned(remote, LINEAGE, 16, 100) == [(3, 16, 30)]


def test_a_plan_ends_at_a_hole() -> None:
    remote = copied(segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29))
    remote.replay(update(2, DELETING))
    assert planned(remote, LINEAGE, 0, 100) == [(1, 0, 10)]
    assert slice_at(remote, LINEAGE, 10) is None


def test_records_that_an_unclean_election_cut_off_are_not_read() -> None:
    lineage = Lineage([(1, 0), (2, 5)], 100)
    remote = copied(segment(1, 0, 9), segment(2, 5, 19, ((2, 5),)))
    assert planned(remote, lineage, 0, 100) == [(1, 0, 5), (2, 5, 20)]


def test_transaction_indexes() -> None:
    remote = copied(
        segment(1, 0, 9, txn_index_empty=False),
        segment(2, 10, 19),
        segment(3, 20, 29, txn_index_empty=False),
    )
    found = [each.segment_id for each in transaction_indexes(remote, LINEAGE, 5)]
    assert found == [segment_id(1), segment_id(3)]
    found = [each.segment_id for each in transaction_indexes(remote, LINEAGE, 10)]
    assert found == [segment_id(3)]


@given(histories(), st.data())
def test_each_offset_is_read_from_its_own_history(
    logs: list[list[int]], data: st.DataObject
) -> None:
    log = data.draw(st.sampled_from(logs))
    remote, copies = RemoteLog(), {}
    for number in range(data.draw(st.integers(0, 6))):
        source = data.draw(st.sampled_from(logs))
        if source:
            start = data.draw(st.integers(0, len(source) - 1))
            end = data.draw(st.integers(start, len(source) - 1))
            each = segment(number, start, end, entries(source, start, end + 1))
            copies[each.segment_id] = source
            for record in (each, update(number, FINISHED)):
                remote.replay(record)
    lineage = Lineage(entries(log, 0, len(log)), len(log))
    for offset in range(len(log)):
        having = [
            each
            for each in remote.segments()
            if each.start_offset <= offset <= each.end_offset
            and copies[each.segment_id][: offset + 1][each.start_offset :]
            == log[each.start_offset : offset + 1]
        ]
        at = offset
        for each in slices_from(remote, lineage, offset):
            assert each.start_offset == at
            source = copies[each.segment.segment_id]
            assert source[at : each.end_offset] == log[at : each.end_offset]
            at = each.end_offset
        assert (at > offset) == bool(having)
