"""Voters of three: votes, pre-votes, timeouts, the ends of offices.

Method: single events into a member whose effects are run by hand; rules are cited from KIP-595,
KIP-996 and KAFKA-15489. Whole quorums are simulated in `test_simulation`.
"""

import pytest

from ottla.base.errors import Error
from ottla.raft import effects as fx
from ottla.raft import events as ev
from ottla.raft.election import ElectionState
from ottla.raft.roles import Role
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

from .member import Batch, Files, Member

VOTERS = (1, 2, 3)
NO_LOG = OffsetAndEpoch(0, 0)


class FixedDice:
    """Dice that always show the same."""

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def below(self, bound: int) -> int:
        return 0


def a_voter(files: Files | None = None, node_id: int = 1) -> Member:
    member = Member(node_id, VOTERS, files, FixedDice())
    member.start()
    return member


def vote(
    epoch: int, *, by: int = 2, pre: bool = False, log_end: OffsetAndEpoch = NO_LOG
) -> ev.VoteRequestReceived:
    return ev.VoteRequestReceived(
        token=1, candidate=ReplicaKey(by), epoch=epoch, log_end=log_end, pre_vote=pre, now_ms=1
    )


def answer(member: Member, voter: int, *, granted: bool = True, **changes: int) -> list[fx.Effect]:
    """Let a voter answer the question that is open."""
    node = member.node
    return member.step(
        ev.VoteResponseReceived(
            voter_id=voter,
            epoch=node.epoch,
            pre_vote=node.role is Role.PROSPECTIVE,
            error=Error.NONE,
            granted=granted,
            leader_id=changes.get("leader_id", -1),
            leader_epoch=changes.get("leader_epoch", node.epoch),
            now_ms=node.now_ms,
            wall_ms=0,
        )
    )


def granted(effects: list[fx.Effect]) -> bool:
    (found,) = [each for each in effects if isinstance(each, fx.RespondToVote)]
    return found.granted


def error_of(effects: list[fx.Effect]) -> Error:
    (found,) = [each for each in effects if isinstance(each, fx.RespondToVote | fx.RespondToEpoch)]
    return found.error


def a_leader(files: Files | None = None) -> Member:
    member = a_voter(files)
    member.step(ev.Tick(now_ms=1_000))
    answer(member, 2)
    answer(member, 2)
    member.flush()
    return member


def a_follower(files: Files | None = None, epoch: int = 3) -> Member:
    files = files or Files()
    files.election = ElectionState(epoch=epoch, leader_id=2)
    return a_voter(files)


def fetch(
    offset: int, epoch: int, *, by: int, at_ms: int = 1_000, leader: Member
) -> ev.FetchRequestReceived:
    return ev.FetchRequestReceived(
        token=by,
        replica=ReplicaKey(by),
        leader_epoch=leader.node.epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        now_ms=at_ms,
        wall_ms=at_ms,
        deadline_ms=at_ms,
    )


# -- standing ----------------------------------------------------------------------------------


def test_a_voter_pre_votes_then_begins_an_epoch_with_a_durable_vote() -> None:
    member = a_voter()
    assert member.node.role is Role.UNATTACHED
    asked = member.step(ev.Tick(now_ms=1_000))
    assert asked == [
        fx.SendVote(voter_id=voter, epoch=0, pre_vote=True, log_end=NO_LOG) for voter in (2, 3)
    ]
    assert member.files.election is None, "a pre-vote changes nothing"
    assert answer(member, 2) == [
        fx.StoreElection(state=ElectionState(epoch=1, voted_id=1, voters=VOTERS)),
        fx.LeaderChanged(leader_id=-1, epoch=1),
        *(fx.SendVote(voter_id=voter, epoch=1, pre_vote=False, log_end=NO_LOG) for voter in (2, 3)),
    ]
    won = answer(member, 3)
    assert [type(each) for each in won] == [
        fx.StoreElection,
        fx.AppendLeaderChange,
        fx.FlushLog,
        fx.SendBeginEpoch,
        fx.SendBeginEpoch,
        fx.LeaderChanged,
    ]
    assert isinstance(won[1], fx.AppendLeaderChange)
    assert won[1].granting_voters == (1, 3)


