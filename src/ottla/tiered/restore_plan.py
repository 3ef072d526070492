"""What of a topic can be restored from its manifests alone, and where its partitions begin.

A restored topic keeps its name and its topic id, because the names of its objects contain both.
Each partition gets the records of its visible remote segments, at their offsets: its log begins
behind the last one. Its leader epochs go on above all that its manifests name, and so does the
topic's tiered epoch, so that no late writer of the old cluster counts.

What would leave a hole in a partition's offsets is refused, never skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.base.ids import NO_EPOCH, NO_UUID, Uuid
from ottla.metadata.topic_config import REMOTE_STORAGE
from ottla.tiered.lineage import visible_segments
from ottla.tiered.manifest import ManifestState
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import NO_FLOOR, Epochs, SegmentMetadata, epoch_ranges

TURNED_OFF_BY = frozenset(
    {
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.log.disable.policy",
    }
)
"""Configurations that turn remote storage off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    """What the store has of one partition.

    Fields: `state`: what its manifests say; None = there is none, or see `fault`.
            `sizes`: the sizes of its objects in bytes, by their names; None = they are not checked.
            `modified_ms`: when its last base manifest was written, which has the configuration.
    """

    partition: int
    state: ManifestState | None = None
    fault: str | None = None
    sizes: Mapping[str, int] | None = None
    modified_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """One partition of the restored topic. `segments`: those that its readers see."""

    partition: int
    leader_epoch: int
    log_start_offset: int
    end_offset: int
    epochs: Epochs
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """How a topic is restored. `faults`: why it cannot be; then nothing else counts."""

    topic: str
    topic_id: Uuid
    tiered_epoch: int = 1
    floor: int = NO_FLOOR
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[PartitionPlan, ...] = ()
    faults: tuple[str, ...] = ()


def plan_restore(topic: str, topic_id: Uuid, found: Sequence[StoredPartition]) -> RestorePlan:
    """Return how to restore a topic from what the store has of its partitions."""
    assert topic_id != NO_UUID
    by_partition = {each.partition: each for each in found}
    states = [each.state for each in found if each.state is not None]
    faults = [f"partition {each.partition}: {each.fault}" for each in found if each.fault]
    if not states:
        faults = faults or ["the store has no manifest of it"]
        return RestorePlan(topic=topic, topic_id=topic_id, faults=tuple(faults))
    count = max(
        *(each.partition_count or 0 for each in states), *(each + 1 for each in by_partition)
    )
    floor = max(each.floor for each in states)
    partitions: list[PartitionPlan] = []
    for number in range(count):
        stored = by_partition.get(number, StoredPartition(partition=number))
        if stored.fault:
            continue
        planned = _plan_partition(stored, floor)
        if isinstance(planned, PartitionPlan):
            partitions.append(planned)
        else:
            faults.append(f"partition {number}: {planned}")
    newest = max(found, key=lambda each: (each.state is not None, each.modified_ms)).state
    return RestorePlan(
        topic=topic,
        topic_id=topic_id,
        tiered_epoch=1 + max(map(_tiered_epoch, states)),
        floor=floor,
        configs=_configs((newest.configs if newest else None) or {}),
        partitions=tuple(partitions),
        faults=tuple(faults),
    )


def _configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the restored topic's overrides: as they were, but with remote storage."""
    kept = {name: value for name, value in configs.items() if name not in TURNED_OFF_BY}
    return {**kept, REMOTE_STORAGE: "true"}


def _tiered_epoch(state: ManifestState) -> int:
    return max(
        state.tiered_epoch,
        state.floor,
        *(each.tiered_epoch for each in state.segments.values()),
        NO_EPOCH,
    )


def _plan_partition(stored: StoredPartition, floor: int) -> PartitionPlan | str:
    """Return the plan of one partition, or why there is none.

    `floor`: the topic's; the last manifest of one of its partitions may name an older one.
    """
    state = stored.state
    if state is None:  # It had no remote segment yet.
        return PartitionPlan(
            partition=stored.partition,
            leader_epoch=0,
            log_start_offset=0,
            end_offset=0,
            epochs=(),
            segments=0,
            size_bytes=0,
        )
    alive = [
        each for each in state.segments.values() if floor == NO_FLOOR or each.tiered_epoch > floor
    ]
    visible = [
        each
        for each in visible_segments(alive, state.lineage())
        if each.end_offset >= state.log_start_offset
    ]
    # Offsets that were used are not given to other records, also where nothing is left of them.
    start = reached = state.end_offset
    if visible:
        # If the log start lay in it when it was copied, it is readable from its first epoch on.
        first = epoch_ranges(visible[0].segment)[0][1]
        start = reached = max(state.log_start_offset, first)
    for each in visible:
        if each.segment.start_offset > reached:
            last = each.segment.start_offset - 1
            return f"no segment has the offsets {reached} to {last}"
        fault = None if stored.sizes is None else _object_fault(each.segment, stored.sizes)
        if fault is not None:
            return fault
        reached = each.end_offset + 1
    return PartitionPlan(
        partition=stored.partition,
        leader_epoch=1 + max(_leader_epochs(state)),
        log_start_offset=start,
        end_offset=reached,
        epochs=_epochs_from(state.epochs, start) if reached > start else (),
        segments=len(visible),
        size_bytes=sum(each.segment.size_bytes for each in visible),
    )


def _leader_epochs(state: ManifestState) -> list[int]:
    found = [state.leader_epoch, *(epoch for epoch, _ in state.epochs)]
    for segment in state.segments.values():
        found += [segment.leader_epoch, *(epoch for epoch, _ in segment.epochs)]
    return found


def _epochs_from(epochs: Epochs, start: int) -> Epochs:
    """Return the epochs of the records from an offset on, the first of them beginning there."""
    before = [epoch for epoch, first in epochs if first <= start]
    behind = tuple(each for each in epochs if each[1] > start)
    return (*(((before[-1], start),) if before else ()), *behind)


def _object_fault(segment: SegmentMetadata, sizes: Mapping[str, int]) -> str | None:
    """Return what is wrong with a segment's objects. A missing index cannot be made up for."""
    optional = {ObjectKind.TXN_INDEX} if segment.txn_index_empty else set()
    for kind in ObjectKind:
        name = object_name(segment, kind)
        if kind not in optional and name not in sizes:
            return f"{name} is missing"
    name = object_name(segment, ObjectKind.LOG)
    if sizes[name] != segment.size_bytes:
        return f"{name} has {sizes[name]} bytes of {segment.size_bytes}"
    return None
