"""Replay of a partition's remote log metadata: states, fences, lookups, images.

Method: every state with every record; each rule on fences by a short history; then random histories
against a model that judges each segment by itself, from the whole history, and images taken at any
point of one.
"""

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered import remote_log_image
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    epoch_ranges,
    may_follow,
)
from ottla.wire import codec
from tests.unit.tiered.support import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    copied,
    fence,
    numbers,
    replayed,
    restore_started,
    segment,
    segment_id,
    update,
)

TO_STATE = {
    None: [],
    STARTED: [],
    FINISHED: [FINISHED],
    DELETING: [DELETING],
    DELETED: [DELETING, DELETED],
}


@pytest.mark.parametrize("before", TO_STATE)
@pytest.mark.parametrize("after", [FINISHED, DELETING, DELETED])
def test_every_update_in_every_state(before: SegmentState | None, after: SegmentState) -> None:
    records: list[MetadataRecord] = [] if before is None else [segment(1, 0, 9)]
    log = replayed(*records, *(update(1, each) for each in TO_STATE[before]))
    log.replay(update(1, after))
    if before in (None, DELETED):  # A segment that is forgotten is unknown, however it went.
        assert (log.refused, numbers(log)) == (1, {})
    elif not may_follow(before, after):
        assert (log.refused, numbers(log)) == (1, {1: before})
    else:
        assert (log.refused, numbers(log)) == (0, {} if after is DELETED else {1: after})
    assert log.highest_offset(1) == (9 if numbers(log).get(1) is FINISHED else -1)


@pytest.mark.parametrize("state", list(SegmentState))
def test_a_segment_is_announced_as_copy_started(state: SegmentState) -> None:
    log = replayed(segment(1, 0, 9, state=state))
    assert numbers(log) == ({1: STARTED} if state is STARTED else {})
    assert log.refused == (state is not STARTED)


def test_an_update_is_no_start() -> None:
    log = replayed(segment(1, 0, 9), update(1, STARTED))
    assert (log.refused, numbers(log)) == (1, {1: STARTED})


def test_a_repeated_start() -> None:
    log = replayed(segment(1, 0, 9), segment(1, 0, 9))
    assert (log.refused, numbers(log)) == (0, {1: STARTED})
    log.replay(segment(1, 0, 10))  # Not the same: its objects have another name or content.
    assert log.refused == 1
    log.replay(update(1, FINISHED))
    log.replay(segment(1, 0, 9))
    assert (log.refused, numbers(log)) == (2, {1: FINISHED})


def test_what_an_update_changes() -> None:
    log = replayed(segment(1, 0, 9, custom_metadata=b"a"), update(1, FINISHED))
    found = log.get(segment_id(1))
    assert found == replace(
        segment(1, 0, 9, custom_metadata=b"a"),
        state=FINISHED,
        broker_id=8,
        event_timestamp_ms=3_000,
    )
    log.replay(update(1, FINISHED, custom_metadata=b"b"))
    found = log.get(segment_id(1))
    assert found is not None
    assert found.custom_metadata == b"b"


def test_lookups() -> None:
    log = copied(segment(1, 0, 9, ((1, 0), (2, 5))), segment(2, 10, 19, ((2, 10),)))
    log.replay(segment(3, 20, 29, ((2, 20),)))
    assert [log.segment_for(*each) for each in [(1, 4), (2, 5), (2, 10)]] == [
        log.get(segment_id(1)),
        log.get(segment_id(1)),
        log.get(segment_id(2)),
    ]
    assert [log.segment_for(*each) for each in [(1, 5), (2, 4), (2, 20), (3, 5)]] == [None] * 4
    assert [log.highest_offset(epoch) for epoch in range(4)] == [-1, 4, 19, -1]


def test_highest_offset_is_of_what_is_there_now() -> None:
    # Else segments that were deleted, with tiering off and on again, would never be copied again.
    log = copied(segment(1, 0, 9), segment(2, 10, 19))
    log.replay(update(2, DELETING))
    assert log.highest_offset(1) == 9
    log.replay(update(1, DELETING))
    assert log.highest_offset(1) == -1


def test_segments_are_in_the_order_of_their_offsets() -> None:
    log = replayed(segment(3, 20, 29), segment(1, 10, 19), segment(2, 0, 9), segment(4, 10, 12))
    assert list(numbers(log)) == [2, 4, 1, 3]


