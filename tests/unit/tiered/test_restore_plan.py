"""What a store has of a topic becomes the topic's offsets and epochs, or the reason why not."""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.tiered.manifest import Manifest, ManifestState, follow
from ottla.tiered.object_names import ObjectKind, object_name, object_names
from ottla.tiered.restore_plan import (
    PartitionPlan,
    RestorePlan,
    StoredPartition,
    plan_restore,
)
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata
from tests.unit.tiered.support import FINISHED, PARTITION, TOPIC, TOPIC_ID, segment


def state(*segments: SegmentMetadata, **fields: Any) -> ManifestState:
    header: dict[str, Any] = {
        "leader_epoch": 5,
        "tiered_epoch": 2,
        "floor": 0,
        "log_start_offset": 0,
        "epochs": ((1, 0),),
        "partition_count": 2,
        "configs": {"retention.ms": "-1", "remote.storage.enable": "true"},
    }
    found = follow(
        [
            Manifest(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partition=PARTITION,
                sequence=0,
                is_base=True,
                added=segments,
                **(header | fields),
            )
        ]
    )
    assert found is not None
    return found


def finished(
    number: int, start: int, end: int, epochs: Epochs | None = None, **fields: Any
) -> SegmentMetadata:
    return segment(number, start, end, epochs, state=FINISHED, **fields)


THREE = (finished(1, 0, 9), finished(2, 10, 19), finished(3, 20, 29))


def stored(partition: int, found: ManifestState | None, **fields: Any) -> StoredPartition:
    return StoredPartition(partition=partition, state=found, **fields)


def plan(*found: StoredPartition) -> RestorePlan:
    return plan_restore(TOPIC, TOPIC_ID, found)


def only(*segments: SegmentMetadata, **fields: Any) -> PartitionPlan:
    made = plan(stored(0, state(*segments, **fields)))
    assert made.faults == ()
    return made.partitions[0]


def test_a_partition_goes_on_behind_its_last_segment() -> None:
    made = plan(stored(0, state(*THREE)))
    assert (made.tiered_epoch, made.floor, made.faults) == (3, 0, ())
    first, second = made.partitions
    assert (first.log_start_offset, first.end_offset, first.epochs) == (0, 30, ((1, 0),))
    assert (first.segments, first.size_bytes, first.leader_epoch) == (3, 300, 6)
    # Partition 1 has nothing in the store.
    assert (second.log_start_offset, second.end_offset, second.leader_epoch) == (0, 0, 0)


def test_the_log_start_is_kept() -> None:
    made = only(*THREE, log_start_offset=15)
    assert (made.log_start_offset, made.end_offset, made.segments) == (15, 30, 2)
    assert made.epochs == ((1, 15),)
    # What is before the first segment is lost.
    assert only(*THREE[1:], log_start_offset=5).log_start_offset == 10
    # All is expired: the offsets are not given to other records.
    assert only(*THREE, log_start_offset=30).end_offset == 30
    assert only(log_start_offset=42, epochs=()).log_start_offset == 42


def test_a_log_begins_where_its_first_segment_can_be_read() -> None:
    """The log start lay in it when it was copied, and the manifest names an older one."""
    found = only(finished(1, 0, 9, ((1, 4),)), finished(2, 10, 19), epochs=((1, 4),))
    assert (found.log_start_offset, found.end_offset, found.epochs) == (4, 20, ((1, 4),))


def test_epochs_are_above_all_that_are_named() -> None:
    epochs = ((1, 0), (7, 12))
    made = only(finished(1, 0, 19, epochs), epochs=epochs, leader_epoch=3)
    assert (made.leader_epoch, made.epochs) == (8, epochs)
    late = finished(2, 0, 9, leader_epoch=5, tiered_epoch=2)
    assert plan(stored(0, state(late))).tiered_epoch == 3
    assert plan(stored(0, state(*THREE)), stored(1, state(tiered_epoch=9))).tiered_epoch == 10


def test_the_floor_of_any_partition_is_the_topic_s() -> None:
    purged = state(tiered_epoch=3, floor=1, log_start_offset=50)
    behind = state(finished(1, 0, 9, tiered_epoch=1), finished(2, 10, 19, tiered_epoch=2))
    made = plan(stored(0, purged), stored(1, behind))
    assert made.faults == ()
    assert made.floor == 1
    assert [(each.log_start_offset, each.end_offset) for each in made.partitions] == [
        (50, 50),
        (10, 20),
    ]


def test_the_configuration_is_that_of_the_newest_base_manifest() -> None:
    old = stored(0, state(*THREE, configs={"a": "1"}), modified_ms=5)
    new = {"a": "2", "remote.storage.enable": "false", "remote.log.disable.policy": "retain"}
    made = plan(old, stored(1, state(configs=new), modified_ms=6))
    assert made.configs == {"a": "2", "remote.storage.enable": "true"}


@pytest.mark.parametrize("partition_count", [1, 3])
def test_the_partitions_are_those_of_the_manifests_and_those_found(partition_count: int) -> None:
    made = plan(*(stored(n, state(partition_count=partition_count)) for n in range(2)))
    assert len(made.partitions) == max(2, partition_count)


def test_a_hole_is_refused() -> None:
    made = plan(stored(0, state(THREE[0], THREE[2])))
    assert made.faults == ("partition 0: no segment has the offsets 10 to 19",)


def test_a_damaged_or_missing_partition_is_refused() -> None:
    assert plan().faults == ("the store has no manifest of it",)
    made = plan(stored(0, state(*THREE)), stored(1, None, fault="damaged"))
    assert made.faults == ("partition 1: damaged",)
    assert plan(stored(1, None, fault="damaged")).faults == ("partition 1: damaged",)


def test_objects_are_checked_where_they_were_listed() -> None:
    sizes = {name: 100 for each in THREE for name in object_names(each)}
    for each in THREE:
        del sizes[object_name(each, ObjectKind.TXN_INDEX)]  # No transaction was aborted.
    assert plan(stored(0, state(*THREE), sizes=sizes)).faults == ()
    name = object_name(THREE[1], ObjectKind.TIME_INDEX)
    without = {each: size for each, size in sizes.items() if each != name}
    assert plan(stored(0, state(*THREE), sizes=without)).faults == (
        f"partition 0: {name} is missing",
    )
    name = object_name(THREE[1], ObjectKind.LOG)
    made = plan(stored(0, state(*THREE), sizes=sizes | {name: 99}))
    assert made.faults == (f"partition 0: {name} has 99 bytes of 100",)


def test_overlapping_segments_and_other_lineages_are_no_fault() -> None:
    overlapping = only(*THREE, finished(4, 5, 24), epochs=((1, 0),))
    assert (overlapping.log_start_offset, overlapping.end_offset) == (0, 30)
    diverged = finished(4, 20, 39, ((4, 20),), leader_epoch=4)
    made = only(THREE[0], THREE[1], diverged, finished(5, 20, 29, ((5, 20),), leader_epoch=5),
                epochs=((1, 0), (5, 20)))  # fmt: skip
    assert made.end_offset == 30


def test_a_topic_id_of_zeros_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        plan_restore(TOPIC, Uuid(bytes(16)), [])
