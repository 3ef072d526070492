"""A member that leads: elections of one, epochs, group commit, the watermark, answers.

Method: single events into a member whose effects are run by hand; the order of effects is part
of what is asserted, for the host must keep it. Rules are cited from KIP-595 and KIP-630.
"""

from contextlib import suppress

import pytest

from ottla.base.errors import Error
from ottla.raft.effects import (
    AdvanceHighWatermark,
    AppendLeaderChange,
    AppendRecords,
    DeletePrefix,
    FlushLog,
    LeaderChanged,
    RespondToFetch,
    RespondToFetchSnapshot,
    StoreElection,
)
from ottla.raft.election import ElectionState
from ottla.raft.events import (
    CleanUp,
    FetchAbandoned,
    FetchRequestReceived,
    Propose,
    Resign,
    SnapshotRequestReceived,
    SnapshotStored,
    Tick,
)
from ottla.raft.log_view import Diverging, NeedsSnapshot, Valid
from ottla.raft.roles import Role
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

from .member import Batch, Crash, Files, Member, leader


def fetch(
    offset: int,
    epoch: int,
    *,
    token: int = 1,
    leader_epoch: int = 1,
    replica: int = 9,
    now_ms: int = 0,
    wait_ms: int = 0,
) -> FetchRequestReceived:
    return FetchRequestReceived(
        token=token,
        replica=ReplicaKey(replica),
        leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        now_ms=now_ms,
        wall_ms=5_000 + now_ms,
        deadline_ms=now_ms + wait_ms,
    )


def propose(*values: bytes) -> Propose:
    return Propose(values=values or (b"x",), wall_ms=77)


def test_the_only_voter_elects_itself_and_opens_its_epoch_in_this_order() -> None:
    member = Member(1, (1,))
    assert member.start(now_ms=5) == [
        StoreElection(state=ElectionState(epoch=1, voted_id=1, voters=(1,))),
        StoreElection(state=ElectionState(epoch=1, leader_id=1, voters=(1,))),
        AppendLeaderChange(
            base_offset=0,
            epoch=1,
            leader_id=1,
            voters=(1,),
            granting_voters=(1,),
            wall_ms=1_000_005,
        ),
        FlushLog(end_offset=1, epoch=1),
        LeaderChanged(leader_id=1, epoch=1),
    ]
    assert member.node.role is Role.LEADER
    assert member.node.high_watermark is None
    assert member.flush() == [AdvanceHighWatermark(offset=1)]


def test_every_start_leads_a_later_epoch() -> None:
    member = leader()
    for epoch in (2, 3, 4):
        member = member.restarted()
        member.start()
        assert (member.node.epoch, member.files.election) == (
            epoch,
            ElectionState(epoch=epoch, leader_id=1, voters=(1,)),
        )
        member.flush()


def test_an_epoch_in_the_log_beats_a_lost_quorum_state() -> None:
    files = Files(batches=[Batch(0, 7, (b"a",))])
    member = Member(1, (1,), files)
    member.start()
    assert member.node.epoch == 8


def test_an_epoch_known_only_from_quorum_state_is_not_reused() -> None:
    member = Member(1, (1,), Files(election=ElectionState(epoch=12, voted_id=1)))
    member.start()
    assert member.node.epoch == 13


@pytest.mark.parametrize("effects", range(6))
def test_a_crash_at_any_boundary_of_the_election_leaves_epochs_growing(effects: int) -> None:
    member = leader().restarted()
    member.crash_after = effects
    with suppress(Crash):
        member.start()
    used = max((batch.epoch for batch in member.files.batches), default=0)
    again = member.restarted()
    again.start()
    assert again.node.epoch > used
    assert again.node.epoch > 1
    again.flush()
    assert again.committed == again.files.end_offset


# -- proposals and group commit ----------------------------------------------------------------


def test_a_proposal_is_appended_flushed_and_then_committed() -> None:
    member = leader()
    assert member.step(propose(b"a", b"b")) == [
        AppendRecords(base_offset=1, epoch=1, values=(b"a", b"b"), wall_ms=77),
        FlushLog(end_offset=3, epoch=1),
    ]
    assert member.committed == 1
    assert member.flush() == [AdvanceHighWatermark(offset=3)]


