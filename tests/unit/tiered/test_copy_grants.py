"""What is granted, what a leader copies itself, and what is finished next: all cases of three.

Method: three segments, each of them granted, kept or free, are judged against the rules in words.
"""

from itertools import product

import pytest

from ottla.base.ids import Uuid
from ottla.log.segment_files import LocalSegment
from ottla.tiered.copy_grants import (
    NO_LIMIT,
    CopyGrant,
    first_to_finish,
    lease_until_ms,
    may_copy_itself,
    next_end_ms,
    segments_to_grant,
)
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState

STARTS = (0, 10, 20)
PLANNED = [
    LocalSegment(base_offset=start, end_offset=start + 10, size_bytes=100, is_active=False)
    for start in STARTS
]
FREE, GRANTED, KEPT = "free", "granted", "kept"


def grant(start: int, *, is_kept: bool = False, until_ms: int = 100) -> CopyGrant:
    segment = SegmentMetadata(
        topic="t",
        topic_id=Uuid(bytes(16)),
        partition=0,
        segment_id=Uuid(bytes([start]) * 16),
        start_offset=start,
        end_offset=start + 9,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=5,
        size_bytes=100,
        epochs=((0, start),),
        state=SegmentState.COPY_STARTED,
        leader_epoch=0,
        tiered_epoch=1,
    )
    return CopyGrant(
        segment=segment,
        holder=Uuid(bytes(16)),
        granted_ms=0,
        until_ms=until_ms,
        is_kept=is_kept,
    )


@pytest.mark.parametrize("states", list(product((FREE, GRANTED, KEPT), repeat=3)))
def test_each_state_of_three_segments(states: tuple[str, ...]) -> None:
    by_start = dict(zip(STARTS, states, strict=True))
    grants = [
        grant(start, is_kept=state == KEPT) for start, state in by_start.items() if state != FREE
    ]
    free = [start for start, state in by_start.items() if state == FREE]
    taken = {each.segment.start_offset for each in grants}

    def granted(most: int, until_offset: int = NO_LIMIT, log_start: int = 0) -> list[int]:
        found = segments_to_grant(
            PLANNED, taken, log_start=log_start, until_offset=until_offset, most=most
        )
        return [each.base_offset for each in found]

    assert granted(5) == free
    assert granted(1) == free[:1]
    assert granted(0) == []
    assert granted(5, until_offset=19) == [each for each in free if each < 20]
    assert granted(5, until_offset=18) == [each for each in free if each < 10]
    assert granted(5, log_start=4) == ([] if 0 in free else free)
    assert may_copy_itself(PLANNED, grants) is (GRANTED not in states and states[0] == FREE)
    for copied_end in (0, 9, 10, 20):
        kept = [start for start, state in by_start.items() if state == KEPT]
        ready = [each for each in kept if each <= copied_end]
        first = first_to_finish(grants, copied_end)
        assert (None if first is None else first.segment.start_offset) == (
            ready[0] if ready else None
        )


def test_a_leader_with_nothing_to_copy_copies_nothing() -> None:
    assert not may_copy_itself([], [])


@pytest.mark.parametrize(
    ("asked_ms", "now_ms", "expected"),
    [(10, 0, 10), (10, 50, 60), (10, 95, 100), (500, 0, 100), (1, 100, 100)],
)
def test_a_lease_ends_when_any_copy_has(asked_ms: int, now_ms: int, expected: int) -> None:
    until_ms = lease_until_ms(asked_ms=asked_ms, granted_ms=0, now_ms=now_ms, lives_ms_max=100)
    assert until_ms == expected


def test_a_kept_copy_has_no_lease() -> None:
    kept, held = grant(0, is_kept=True, until_ms=50), grant(10, until_ms=70)
    assert next_end_ms([kept]) is None
    assert next_end_ms([kept, held]) == 70
    assert not kept.is_over(1_000)
    assert (held.is_over(69), held.is_over(70)) == (False, True)
