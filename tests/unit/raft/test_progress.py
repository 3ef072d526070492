"""Replica progress: the high watermark by majority, and the replicas in DescribeQuorum.

Method: books of up to five voters, though quorums of one are all that can be configured yet;
the high watermark against its definition, drawn at random.
"""

from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.progress import OBSERVER_SESSION_MS, LeaderProgress
from ottla.raft.values import ReplicaKey


def book(voters: int = 1, epoch_start_offset: int = 10) -> LeaderProgress:
    return LeaderProgress(local_id=0, voters=range(voters), epoch_start_offset=epoch_start_offset)


def test_nothing_is_committed_before_a_record_of_the_leaders_epoch() -> None:
    progress = book()
    progress.flushed_to(10)
    assert progress.advance() is None
    progress.flushed_to(11)
    assert progress.advance() == 11
    assert progress.advance() is None, "once"


def test_a_flush_never_takes_back() -> None:
    progress = book()
    progress.flushed_to(12)
    progress.flushed_to(11)
    assert progress.voters[0].end_offset == 12


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=30),
)
def test_the_watermark_is_what_a_majority_has_and_never_falls(
    voters: int, fetches: list[tuple[int, int]]
) -> None:
    progress = book(voters)
    ends = dict.fromkeys(range(voters), -1)
    shown = -1
    for voter, offset in fetches:
        if voter >= voters:
            continue
        if voter == 0:
            progress.flushed_to(offset)
            ends[0] = max(ends[0], offset)
        else:
            progress.fetched(ReplicaKey(voter), offset=offset, leader_end=40, wall_ms=1)
            ends[voter] = offset
        progress.advance()
        new = -1 if progress.high_watermark is None else progress.high_watermark
        majority = max(
            (
                offset
                for offset in ends.values()
                if 2 * sum(end >= offset for end in ends.values()) > voters
            ),
            default=-1,
        )
        assert new >= shown
        assert new == max(shown, majority if majority > 10 else -1)
        shown = new


def test_caught_up_times_follow_kip_836() -> None:
    progress = book()
    key = ReplicaKey(7)
    progress.fetched(key, offset=5, leader_end=20, wall_ms=100)
    assert progress.observers[key].last_caught_up_ms == -1
    progress.fetched(key, offset=20, leader_end=30, wall_ms=200)
    # At 200 it had all that was there at 100.
    assert progress.observers[key].last_caught_up_ms == 100
    progress.fetched(key, offset=30, leader_end=30, wall_ms=300)
    assert progress.observers[key].last_caught_up_ms == 300
    assert progress.observers[key].last_fetch_ms == 300
    assert progress.observers[key].end_offset == 30


def test_observers_are_forgotten_when_they_fall_silent() -> None:
    progress = book()
    progress.fetched(ReplicaKey(9), offset=0, leader_end=0, wall_ms=0)
    progress.fetched(ReplicaKey(8), offset=0, leader_end=0, wall_ms=1_000)
    assert [each.key.id for each in progress.live_observers(1_000)] == [8, 9]
    assert [each.key.id for each in progress.live_observers(OBSERVER_SESSION_MS)] == [8]
    assert progress.observers.keys() == {ReplicaKey(8)}


def test_nameless_readers_and_the_leader_itself_are_not_listed() -> None:
    progress = book()
    progress.fetched(ReplicaKey(-1), offset=3, leader_end=9, wall_ms=5)
    progress.fetched(ReplicaKey(0), offset=30, leader_end=9, wall_ms=5)
    assert progress.live_observers(5) == ()
    assert progress.voters[0].end_offset == -1
