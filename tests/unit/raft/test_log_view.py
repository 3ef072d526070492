"""How the leader validates a reader's offset and epoch, and where a follower truncates.

Method: the cases of KIP-595's and KIP-630's text in tables; then histories of two logs that share
a beginning, drawn at random, which must always end equal and never lose what both share.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.log_view import Diverging, LogView, NeedsSnapshot, Valid, Verdict
from ottla.raft.values import EpochStart, OffsetAndEpoch

# Offsets 0-4 of epoch 1, 5-9 of epoch 3, 10-14 of epoch 4.
EPOCHS = (EpochStart(1, 0), EpochStart(3, 5), EpochStart(4, 10))


@pytest.mark.parametrize(
    ("offset", "epoch", "verdict"),
    [
        (0, 0, Valid()),
        (3, 1, Valid()),
        (5, 1, Valid()),
        (7, 3, Valid()),
        (15, 4, Valid()),
        (6, 1, Diverging(OffsetAndEpoch(5, 1))),
        (7, 2, Diverging(OffsetAndEpoch(5, 1))),
        (12, 3, Diverging(OffsetAndEpoch(10, 3))),
        (16, 4, Diverging(OffsetAndEpoch(15, 4))),
        (3, 0, Diverging(OffsetAndEpoch(0, 0))),
        (20, 9, Diverging(OffsetAndEpoch(15, 4))),
    ],
)
def test_a_whole_log(offset: int, epoch: int, verdict: Verdict) -> None:
    assert LogView(end_offset=15, epochs=EPOCHS).validate_offset_and_epoch(offset, epoch) == verdict


@pytest.mark.parametrize(
    ("offset", "epoch", "verdict"),
    [
        (0, 0, NeedsSnapshot(OffsetAndEpoch(12, 4))),
        (5, 1, NeedsSnapshot(OffsetAndEpoch(12, 4))),
        (7, 1, NeedsSnapshot(OffsetAndEpoch(12, 4))),
        (7, 3, Valid()),
        (9, 3, Valid()),
        (9, 2, NeedsSnapshot(OffsetAndEpoch(12, 4))),
        (11, 3, Diverging(OffsetAndEpoch(10, 3))),
        (15, 4, Valid()),
        (16, 5, Diverging(OffsetAndEpoch(15, 4))),
    ],
)
def test_a_log_whose_beginning_is_a_snapshot(offset: int, epoch: int, verdict: Verdict) -> None:
    log = LogView(
        start_offset=7,
        end_offset=15,
        epochs=(EpochStart(3, 7), EpochStart(4, 10)),
        snapshots=(OffsetAndEpoch(7, 3), OffsetAndEpoch(12, 4)),
    )
    assert log.validate_offset_and_epoch(offset, epoch) == verdict


def test_an_empty_log_of_a_reader_is_sent_to_the_snapshot_though_the_log_is_whole() -> None:
    log = LogView(end_offset=15, epochs=EPOCHS, snapshots=(OffsetAndEpoch(10, 3),))
    assert log.validate_offset_and_epoch(0, 0) == NeedsSnapshot(OffsetAndEpoch(10, 3))
    assert log.validate_offset_and_epoch(2, 1) == NeedsSnapshot(OffsetAndEpoch(10, 3))
    assert log.validate_offset_and_epoch(7, 3) == Valid()


def test_a_snapshot_at_offset_0_is_not_worth_fetching() -> None:
    log = LogView(end_offset=15, epochs=EPOCHS, snapshots=(OffsetAndEpoch(0, 0),))
    assert log.validate_offset_and_epoch(0, 0) == Valid()


def test_an_epoch_just_before_the_log_ends_with_the_oldest_snapshot() -> None:
    log = LogView(
        start_offset=10,
        end_offset=15,
        epochs=(EpochStart(4, 10),),
        snapshots=(OffsetAndEpoch(10, 3),),
    )
    assert log.end_offset_of(3) == OffsetAndEpoch(10, 3)
    assert log.validate_offset_and_epoch(10, 3) == Valid()
    assert log.validate_offset_and_epoch(12, 3) == Diverging(OffsetAndEpoch(10, 3))


def test_last_epoch_comes_from_the_snapshot_where_no_record_is_left() -> None:
    log = LogView(start_offset=8, end_offset=8, snapshots=(OffsetAndEpoch(8, 5),))
    assert log.end == OffsetAndEpoch(8, 5)
    log.appended(base_offset=8, next_offset=9, epoch=6)
    assert log.end == OffsetAndEpoch(9, 6)
    assert LogView().end == OffsetAndEpoch(0, 0)


def test_deleting_the_prefix_keeps_the_epoch_of_what_is_left() -> None:
    log = LogView(
        end_offset=15, epochs=EPOCHS, snapshots=(OffsetAndEpoch(3, 1), OffsetAndEpoch(7, 3))
    )
    log.prefix_deleted(OffsetAndEpoch(7, 3))
    assert (log.start_offset, log.snapshots) == (7, [OffsetAndEpoch(7, 3)])
    assert log.epochs == [EpochStart(3, 7), EpochStart(4, 10)]


def test_deleting_everything_leaves_the_snapshots_epoch() -> None:
    log = LogView(end_offset=15, epochs=EPOCHS, snapshots=(OffsetAndEpoch(15, 4),))
    log.prefix_deleted(OffsetAndEpoch(15, 4))
    assert log.epochs == []
    assert log.end == OffsetAndEpoch(15, 4)


def test_a_snapshot_replaces_log_and_older_snapshots() -> None:
    log = LogView(end_offset=15, epochs=EPOCHS, snapshots=(OffsetAndEpoch(3, 1),))
    log.restarted_at(OffsetAndEpoch(40, 6))
    assert (log.start_offset, log.end, log.snapshots) == (
        40,
        OffsetAndEpoch(40, 6),
        [OffsetAndEpoch(40, 6)],
    )


# A log as the epoch of each record: epochs never fall.
histories = st.lists(st.integers(1, 4), max_size=12).map(sorted)


def view_of(epochs: list[int]) -> LogView:
    log = LogView()
    for offset, epoch in enumerate(epochs):
        log.appended(base_offset=offset, next_offset=offset + 1, epoch=epoch)
    return log


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Draw two logs that Raft allows: equal records up to a point, and never again after it."""
    shared = draw(histories)
    last = shared[-1] if shared else 0
    epochs = draw(st.permutations(range(last + 1, last + 9)))
    ours = sorted(draw(st.lists(st.sampled_from(epochs[:4]), max_size=6)))
    theirs = sorted(draw(st.lists(st.sampled_from(epochs[4:]), max_size=6)))
    return shared + ours, shared + theirs, len(shared)