def test_of_what_is_deleted_it_is_known_whether_its_copy_had_ended() -> None:
    log = copied(segment(1, 0, 9), segment(2, 10, 19))
    log.replay(segment(3, 20, 29))
    found = {each.start_offset: each for each in log.segments()}
    assert [log.has_ended(found[each]) for each in (0, 10, 20)] == [True, True, False]
    log.replay(update(1, DELETING))
    log.replay(fence(5, 2, floor=1))
    log.replay(update(1, DELETING))  # Repeated after a lost answer.
    for replay in (log, RemoteLog.from_image(log.image())):
        assert numbers(replay) == {1: DELETING, 2: DELETING, 3: DELETING}
        assert [replay.has_ended(found[each]) for each in (0, 10, 20)] == [True, True, False]
    log.replay(update(1, DELETED))
    assert not log.has_ended(replace(found[0], state=DELETING))


# Fences


@pytest.mark.parametrize(
    ("leader_epoch", "tiered_epoch", "is_valid"),
    [(4, 2, False), (5, 2, True), (6, 2, True), (5, 1, False), (6, 3, False), (-1, -1, False)],
)
def test_copies_are_judged_by_the_last_fence(
    leader_epoch: int, tiered_epoch: int, is_valid: bool
) -> None:
    log = replayed(fence(5, 2))
    log.replay(segment(1, 0, 9, leader_epoch=leader_epoch, tiered_epoch=tiered_epoch))
    assert numbers(log) == ({1: STARTED} if is_valid else {})

    log = replayed(fence(5, 2), segment(1, 0, 9, leader_epoch=5, tiered_epoch=2))
    log.replay(update(1, FINISHED, leader_epoch=leader_epoch, tiered_epoch=tiered_epoch))
    assert numbers(log) == {1: FINISHED if is_valid else STARTED}
    assert log.refused == (not is_valid)


def test_without_a_fence_all_copies_are_valid() -> None:
    log = replayed(segment(1, 0, 9, leader_epoch=-1, tiered_epoch=-1))
    log.replay(update(1, FINISHED, leader_epoch=-1, tiered_epoch=-1))
    assert numbers(log) == {1: FINISHED}


@pytest.mark.parametrize("newer", [fence(6), fence(5, 2)])
def test_an_unfinished_copy_counts_as_delete_started_from_the_fence_on(newer: Fence) -> None:
    finished, unfinished = segment(1, 0, 9, leader_epoch=5), segment(2, 10, 19, leader_epoch=5)
    log = replayed(fence(5), finished, update(1, FINISHED, leader_epoch=5), unfinished, newer)
    assert numbers(log) == {1: FINISHED, 2: DELETING}
    # The copier does not know of the fence yet. Or it does, and writes what the new leader may.
    log.replay(update(2, FINISHED, leader_epoch=5))
    log.replay(update(2, FINISHED, leader_epoch=6, tiered_epoch=newer.tiered_epoch))
    assert numbers(log) == {1: FINISHED, 2: DELETING}
    assert log.refused == 2
    log.replay(update(2, DELETED, leader_epoch=-1, tiered_epoch=-1))
    assert numbers(log) == {1: FINISHED}


def test_a_repeated_fence_interrupts_no_copy() -> None:
    log = replayed(fence(5), segment(1, 0, 9, leader_epoch=5), fence(5))
    log.replay(update(1, FINISHED, leader_epoch=5))
    assert (log.refused, numbers(log)) == (0, {1: FINISHED})


@pytest.mark.parametrize("older", [fence(4, 2), fence(5, 1), fence(6, 1), fence(4, 3)])
def test_older_fences_are_refused(older: Fence) -> None:
    log = replayed(fence(5, 2), older)
    assert (log.refused, log.fence) == (1, fence(5, 2))


def test_deletions_are_valid_whatever_the_fence() -> None:
    log = copied(segment(1, 0, 9))
    log.replay(fence(5, 2))
    log.replay(update(1, DELETING, leader_epoch=-1, tiered_epoch=-1))
    log.replay(update(1, DELETED, leader_epoch=-1, tiered_epoch=-1))
    assert (log.refused, numbers(log)) == (0, {})


def test_segments_of_the_floor_and_below_are_dead() -> None:
    log = copied(segment(1, 0, 9), segment(2, 10, 19, tiered_epoch=2))
    log.replay(fence(5, 3, floor=1))
    assert numbers(log) == {1: DELETING, 2: FINISHED}
    assert log.segment_for(1, 5) is None
    assert log.segment_for(1, 15) == log.get(segment_id(2))
    log.replay(fence(5, 3, floor=2))
    assert numbers(log) == {1: DELETING, 2: DELETING}
    assert log.highest_offset(1) == -1


PURGED = fence(WHOLE_TOPIC, WHOLE_TOPIC, floor=WHOLE_TOPIC, state=3)


