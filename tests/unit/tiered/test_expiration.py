"""Which remote segments go: each rule by a short log, then any logs of any leaders.

Method for the properties: leaders copy parts of their histories; the truth is the epoch of each
offset. What retention keeps stays readable, what goes is a prefix of the log, each limit explains
what went because of it, and once the plan is carried out the next one is empty.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tiered.expiration import ExpirationPlan, Reason, plan_expiration
from ottla.tiered.lineage import Lineage, visible_segments
from ottla.tiered.read_plan import slice_at
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import SegmentState
from ottla.tiered.visible_segments import VisibleSegments
from tests.unit.tiered.support import (
    DELETED,
    DELETING,
    FINISHED,
    copied,
    fence,
    number_of,
    segment,
    update,
)
from tests.unit.tiered.test_lineage import entries, histories

LINEAGE = Lineage([(1, 0)], 100)
NOW_MS = 10_000


def plan(
    remote: RemoteLog,
    lineage: Lineage = LINEAGE,
    *,
    log_start: int = 0,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    local_only_bytes: int = 0,
) -> ExpirationPlan:
    return plan_expiration(
        remote,
        lineage,
        log_start=log_start,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        local_only_bytes=local_only_bytes,
        now_ms=NOW_MS,
    )


def deleted(found: ExpirationPlan) -> dict[int, Reason]:
    return {number_of(each): reason for each, reason in found.delete}


def three(*timestamps: int) -> RemoteLog:
    times = timestamps or (1_000, 2_000, 3_000)
    return copied(
        *(segment(n + 1, n * 10, n * 10 + 9, max_timestamp_ms=each) for n, each in enumerate(times))
    )


def test_nothing_expires_without_limits() -> None:
    found = plan(three())
    assert (found.log_start_offset, deleted(found)) == (0, {})


def test_by_time() -> None:
    found = plan(three(), retention_ms=8_000)  # Older than or as old as 2,000.
    assert (found.log_start_offset, deleted(found)) == (20, {1: Reason.TIME, 2: Reason.TIME})


def test_the_first_survivor_ends_the_walk() -> None:
    found = plan(three(9_000, 1_000, 1_000), retention_ms=5_000)
    assert (found.log_start_offset, deleted(found)) == (0, {})


def test_records_without_timestamps_are_as_old_as_their_copy() -> None:
    remote = three(-1, -1, -1)  # Copied at 3,000.
    assert deleted(plan(remote, retention_ms=7_001)) == {}
    assert len(deleted(plan(remote, retention_ms=7_000))) == 3


@pytest.mark.parametrize(
    ("retention_bytes", "local_only_bytes", "expected"),
    [(300, 0, 0), (299, 0, 0), (200, 0, 1), (199, 0, 1), (200, 99, 1), (200, 100, 2), (0, 0, 3)],
)
def test_by_size(retention_bytes: int, local_only_bytes: int, expected: int) -> None:
    found = plan(three(), retention_bytes=retention_bytes, local_only_bytes=local_only_bytes)
    assert deleted(found) == dict.fromkeys(range(1, expected + 1), Reason.SIZE)
    assert found.log_start_offset == 10 * expected


def test_what_goes_for_another_reason_counts_for_the_size() -> None:
    found = plan(three(), log_start=10, retention_bytes=200)
    assert deleted(found) == {1: Reason.LOG_START}
    found = plan(three(), retention_ms=9_000, retention_bytes=200)
    assert deleted(found) == {1: Reason.TIME}


@pytest.mark.parametrize(("log_start", "expected"), [(9, 0), (10, 1), (19, 1), (20, 2), (50, 3)])
def test_below_the_log_start(log_start: int, expected: int) -> None:
    found = plan(three(), log_start=log_start)
    assert deleted(found) == dict.fromkeys(range(1, expected + 1), Reason.LOG_START)
    assert found.log_start_offset == log_start


def test_below_the_log_start_where_the_epoch_cache_was_truncated() -> None:
    # All the epochs of segment 1 are gone from the cache, and segment 2 reaches over its start.
    remote = copied(
        segment(1, 0, 9, ((1, 0),)),
        segment(2, 10, 19, ((1, 10), (2, 15))),
        segment(3, 20, 29, ((2, 20),)),
    )
    found = plan(remote, Lineage([(2, 20)], 100), log_start=20)
    assert set(deleted(found)) == {1, 2}


def test_unfinished_copies_do_not_count() -> None:
    # KAFKA-17062: an outage of the store leaves many of them.
    remote = three()
    for number in range(4, 10):
        remote.replay(segment(number, 30, 39))
    found = plan(remote, retention_bytes=300)
    assert deleted(found) == {}


def test_a_segment_of_several_epochs_counts_once() -> None:
    # KAFKA-15479
    remote = copied(segment(1, 0, 9, ((1, 0), (2, 3), (3, 6))), segment(2, 10, 19, ((3, 10),)))
    lineage = Lineage([(1, 0), (2, 3), (3, 6)], 100)
    assert deleted(plan(remote, lineage, retention_bytes=200)) == {}
    found = plan(remote, lineage, retention_bytes=100)
    assert (found.log_start_offset, deleted(found)) == (10, {1: Reason.SIZE})


def test_a_segment_that_another_covers_does_not_count_and_goes_with_its_offsets() -> None:
    remote = copied(segment(1, 0, 9), segment(2, 0, 19), segment(3, 20, 29))
    assert deleted(plan(remote, retention_bytes=200)) == {}
    found = plan(remote, retention_bytes=100)
    assert found.log_start_offset == 20  # KAFKA-16890: it does not step back to 10.
    assert deleted(found) == {1: Reason.LOG_START, 2: Reason.SIZE}
    found = plan(remote, retention_bytes=0)
    assert (found.log_start_offset, set(deleted(found))) == (30, {1, 2, 3})


def test_overlapping_segments_of_a_trimmed_epoch_expire() -> None:
    # KAFKA-16511: the first segment is gone, and the second one begins below the cache's start.
    remote = copied(segment(2, 14, 150, ((5, 14), (7, 15), (9, 100))))
    lineage = Lineage([(7, 51), (9, 100)], 200)
    found = plan(remote, lineage, log_start=51, retention_ms=0)
    assert (found.log_start_offset, deleted(found)) == (151, {2: Reason.TIME})


def test_failed_deletions_are_repeated() -> None:
    # KAFKA-17428
    remote = three()
    remote.replay(update(1, DELETING))
    assert deleted(plan(remote)) == {1: Reason.DELETE_STARTED}
    assert deleted(plan(remote, retention_ms=8_000)) == {1: Reason.DELETE_STARTED, 2: Reason.TIME}


def test_dead_segments_are_deleted() -> None:
    remote = three()
    remote.replay(fence(2, 2, floor=1))
    found = plan(remote)
    assert deleted(found) == dict.fromkeys((1, 2, 3), Reason.DELETE_STARTED)
    assert found.log_start_offset == 0  # Turning tiering off advances it, not its expiration.


def test_leftovers_of_an_unclean_election() -> None:
    remote = copied(segment(1, 0, 9, ((1, 0),)), segment(2, 5, 29, ((2, 5),)))
    cut_off = segment(3, 10, 19, ((1, 10),))
    for record in (cut_off, update(3, FINISHED)):
        remote.replay(record)
    lineage = Lineage([(1, 0), (2, 5)], 100)
    assert deleted(plan(remote, lineage)) == {}  # Another such election may bring it back.
    found = plan(remote, lineage, log_start=5)
    assert (found.log_start_offset, set(deleted(found))) == (5, {1})  # Of 1 only 0 to 4 counted.
    found = plan(remote, Lineage([(2, 5)], 100), log_start=5)
    assert deleted(found) == {1: Reason.UNREFERENCED, 3: Reason.UNREFERENCED}


def test_a_lost_epoch_cache_deletes_nothing() -> None:
    found = plan(three(), Lineage([(9, 30)], 100))
    assert (found.log_start_offset, deleted(found)) == (0, {})


def test_segments_being_copied_halt_the_walk() -> None:
    remote = three()
    remote.replay(segment(4, 15, 39))  # Of this epoch's leader, for offsets that are not copied.
    found = plan(remote, retention_ms=0)
    assert found.log_start_offset == 20
    assert set(deleted(found)) == {1, 2}


def test_copies_that_were_given_up() -> None:
    remote = three()
    remote.replay(segment(4, 20, 29))  # Copied again since, as segment 3.
    assert deleted(plan(remote)) == {4: Reason.UNFINISHED}
    remote = three()
    remote.replay(segment(4, 30, 39))
    assert deleted(plan(remote)) == {}
    later = Lineage([(1, 0), (2, 35)], 100)
    assert deleted(plan(remote, later)) == {4: Reason.UNFINISHED}  # Its copier leads no more.


# Any log


@dataclass
class Tier:
    """A log, and copies of parts of it and of other histories."""

    log: list[int]
    log_start: int
    remote: RemoteLog
    lineage: Lineage


@st.composite
def tiers(draw: st.DrawFn) -> Tier:
    logs = draw(histories())
    log = draw(st.sampled_from(logs))
    remote = RemoteLog()
    for number in range(draw(st.integers(0, 8))):
        source = draw(st.sampled_from([log, log, *logs]))
        if not source:
            continue
        start = draw(st.integers(0, len(source) - 1))
        end = draw(st.integers(start, len(source) - 1))
        remote.replay(
            segment(
                number,
                start,
                end,
                entries(source, start, end + 1),
                leader_epoch=draw(st.integers(0, 5)),
                max_timestamp_ms=draw(st.integers(0, 9)) * 1_000,
                size_bytes=draw(st.integers(0, 50)),
            )
        )
        for state in draw(st.sampled_from([(), (FINISHED,), (FINISHED,), (FINISHED, DELETING)])):
            remote.replay(update(number, state))
    log_start = draw(st.integers(0, len(log)))
    kept = draw(st.integers(0, log_start))  # The cache may not be truncated yet.
    return Tier(log, log_start, remote, Lineage(entries(log, kept, len(log)), len(log)))


LIMITS = {
    "retention_ms": st.sampled_from([-1, 0, 2_000, 5_000, 9_000]),
    "retention_bytes": st.sampled_from([-1, 0, 20, 50, 100]),
    "local_only_bytes": st.sampled_from([0, 10, 60]),
}


@given(tiers(), st.fixed_dictionaries(LIMITS))
def test_what_retention_keeps_stays_readable(tier: Tier, limits: dict[str, int]) -> None:
    remote, lineage = tier.remote, tier.lineage
    visible = visible_segments(remote.segments(), lineage)
    readable = {each for each in range(len(tier.log)) if slice_at(remote, lineage, each)}
    found = plan(remote, lineage, log_start=tier.log_start, **limits)
    reasons = deleted(found)
    assert found.log_start_offset >= tier.log_start
    assert found.log_start_offset <= max(tier.log_start, len(tier.log))

    # A prefix: what goes is below the log start, what is above it stays readable.
    for each, reason in found.delete:
        remote.replay(update(number_of(each), DELETING))
        if reason in (Reason.TIME, Reason.SIZE, Reason.LOG_START):
            assert lineage.shared_end(each) < found.log_start_offset
    for offset in readable:
        if offset >= found.log_start_offset:
            assert slice_at(remote, lineage, offset)

    # Each limit explains what went because of it.
    left = [each for each in visible if number_of(each.segment) not in reasons]
    size = sum(each.segment.size_bytes for each in left) + limits["local_only_bytes"]
    oldest_ms = NOW_MS - limits["retention_ms"]
    for each, reason in found.delete:
        if reason is Reason.TIME:
            assert limits["retention_ms"] >= 0
            assert each.max_timestamp_ms <= oldest_ms
        elif reason is Reason.SIZE:
            assert 0 <= limits["retention_bytes"] <= size

    # And nothing that is due is left in front, unless a copy is under way.
    if left and not any(each.state is SegmentState.COPY_STARTED for each in remote.segments()):
        first = left[0].segment
        assert left[0].end_offset >= found.log_start_offset
        assert limits["retention_ms"] < 0 or first.max_timestamp_ms > oldest_ms
        excess = size - limits["retention_bytes"] if limits["retention_bytes"] >= 0 else 0
        assert first.size_bytes == 0 or excess < first.size_bytes


@given(tiers(), st.fixed_dictionaries(LIMITS))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    tier: Tier, limits: dict[str, int]
) -> None:
    log_start = tier.log_start
    found = plan(tier.remote, tier.lineage, log_start=log_start, **limits)
    for each, _ in found.delete:
        tier.remote.replay(update(number_of(each), DELETING))
    again = plan(tier.remote, tier.lineage, log_start=found.log_start_offset, **limits)
    assert again.log_start_offset == found.log_start_offset
    first = set(deleted(found))
    assert {key for key, why in deleted(again).items() if why is Reason.DELETE_STARTED} == first
    for each, _ in found.delete:
        tier.remote.replay(update(number_of(each), DELETED))
    last = plan(tier.remote, tier.lineage, log_start=found.log_start_offset, **limits)
    assert {key for key, why in deleted(last).items() if why is not Reason.UNFINISHED} == set()
    assert last.log_start_offset == found.log_start_offset


def test_a_copy_in_progress_keeps_what_is_behind_it_but_not_below_the_log_start() -> None:
    remote = copied(segment(1, 10, 19), segment(2, 20, 29))
    remote.replay(fence(1))
    remote.replay(segment(3, 0, 39))
    assert deleted(plan(remote, retention_ms=0)) == {}
    assert deleted(plan(remote, retention_ms=0, log_start=20)) == {1: Reason.LOG_START}
    # As in a plan that is made of the one before.
    visible = VisibleSegments()
    visible.update(remote, LINEAGE)
    found = plan_expiration(
        remote,
        LINEAGE,
        log_start=30,
        retention_ms=-1,
        retention_bytes=-1,
        local_only_bytes=0,
        now_ms=NOW_MS,
        visible=visible,
    )
    assert deleted(found) == {1: Reason.LOG_START, 2: Reason.LOG_START}