@given(two_logs())
def test_truncation_ends_at_the_last_shared_record(logs: tuple[list[int], list[int], int]) -> None:
    leaders, followers, shared = logs
    leader, follower = view_of(leaders), view_of(followers)
    for _round in range(20):
        verdict = leader.validate_offset_and_epoch(follower.end_offset, follower.last_epoch)
        if isinstance(verdict, Valid):
            break
        assert isinstance(verdict, Diverging)
        before = follower.end_offset
        follower.truncated_to(follower.truncation_point(verdict.end))
        assert follower.end_offset < before, "every round must cut something"
        assert follower.end_offset >= shared, "what both share is never cut"
    assert isinstance(
        leader.validate_offset_and_epoch(follower.end_offset, follower.last_epoch), Valid
    )
    assert followers[: follower.end_offset] == leaders[: follower.end_offset]


@given(histories, st.data())
def test_a_prefix_is_always_valid(epochs: list[int], data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(epochs)))
    leader, reader = view_of(epochs), view_of(epochs[:end])
    assert leader.validate_offset_and_epoch(reader.end_offset, reader.last_epoch) == Valid()


@given(histories.filter(bool), st.data())
def test_a_shorter_log_answers_as_the_whole_one_or_with_a_snapshot(
    epochs: list[int], data: st.DataObject
) -> None:
    whole, short = view_of(epochs), view_of(epochs)
    cut = data.draw(st.integers(1, len(epochs)))
    snapshot = OffsetAndEpoch(cut, epochs[cut - 1])
    short.snapshot_stored(snapshot)
    short.prefix_deleted(snapshot)
    offset = data.draw(st.integers(0, len(epochs)))
    epoch = epochs[offset - 1] if offset else 0
    assert whole.validate_offset_and_epoch(offset, epoch) == Valid()
    expected = Valid() if offset >= cut else NeedsSnapshot(snapshot)
    assert short.validate_offset_and_epoch(offset, epoch) == expected
    assert short.end == whole.end
