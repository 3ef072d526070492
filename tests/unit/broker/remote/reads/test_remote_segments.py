"""What is read of a remote segment belongs to the log's lineage, whatever was copied.

Method: hypothesis makes up two histories that part somewhere; one is the log's, segments of both
are remote. Every slice must lie in the log's own records, and leave out none that are remote.
"""

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.remote.reads.remote_segments import slices
from ottla.tiered.lineage import Lineage
from ottla.tiered.read_plan import slice_at
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from tests.unit.broker.remote.support import RemoteLog
from tests.unit.tiered.support import segment as metadata


def segment(history: list[int], start: int, end: int) -> SegmentMetadata:
    """Return the segment [start, end) of a log whose records have these epochs."""
    epochs = [
        (history[at], at)
        for at in range(start, end)
        if at == start or history[at] != history[at - 1]
    ]
    return metadata(0, start, end - 1, tuple(epochs), state=SegmentState.COPY_FINISHED)


def cut(history: list[int], sizes: list[int]) -> list[SegmentMetadata]:
    """Return segments of these sizes, as far as they fit."""
    found, start = [], 0
    for size in sizes:
        if start + size > len(history):
            break
        found.append(segment(history, start, start + size))
        start += size
    return found


def lineage(history: list[int]) -> Lineage:
    starts = [at for at, epoch in enumerate(history) if at == 0 or epoch != history[at - 1]]
    return Lineage(((history[at], at) for at in starts), len(history))


EPOCHS = st.lists(st.integers(0, 3), max_size=12).map(sorted)
SIZES = st.lists(st.integers(1, 6), max_size=6)


@given(shared=EPOCHS, own=EPOCHS, other=EPOCHS, sizes=SIZES, other_sizes=SIZES)
def test_slices_are_of_the_log_s_own_records(
    shared: list[int], own: list[int], other: list[int], sizes: list[int], other_sizes: list[int]
) -> None:
    # Leader epochs are not shared by two histories: even ones are the log's, odd ones the other's.
    ours = shared + [10 + 2 * epoch for epoch in own]
    theirs = shared + [11 + 2 * epoch for epoch in other]
    ours_remote = cut(ours, sizes)
    remote = RemoteLog([*cut(theirs, other_sizes), *ours_remote])
    read: list[int] = []
    for found in slices(remote, lineage(ours), 0, len(ours)):
        assert found.start_offset < found.end_offset <= found.segment.end_offset + 1
        for offset in range(found.start_offset, found.end_offset):
            known = [epoch for epoch, start in found.segment.epochs if start <= offset][-1]
            assert known == ours[offset]
            read.append(offset)
    assert read == sorted(set(read))
    until = max((each.end_offset + 1 for each in ours_remote), default=0)
    assert read[:until] == list(range(until)) or not ours_remote


def test_offsets_without_an_epoch_or_a_segment_are_nowhere() -> None:
    remote = RemoteLog([segment([0, 0, 0, 0], 2, 4)])
    known = Lineage([(0, 1)], 4)
    assert slice_at(remote, known, 0) is None
    assert slice_at(remote, known, 1) is None
    found = slice_at(remote, known, 3)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (3, 4)
    (only,) = slices(remote, known, 0, 3)
    assert (only.start_offset, only.end_offset) == (2, 3)