def test_a_restore_lifts_the_fence_of_an_abandoned_purge() -> None:
    log = copied(segment(1, 0, 9), segment(2, 10, 19))
    log.replay(segment(3, 20, 29))
    log.replay(PURGED)
    log.replay(fence(6, 2))
    assert (log.refused, log.fence) == (1, PURGED)
    before = log.version
    for replay in (log, RemoteLog.from_image(log.image())):
        replay.replay(restore_started())
        assert (replay.refused, replay.fence, replay.floor, numbers(replay)) == (1, None, 0, {})
        assert not replay.deleting()
        # What the manifests list is as in a cluster that never had the topic.
        for each in (segment(1, 0, 9), update(1, FINISHED), fence(6, 2)):
            replay.replay(each)
        assert (replay.refused, replay.fence, numbers(replay)) == (1, fence(6, 2), {1: FINISHED})
        assert replay.segment_for(1, 5) == replay.get(segment_id(1))
    changed = log.changes_since(before)
    assert changed is not None
    assert set(changed) == {segment_id(1), segment_id(2), segment_id(3)}
    # Written twice, or by a leader that was replaced meanwhile.
    log.replay(restore_started())
    assert (log.refused, log.fence, numbers(log)) == (2, fence(6, 2), {1: FINISHED})


def test_a_restore_lifts_a_fence_of_earlier_leader_epochs() -> None:
    log = copied(segment(1, 0, 9), segment(2, 10, 19))
    log.replay(fence(5, 3, floor=2))
    log.replay(restore_started(6))
    assert (log.refused, log.fence, numbers(log)) == (0, None, {})
    log = copied(segment(1, 0, 9))
    log.replay(fence(5, 3))
    log.replay(restore_started(6))
    assert (log.refused, log.fence, numbers(log)) == (0, None, {})
    assert (log.segment_for(1, 5), log.highest_offset(1)) == (None, -1)


@pytest.mark.parametrize("last", [[], [fence(6, 2)], [fence(7, 2, floor=1)]])
def test_the_start_of_a_restore_changes_nothing_of_the_restored_topic(last: list[Fence]) -> None:
    log = copied(segment(1, 0, 9, tiered_epoch=2))
    for each in last:
        log.replay(each)
    before = log.image()
    log.replay(restore_started())
    assert log.refused == 1
    log.refused = 0
    assert log.image() == before


def test_a_floor_never_falls() -> None:
    log = replayed(fence(5, 3, floor=2), fence(6, 4, floor=0))
    assert log.floor == 2
    assert log.fence == fence(6, 4, floor=2)


def test_no_floor_kills_nothing() -> None:
    log = copied(segment(1, 0, 9, leader_epoch=-1, tiered_epoch=-1))  # Of Kafka.
    log.replay(fence(5, 1, floor=0))
    assert numbers(log) == {1: FINISHED}
    log.replay(fence(5, 2, floor=1))
    assert numbers(log) == {1: DELETING}


def test_retained_segments_outlive_a_disablement() -> None:
    log = copied(segment(1, 0, 9))
    log.replay(fence(5, 2, state=2))
    log.replay(fence(6, 3))
    log.replay(segment(2, 10, 19, leader_epoch=6, tiered_epoch=3))
    log.replay(update(2, FINISHED, leader_epoch=6, tiered_epoch=3))
    assert numbers(log) == {1: FINISHED, 2: FINISHED}
    assert log.highest_offset(1) == 19


def test_a_deleted_topic_is_dead_whatever_comes() -> None:
    log = copied(segment(1, 0, 9))
    log.replay(fence(1, 1, floor=2**31 - 1))
    assert numbers(log) == {1: DELETING}
    log.replay(segment(2, 10, 19))
    assert (log.refused, numbers(log)) == (1, {1: DELETING})


# Any history


def started(number: int, leader_epoch: int, tiered_epoch: int) -> SegmentMetadata:
    """Overlapping neighbours, two of them with records of two epochs."""
    start = number * 5
    epochs = ((number % 2, start), (2, 12)) if start < 12 else ((2, start),)
    return segment(
        number, start, start + 7, epochs, leader_epoch=leader_epoch, tiered_epoch=tiered_epoch
    )


def records() -> st.SearchStrategy[MetadataRecord]:
    epochs = {"leader_epoch": st.integers(0, 3), "tiered_epoch": st.integers(1, 3)}
    ids = st.integers(0, 4)
    starts = st.builds(started, ids, **epochs)
    updates = st.builds(update, ids, st.sampled_from(list(SegmentState)), **epochs)
    fences = st.builds(fence, st.integers(0, 3), st.integers(1, 3), floor=st.integers(0, 2))
    restores = st.builds(restore_started, st.integers(0, 4))
    return st.one_of(starts, updates, updates, updates, fences, st.just(PURGED), restores)