def test_proposals_during_a_flush_share_the_next_one() -> None:
    member = leader()
    member.step(propose(b"a"))
    for value in (b"b", b"c", b"d"):
        effects = member.step(propose(value))
        assert [type(effect) for effect in effects] == [AppendRecords]
    assert member.flush() == [AdvanceHighWatermark(offset=2), FlushLog(end_offset=5, epoch=1)]
    assert member.flush() == [AdvanceHighWatermark(offset=5)]
    assert member.flushes == []


def test_records_of_older_epochs_commit_only_with_the_leaders_own_record() -> None:
    member = leader()
    member.step(propose(b"a"))
    files = member.files.copy()
    # The records reached the disk, the acknowledgement of the flush did not.
    again = Member(1, (1,), files)
    again.start()
    assert again.node.high_watermark is None
    again.flush()
    assert again.committed == 3
    assert again.files.records()[1] == (1, b"a")


def test_only_a_leader_may_propose() -> None:
    member = Member(2, (1,))
    member.start()
    with pytest.raises(AssertionError):
        member.node.step(propose())


def test_a_flush_that_ends_after_resignation_commits_nothing() -> None:
    member = leader()
    member.step(propose())
    assert member.step(Resign()) == [LeaderChanged(leader_id=-1, epoch=1)]
    assert member.node.role is Role.RESIGNED
    assert member.flush() == []
    assert member.committed == 1


# -- fetches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader_epoch", "error"),
    [(0, Error.FENCED_LEADER_EPOCH), (2, Error.UNKNOWN_LEADER_EPOCH), (1, Error.NONE)],
)
def test_a_fetch_must_name_the_leaders_epoch(leader_epoch: int, error: Error) -> None:
    member = leader()
    (answer,) = member.step(fetch(0, 0, leader_epoch=leader_epoch))
    assert isinstance(answer, RespondToFetch)
    assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 1)


@pytest.mark.parametrize(("offset", "epoch"), [(-1, 0), (0, 2)])
def test_a_fetch_that_contradicts_itself_is_invalid(offset: int, epoch: int) -> None:
    (answer,) = leader().step(fetch(offset, epoch))
    assert isinstance(answer, RespondToFetch)
    assert answer.error is Error.INVALID_REQUEST


def test_a_follower_returns_the_leader() -> None:
    member = Member(2, (1,), Files(election=ElectionState(epoch=4, leader_id=1)))
    member.start()
    (answer,) = member.step(fetch(0, 0, leader_epoch=4))
    assert isinstance(answer, RespondToFetch)
    assert (answer.error, answer.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, 1)


def test_an_observer_reads_what_is_committed_and_no_more() -> None:
    member = leader()
    member.step(propose(b"a"))
    (answer,) = member.step(fetch(0, 0))
    assert isinstance(answer, RespondToFetch)
    assert (answer.verdict, answer.start, answer.end) == (Valid(), 0, 1)
    assert answer.high_watermark == 1


def test_a_delayed_fetch_is_answered_by_the_commit_in_the_same_step() -> None:
    member = leader()
    assert member.step(fetch(1, 1, wait_ms=500)) == []
    assert member.wake_at_ms == 500
    member.step(propose(b"a"))
    assert member.answers == []
    commit, answer = member.flush()
    assert commit == AdvanceHighWatermark(offset=2)
    assert isinstance(answer, RespondToFetch)
    assert (answer.start, answer.end, answer.high_watermark) == (1, 2, 2)
    assert member.wake_at_ms is None


def test_a_delayed_fetch_is_answered_empty_at_its_deadline() -> None:
    member = leader()
    member.step(fetch(1, 1, wait_ms=500))
    assert member.step(Tick(now_ms=499)) == []
    (answer,) = member.step(Tick(now_ms=500))
    assert isinstance(answer, RespondToFetch)
    assert (answer.error, answer.start, answer.end) == (Error.NONE, 1, 1)


def test_a_delayed_fetch_of_a_closed_connection_is_dropped() -> None:
    member = leader()
    member.step(fetch(1, 1, token=4, wait_ms=500))
    assert member.step(FetchAbandoned(token=4)) == []
    assert member.wake_at_ms is None
    assert member.step(FetchAbandoned(token=4)) == []


def test_resignation_answers_delayed_fetches() -> None:
    member = leader()
    member.step(fetch(1, 1, wait_ms=500))
    effects = member.step(Resign())
    (answer,) = [each for each in effects if isinstance(each, RespondToFetch)]
    assert (answer.error, answer.leader_id) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_fetch_beyond_the_log_gets_the_diverging_epoch_at_once() -> None:
    member = leader()
    (answer,) = member.step(fetch(5, 1, wait_ms=500))
    assert isinstance(answer, RespondToFetch)
    assert answer.verdict == Diverging(OffsetAndEpoch(1, 1))
    assert member.node.progress is not None
    assert member.node.progress.observers == {}, "it said nothing true about its log"