def test_a_quorum_that_starts_as_a_whole_does_not_sit_out_an_election_first() -> None:
    member = a_voter()
    member.step(ev.Tick(now_ms=99))
    assert member.node.role is Role.UNATTACHED
    member.step(ev.Tick(now_ms=100))
    assert member.node.role is Role.PROSPECTIVE


def test_a_restarted_follower_has_a_short_first_fetch_timeout() -> None:
    member = a_follower()
    member.step(ev.Tick(now_ms=599))
    assert member.node.role is Role.FOLLOWER
    heard = a_follower()
    heard.step(ev.BeginEpochRequestReceived(token=1, leader_id=2, leader_epoch=4, now_ms=599))
    heard.step(ev.Tick(now_ms=2_598))
    assert heard.node.role is Role.FOLLOWER
    member.step(ev.Tick(now_ms=600))
    assert member.node.role is Role.PROSPECTIVE


def test_a_pre_vote_that_comes_late_does_not_count_as_a_vote() -> None:
    member = a_voter()
    member.step(ev.Tick(now_ms=1_000))
    answer(member, 2)
    late = ev.VoteResponseReceived(
        voter_id=3,
        epoch=0,
        pre_vote=True,
        error=Error.NONE,
        granted=True,
        leader_id=-1,
        leader_epoch=0,
        now_ms=1_001,
        wall_ms=0,
    )
    assert member.step(late) == []
    assert member.node.role is Role.CANDIDATE


def test_a_candidate_without_a_majority_backs_off_and_asks_again_in_its_epoch() -> None:
    member = a_voter()
    member.step(ev.Tick(now_ms=1_000))
    answer(member, 2)
    answer(member, 2, granted=False)
    assert member.node.role is Role.CANDIDATE
    answer(member, 3, granted=False)
    assert member.wake_at_ms == 1_001
    member.step(ev.Tick(now_ms=1_001))
    assert (member.node.role, member.node.epoch) == (Role.PROSPECTIVE, 1)


def test_after_a_refused_pre_vote_the_old_leader_is_followed_again() -> None:
    member = a_follower()
    member.step(ev.Tick(now_ms=2_000))
    assert member.node.role is Role.PROSPECTIVE
    answer(member, 2, granted=False)
    answer(member, 3, granted=False)
    assert (member.node.role, member.node.leader_id, member.node.epoch) == (Role.FOLLOWER, 2, 3)


def test_a_question_without_an_answer_is_put_again() -> None:
    member = a_voter()
    member.step(ev.Tick(now_ms=1_000))
    member.step(ev.VoteFailed(voter_id=3, epoch=0, pre_vote=True, now_ms=1_100))
    assert member.wake_at_ms == 1_120
    (again,) = member.step(ev.Tick(now_ms=1_120))
    assert isinstance(again, fx.SendVote)
    assert again.voter_id == 3


def test_an_answer_of_a_later_epoch_ends_the_election() -> None:
    member = a_voter()
    member.step(ev.Tick(now_ms=1_000))
    answer(member, 2, granted=False, leader_id=3, leader_epoch=9)
    assert (member.node.role, member.node.leader_id, member.node.epoch) == (Role.FOLLOWER, 3, 9)


# -- voting ------------------------------------------------------------------------------------


def test_a_vote_is_durable_before_the_answer_leaves() -> None:
    member = a_voter()
    effects = member.step(vote(4))
    assert [type(each) for each in effects] == [
        fx.StoreElection,
        fx.LeaderChanged,
        fx.StoreElection,
        fx.RespondToVote,
    ]
    assert effects[2] == fx.StoreElection(state=ElectionState(epoch=4, voted_id=2, voters=VOTERS))
    assert granted(effects)


def test_a_voter_votes_once_in_an_epoch_also_after_a_restart() -> None:
    member = a_voter()
    assert granted(member.step(vote(4, by=2)))
    assert granted(member.step(vote(4, by=2))), "the answer may have been lost"
    assert not granted(member.step(vote(4, by=3)))
    again = a_voter(member.durable.copy())
    assert not granted(again.step(vote(4, by=3)))
    assert granted(again.step(vote(4, by=2)))
    assert granted(again.step(vote(5, by=3)))


