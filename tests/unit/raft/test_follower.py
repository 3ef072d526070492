"""A member that follows, as brokers do: asking, appending, truncating, loading snapshots.

Method: answers made by hand, each kind in its place; what the member asks next, and when, is
what shows what it believes.
"""

import pytest

from ottla.base.errors import Error
from ottla.raft.effects import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    AppendFetched,
    LeaderChanged,
    SendFetch,
    SendFetchSnapshot,
    StoreElection,
    TruncateLog,
    WriteSnapshot,
)
from ottla.raft.election import ElectionState
from ottla.raft.events import (
    FetchFailed,
    FetchResponseReceived,
    Resign,
    SnapshotResponseReceived,
    Tick,
)
from ottla.raft.node import RETRY_BACKOFF_MAX_MS, CommittedDataLost
from ottla.raft.roles import Role
from ottla.raft.values import BatchSpan, OffsetAndEpoch

from .member import Batch, Files, Member

FOUND = FetchResponseReceived(
    error=Error.FENCED_LEADER_EPOCH, leader_id=1, leader_epoch=3, now_ms=0
)


def observer(durable: Files | None = None) -> Member:
    member = Member(2, (1,), durable)
    member.start()
    return member


def following(durable: Files | None = None) -> Member:
    """Return an observer that knows its leader, 1 in epoch 3."""
    member = observer(durable)
    member.step(FOUND)
    return member


def answer(
    *batches: Batch, high_watermark: int = -1, epoch: int = 3, now_ms: int = 10
) -> FetchResponseReceived:
    return FetchResponseReceived(
        error=Error.NONE,
        leader_id=1,
        leader_epoch=epoch,
        now_ms=now_ms,
        high_watermark=high_watermark,
        batches=tuple(BatchSpan(b.base_offset, b.next_offset, b.epoch) for b in batches),
        data=" ".join(str(b.base_offset) for b in batches).encode(),
    )


def deliver(member: Member, *batches: Batch, high_watermark: int = -1) -> list[object]:
    member.on_wire |= {batch.base_offset: batch for batch in batches}
    return list(member.step(answer(*batches, high_watermark=high_watermark)))


TWO = (Batch(0, 1, (b"a",)), Batch(1, 3, (b"b", b"c")))


def test_an_unattached_observer_asks_anybody() -> None:
    member = observer()
    assert member.node.role is Role.UNATTACHED
    assert member.asks == [
        SendFetch(leader_id=-1, leader_epoch=0, fetch_offset=0, last_fetched_epoch=0)
    ]


def test_a_restarted_observer_fetches_from_its_stored_leader() -> None:
    files = Files(ElectionState(epoch=3, leader_id=1), batches=list(TWO))
    assert observer(files).asks == [
        SendFetch(leader_id=1, leader_epoch=3, fetch_offset=3, last_fetched_epoch=3)
    ]


def test_a_refusal_that_names_the_leader_is_followed_at_once() -> None:
    member = observer()
    assert member.step(FOUND) == [
        StoreElection(state=ElectionState(epoch=3, leader_id=1, voters=(1,))),
        LeaderChanged(leader_id=1, epoch=3),
        SendFetch(leader_id=1, leader_epoch=3, fetch_offset=0, last_fetched_epoch=0),
    ]
    assert member.node.role is Role.FOLLOWER


def test_an_observer_never_stands_for_election() -> None:
    member = observer()
    for now_ms in range(0, 100_000, 1_000):
        member.step(FetchFailed(now_ms=now_ms))
        member.step(Tick(now_ms=now_ms + 999))
        assert member.node.role is Role.UNATTACHED
    assert member.node.epoch == 0


def test_records_are_appended_then_committed_then_the_next_fetch_is_sent() -> None:
    member = following()
    assert deliver(member, *TWO, high_watermark=2) == [
        AppendFetched(data=b"0 1", next_offset=3),
        AdvanceHighWatermark(offset=2),
        SendFetch(leader_id=1, leader_epoch=3, fetch_offset=3, last_fetched_epoch=3),
    ]
    assert deliver(member, high_watermark=3)[0] == AdvanceHighWatermark(offset=3)


def test_the_high_watermark_is_bounded_by_the_log_and_never_falls() -> None:
    member = following()
    deliver(member, *TWO, high_watermark=900)
    assert member.committed == 3
    deliver(member, high_watermark=1)
    deliver(member, high_watermark=-1)
    assert member.committed == 3


