"""What must hold between a partition's objects, its metadata and its manifests. Pure.

Each rule is a function from a `PartitionView` to findings. What readers see is decided by the code
that brokers use (`tiered.lineage`, `tiered.remote_log`, `tiered.manifest`). A rule says nothing of
a segment that changed while the partition was looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final

from ottla.base.ids import NO_OFFSET
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity, limited
from ottla.spark.jobs.rules.manifest_rules import check_manifests
from ottla.spark.jobs.rules.partition_view import PartitionView
from ottla.spark.jobs.rules.segment_bytes import size_fault
from ottla.tiered.lineage import Lineage, Visible, visible_segments
from ottla.tiered.manifest import ManifestState
from ottla.tiered.object_names import (
    ObjectKind,
    object_name,
    object_names,
    parse_manifest_name,
    parse_object_name,
)
from ottla.tiered.segment_metadata import (
    NO_FLOOR,
    Epochs,
    SegmentMetadata,
    SegmentState,
    epoch_ranges,
)

ERROR, WARNING = Severity.ERROR, Severity.WARNING
OFFSET_MAX: Final = 2**63 - 1


def check_partition(view: PartitionView) -> list[Finding]:
    """Return all that is wrong with a partition of a topic that exists."""
    state = view.manifest_state()
    return list(
        limited(
            (
                *_segment_objects(view, state),
                *_other_objects(view, state),
                *_offsets(view, state),
                *_unfinished(view),
                *_purged(view),
                *check_manifests(view, state),
            )
        )
    )


# Objects


def _segment_objects(view: PartitionView, state: ManifestState | None) -> Iterator[Finding]:
    """Yield the missing objects of readable segments, and those of a wrong size."""
    for segment in view.readable(state):
        for kind in ObjectKind:
            name = object_name(segment, kind)
            found = view.objects.get(name)
            if found is None:
                if kind is not ObjectKind.TXN_INDEX or not segment.txn_index_empty:
                    yield _missing(view, segment, kind, name)
            elif kind is ObjectKind.LOG:
                if found.size_bytes != segment.size_bytes:
                    detail = f"{found.size_bytes} bytes, its metadata say {segment.size_bytes}"
                    yield _of_segment(view, segment, Kind.WRONG_SIZE, detail, name)
            elif (fault := size_fault(kind, found.size_bytes)) is not None:
                yield _of_segment(view, segment, Kind.DAMAGED_AUXILIARY, fault, name)


def _missing(view: PartitionView, segment: SegmentMetadata, kind: ObjectKind, name: str) -> Finding:
    if kind is ObjectKind.LOG:
        detail = f"the records {segment.start_offset} to {segment.end_offset} cannot be read"
        return _of_segment(view, segment, Kind.MISSING_OBJECT, detail, name)
    return _of_segment(view, segment, Kind.MISSING_AUXILIARY, _USES[kind], name)


_USES: Final = {
    ObjectKind.OFFSET_INDEX: "reads from within the segment fail",
    ObjectKind.TIME_INDEX: "searches by timestamp fail",
    ObjectKind.TXN_INDEX: "read_committed reads of transactions fail",
    ObjectKind.PRODUCER_SNAPSHOT: "no replica can begin behind the segment",
    ObjectKind.LEADER_EPOCHS: "no replica can begin behind the segment",
}


def _of_segment(
    view: PartitionView, segment: SegmentMetadata, kind: Kind, detail: str, name: str
) -> Finding:
    offsets = segment.start_offset, segment.end_offset
    return view.finding(kind, ERROR, detail, object=name, offsets=offsets)


def _other_objects(view: PartitionView, state: ManifestState | None) -> Iterator[Finding]:
    """Yield objects that belong to no segment, and those whose names are not ours."""
    expected = _expected_names(view, state)
    for name, found in sorted(view.objects.items()):
        if name in expected or parse_manifest_name(name) is not None:
            continue
        parsed = parse_object_name(name)
        if parsed is None:
            detail = f"not a name that Ottla writes; {found.size_bytes} bytes"
            yield view.finding(Kind.FOREIGN_OBJECT, WARNING, detail, object=name)
        elif parsed.segment_id not in view.changed and view.is_old(found.modified_ms):
            where = "no manifest" if view.remote is None else "no metadata"
            detail = f"{where} of a segment with this object; {found.size_bytes} bytes"
            yield view.finding(Kind.ORPHAN_OBJECT, WARNING, detail, object=name)


def _expected_names(view: PartitionView, state: ManifestState | None) -> set[str]:
    segments: Iterable[SegmentMetadata] = view.readable(state)
    if view.remote is not None:
        segments = view.remote.segments()  # Also those that are being copied or deleted.
    expected: set[str] = set()
    for segment in segments:
        expected.update(object_names(segment))
        is_kept = segment.state is SegmentState.COPY_FINISHED and segment.txn_index_empty
        if is_kept:
            expected.discard(object_name(segment, ObjectKind.TXN_INDEX))
    return expected


# Offsets


def lineage_of(state: ManifestState | None, segments: Iterable[SegmentMetadata]) -> Lineage:
    """Return the log's lineage as far as remote segments reach.

    The manifest has that of its leader. Segments that it does not list yet go on from there, in
    the order of the leaders that copied them.
    """
    entries: Epochs = () if state is None else state.epochs
    listed = {} if state is None else state.segments
    least = -1 if state is None else state.leader_epoch
    readable = [each for each in segments if each.state is SegmentState.COPY_FINISHED]
    newer = [
        each for each in readable if each.segment_id not in listed and each.leader_epoch >= least
    ]
    for segment in sorted(newer, key=lambda each: (each.leader_epoch, each.start_offset)):
        if not Lineage(entries, OFFSET_MAX).contains(segment):
            entries = _continued(entries, segment)
    return Lineage(entries, max((each.end_offset for each in readable), default=NO_OFFSET) + 1)


def _continued(entries: Epochs, segment: SegmentMetadata) -> Epochs:
    added = [(epoch, start) for epoch, start, _ in epoch_ranges(segment)]
    first_epoch, first_start = added[0]
    before = [each for each in entries if each[0] <= first_epoch and each[1] < first_start]
    if before and before[-1][0] == first_epoch:
        del added[0]
    return (*before, *added)


def _offsets(view: PartitionView, state: ManifestState | None) -> Iterator[Finding]:
    """Yield gaps in what readers see, and offsets that one leader has copied twice."""
    if view.remote is not None:
        segments = view.remote.finished()
    else:
        segments = [] if state is None else list(state.segments.values())
    visible = visible_segments(segments, lineage_of(state, segments))
    for before, after in pairwise(visible):
        if after.segment.start_offset > before.end_offset + 1:
            gap = before.end_offset + 1, after.segment.start_offset - 1
            yield _gap(view, gap, "no segment has these offsets")
    if view.tier is not None:
        yield from _tier_gaps(view, visible, view.tier.log_start_offset)
    yield from _overlaps(view, segments)


def _tier_gaps(
    view: PartitionView, visible: Sequence[Visible], log_start: int
) -> Iterator[Finding]:
    """Yield the offsets that neither the remote tier nor the local log of the leader has."""
    assert view.tier is not None
    local_start = view.tier.local_start_offset
    first = epoch_ranges(visible[0].segment)[0][1] if visible else local_start
    if log_start < min(first, local_start):
        gap = log_start, min(first, local_start) - 1
        yield _gap(view, gap, f"the log starts at {log_start}, and neither tier has these offsets")
    if visible and visible[-1].end_offset + 1 < local_start:
        gap = max(log_start, visible[-1].end_offset + 1), local_start - 1
        if gap[0] <= gap[1]:
            yield _gap(view, gap, f"the local log starts at {local_start}: neither tier has these")


def _gap(view: PartitionView, offsets: tuple[int, int], detail: str) -> Finding:
    return view.finding(Kind.OFFSET_GAP, ERROR, detail, offsets=offsets)


def _overlaps(view: PartitionView, segments: Iterable[SegmentMetadata]) -> Iterator[Finding]:
    """Yield offsets that one leader has copied twice in one tiered epoch.

    Leaders roll at different offsets, so segments of two leaders may overlap. One leader copies
    each offset once.
    """

    def term(segment: SegmentMetadata) -> tuple[int, int]:
        return segment.leader_epoch, segment.tiered_epoch

    stable = [each for each in segments if each.segment_id not in view.changed]
    for (leader_epoch, _), copied in groupby(sorted(stable, key=term), key=term):
        reached = NO_OFFSET
        for each in sorted(copied, key=lambda each: (each.start_offset, each.end_offset)):
            if leader_epoch >= 0 and each.start_offset <= reached:
                yield view.finding(
                    Kind.OFFSET_OVERLAP,
                    WARNING,
                    f"leader epoch {leader_epoch} has copied these offsets twice",
                    object=object_name(each, ObjectKind.LOG),
                    offsets=(each.start_offset, min(each.end_offset, reached)),
                )
            reached = max(reached, each.end_offset)


# Segments that should be gone


def _unfinished(view: PartitionView) -> Iterator[Finding]:
    """Yield copies and deletions that have not ended within the grace time."""
    if view.remote is None:
        return
    fence = view.remote.fence
    fenced_ms = 0 if fence is None else fence.event_timestamp_ms
    for each in view.stable(SegmentState.COPY_STARTED, SegmentState.DELETE_STARTED):
        # A fence gives segments up without a record of their own.
        since_ms = max(each.event_timestamp_ms, fenced_ms)
        if view.is_old(since_ms) and not _is_purged(view, each):
            seconds = (view.now_ms - since_ms) // 1_000
            yield view.finding(
                Kind.UNFINISHED_SEGMENT,
                WARNING,
                f"{each.state.name} for {seconds} s",
                object=object_name(each, ObjectKind.LOG),
                offsets=(each.start_offset, each.end_offset),
            )


def _purged(view: PartitionView) -> Iterator[Finding]:
    """Yield segments of a floor whose purge is said to be over."""
    for each in view.stable(SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED):
        if _is_purged(view, each):
            yield view.finding(
                Kind.LEFTOVER,
                ERROR,
                f"a segment of tiered epoch {each.tiered_epoch}: the controller says that the "
                f"floor {view.floor_is_purged} is purged",
                object=object_name(each, ObjectKind.LOG),
                offsets=(each.start_offset, each.end_offset),
            )


def _is_purged(view: PartitionView, segment: SegmentMetadata) -> bool:
    return NO_FLOOR < view.floor_is_purged >= segment.tiered_epoch
