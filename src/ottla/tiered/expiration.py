"""Which remote segments are deleted, and where the log begins after that.

Records are removed from the oldest on. The walk ends at the first segment that retention keeps,
whatever the timestamps behind it. The log start is advanced before the first deletion, so that no
reader is sent to an object that is gone.

Of the segments that are visible in the lineage (`visible_segments`) each is counted once, however
many leader epochs it has and whatever else covers the same offsets. Unfinished copies are never
counted: during an outage of the store they would push out good segments.

Source: RemoteLogManager.RLMExpirationTask; KAFKA-15352, KAFKA-15479, KAFKA-16890, KAFKA-17062,
KAFKA-17428.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.tiered.copy_plan import highest_copied_offset
from ottla.tiered.lineage import Lineage, Visible
from ottla.tiered.remote_log import RemoteLog, by_offset
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from ottla.tiered.visible_segments import VisibleSegments

OFFSET_MAX: Final = 2**63 - 1


class Reason(Enum):
    """Why a remote segment is deleted."""

    DELETE_STARTED = "its deletion has begun"
    LOG_START = "it is below the log start offset"
    TIME = "its newest record is older than retention.ms"
    SIZE = "the log exceeds retention.bytes"
    UNREFERENCED = "its leader epochs are older than the log's first"
    UNFINISHED = "its copy was given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationPlan:
    """Advance the log start to `log_start_offset` first, then delete in the order given."""

    log_start_offset: int
    delete: tuple[tuple[SegmentMetadata, Reason], ...]


def plan_expiration(
    remote: RemoteLog,
    lineage: Lineage,
    *,
    log_start: int,
    retention_ms: int,
    retention_bytes: int,
    local_only_bytes: int,
    now_ms: int,
    visible: VisibleSegments | None = None,
) -> ExpirationPlan:
    """Return what to delete now.

    `retention_ms`, `retention_bytes`: of the whole log; -1 = no limit.
    `local_only_bytes`: of the segments that only the local log has (`copy_plan.local_only_bytes`).
    `visible`: of the last plan, which makes this one cost what has changed since.
    """
    visible = VisibleSegments() if visible is None else visible
    visible.update(remote, lineage)
    copied = highest_copied_offset(remote, lineage)
    unfinished = remote.unfinished()
    copied_now = (
        each.start_offset for each in unfinished if not _is_given_up(each, lineage, copied)
    )
    walk_until = min(copied_now, default=OFFSET_MAX)
    total = local_only_bytes + visible.size_bytes
    excess = total - retention_bytes if retention_bytes >= 0 else 0
    oldest_ms = now_ms - retention_ms if retention_ms >= 0 else None

    delete: list[tuple[SegmentMetadata, Reason]] = []
    for each in visible.segments:
        segment = each.segment
        reason = _reason(each, log_start=log_start, oldest_ms=oldest_ms, excess=excess)
        is_halted = segment.start_offset >= walk_until and reason is not Reason.LOG_START
        if reason is None or is_halted:
            break
        delete.append((segment, reason))
        excess -= segment.size_bytes
        log_start = max(log_start, each.end_offset + 1)

    for segment in (*remote.deleting(), *unfinished, *visible.others):
        reason = _hidden_reason(segment, lineage, log_start=log_start, copied=copied)
        if reason is not None:
            delete.append((segment, reason))
    delete.sort(key=lambda each: by_offset(each[0]))
    return ExpirationPlan(log_start_offset=log_start, delete=tuple(delete))


def _reason(each: Visible, *, log_start: int, oldest_ms: int | None, excess: int) -> Reason | None:
    """Why a visible segment is deleted; None = retention keeps it."""
    segment = each.segment
    if each.end_offset < log_start:
        return Reason.LOG_START
    newest_ms = segment.max_timestamp_ms
    if newest_ms < 0:  # Its records have no timestamps.
        newest_ms = segment.event_timestamp_ms
    if oldest_ms is not None and newest_ms <= oldest_ms:
        return Reason.TIME
    if excess >= segment.size_bytes > 0:
        return Reason.SIZE
    return None


def _hidden_reason(
    segment: SegmentMetadata, lineage: Lineage, *, log_start: int, copied: int
) -> Reason | None:
    """Why a segment that is not visible is deleted; None = it stays."""
    if segment.state is SegmentState.DELETE_STARTED:
        return Reason.DELETE_STARTED
    if segment.state is SegmentState.COPY_STARTED:
        return Reason.UNFINISHED if _is_given_up(segment, lineage, copied) else None
    newest_epoch = segment.epochs[-1][0]
    if newest_epoch < lineage.first_epoch and lineage.start_of(lineage.first_epoch) <= log_start:
        # A leader epoch cache that begins above the log start was lost: it proves nothing.
        return Reason.UNREFERENCED
    if segment.end_offset < log_start and newest_epoch <= lineage.first_epoch:
        return Reason.LOG_START
    return Reason.LOG_START if 0 <= lineage.shared_end(segment) < log_start else None


def _is_given_up(segment: SegmentMetadata, lineage: Lineage, copied: int) -> bool:
    """Whether a copy that has begun goes on no more: what it would add is copied, or its copier
    does not lead any more."""
    return segment.end_offset <= copied or segment.leader_epoch < lineage.latest_epoch
