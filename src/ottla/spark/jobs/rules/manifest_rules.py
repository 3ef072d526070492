"""What must hold of a partition's manifests, among themselves and against the metadata. Pure.

A manifest lags behind `__remote_log_metadata`; what it lacks, or still lists while a deletion has
just begun, is a fault only once it is older than the grace time. What it must never list is a
segment that is forgotten there, since objects are deleted only after a manifest has removed them.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise

from ottla.base.ids import Uuid
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity
from ottla.spark.jobs.rules.partition_view import PartitionView
from ottla.tiered.manifest import ManifestState, first_kept
from ottla.tiered.object_names import manifest_name, parse_manifest_name
from ottla.tiered.segment_metadata import NO_FLOOR, SegmentMetadata, SegmentState

ERROR, WARNING = Severity.ERROR, Severity.WARNING


def listed_numbers(view: PartitionView) -> list[int]:
    """Return the numbers of the manifests in the listing."""
    numbers = (parse_manifest_name(name) for name in view.objects)
    return sorted(each for each in numbers if each is not None)


def check_manifests(view: PartitionView, state: ManifestState | None) -> Iterator[Finding]:
    """Yield what is wrong with the manifests. `state`: of those that can be read."""
    yield from _damaged(view)
    yield from _holes(view)
    yield from _chain(view, state)
    if view.remote is None:
        return
    if state is None:
        yield from _behind(view, (), NO_FLOOR)
        return
    if view.remote.fence is None and not view.remote.count:
        yield from _without_metadata(view, state)
        return
    yield from _ahead(view, state)
    yield from _listed_wrongly(view, state)
    yield from _behind(view, state.segments, state.floor)


def _name(view: PartitionView, number: int) -> str:
    return manifest_name(view.topic, view.topic_id, view.partition, number)


def _damaged(view: PartitionView) -> Iterator[Finding]:
    for number, manifest in sorted(view.manifests.items()):
        if isinstance(manifest, str):
            yield view.finding(Kind.MANIFEST_DAMAGED, ERROR, manifest, object=_name(view, number))


def _holes(view: PartitionView) -> Iterator[Finding]:
    """Yield the numbers that are missing among those that are kept.

    Those before the last base but one are removed, from the first on.
    """
    numbers = listed_numbers(view)
    keep = first_kept(view.manifests)
    kept = [each for each in numbers if each >= keep]
    for before, after in pairwise(kept):
        for number in range(before + 1, after):
            yield view.finding(
                Kind.MANIFEST_MISSING,
                WARNING,
                f"manifest {number} is missing between {before} and {after}",
                object=_name(view, number),
            )


def _chain(view: PartitionView, state: ManifestState | None) -> Iterator[Finding]:
    """Yield whether readers find no unbroken chain up to the last manifest."""
    numbers = listed_numbers(view)
    if not numbers:
        return
    reached = -1 if state is None else state.sequence
    if reached < numbers[-1]:
        yield view.finding(
            Kind.MANIFEST_CHAIN_BROKEN,
            ERROR,
            f"no unbroken chain leads to manifest {numbers[-1]}: readers of the store alone "
            + (f"stop at manifest {reached}" if reached >= 0 else "find no base to begin with"),
            object=_name(view, numbers[-1]),
        )


def _without_metadata(view: PartitionView, state: ManifestState) -> Iterator[Finding]:
    if state.segments:
        starts = min(each.start_offset for each in state.segments.values())
        ends = max(each.end_offset for each in state.segments.values())
        yield view.finding(
            Kind.METADATA_MISSING,
            ERROR,
            f"manifest {state.sequence} lists {len(state.segments)} segments, and "
            "__remote_log_metadata has no record of this partition: a restore is not over, or "
            "the topic was deleted",
            offsets=(starts, ends),
        )


def _ahead(view: PartitionView, state: ManifestState) -> Iterator[Finding]:
    """Yield a manifest of epochs without a fence: a leader writes its fence first."""
    assert view.remote is not None
    fence = view.remote.fence
    if fence is None:
        return
    if state.leader_epoch > fence.leader_epoch or state.tiered_epoch > fence.tiered_epoch:
        yield view.finding(
            Kind.MANIFEST_AHEAD,
            ERROR,
            f"manifest {state.sequence} has leader epoch {state.leader_epoch} and tiered epoch "
            f"{state.tiered_epoch}, the last fence has {fence.leader_epoch} and "
            f"{fence.tiered_epoch}",
            object=_name(view, state.sequence),
        )


def _listed_wrongly(view: PartitionView, state: ManifestState) -> Iterator[Finding]:
    """Yield the segments that the manifests list and that cannot be read by the metadata."""
    assert view.remote is not None
    fence = view.remote.fence
    floor = view.remote.floor
    for listed in sorted(state.segments.values(), key=lambda each: each.start_offset):
        if listed.segment_id in view.changed:
            continue
        known = view.remote.get(listed.segment_id)
        if known is not None and known.state is SegmentState.COPY_FINISHED:
            if _essence(known) != _essence(listed):
                yield _wrong(
                    view, state, listed, Kind.MANIFEST_AHEAD, "differs from the metadata's"
                )
            continue
        is_dead = floor > NO_FLOOR and listed.tiered_epoch <= floor
        since_ms = 0 if known is None else known.event_timestamp_ms
        if fence is not None and known is not None:
            since_ms = max(since_ms, fence.event_timestamp_ms)
        if listed.segment_id in view.refused:
            why = "was fenced before its copy had finished"
            yield _wrong(view, state, listed, Kind.FENCED_SEGMENT, why)
        elif is_dead and view.is_old(since_ms):
            why = f"has tiered epoch {listed.tiered_epoch}, the floor is {floor}"
            yield _wrong(view, state, listed, Kind.FENCED_SEGMENT, why)
        elif known is None:
            why = "is not in the metadata: its objects may be deleted"
            yield _wrong(view, state, listed, Kind.MANIFEST_AHEAD, why)
        elif known.state is SegmentState.COPY_STARTED:
            yield _wrong(view, state, listed, Kind.MANIFEST_AHEAD, "is COPY_STARTED")
        elif not is_dead and view.is_old(since_ms):
            why = "is DELETE_STARTED for longer than the grace time"
            yield _wrong(view, state, listed, Kind.MANIFEST_BEHIND, why)


def _essence(segment: SegmentMetadata) -> tuple[object, ...]:
    return (
        segment.start_offset,
        segment.end_offset,
        segment.size_bytes,
        segment.epochs,
        segment.leader_epoch,
        segment.tiered_epoch,
        segment.txn_index_empty,
    )


def _wrong(
    view: PartitionView, state: ManifestState, segment: SegmentMetadata, kind: Kind, why: str
) -> Finding:
    offsets = segment.start_offset, segment.end_offset
    severity = WARNING if kind is Kind.MANIFEST_BEHIND else ERROR
    detail = f"manifest {state.sequence} lists segment {offsets[0]}-{offsets[1]}, which {why}"
    return view.finding(kind, severity, detail, object=_name(view, state.sequence), offsets=offsets)


def _behind(view: PartitionView, listed: Collection[Uuid], floor: int) -> Iterator[Finding]:
    """Yield what no manifest says though it is true for longer than the grace time."""
    assert view.remote is not None
    lacking = [
        each
        for each in view.stable(SegmentState.COPY_FINISHED)
        if each.segment_id not in listed and view.is_old(each.event_timestamp_ms)
    ]
    if lacking:
        offsets = lacking[0].start_offset, max(each.end_offset for each in lacking)
        yield view.finding(
            Kind.MANIFEST_BEHIND,
            WARNING,
            f"no manifest lists {len(lacking)} readable segments: readers of the store alone, "
            "and a restore, miss them",
            offsets=offsets,
        )
    fence = view.remote.fence
    if fence is None or fence.floor <= floor or not view.is_old(fence.event_timestamp_ms):
        return
    if view.remote.count:
        yield view.finding(
            Kind.MANIFEST_BEHIND,
            WARNING,
            f"no manifest names the remote floor {fence.floor}: the purge has not begun",
        )
