"""Each anomaly of groups and readers is found in a history that has it, and in no other.

Method: histories of a few lines, one that keeps the promise and one that breaks it.
"""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.testing.checkers import groups as checkers
from ottla.testing.checkers.records import Witness
from ottla.testing.history.groups import (
    AssignmentReceived,
    AssignmentSent,
    FollowerRead,
    GroupHistory,
    MemberJoined,
    OffsetCommit,
    OffsetFetch,
    OffsetsLogSeen,
    TimestampLookup,
)
from ottla.testing.history.history import History, LogSeen, PartitionSeen, Write
from ottla.testing.history.topics import Outcome

TOPIC = Uuid(bytes(15) + b"\x09")
PARTITION = (TOPIC, 0)
LATER_MS = checkers.TWICE_MS + 1


def history(*, ended_ms: int = 99_000, **seen: Any) -> History:
    return History(groups=GroupHistory(**seen), ended_ms=ended_ms)


def commit(
    offset: int,
    sent_ms: int,
    *,
    generation: int = 1,
    outcome: Outcome = Outcome.ACKNOWLEDGED,
    member: str = "m",
) -> OffsetCommit:
    """Return a commit that took one millisecond; its token is its offset."""
    return OffsetCommit(
        client="c",
        group="g",
        member=member,
        generation=generation,
        partition=PARTITION,
        offset=offset,
        token=f"t{offset}",
        outcome=outcome,
        sent_ms=sent_ms,
        ended_ms=sent_ms + 1,
    )


def fetch(offset: int, at_ms: int, token: str | None = None) -> OffsetFetch:
    """Return a fetch that took one millisecond."""
    named = ("" if offset < 0 else f"t{offset}") if token is None else token
    return OffsetFetch("c", "g", PARTITION, offset, named, sent_ms=at_ms - 1, at_ms=at_ms)


# -- committed offset lost ---------------------------------------------------------------------


def test_the_newest_commit_is_what_is_fetched() -> None:
    recorded = history(
        commits=[commit(5, 10), commit(9, 10 + LATER_MS)],
        fetches=[fetch(-1, 9), fetch(5, 20), fetch(9, 9_000)],
    )
    assert checkers.committed_offsets_lost(recorded) == []


def test_no_offset_after_a_commit_was_acknowledged_is_found() -> None:
    recorded = history(commits=[commit(5, 10)], fetches=[fetch(-1, 20)])
    (found,) = checkers.committed_offsets_lost(recorded)
    assert found.at_ms == 20
    assert "at 20 ms (no commit), after 5 (t5, generation 1) was stored at 11 ms" in found.text


def test_an_older_commit_after_a_newer_one_was_acknowledged_is_found() -> None:
    commits = [commit(5, 10), commit(9, 11 + LATER_MS)]
    recorded = history(commits=commits, fetches=[fetch(5, 9_000)])
    assert [each.at_ms for each in checkers.committed_offsets_lost(recorded)] == [9_000]


def test_a_fetch_concurrent_with_a_commit_may_return_the_one_before() -> None:
    commits = [commit(5, 10), commit(9, 3_000)]
    recorded = history(commits=commits, fetches=[fetch(5, 3_001)])
    assert checkers.committed_offsets_lost(recorded) == []


def test_a_commit_of_unknown_fate_may_show_or_not() -> None:
    unknown = commit(9, 3_000, outcome=Outcome.UNKNOWN)
    for shown in (5, 9):
        recorded = history(commits=[commit(5, 10), unknown], fetches=[fetch(shown, 9_000)])
        assert checkers.committed_offsets_lost(recorded) == []


def test_what_was_fetched_once_does_not_go_away() -> None:
    unknown = commit(9, 3_000, outcome=Outcome.UNKNOWN)
    recorded = history(commits=[commit(5, 10), unknown], fetches=[fetch(9, 4_000), fetch(5, 9_000)])
    assert [each.at_ms for each in checkers.committed_offsets_lost(recorded)] == [9_000]


def test_a_request_that_arrives_once_more_may_undo_a_commit_of_its_generation() -> None:
    twice = history(commits=[commit(5, 10), commit(9, 500)], fetches=[fetch(5, 9_000)])
    assert checkers.committed_offsets_lost(twice) == []
    commits = [commit(5, 10), commit(9, 500, generation=2)]
    over = history(commits=commits, fetches=[fetch(5, 9_000)])
    assert len(checkers.committed_offsets_lost(over)) == 1


