"""What a leader copies next: by hand, and any log copied to its end.

Method for the property: a log of any segments is copied step by step, with the last stable offset
and the log start moving; whatever was copied by then is contiguous, ascending, and never active.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.segment_files import LocalSegment
from ottla.tiered.copy_plan import (
    copied_offset,
    elected_log_start,
    highest_copied_offset,
    local_only_bytes,
    next_segments,
)
from ottla.tiered.lineage import Lineage
from ottla.tiered.remote_log import RemoteLog
from tests.unit.tiered.support import DELETING, FINISHED, copied, fence, segment, update


def local(*bounds: int) -> list[LocalSegment]:
    """Return segments between neighbouring offsets; the last is active."""
    return [
        LocalSegment(
            base_offset=start,
            end_offset=end,
            size_bytes=10 * (end - start),
            is_active=number == len(bounds) - 2,
        )
        for number, (start, end) in enumerate(pairwise(bounds))
    ]


LOG = local(0, 10, 20, 30, 40)


@pytest.mark.parametrize(
    ("copied_to", "log_start", "last_stable", "expected"),
    [
        (-1, 0, 40, [0, 10, 20]),
        (-1, 0, 30, [0, 10, 20]),
        (-1, 0, 29, [0, 10]),  # A segment with a record that is not stable waits.
        (-1, 0, 9, []),
        (9, 0, 40, [10, 20]),
        (8, 0, 40, [0, 10, 20]),  # The former leader rolled elsewhere.
        (29, 0, 40, []),
        (35, 0, 40, []),
        (-1, 10, 40, [10, 20]),
        (-1, 15, 40, [10, 20]),  # Its records from the log start on are needed.
        (-1, 35, 40, []),
        (19, 5, 40, [20]),
    ],
)
def test_next_segments(
    copied_to: int, log_start: int, last_stable: int, expected: list[int]
) -> None:
    found = next_segments(LOG, copied=copied_to, log_start=log_start, last_stable=last_stable)
    assert [each.base_offset for each in found] == expected


def test_empty_segments_are_not_copied() -> None:
    found = next_segments(local(0, 10, 10, 20, 30), copied=-1, log_start=0, last_stable=30)
    assert [each.base_offset for each in found] == [0, 10]
    assert found[1].end_offset == 20


def test_copied_offset() -> None:
    lineage = Lineage([(1, 0), (2, 15), (4, 30)], 50)
    remote = copied(segment(1, 0, 9), segment(2, 10, 19, ((1, 10), (2, 15))))
    assert copied_offset(remote, lineage, local_log_start=0) == 19
    assert copied_offset(RemoteLog(), lineage, local_log_start=0) == -1
    assert copied_offset(remote, Lineage([], 0), local_log_start=0) == -1


def test_copied_offset_after_an_unclean_election() -> None:
    # KAFKA-15241: what epoch 1 wrote from offset 5 on is not in the log any more.
    remote = copied(segment(1, 0, 9), segment(2, 10, 19))
    assert copied_offset(remote, Lineage([(1, 0), (2, 5)], 8), local_log_start=0) == 4
    assert copied_offset(remote, Lineage([(1, 0)], 5), local_log_start=0) == 4


def test_copied_offset_is_of_segments_that_are_there() -> None:
    lineage = Lineage([(1, 0)], 50)
    remote = copied(segment(1, 0, 9), segment(2, 10, 19))
    remote.replay(update(2, DELETING))
    assert copied_offset(remote, lineage, local_log_start=0) == 9
    remote.replay(fence(2, 2, floor=1))
    assert copied_offset(remote, lineage, local_log_start=0) == -1


@pytest.mark.parametrize(
    ("local_log_start", "known", "expected"),
    [
        (0, -1, 9),
        (5, -1, 9),
        (10, -1, 9),  # The last one before the local log is remote, and no more.
        (15, -1, -1),
        (20, -1, 39),  # It begins behind the gap.
        (25, -1, 39),
        (0, 9, 9),
        (0, 19, 39),  # The gap was known to be copied.
        (40, -1, 39),
        (45, -1, -1),
        (45, 39, 39),
    ],
)
def test_copied_offset_ends_at_a_gap(local_log_start: int, known: int, expected: int) -> None:
    """By the highest offset, a replica that has 10-19 would delete them: perhaps the last ones."""
    lineage = Lineage([(1, 0), (2, 35)], 50)
    remote = copied(segment(1, 0, 9), segment(2, 20, 29), segment(3, 30, 39, ((1, 30), (2, 35))))
    found = copied_offset(remote, lineage, local_log_start=local_log_start, known=known)
    assert found == expected
    assert highest_copied_offset(remote, lineage) == 39


def test_offsets_before_the_first_leader_epoch_are_no_gap() -> None:
    """The log was compacted before: its first batch is at 4. Else it would be copied forever."""
    first = replace(segment(1, 0, 9), epochs=((1, 4),))
    assert copied_offset(copied(first), Lineage([(1, 4)], 50), local_log_start=0) == 9


def test_local_only_bytes() -> None:
    assert local_only_bytes(LOG, copied=-1) == 400
    assert local_only_bytes(LOG, copied=19) == 200
    assert local_only_bytes(LOG, copied=15) == 200  # The second one is partly remote.
    assert local_only_bytes(LOG, copied=39) == 0


@pytest.mark.parametrize(
    ("log_start", "local_log_start", "expected"),
    [
        (0, 25, 10),  # KAFKA-15351: the former leader deleted segments, and failed.
        (12, 25, 12),
        (25, 25, 25),
        (25, 20, 25),
        (0, 0, 0),  # All is local.
        (0, 5, 5),
        (31, 35, 35),
    ],
)
def test_elected_log_start(log_start: int, local_log_start: int, expected: int) -> None:
    remote = copied(segment(2, 10, 19), segment(3, 20, 29))
    lineage = Lineage([(1, 0)], 50)
    assert (
        elected_log_start(remote, lineage, log_start=log_start, local_log_start=local_log_start)
        == expected
    )


def test_elected_log_start_within_a_segment() -> None:
    """Its first records were deleted before it was copied: the replica did not know of that."""
    first = replace(segment(2, 0, 9), epochs=((1, 4),))
    found = elected_log_start(copied(first), Lineage([(1, 0)], 50), log_start=0, local_log_start=10)
    assert found == 4


@pytest.mark.parametrize(
    ("log_start", "local_log_start", "floor", "expected"),
    [
        (20, 40, 1, 40),  # Behind the gap: this replica was away, and lacks 30-39.
        (20, 50, 1, 40),  # The gap is before what is remote again.
        (20, 30, 1, 20),
        (25, 30, 1, 25),
        (20, 40, 0, 20),  # Nothing was given up: what was copied is kept.
        (20, 50, 0, 20),
    ],
)
def test_elected_log_start_is_behind_a_gap(
    log_start: int, local_log_start: int, floor: int, expected: int
) -> None:
    remote = RemoteLog()
    remote.replay(fence(1, 2, floor=floor))
    for number, start in ((1, 20), (2, 40)):
        remote.replay(segment(number, start, start + 9, leader_epoch=1, tiered_epoch=2))
        remote.replay(update(number, FINISHED, leader_epoch=1, tiered_epoch=2))
    found = elected_log_start(
        remote, Lineage([(1, 0)], 60), log_start=log_start, local_log_start=local_log_start
    )
    assert found == expected


def test_elected_log_start_without_remote_segments() -> None:
    lineage = Lineage([(1, 0)], 50)
    found = elected_log_start(RemoteLog(), lineage, log_start=0, local_log_start=25)
    assert found == 25


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=8),
)
def test_a_log_is_copied_once_from_its_start_to_its_last_stable_segment(
    sizes: list[int], moves: list[tuple[int, int]]
) -> None:
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    log = local(*bounds)
    lineage = Lineage([(1, 0)], bounds[-1])
    remote = RemoteLog()
    log_start = last_stable = number = 0
    done: list[LocalSegment] = []
    for stable, start in [*moves, (bounds[-1], 0)]:
        last_stable = max(last_stable, min(stable, bounds[-1]))
        log_start = max(log_start, min(start, last_stable))
        at = copied_offset(remote, lineage, local_log_start=log_start)
        found = next_segments(log, copied=at, log_start=log_start, last_stable=last_stable)
        for each in found:
            assert not each.is_active
            assert each.end_offset <= last_stable
            assert not done or done[-1].end_offset <= each.base_offset
            done.append(each)
            number += 1
            remote.replay(segment(number, each.base_offset, each.end_offset - 1))
            remote.replay(update(number, FINISHED))
        after = copied_offset(remote, lineage, local_log_start=log_start)
        for each in log:
            is_due = not each.is_active and log_start < each.end_offset <= last_stable
            if is_due and each.base_offset < each.end_offset:
                assert after >= each.end_offset - 1  # No gap.
        assert not next_segments(log, copied=after, log_start=log_start, last_stable=last_stable)
