"""The ledger of deletions: rows are moved, never doubled; entries outlive their topics.

Method: records against a small ledger; hypothesis compares moves with a plain dictionary.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionsImage,
    DeletionState,
    Policy,
    header_record,
    replicas_record,
)
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import ForgetDeletionRecord, Record, RemoveTopicRecord, TopicRecord

from .images import ID, OTHER, epochs, ids, one_deletion, standings

ENTRY = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=5)
BEGUN = ENTRY.with_status(1, STARTED, [0, 1])
DONE = DeletionImage(
    topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=5, finished_ms=9
).with_status(1, SUCCESSFUL, [0])
TOPIC = TopicRecord(name="t", topic_id=ID)


def after(*records: Record, image: ClusterImage = EMPTY) -> ClusterImage:
    return replay(image, records, offset=20, epoch=2).image


@given(st.lists(st.tuples(ids, standings, st.frozensets(ids, min_size=1)), max_size=12))
def test_every_replica_stands_where_it_was_put_last(
    moves: list[tuple[int, object, frozenset[int]]],
) -> None:
    entry, expected = ENTRY, {}
    for broker_id, standing, numbers in moves:
        entry = entry.with_status(broker_id, standing, numbers)  # type: ignore[arg-type]
        expected.update({(broker_id, number): standing for number in numbers})
    found = [
        ((broker_id, number), standing)
        for broker_id, standing, numbers in entry.rows()
        for number in numbers
    ]
    assert dict(found) == expected
    assert len(found) == len(expected)
    assert all(entry.status(*key) == standing for key, standing in expected.items())
    assert entry.count(*DeletionState) == len(expected)


def test_an_entry_without_replicas_has_not_begun() -> None:
    assert not ENTRY.has_begun
    assert ENTRY.with_status(1, STARTED, []) == ENTRY
    assert BEGUN.has_begun


def test_a_topic_that_waits_is_queued_and_one_that_loses_replicas_is_being_deleted() -> None:
    waits = after(TOPIC, header_record(ENTRY))
    assert waits.is_queued_for_deletion("t")
    assert not waits.is_being_deleted("t")
    goes = after(replicas_record(ID, 1, BROKER_DOWN, [0]), image=waits)
    assert goes.is_being_deleted("t")
    assert not goes.is_being_deleted("other")


def test_a_new_topic_of_the_old_name_is_not_taken_for_its_ancestor() -> None:
    image = after(
        TOPIC,
        header_record(ENTRY),
        replicas_record(ID, 1, STARTED, [0]),
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER),
    )
    assert image.deletions.of(ID) is not None
    assert not image.is_queued_for_deletion("t")
    assert not image.is_being_deleted("t")


def test_at_once_frees_the_name_although_replicas_are_left() -> None:
    at_once = DeletionImage(topic_id=OTHER, name="u", policy=Policy.AT_ONCE, asked_ms=1)
    image = after(header_record(at_once), replicas_record(OTHER, 1, STARTED, [0]))
    assert image.deletions.pending_count() == 1
    assert not image.deletions.is_queued(OTHER)


def test_a_receipt_replaces_what_was_pending_and_is_forgotten_by_its_id() -> None:
    image = after(TOPIC, header_record(ENTRY), replicas_record(ID, 1, SUCCESSFUL, [0]))
    image = after(header_record(DONE), image=image)
    assert image.deletions.pending() == []
    assert image.deletions.receipts() == [DONE]
    assert not image.is_queued_for_deletion("t")
    assert len(after(ForgetDeletionRecord(topic_id=ID), image=image).deletions) == 0
    assert after(ForgetDeletionRecord(topic_id=OTHER), image=image).deletions == image.deletions


def test_the_next_deletion_of_an_id_has_none_of_the_receipts_replicas() -> None:
    """A topic that somebody put back under its old id has replicas of its own."""
    finished = after(header_record(ENTRY), replicas_record(ID, 1, SUCCESSFUL, [0]))
    finished = after(header_record(DONE), image=finished)
    assert finished.deletions.of(ID) == DONE
    assert after(header_record(DONE), image=finished).deletions.of(ID) == DONE
    again = after(TOPIC, header_record(ENTRY), image=finished)
    assert again.deletions.of(ID) == ENTRY
    assert again.deletions.receipts() == []
    assert again.is_queued_for_deletion("t")
    assert not again.is_being_deleted("t")


def test_a_row_of_an_unknown_deletion_is_a_broken_log() -> None:
    with pytest.raises(AssertionError):
        after(replicas_record(ID, 1, STARTED, [0]))


def test_a_delta_names_the_entries_that_changed() -> None:
    before = after(header_record(ENTRY))
    delta = replay(before, [replicas_record(ID, 1, STARTED, [0])], offset=21, epoch=2)
    assert delta.changed_deletions == {ID}
    assert delta_between(before, delta.image).changed_deletions == {ID}
    assert delta_between(before, before).changed_deletions == frozenset()
    assert delta_between(EMPTY, before).changed_deletions == {ID}


@given(st.lists(one_deletion()), st.lists(st.integers(0, 20)), epochs)
def test_receipts_of_whole_minutes_are_found_whatever_came_and_went(
    entries: list[DeletionImage], gone: list[int], until_ms: int
) -> None:
    ledger = DeletionsImage()
    left: dict[Uuid, DeletionImage] = {}
    for each in [*entries, *entries[::2]]:
        ledger, left[each.topic_id] = ledger.with_deletion(each), each
    for number in gone:
        for each in entries[number : number + 1]:
            ledger = ledger.without(each.topic_id)
            left.pop(each.topic_id, None)
    again = DeletionsImage()
    for each in left.values():
        again = again.with_deletion(each)
    assert ledger == again
    minutes = {key: each.finished_ms // 60_000 for key, each in left.items() if each.is_finished}
    for end_ms in (until_ms, *(each * 60_000 + 59_999 for each in minutes.values())):
        found = [each.topic_id for each in ledger.receipts_until(end_ms)]
        assert [minutes[each] for each in found] == sorted(minutes[each] for each in found)
        assert len(set(found)) == len(found)
        assert set(found) == {
            key for key, minute in minutes.items() if minute * 60_000 + 59_999 <= end_ms
        }
