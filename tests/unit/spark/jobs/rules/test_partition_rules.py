"""Each kind of damage is found by its name, and nothing in a sound partition.

Method: a sound store as values; one damage in each test. Histories of leaders that copy, expire and
turn tiering off are in `test_sound_histories`.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.spark.jobs.rules.findings import Kind, Severity
from ottla.spark.jobs.rules.partition_rules import lineage_of
from ottla.spark.jobs.rules.partition_view import LocalTier
from ottla.tiered.object_names import ObjectKind, object_name
from tests.unit.tiered.support import (
    DELETED,
    DELETING,
    FINISHED,
    copied,
    fence,
    segment,
    segment_id,
    update,
)

from ..support import GRACE_MS, LONG_AGO_MS, NOW_MS, Store, finished, objects_of, offsets, sound

YOUNG_MS = NOW_MS - GRACE_MS + 1


def test_a_sound_store() -> None:
    assert sound().found() == []
    assert sound().found(remote=None) == []
    assert Store().found() == []
    assert sound().found(tier=LocalTier(log_start_offset=0, local_start_offset=50)) == []


# Objects


def test_a_missing_log() -> None:
    store = sound()
    del store.objects[store.name(1)]
    (found,) = store.found()
    assert (found.kind, found.severity) == (Kind.MISSING_OBJECT, Severity.ERROR)
    assert (found.object, offsets([found])) == (store.name(1), [(20, 39)])
    assert store.kinds(remote=None) == [Kind.MISSING_OBJECT]


@pytest.mark.parametrize(
    "kind", sorted(set(ObjectKind) - {ObjectKind.LOG, ObjectKind.TXN_INDEX}, key=str)
)
def test_a_missing_auxiliary_object(kind: ObjectKind) -> None:
    store = sound()
    del store.objects[store.name(0, kind)]
    assert [(each.kind, each.object) for each in store.found()] == [
        (Kind.MISSING_AUXILIARY, store.name(0, kind))
    ]


def test_a_transaction_index_is_expected_where_the_metadata_say_so() -> None:
    store = Store.with_segments(finished(1, 0, 9, txn_index_empty=False))
    assert store.kinds() == [Kind.MISSING_AUXILIARY]
    store.objects[store.name(0, ObjectKind.TXN_INDEX)] = bytes(34)
    assert store.kinds() == []
    store.objects[store.name(0, ObjectKind.TXN_INDEX)] = b""
    assert store.kinds() == [Kind.DAMAGED_AUXILIARY]
    other = sound()
    other.objects[other.name(0, ObjectKind.TXN_INDEX)] = bytes(34)
    assert other.kinds() == [Kind.ORPHAN_OBJECT]


@pytest.mark.parametrize("size", [-1, 1])
def test_a_log_of_another_size(size: int) -> None:
    store = sound()
    name = store.name(2)
    store.objects[name] = store.objects[name] + b"x" if size > 0 else store.objects[name][:-1]
    assert store.kinds() == [Kind.WRONG_SIZE]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (ObjectKind.OFFSET_INDEX, b"abc"),
        (ObjectKind.TIME_INDEX, bytes(11)),
        (ObjectKind.PRODUCER_SNAPSHOT, b""),
        (ObjectKind.LEADER_EPOCHS, b""),
    ],
)
def test_an_auxiliary_object_of_an_impossible_size(kind: ObjectKind, data: bytes) -> None:
    store = sound()
    store.objects[store.name(0, kind)] = data
    assert store.kinds() == [Kind.DAMAGED_AUXILIARY]


def test_an_orphan_is_found_once_it_is_old() -> None:
    store = sound()
    name = object_name(segment(9, 60, 79), ObjectKind.LOG)
    store.objects[name] = b"1234"
    (found,) = store.found()
    assert (found.kind, found.severity, found.object) == (
        Kind.ORPHAN_OBJECT,
        Severity.WARNING,
        name,
    )
    assert store.kinds(remote=None) == [Kind.ORPHAN_OBJECT]
    store.modified[name] = YOUNG_MS
    assert store.kinds() == []
    store.modified[name] = YOUNG_MS - 1
    assert store.kinds() == [Kind.ORPHAN_OBJECT]
    # Its segment was named in the metadata, and forgotten, while the store was listed.
    assert store.kinds(changed=[segment_id(9)]) == []


@pytest.mark.parametrize("records", [[], [update(9, DELETING)]])
def test_objects_of_unfinished_segments_are_no_orphans(records: list[Any]) -> None:
    store = sound()
    late = replace(segment(9, 60, 79), event_timestamp_ms=NOW_MS)
    store.records += [late, *(replace(each, event_timestamp_ms=NOW_MS) for each in records)]
    store.objects[object_name(late, ObjectKind.LOG)] = b"1234"
    assert store.kinds() == []
    store.records.append(update(9, DELETED))
    assert store.kinds() == ([Kind.ORPHAN_OBJECT] if records else [])


def test_a_name_that_is_not_ours() -> None:
    store = sound()
    directory = store.name(0).rpartition("/")[0]
    for name in (f"{directory}/notes.txt", f"{directory}/manifest/last", f"{store.name(0)}.bak"):
        store.objects[name] = b""
    assert store.kinds() == [Kind.FOREIGN_OBJECT] * 3


def test_a_segment_that_changed_meanwhile_is_left_out() -> None:
    store = sound()
    for each in [name for name in store.objects if "/manifest/" not in name]:
        del store.objects[each]
    assert len(store.kinds()) == 15
    every = [segment_id(number) for number in (1, 2, 3)]
    assert store.kinds(changed=every) == []


# Offsets


def test_a_gap() -> None:
    store = Store.with_segments(finished(1, 0, 19), finished(3, 40, 59))
    (found,) = store.found()
    assert (found.kind, found.start_offset, found.end_offset) == (Kind.OFFSET_GAP, 20, 39)
    assert store.kinds(remote=None) == [Kind.OFFSET_GAP]


def test_a_gap_that_only_the_lineage_shows() -> None:
    """An unclean election cut the log at offset 30: segment 2 has other records behind it."""
    made = (
        finished(1, 0, 19, ((1, 0),)),
        finished(2, 20, 39, ((1, 20),)),
        finished(3, 40, 59, ((2, 40),), leader_epoch=2),
    )
    store = Store([fence(1)])
    store.copy(*made[0])
    store.copy(*made[1])
    store.records.append(fence(2))
    store.copy(*made[2])
    store.write_manifest(epochs=((1, 0), (2, 30)))
    assert offsets(store.found()) == [(30, 39)]
    assert store.kinds() == [Kind.OFFSET_GAP]


def test_gaps_between_the_tiers() -> None:
    store = Store.with_segments(finished(1, 10, 19), finished(2, 20, 39), epochs=((1, 10),))

    def gaps(log_start: int, local_start: int) -> list[tuple[int | None, int | None]]:
        tier = LocalTier(log_start_offset=log_start, local_start_offset=local_start)
        found = store.found(tier=tier)
        assert {each.kind for each in found} <= {Kind.OFFSET_GAP}
        return offsets(found)

    assert gaps(10, 40) == []
    assert gaps(15, 30) == []
    assert gaps(10, 41) == [(40, 40)]
    assert gaps(5, 40) == [(5, 9)]
    assert gaps(60, 60) == []
    empty = Store([fence(1)])
    tier = LocalTier(log_start_offset=3, local_start_offset=7)
    assert offsets(empty.found(tier=tier)) == [(3, 6)]


def test_a_log_start_within_the_first_segment_is_no_gap() -> None:
    made = finished(1, 0, 19, ((1, 5),))
    store = Store.with_segments(made, epochs=((1, 5),))
    assert store.kinds(tier=LocalTier(log_start_offset=5, local_start_offset=20)) == []


def test_an_overlap_within_one_leader_epoch() -> None:
    store = Store.with_segments(finished(1, 0, 19), finished(2, 15, 39))
    (found,) = store.found()
    assert (found.kind, found.severity) == (Kind.OFFSET_OVERLAP, Severity.WARNING)
    assert offsets([found]) == [(15, 19)]


def test_leaders_may_overlap() -> None:
    store = Store([fence(1)])
    store.copy(*finished(1, 0, 19))
    store.records.append(fence(2))
    store.copy(*finished(2, 15, 39, ((1, 15), (2, 30)), leader_epoch=2))
    store.write_manifest(epochs=((1, 0), (2, 30)))
    assert store.kinds() == []


def test_the_lineage_goes_on_where_the_manifest_ends() -> None:
    store = Store([fence(1)])
    store.copy(*finished(1, 0, 19))
    store.write_manifest()
    state = store.look().manifest_state()
    later = (
        segment(1, 0, 19),
        segment(2, 20, 39, ((1, 20), (3, 30)), leader_epoch=3),
        segment(3, 40, 59, ((3, 40), (4, 50)), leader_epoch=4),
    )
    remote = copied(*later)
    assert lineage_of(state, remote.finished()).entries == ((1, 0), (3, 30), (4, 50))
    assert lineage_of(None, remote.finished()).entries == ((1, 0), (3, 30), (4, 50))
    assert lineage_of(state, remote.finished()).log_end_offset == 60
    assert lineage_of(None, ()).entries == ()


def test_the_lineage_ignores_a_leader_that_was_replaced() -> None:
    store = Store([fence(3)])
    store.copy(*finished(1, 0, 19, ((1, 0), (3, 10)), leader_epoch=3))
    store.write_manifest(epochs=((1, 0), (3, 10)))
    stale = segment(2, 10, 29, ((2, 10),), leader_epoch=2, state=FINISHED)
    state = store.look().manifest_state()
    assert lineage_of(state, [*store.look().readable(state), stale]).entries == ((1, 0), (3, 10))


# What should be gone


@pytest.mark.parametrize("state", [None, DELETING])
def test_a_copy_or_a_deletion_that_does_not_end(state: Any) -> None:
    store = sound()
    store.records.append(segment(9, 60, 79))
    if state is not None:
        store.records.append(update(9, state))
    (found,) = store.found()
    assert (found.kind, offsets([found])) == (Kind.UNFINISHED_SEGMENT, [(60, 79)])
    assert store.kinds(now_ms=LONG_AGO_MS + GRACE_MS) == []
    # A fence gives a copy up without a record of the segment.
    store.records.append(replace(fence(2), event_timestamp_ms=NOW_MS))
    store.write_manifest()
    assert store.kinds() == []


def test_a_segment_of_a_floor_that_is_said_to_be_purged() -> None:
    store = sound()
    store.records.append(replace(fence(1, 2, floor=1), event_timestamp_ms=NOW_MS))
    store.write_manifest()
    assert store.kinds() == []
    found = store.found(floor_is_purged=1)
    assert [each.kind for each in found] == [Kind.LEFTOVER] * 3
    store.records += [update(number, DELETED) for number in (1, 2, 3)]
    assert store.kinds(floor_is_purged=1) == [Kind.ORPHAN_OBJECT] * 15
    store.objects = {name: data for name, data in store.objects.items() if "/manifest/" in name}
    assert store.kinds(floor_is_purged=1) == []


def test_kafkas_own_metadata_without_epochs_and_fences() -> None:
    store = Store([])
    for number, start in ((1, 0), (2, 20)):
        made, log = finished(number, start, start + 19, leader_epoch=-1, tiered_epoch=-1)
        store.records += [made, update(number, FINISHED, leader_epoch=-1, tiered_epoch=-1)]
        store.objects |= Store.with_segments((made, log)).objects
    store.manifests = {}
    store.objects = {name: data for name, data in store.objects.items() if "/manifest/" not in name}
    assert store.kinds() == [Kind.MANIFEST_BEHIND]  # Kafka writes none.
    # Whose copies overlap is not known either.
    made, log = finished(3, 30, 49, leader_epoch=-1, tiered_epoch=-1)
    store.records += [made, update(3, FINISHED, leader_epoch=-1, tiered_epoch=-1)]
    store.objects |= objects_of(made, log)
    assert store.kinds() == [Kind.MANIFEST_BEHIND]