@pytest.mark.parametrize("wrong", [fetch(6, 20, token="t5"), fetch(7, 20, token="t7"), fetch(5, 9)])
def test_an_offset_that_no_client_committed_is_found(wrong: OffsetFetch) -> None:
    (found,) = checkers.committed_offsets_lost(history(commits=[commit(5, 10)], fetches=[wrong]))
    assert "which no client had committed" in found.text


def test_an_offset_that_lost_its_leader_epoch_is_found() -> None:
    recorded = history(commits=[commit(5, 10)._replace(epoch=3)], fetches=[fetch(5, 20)])
    (found,) = checkers.committed_offsets_lost(recorded)
    assert "of epoch -1" in found.text


def test_offsets_go_with_their_topic() -> None:
    recorded = history(commits=[commit(5, 10)], fetches=[fetch(-1, 20)])
    recorded.deleted = {TOPIC}
    assert checkers.committed_offsets_lost(recorded) == []


def log_of(
    node: int,
    offset: int | None,
    *,
    end: int = 8,
    generation: int = 1,
    records: dict[int, tuple[bytes, bytes | None]] | None = None,
) -> OffsetsLogSeen:
    held = {} if offset is None else {("g", PARTITION): (offset, f"t{offset}", -1)}
    return OffsetsLogSeen(node, 0, 0, end, records or {}, held, {"g": generation})


def test_replicas_that_hold_the_newest_commit_are_well() -> None:
    recorded = history(commits=[commit(5, 10)], logs=[log_of(1, 5), log_of(2, 5)])
    assert checkers.committed_offsets_lost(recorded) == []


@pytest.mark.parametrize("held", [None, 3])
def test_a_replica_without_the_newest_commit_is_found(held: int | None) -> None:
    commits = [commit(3, 10), commit(5, 11 + LATER_MS)]
    recorded = history(commits=commits, logs=[log_of(1, 5), log_of(2, held)])
    (found,) = checkers.committed_offsets_lost(recorded)
    assert found.text.startswith("the log of node 2 fetched offset")


OFFSETS_PARTITION = (Uuid(bytes(15) + b"\x08"), 1)


def with_coordinators(recorded: History, *epochs: tuple[int, int]) -> History:
    """Let node 1, then node 2 from 15 ms on, coordinate; `epochs`: as far as node 1 knows."""
    recorded.groups.offsets_partitions = {"g": OFFSETS_PARTITION}
    recorded.groups.epochs_led = {(1, OFFSETS_PARTITION): list(epochs)}
    recorded.partitions = [
        led_by(1, 0, 1)._replace(partition=OFFSETS_PARTITION),
        led_by(2, 1, 15)._replace(partition=OFFSETS_PARTITION),
    ]
    return recorded


def test_a_coordinator_that_does_not_know_of_its_successor_may_answer_what_it_had() -> None:
    stale = fetch(-1, 20)._replace(node=1)
    outdated = with_coordinators(history(commits=[commit(5, 10)], fetches=[stale]), (1, 0))
    assert checkers.committed_offsets_lost(outdated) == []
    aware = with_coordinators(history(commits=[commit(5, 10)], fetches=[stale]), (1, 0), (17, -1))
    assert len(checkers.committed_offsets_lost(aware)) == 1


# -- commit beyond the end ---------------------------------------------------------------------


def test_a_commit_at_the_end_is_well_and_one_behind_it_is_found() -> None:
    recorded = history(fetches=[fetch(2, 20), fetch(3, 30)])
    recorded.logs = [LogSeen(1, PARTITION, 0, 2, {0: b"a", 1: b"b"})]
    (found,) = checkers.commits_beyond_the_end(recorded)
    assert found.at_ms == 30
    assert "has committed 3" in found.text


# -- stale commit taken ------------------------------------------------------------------------


def group_with(**seen: Any) -> History:
    """Return a history in which the group had an offset from the first millisecond on."""
    first = commit(0, 0)._replace(partition=(TOPIC, 1))
    return history(**{"commits": [first, *seen.pop("commits", [])], **seen})


def received(
    generation: int,
    at_ms: int,
    *numbers: int,
    member: str = "m",
    instance: str | None = None,
) -> AssignmentReceived:
    return AssignmentReceived(
        client=f"client of {member}",
        group="g",
        member=member,
        generation=generation,
        partitions=tuple(("t", number) for number in numbers),
        instance=instance,
        sent_ms=at_ms - 1,
        at_ms=at_ms,
    )