def test_before_the_first_commit_an_observer_waits_without_a_watermark() -> None:
    member = leader().restarted()
    member.start()
    assert member.step(fetch(0, 0, leader_epoch=2, wait_ms=100)) == []
    (answer,) = member.step(Tick(now_ms=100))
    assert isinstance(answer, RespondToFetch)
    assert (answer.high_watermark, answer.start, answer.end) == (-1, 0, 0)


def test_observers_are_noted_with_their_offsets() -> None:
    member = leader()
    member.step(fetch(0, 0, replica=7))
    member.step(fetch(1, 1, replica=7, now_ms=10, wait_ms=5))
    assert member.node.progress is not None
    (observer,) = member.node.progress.live_observers(5_010)
    assert (observer.key.id, observer.end_offset, observer.last_caught_up_ms) == (7, 1, 5_010)


# -- snapshots ---------------------------------------------------------------------------------


def with_snapshots() -> Member:
    """Return a leader with offsets 0-10 and snapshots at 4 and 8."""
    member = leader()
    for index in range(10):
        member.step(propose(str(index).encode()))
        member.flush()
    for offset in (4, 8):
        assert member.step(SnapshotStored(snapshot=OffsetAndEpoch(offset, 1))) == []
    return member


def test_a_snapshot_may_only_cover_what_is_committed() -> None:
    member = leader()
    with pytest.raises(AssertionError, match="committed"):
        member.node.step(SnapshotStored(snapshot=OffsetAndEpoch(2, 1)))


def test_an_empty_reader_is_sent_to_the_newest_snapshot() -> None:
    (answer,) = with_snapshots().step(fetch(0, 0, wait_ms=500))
    assert isinstance(answer, RespondToFetch)
    assert answer.verdict == NeedsSnapshot(OffsetAndEpoch(8, 1))


def test_cleaning_deletes_once_and_sends_late_readers_to_the_snapshot() -> None:
    member = with_snapshots()
    clean = CleanUp(snapshot=OffsetAndEpoch(4, 1))
    assert member.step(clean) == [DeletePrefix(snapshot=OffsetAndEpoch(4, 1))]
    assert member.step(clean) == []
    (answer,) = member.step(fetch(2, 1))
    assert isinstance(answer, RespondToFetch)
    assert answer.verdict == NeedsSnapshot(OffsetAndEpoch(8, 1))
    (answer,) = member.step(fetch(5, 1))
    assert isinstance(answer, RespondToFetch)
    assert answer.verdict == Valid()


def test_cleaning_up_to_an_unknown_snapshot_does_nothing() -> None:
    assert with_snapshots().step(CleanUp(snapshot=OffsetAndEpoch(5, 1))) == []


@pytest.mark.parametrize(
    ("leader_epoch", "snapshot", "error"),
    [
        (1, OffsetAndEpoch(8, 1), Error.NONE),
        (1, OffsetAndEpoch(4, 1), Error.NONE),
        (1, OffsetAndEpoch(8, 2), Error.SNAPSHOT_NOT_FOUND),
        (1, OffsetAndEpoch(5, 1), Error.SNAPSHOT_NOT_FOUND),
        (0, OffsetAndEpoch(8, 1), Error.FENCED_LEADER_EPOCH),
        (3, OffsetAndEpoch(8, 1), Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_who_may_read_which_snapshot(
    leader_epoch: int, snapshot: OffsetAndEpoch, error: Error
) -> None:
    (answer,) = with_snapshots().step(
        SnapshotRequestReceived(
            token=3,
            replica=ReplicaKey(9),
            leader_epoch=leader_epoch,
            snapshot=snapshot,
            now_ms=0,
        )
    )
    assert answer == RespondToFetchSnapshot(
        token=3, error=error, leader_id=1, leader_epoch=1, snapshot=snapshot
    )


def test_a_restart_after_cleaning_keeps_offsets_and_epochs() -> None:
    member = with_snapshots()
    member.step(CleanUp(snapshot=OffsetAndEpoch(8, 1)))
    again = member.restarted()
    again.start()
    assert again.node.log.start_offset == 8
    assert again.node.epoch == 2
    again.flush()
    assert again.committed == 12
