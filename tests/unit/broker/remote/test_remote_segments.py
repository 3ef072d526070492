"""What is read of a remote segment belongs to the log's history, whatever was copied.

Method: hypothesis makes up two histories that part somewhere; one is the log's, segments of both
are remote. Every stretch must lie in the log's own records, and leave out none that are remote.
"""

from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.broker.remote.remote_segments import History, stretch_at, stretches
from ottla.log.epoch_cache import EpochCache, EpochEntry
from tests.unit.broker.remote.support import RemoteLog, Segment


def segment(history: list[int], start: int, end: int) -> Segment:
    """Return the segment [start, end) of a log whose records have these epochs."""
    epochs = [
        (history[at], at)
        for at in range(start, end)
        if at == start or history[at] != history[at - 1]
    ]
    return Segment(
        directory="t/0",
        segment_id=Uuid(bytes(16)),
        start_offset=start,
        end_offset=end - 1,
        max_timestamp_ms=0,
        size_bytes=1,
        epochs=tuple(epochs),
    )


def cut(history: list[int], sizes: list[int]) -> list[Segment]:
    """Return segments of these sizes, as far as they fit."""
    found, start = [], 0
    for size in sizes:
        if start + size > len(history):
            break
        found.append(segment(history, start, start + size))
        start += size
    return found


def epochs_of(history: list[int]) -> EpochCache:
    cache = EpochCache()
    for at, epoch in enumerate(history):
        if at == 0 or epoch != history[at - 1]:
            cache.assign(epoch, at)
    return cache


EPOCHS = st.lists(st.integers(0, 3), max_size=12).map(sorted)
SIZES = st.lists(st.integers(1, 6), max_size=6)


@given(shared=EPOCHS, own=EPOCHS, other=EPOCHS, sizes=SIZES, other_sizes=SIZES)
def test_stretches_are_of_the_log_s_own_records(
    shared: list[int], own: list[int], other: list[int], sizes: list[int], other_sizes: list[int]
) -> None:
    # Leader epochs are not shared by two histories: even ones are the log's, odd ones the other's.
    ours = shared + [10 + 2 * epoch for epoch in own]
    theirs = shared + [11 + 2 * epoch for epoch in other]
    ours_remote = cut(ours, sizes)
    remote = RemoteLog([*cut(theirs, other_sizes), *ours_remote])
    history = History(epochs_of(ours), len(ours))
    read: list[int] = []
    for found in stretches(remote, history, 0, len(ours)):
        assert found.start < found.end <= found.segment.end_offset + 1
        for offset in range(found.start, found.end):
            known = [epoch for epoch, start in found.segment.epochs if start <= offset][-1]
            assert known == ours[offset]
            read.append(offset)
    assert read == sorted(set(read))
    until = max((each.end_offset + 1 for each in ours_remote), default=0)
    assert read[:until] == list(range(until)) or not ours_remote


def test_offsets_without_an_epoch_or_a_segment_are_nowhere() -> None:
    remote = RemoteLog([segment([0, 0, 0, 0], 2, 4)])
    history = History(EpochCache([EpochEntry(0, 1)]), 4)
    assert stretch_at(remote, history, 0) is None
    assert stretch_at(remote, history, 1) is None
    found = stretch_at(remote, history, 3)
    assert found is not None
    assert found[1:] == (3, 4)
    assert [each[1:] for each in stretches(remote, history, 0, 3)] == [(2, 3)]