@pytest.mark.parametrize(
    ("log_end", "up_to_date"),
    [((2, 3), True), ((3, 3), True), ((1, 3), False), ((9, 2), False), ((1, 4), True)],
)
@pytest.mark.parametrize("pre", [True, False])
def test_only_a_log_that_lacks_nothing_gets_votes(
    log_end: tuple[int, int], up_to_date: bool, pre: bool
) -> None:
    member = a_voter(Files(batches=[Batch(0, 3, (b"a", b"b"))]))
    asked = vote(6, log_end=OffsetAndEpoch(*log_end), pre=pre)
    assert granted(member.step(asked)) is up_to_date


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (vote(2), Error.FENCED_LEADER_EPOCH),
        (vote(3, by=9), Error.INCONSISTENT_VOTER_SET),
        (vote(4, log_end=OffsetAndEpoch(4, 4)), Error.INVALID_REQUEST),
        (vote(4, log_end=OffsetAndEpoch(4, 5), pre=True), Error.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(asked: ev.VoteRequestReceived, error: Error) -> None:
    assert error_of(a_follower().step(asked)) is error


def test_a_follower_with_a_live_leader_refuses_a_pre_vote_but_grants_a_vote() -> None:
    member = a_follower()
    assert granted(member.step(vote(3, by=3, pre=True))), "it has not heard of its leader yet"
    member.step(
        ev.FetchResponseReceived(
            error=Error.NONE, leader_id=2, leader_epoch=3, now_ms=5, high_watermark=0
        )
    )
    assert not granted(member.step(vote(3, by=3, pre=True)))
    assert member.node.role is Role.FOLLOWER
    assert granted(member.step(vote(4, by=3)))


def test_nobody_votes_in_an_epoch_that_has_a_leader() -> None:
    assert not granted(a_follower().step(vote(3, by=3)))
    assert not granted(a_leader().step(vote(1, by=3)))


# -- offices -----------------------------------------------------------------------------------


def test_a_restarted_leader_is_resigned_and_never_leads_or_votes_in_its_epoch() -> None:
    member = a_voter(a_leader().durable.copy())
    assert (member.node.role, member.node.epoch, member.node.leader_id) == (Role.RESIGNED, 1, -1)
    end = OffsetAndEpoch(9, 0)
    assert not granted(member.step(vote(1, by=3, log_end=end)))
    member.step(ev.Tick(now_ms=1_000))
    assert (member.node.role, member.node.epoch) == (Role.UNATTACHED, 2)
    assert member.durable.election == ElectionState(epoch=2, voters=VOTERS)


def test_a_leader_without_a_fetching_majority_resigns() -> None:
    member = a_leader()
    member.step(fetch(1, 1, by=3, at_ms=3_000, leader=member))
    member.step(ev.Tick(now_ms=5_999))
    assert member.node.is_leader
    effects = member.step(ev.Tick(now_ms=6_000))
    assert member.node.role is Role.RESIGNED
    assert effects[:2] == [
        fx.SendEndEpoch(voter_id=voter, epoch=1, successors=(3, 2)) for voter in (2, 3)
    ]


def test_a_voter_that_loads_a_snapshot_keeps_its_leader() -> None:
    member = a_leader()
    for by, epoch, at_ms in ((3, 1, 3_000), (9, 1, 5_000), (2, 0, 5_500)):
        member.step(
            ev.SnapshotRequestReceived(
                token=by,
                replica=ReplicaKey(by),
                leader_epoch=epoch,
                snapshot=OffsetAndEpoch(1, 1),
                now_ms=at_ms,
            )
        )
    member.step(ev.Tick(now_ms=5_999))
    assert member.node.is_leader
    member.step(ev.Tick(now_ms=6_000))
    assert member.node.role is Role.RESIGNED, (
        "an observer's, or one of another epoch, does not count"
    )


def test_a_leader_announces_itself_to_those_who_do_not_fetch() -> None:
    member = a_leader()
    member.step(fetch(1, 1, by=3, at_ms=1_900, leader=member))
    assert member.step(ev.Tick(now_ms=2_000)) == [fx.SendBeginEpoch(voter_id=2, epoch=1)]


def test_the_first_successor_starts_its_election_at_once() -> None:
    first, second = a_follower(), a_follower()
    heard = ev.FetchResponseReceived(
        error=Error.NONE, leader_id=2, leader_epoch=3, now_ms=5, high_watermark=0
    )
    for member, place in ((first, 0), (second, 1)):
        member.step(heard)
        successors = (1, 3) if place == 0 else (3, 1)
        goodbye = ev.EndEpochRequestReceived(
            token=5, leader_id=2, leader_epoch=3, successors=successors, now_ms=10
        )
        assert error_of(member.step(goodbye)) is Error.NONE
    assert first.wake_at_ms == 10
    assert second.wake_at_ms == 110
    assert granted(second.step(vote(3, by=3, pre=True)))


def test_two_leaders_of_one_epoch_are_not_believed() -> None:
    begin = ev.BeginEpochRequestReceived(token=1, leader_id=3, leader_epoch=3, now_ms=1)
    assert error_of(a_follower().step(begin)) is Error.INVALID_REQUEST


def test_a_leader_that_lost_its_voice_is_found_again_by_a_prospective_voter() -> None:
    member = a_follower()
    member.step(ev.Tick(now_ms=2_000))
    assert member.node.role is Role.PROSPECTIVE
    member.step(ev.BeginEpochRequestReceived(token=1, leader_id=2, leader_epoch=3, now_ms=2_001))
    assert member.node.role is Role.FOLLOWER
    assert isinstance(member.effects[-2], fx.SendFetch)


# -- copies ------------------------------------------------------------------------------------


def test_a_follower_fetches_on_only_once_what_it_has_is_durable() -> None:
    member = a_follower()
    member.on_wire[0] = Batch(0, 3, (b"a", b"b"))
    effects = member.step(
        ev.FetchResponseReceived(
            error=Error.NONE,
            leader_id=2,
            leader_epoch=3,
            now_ms=5,
            high_watermark=0,
            batches=(ev.BatchSpan(0, 2, 3),),
            data=b"0",
        )
    )
    assert [type(each) for each in effects] == [
        fx.AppendFetched,
        fx.AdvanceHighWatermark,
        fx.FlushLog,
    ]
    (ask,) = member.flush()
    assert ask == fx.SendFetch(leader_id=2, leader_epoch=3, fetch_offset=2, last_fetched_epoch=3)


def test_records_of_older_epochs_are_committed_only_with_one_of_the_leaders_epoch() -> None:
    """The Raft paper's figure 8.

    1. Node 1 led epoch 2, appended at offset 1, and died before it was committed.
    2. It leads epoch 4 now; nodes 2 and 3 have the old record, and not yet epoch 4's first.
    3. Were it committed now, a node with a record of epoch 3 at offset 1 could win epoch 5 and
       overwrite it.
    """
    files = Files(
        election=ElectionState(epoch=3), batches=[Batch(0, 1, (b"a",)), Batch(1, 2, (b"b",))]
    )
    member = a_leader(files.copy())
    assert (member.node.is_leader, member.node.epoch) == (True, 4)
    for voter in (2, 3):
        member.step(fetch(2, 2, by=voter, leader=member))
    assert member.committed == -1
    assert granted(a_voter(files.copy(), 2).step(vote(5, by=3, log_end=OffsetAndEpoch(2, 3))))
    member.step(fetch(3, 4, by=2, leader=member))
    assert member.committed == 3


def test_a_voters_fetch_is_answered_when_the_high_watermark_moves() -> None:
    member = a_leader()
    member.step(fetch(1, 1, by=2, leader=member))
    assert member.committed == 1
    parked = fetch(1, 1, by=3, leader=member)
    member.step(parked)
    (notified,) = [each for each in member.answers if isinstance(each, fx.RespondToFetch)][-1:]
    assert (notified.token, notified.high_watermark, notified.start, notified.end) == (3, 1, 1, 1)