def judged(history: list[MetadataRecord], number: int) -> SegmentMetadata | None:
    """Return one segment from a history: the rules, applied to it alone."""
    last: Fence | None = None
    known: SegmentMetadata | None = None
    for record in history:
        if isinstance(record, Fence):
            if last and (
                record.leader_epoch < last.leader_epoch or record.tiered_epoch < last.tiered_epoch
            ):
                continue
            floor = max(record.floor, last.floor if last else 0)
            last = replace(record, floor=floor)
            if known is None:
                continue
            is_current = (
                known.leader_epoch >= last.leader_epoch and known.tiered_epoch == last.tiered_epoch
            )
            if (known.state is STARTED and not is_current) or known.tiered_epoch <= last.floor:
                known = replace(known, state=DELETING)
            continue
        if isinstance(record, RestoreStarted):
            if last and (last == PURGED or last.leader_epoch < record.leader_epoch):
                last = known = None
            continue
        if record.segment_id != segment_id(number):
            continue
        if record.state in (STARTED, FINISHED) and last is not None:
            if record.leader_epoch < last.leader_epoch or record.tiered_epoch != last.tiered_epoch:
                continue
            if record.tiered_epoch <= last.floor:
                continue
        if isinstance(record, SegmentMetadata):
            known = record if known is None else known
        elif known is not None and (known.state, record.state) in {
            (STARTED, FINISHED),
            (STARTED, DELETING),
            (FINISHED, FINISHED),
            (FINISHED, DELETING),
            (DELETING, DELETING),
        }:
            known = replace(
                known,
                state=record.state,
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp_ms,
            )
        elif known is not None and (known.state, record.state) == (DELETING, DELETED):
            known = None
    return known


def facts(log: RemoteLog) -> object:
    lookups = [
        (log.highest_offset(epoch), *(log.segment_for(epoch, offset) for offset in range(30)))
        for epoch in range(4)
    ]
    return list(log.segments()), log.fence, log.refused, lookups


@given(st.lists(records(), max_size=40))
def test_replay_against_judging_each_segment_alone(history: list[MetadataRecord]) -> None:
    log = replayed(*history)
    expected = [each for number in range(5) if (each := judged(history, number)) is not None]
    assert sorted(log.segments(), key=lambda each: each.segment_id) == expected
    readable = [
        (epoch, start, end)
        for each in expected
        if each.state is FINISHED
        for epoch, start, end in epoch_ranges(each)
    ]
    for epoch in range(4):
        ends = [end for of, _, end in readable if of == epoch]
        assert log.highest_offset(epoch) == max(ends, default=-1)
        for offset in range(30):
            found = log.segment_for(epoch, offset)
            assert (found is not None) == any(
                of == epoch and start <= offset <= end for of, start, end in readable
            )
            if found is not None:
                assert found in expected
                assert found.state is FINISHED


@given(st.lists(records(), max_size=40), st.data())
def test_an_image_and_the_rest_are_everything(
    history: list[MetadataRecord], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(history)))
    log = RemoteLog.from_image(replayed(*history[:cut]).image())
    for record in history[cut:]:
        log.replay(record)
    assert facts(log) == facts(replayed(*history))
    assert log.image() == replayed(*history).image()


def test_an_image_of_the_first_version_is_read() -> None:
    """Of what it says is deleted it is not known whether its copy had ended."""
    log = copied(segment(1, 0, 9), segment(2, 10, 19))
    log.replay(update(1, DELETING))
    image = log.image()
    old = remote_log_image.decode_image(image)
    body = codec.encode(
        replace(codec.decode(remote_log_image.RemoteLogImage, image[5:], 1), ended=()), 0
    )
    read = RemoteLog.from_image(struct.pack(">BI", 0, crc32c(body)) + body)
    assert list(read.segments()) == old.segments
    found = read.get(segment_id(1))
    assert found is not None
    assert not read.has_ended(found)


def test_damaged_images() -> None:
    log = copied(segment(1, 0, 9, custom_metadata=b"x"))
    log.replay(fence(5))
    image = log.image()
    RemoteLog.from_image(memoryview(image))
    for position in range(len(image)):
        damaged = bytearray(image)
        damaged[position] ^= 0x10
        with pytest.raises(ValueError):
            RemoteLog.from_image(bytes(damaged))
        with pytest.raises(ValueError):
            RemoteLog.from_image(image[:position])
    with pytest.raises(ValueError, match="version 9"):
        RemoteLog.from_image(b"\x09" + image[1:])


def test_equal_topics_are_kept_once() -> None:
    first, second = segment(1, 0, 9), segment(2, 10, 19)
    log = replayed(first, replace(second, topic="".join(["ord", "ers"])))
    assert len({id(each.topic) for each in log.segments()}) == 1