def test_a_commit_of_the_newest_generation_is_taken() -> None:
    recorded = group_with(
        commits=[commit(5, 10, generation=1), commit(6, 30, generation=2)],
        received=[received(1, 5), received(2, 20)],
    )
    assert checkers.stale_commits_taken(recorded) == []


def test_a_commit_of_a_generation_that_is_over_is_found() -> None:
    recorded = group_with(commits=[commit(5, 30)], received=[received(1, 5), received(2, 20)])
    (found,) = checkers.stale_commits_taken(recorded)
    assert "acknowledged for m of generation 1" in found.text
    assert "generation 2 was stored before 20 ms" in found.text


def test_a_refused_commit_of_a_generation_that_is_over_is_well_unless_it_is_fetched() -> None:
    refused = commit(5, 30, outcome=Outcome.FAILED)
    recorded = group_with(commits=[refused], received=[received(1, 5), received(2, 20)])
    assert checkers.stale_commits_taken(recorded) == []
    recorded.groups.fetches.append(fetch(5, 50))
    assert len(checkers.stale_commits_taken(recorded)) == 1


def in_log(offset: int) -> OffsetsLogSeen:
    return OffsetsLogSeen(2, 0, 0, 9, {}, {("g", PARTITION): (offset, f"t{offset}", -1)}, {})


@pytest.mark.parametrize(
    ("error", "is_repeated", "found"),
    [
        ("REBALANCE_IN_PROGRESS", False, 1),
        ("ILLEGAL_GENERATION", False, 1),
        ("REBALANCE_IN_PROGRESS", True, 0),
        ("UNKNOWN_TOPIC_OR_PARTITION", False, 0),
    ],
)
@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_rejected_commit_that_is_stored_is_found(
    is_fetched: bool, error: str, is_repeated: bool, found: int
) -> None:
    rejected = commit(5, 30, outcome=Outcome.FAILED)._replace(error=error)
    recorded = history(commits=[commit(4, 10), rejected, commit(6, 5_000)])
    recorded.requests_repeated = is_repeated
    assert checkers.stale_commits_taken(recorded) == []
    if is_fetched:
        recorded.groups.fetches.append(fetch(5, 9_000))
    else:
        recorded.groups.logs.append(in_log(5))
    assert len(checkers.stale_commits_taken(recorded)) == found


def test_a_generation_that_was_only_joined_does_not_end_the_one_before() -> None:
    recorded = group_with(commits=[commit(5, 30)], joins=[joined(2, 20)], received=[received(1, 5)])
    assert checkers.stale_commits_taken(recorded) == []


def test_a_commit_of_a_static_member_that_was_replaced_is_found() -> None:
    successions = [
        received(1, 5, member="old", instance="i"),
        received(1, 20, member="new", instance="i"),
    ]
    before = group_with(commits=[commit(5, 10, member="old")], received=successions)
    assert checkers.stale_commits_taken(before) == []
    after = group_with(commits=[commit(5, 30, member="old")], received=successions)
    (found,) = checkers.stale_commits_taken(after)
    assert "another member took its place before 20 ms" in found.text
    own = group_with(commits=[commit(5, 30, member="new")], received=successions)
    assert checkers.stale_commits_taken(own) == []


def test_a_group_that_never_had_an_offset_may_begin_anew() -> None:
    recorded = history(
        commits=[commit(5, 40)],
        joins=[joined(1, 30)],
        sent=[sent(1, m=(0,))],
        received=[received(1, 5, 0), received(2, 20), received(1, 35, 0, 1)],
    )
    assert checkers.stale_commits_taken(recorded) == []
    assert checkers.generations_that_went_back(recorded) == []
    assert checkers.partitions_owned_twice(recorded) == []


# -- generation went back ----------------------------------------------------------------------


def joined(
    generation: int, sent_ms: int, *, member: str = "m", instance: str | None = None
) -> MemberJoined:
    return MemberJoined(
        client="c",
        group="g",
        member=member,
        generation=generation,
        instance=instance,
        sent_ms=sent_ms,
        at_ms=sent_ms + 1,
    )


def test_generations_that_grow_or_stay_are_well() -> None:
    recorded = group_with(
        joins=[joined(1, 1), joined(2, 10), joined(2, 30)], received=[received(2, 20)]
    )
    assert checkers.generations_that_went_back(recorded) == []