@pytest.mark.parametrize(
    "batches",
    [
        (Batch(1, 1, (b"gap",)),),
        (Batch(0, 4, (b"epoch of the future",)),),
        (Batch(0, 3, (b"a",)), Batch(1, 2, (b"epoch goes back",))),
        (Batch(0, 1, (b"a",)), Batch(0, 1, (b"twice",))),
    ],
    ids=["gap", "future epoch", "epoch back", "overlap"],
)
def test_batches_that_do_not_continue_the_log_are_left(batches: tuple[Batch, ...]) -> None:
    member = following()
    assert deliver(member, *batches, high_watermark=5) == []
    assert member.files.batches == []
    assert member.wake_at_ms is not None


def test_failures_wait_longer_each_time_and_success_forgives() -> None:
    member = following()
    waits = []
    for _ in range(9):
        member.step(FetchFailed(now_ms=1_000))
        assert member.wake_at_ms is not None
        waits.append(member.wake_at_ms - 1_000)
        member.step(Tick(now_ms=member.wake_at_ms))
    assert waits == [20, 40, 80, 160, 320, 640, 1_000, 1_000, RETRY_BACKOFF_MAX_MS]
    deliver(member, *TWO)
    member.step(FetchFailed(now_ms=2_000))
    assert member.wake_at_ms == 2_020


def test_a_tick_too_early_asks_nothing() -> None:
    member = following()
    member.step(FetchFailed(now_ms=0))
    assert member.step(Tick(now_ms=19)) == []
    assert len(member.step(Tick(now_ms=20))) == 1


def test_an_answer_from_an_older_epoch_is_ignored() -> None:
    member = following()
    stale = answer(*TWO, epoch=2, high_watermark=3)
    assert member.step(stale) == []
    assert member.files.batches == []
    assert member.wake_at_ms == 30


def test_a_later_epoch_without_leader_makes_it_unattached() -> None:
    member = following()
    effects = member.step(
        FetchResponseReceived(
            error=Error.NOT_LEADER_OR_FOLLOWER, leader_id=-1, leader_epoch=5, now_ms=0
        )
    )
    assert effects == [
        StoreElection(state=ElectionState(epoch=5, voters=(1,))),
        LeaderChanged(leader_id=-1, epoch=5),
    ]
    assert member.node.role is Role.UNATTACHED
    assert member.wake_at_ms == 20


def test_two_leaders_of_one_epoch_are_a_broken_quorum() -> None:
    member = following()
    with pytest.raises(AssertionError, match="two leaders"):
        member.node.step(
            FetchResponseReceived(error=Error.NONE, leader_id=7, leader_epoch=3, now_ms=0)
        )


def test_stopped_means_silent() -> None:
    member = following()
    member.step(Resign())
    assert deliver(member, *TWO, high_watermark=3) == []
    assert member.step(FetchFailed(now_ms=0)) == []
    assert member.wake_at_ms is None


# -- truncation --------------------------------------------------------------------------------


def diverging(offset: int, epoch: int) -> FetchResponseReceived:
    return FetchResponseReceived(
        error=Error.NONE,
        leader_id=1,
        leader_epoch=3,
        now_ms=10,
        diverging=OffsetAndEpoch(offset, epoch),
    )


def test_uncommitted_records_are_truncated_and_the_fetch_repeated() -> None:
    member = following()
    deliver(member, *TWO, high_watermark=1)
    assert member.step(diverging(1, 1)) == [
        TruncateLog(offset=1),
        SendFetch(leader_id=1, leader_epoch=3, fetch_offset=1, last_fetched_epoch=1),
    ]


def test_committed_records_are_never_truncated() -> None:
    member = following()
    deliver(member, *TWO, high_watermark=3)
    with pytest.raises(CommittedDataLost, match="below the high watermark 3"):
        member.node.step(diverging(1, 1))


def test_a_snapshot_below_the_watermark_is_lost_data_too() -> None:
    member = following()
    deliver(member, *TWO, high_watermark=3)
    member.step(redirect(OffsetAndEpoch(2, 2)))
    with pytest.raises(CommittedDataLost, match="snapshot up to offset 2"):
        member.node.step(piece(OffsetAndEpoch(2, 2), 0, b"all", 3))


# -- snapshots ---------------------------------------------------------------------------------

SNAPSHOT = OffsetAndEpoch(40, 2)


def redirect(snapshot: OffsetAndEpoch = SNAPSHOT) -> FetchResponseReceived:
    return FetchResponseReceived(
        error=Error.NONE, leader_id=1, leader_epoch=3, now_ms=10, snapshot=snapshot
    )


def piece(
    snapshot: OffsetAndEpoch, position: int, data: bytes, size: int, error: Error = Error.NONE
) -> SnapshotResponseReceived:
    return SnapshotResponseReceived(
        error=error,
        leader_id=1,
        leader_epoch=3,
        now_ms=10,
        snapshot=snapshot,
        size=size,
        position=position,
        data=data,
    )


def ask(position: int) -> SendFetchSnapshot:
    return SendFetchSnapshot(leader_id=1, leader_epoch=3, snapshot=SNAPSHOT, position=position)


def test_a_snapshot_comes_in_pieces_and_replaces_the_log() -> None:
    member = following()
    deliver(member, *TWO, high_watermark=3)
    assert member.step(redirect()) == [ask(0)]
    assert member.step(piece(SNAPSHOT, 0, b"one ", 7)) == [
        WriteSnapshot(snapshot=SNAPSHOT, position=0, data=b"one "),
        ask(4),
    ]
    assert member.step(piece(SNAPSHOT, 4, b"two", 7)) == [
        WriteSnapshot(snapshot=SNAPSHOT, position=4, data=b"two"),
        AdoptSnapshot(snapshot=SNAPSHOT),
        AdvanceHighWatermark(offset=40),
        SendFetch(leader_id=1, leader_epoch=3, fetch_offset=40, last_fetched_epoch=2),
    ]
    assert member.pieces[SNAPSHOT] == b"one two"


def test_a_failure_between_pieces_goes_on_where_it_was() -> None:
    member = following()
    member.step(redirect())
    member.step(piece(SNAPSHOT, 0, b"one ", 7))
    member.step(FetchFailed(now_ms=100))
    assert member.step(Tick(now_ms=120)) == [ask(4)]


@pytest.mark.parametrize(
    "bad",
    [
        piece(OffsetAndEpoch(41, 2), 0, b"x", 7),
        piece(SNAPSHOT, 3, b"x", 7),
        piece(SNAPSHOT, 0, b"longer than all", 7),
        piece(SNAPSHOT, 0, b"", 7),
        piece(SNAPSHOT, 0, b"", 0, Error.SNAPSHOT_NOT_FOUND),
        piece(SNAPSHOT, 0, b"", 0, Error.POSITION_OUT_OF_RANGE),
    ],
    ids=["other", "position", "too long", "empty", "gone", "out of range"],
)
def test_a_piece_that_makes_no_sense_starts_over_with_a_fetch(
    bad: SnapshotResponseReceived,
) -> None:
    member = following()
    member.step(redirect())
    assert member.step(bad) == []
    assert member.wake_at_ms is not None
    (asked,) = member.step(Tick(now_ms=member.wake_at_ms))
    assert isinstance(asked, SendFetch)


def test_the_pause_grows_while_a_snapshot_turns_out_damaged_again_and_again() -> None:
    member = following()
    pauses = []
    for _ in range(8):
        member.step(redirect())
        member.step(piece(SNAPSHOT, 0, b"one ", 7))
        assert member.step(piece(SNAPSHOT, 4, b"two", 7, Error.CORRUPT_MESSAGE)) == []
        assert member.wake_at_ms is not None
        pauses.append(member.wake_at_ms - 10)
        member.step(Tick(now_ms=member.wake_at_ms))
    assert pauses == [20, 40, 80, 160, 320, 640, RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MAX_MS]
    deliver(member, *TWO)
    member.step(FetchFailed(now_ms=10))
    assert member.wake_at_ms == 30, "records end the series of failures"


def test_a_new_leader_ends_the_download() -> None:
    member = following()
    member.step(redirect())
    member.step(
        SnapshotResponseReceived(
            error=Error.NOT_LEADER_OR_FOLLOWER,
            leader_id=1,
            leader_epoch=4,
            now_ms=10,
            snapshot=SNAPSHOT,
        )
    )
    assert isinstance(member.asks[-1], SendFetch)
    assert member.asks[-1].leader_epoch == 4


@pytest.mark.parametrize("voters", [(1, 2, 3), ()])
def test_an_observer_without_a_response_tries_one_voter_after_another(
    voters: tuple[int, ...],
) -> None:
    member = Member(9, voters, Files(election=ElectionState(epoch=3, leader_id=2)))
    member.start()
    for now_ms in (1_000, 2_000, 3_000):
        member.step(FetchFailed(now_ms=now_ms))
        assert member.wake_at_ms is not None
        member.step(Tick(now_ms=member.wake_at_ms))
    asked = [each.leader_id for each in member.effects if isinstance(each, SendFetch)]
    assert asked == [2, -1, -1, -1]