def test_a_generation_that_was_never_stored_may_be_begun_again() -> None:
    recorded = group_with(joins=[joined(2, 10), joined(2, 40)], received=[received(1, 5)])
    assert checkers.generations_that_went_back(recorded) == []


def test_a_generation_older_than_a_stored_one_is_found() -> None:
    recorded = group_with(joins=[joined(1, 30)], received=[received(2, 20)])
    (found,) = checkers.generations_that_went_back(recorded)
    assert (
        found.text == "c joined generation 1 of g at node -1, after generation 2 was stored "
        "before 20 ms"
    )
    assert found.at_ms == 31


def test_an_assignment_of_a_generation_that_is_over_is_found() -> None:
    recorded = group_with(received=[received(1, 5), received(2, 20), received(1, 30)])
    (found,) = checkers.generations_that_went_back(recorded)
    assert "was given its assignment in generation 1" in found.text
    assert found.at_ms == 30


def test_a_coordinator_that_does_not_know_of_its_successor_may_go_on_with_its_generation() -> None:
    seen = {"joins": [joined(1, 30)._replace(node=1)], "received": [received(2, 20)]}
    recorded = with_coordinators(group_with(**seen), (1, 0))
    assert checkers.generations_that_went_back(recorded) == []
    recorded = with_coordinators(group_with(**seen), (1, 0), (17, -1))
    assert len(checkers.generations_that_went_back(recorded)) == 1


# -- partition owned twice ---------------------------------------------------------------------


def sent(generation: int, **assigned: tuple[int, ...]) -> AssignmentSent:
    assignments = {
        member: tuple(("t", number) for number in numbers) for member, numbers in assigned.items()
    }
    return AssignmentSent("c", "g", "a", generation, assignments, 1)


def test_members_that_have_what_their_leader_sent_are_well() -> None:
    recorded = group_with(
        sent=[sent(1, a=(0,), b=(1,)), sent(2, a=(0, 1))],
        received=[
            received(1, 5, 0, member="a"),
            received(1, 6, 1, member="b"),
            received(2, 20, 0, 1, member="a"),
            received(2, 21, member="late"),
        ],
    )
    assert checkers.partitions_owned_twice(recorded) == []


def test_a_partition_of_two_members_in_one_generation_is_found() -> None:
    recorded = group_with(
        sent=[sent(1, a=(0,), b=(0, 1))],
        received=[received(1, 5, 0, member="a"), received(1, 6, 0, 1, member="b")],
    )
    (found,) = checkers.partitions_owned_twice(recorded)
    assert found == Witness("t-0 is client of a's and client of b's in generation 1 of g", 6)


def test_two_leaders_of_one_generation_whose_assignments_are_mixed_are_found() -> None:
    recorded = group_with(
        sent=[sent(1, a=(0,), b=(1,)), sent(1, a=(1,), b=(0,))],
        received=[received(1, 5, 0, member="a"), received(1, 6, 0, member="b")],
    )
    texts = [each.text for each in checkers.partitions_owned_twice(recorded)]
    assert any("that no leader sent" in text for text in texts)
    assert any("t-0 is" in text for text in texts)


def test_a_member_that_has_less_than_its_leader_sent_is_found() -> None:
    recorded = group_with(sent=[sent(1, a=(0, 1))], received=[received(1, 5, 0, member="a")])
    (found,) = checkers.partitions_owned_twice(recorded)
    assert "assignments that no leader sent: client of a t-0" in found.text


def test_a_static_member_goes_on_with_what_it_had() -> None:
    recorded = group_with(
        joins=[joined(1, 1, member="old", instance="i"), joined(1, 9, member="new", instance="i")],
        sent=[sent(1, old=(0,))],
        received=[
            received(1, 5, 0, member="old", instance="i"),
            received(1, 20, 0, member="new", instance="i"),
        ],
    )
    assert checkers.partitions_owned_twice(recorded) == []


# -- offsets logs differ -----------------------------------------------------------------------


def test_replicas_that_were_compacted_at_different_times_are_equal() -> None:
    logs = [
        log_of(1, 5, records={0: (b"k", b"v"), 7: (b"k", b"w")}),
        log_of(2, 5, records={7: (b"k", b"w")}),
    ]
    assert checkers.offsets_logs_that_differ(history(logs=logs)) == []


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (log_of(2, 5, end=9, records={7: (b"k", b"w")}), "end at 8 and 9"),
        (log_of(2, 5, records={7: (b"k", b"x")}), "hold different records at 7"),
        (log_of(2, 6), "replay to different offsets and generations: ['g in "),
        (log_of(2, 5, generation=2), "replay to different offsets and generations: []"),
    ],
)
def test_replicas_that_differ_are_found(other: OffsetsLogSeen, text: str) -> None:
    logs = [log_of(1, 5, records={7: (b"k", b"w")}), other]
    (found,) = checkers.offsets_logs_that_differ(history(logs=logs))
    assert found.text.startswith("__consumer_offsets-0 of nodes 1 and 2")
    assert text in found.text


# -- timestamp lookup wrong --------------------------------------------------------------------


def led_by(node: int, epoch: int, at_ms: int) -> PartitionSeen:
    return PartitionSeen(PARTITION, at_ms, (1, 2), (1, 2), node, epoch, at_ms, at_ms=at_ms)


def lookup(timestamp: int, offset: int, found: int = -1, read: int = -1) -> History:
    recorded = history(
        lookups=[TimestampLookup("c", PARTITION, timestamp, offset, found, read, 1, 50, 51, 3)]
    )
    recorded.partitions = [led_by(2, 2, 1), led_by(1, 3, 2), led_by(1, 3, 30)]
    recorded.writes = [
        Write(
            client="p",
            partition=PARTITION,
            values=(b"v",),
            number=number,
            outcome=Outcome.ACKNOWLEDGED,
            offset=number,
            ended_ms=40 if number < 3 else 50,
            made_ms=1_000 + 100 * number,
        )
        for number in range(4)
    ]
    return recorded


@pytest.mark.parametrize(
    "recorded",
    [
        lookup(1_100, 1, 1_100, 1_100),
        lookup(1_050, 1, 1_100),
        lookup(1_150, 2, 1_200, 1_200),
        lookup(1_250, -1),  # The one that qualifies was not acknowledged before.
        lookup(1_250, 3, 1_300, 1_300),
        lookup(2_000, -1),
    ],
)
def test_a_lookup_names_the_first_record_that_is_not_older(recorded: History) -> None:
    assert checkers.timestamp_lookups_wrong(recorded) == []


@pytest.mark.parametrize(
    ("recorded", "text"),
    [
        (lookup(1_150, 1, 1_100), "offset 1, of 1100"),
        (lookup(1_100, 1, 1_100, 1_150), "it is of 1150"),
        (lookup(1_100, 2, 1_200, 1_200), "of 1100 was acknowledged at 1 before"),
        (lookup(1_200, -1), "of 1200 was acknowledged at 2 before"),
    ],
)
def test_a_lookup_that_is_too_early_or_passes_over_a_record_is_found(
    recorded: History, text: str
) -> None:
    (found,) = checkers.timestamp_lookups_wrong(recorded)
    assert text in found.text
    recorded.deleted = {TOPIC}
    assert checkers.timestamp_lookups_wrong(recorded) == []


def test_a_leader_that_was_replaced_may_pass_over_a_record() -> None:
    recorded = lookup(1_200, -1)
    recorded.partitions.append(led_by(2, 4, 49))
    assert checkers.timestamp_lookups_wrong(recorded) == []


# -- uncommitted follower read -----------------------------------------------------------------


def follower_read(following: int, high_watermark: int, at_ms: int = 30) -> History:
    return history(
        follower_reads=[FollowerRead("c", PARTITION, 2, 0, following, high_watermark, at_ms)],
        high_watermarks={PARTITION: [(10, 4), (20, 6), (40, 9)]},
    )


def test_a_follower_that_gives_what_is_committed_is_well() -> None:
    assert checkers.uncommitted_follower_reads(follower_read(6, 6)) == []
    assert checkers.uncommitted_follower_reads(follower_read(6, 6, at_ms=20)) == []


def test_a_read_above_the_followers_own_high_watermark_is_found() -> None:
    (found,) = checkers.uncommitted_follower_reads(follower_read(6, 5))
    assert "up to 6, above its high watermark of 5" in found.text


@pytest.mark.parametrize(("at_ms", "up_to"), [(30, 6), (5, 0)])
def test_a_read_before_a_leader_had_committed_it_is_found(at_ms: int, up_to: int) -> None:
    (found,) = checkers.uncommitted_follower_reads(follower_read(7, 7, at_ms=at_ms))
    assert f"up to 7, where leaders had committed up to {up_to}" in found.text
