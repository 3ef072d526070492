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

from ottla.tiered.copy_plan import copied_offset
from ottla.tiered.lineage import Lineage, Visible, visible_segments
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState


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
) -> ExpirationPlan:
    """Return what to delete now.

    `retention_ms`, `retention_bytes`: of the whole log; -1 = no limit.
    `local_only_bytes`: of the segments that only the local log has (`copy_plan.local_only_bytes`).
    """
    segments = remote.segments()
    visible = visible_segments(segments, lineage)
    being_copied = _first_being_copied(segments, remote, lineage)
    excess = 0
    if retention_bytes >= 0:
        total = local_only_bytes + sum(each.segment.size_bytes for each in visible)
        excess = total - retention_bytes
    reasons: dict[bytes, Reason] = {}
    for each in visible:
        segment = each.segment
        if being_copied is not None and being_copied <= segment.start_offset:
            break
        reason = _reason(
            each,
            log_start=log_start,
            oldest_ms=now_ms - retention_ms if retention_ms >= 0 else None,
            excess=excess,
        )
        if reason is None:
            break
        reasons[segment.segment_id] = reason
        excess -= segment.size_bytes
        log_start = max(log_start, each.end_offset + 1)
    delete = []
    copied = copied_offset(remote, lineage)
    for segment in segments:
        reason = reasons.get(segment.segment_id) or _other_reason(
            segment, lineage, log_start=log_start, copied=copied
        )
        if reason is not None:
            delete.append((segment, reason))
    return ExpirationPlan(log_start_offset=log_start, delete=tuple(delete))


def _first_being_copied(segments, remote, lineage):  # type: ignore[no-untyped-def]
    return None


def _reason(each: Visible, *, log_start: int, oldest_ms: int | None, excess: int) -> Reason | None:
    segment = each.segment
    if each.end_offset < log_start:
        return Reason.LOG_START
    newest_ms = segment.max_timestamp_ms
    if newest_ms < 0:
        newest_ms = segment.event_timestamp_ms
    if oldest_ms is not None and newest_ms <= oldest_ms:
        return Reason.TIME
    if excess >= segment.size_bytes > 0:
        return Reason.SIZE
    return None


def _other_reason(
    segment: SegmentMetadata, lineage: Lineage, *, log_start: int, copied: int
) -> Reason | None:
    """Why a segment is deleted that the walk did not reach."""
    if segment.state is SegmentState.DELETE_STARTED:
        return Reason.DELETE_STARTED
    is_older = segment.epochs[-1][0] < lineage.first_epoch
    if segment.state is SegmentState.COPY_STARTED:
        return Reason.UNFINISHED if is_older or segment.end_offset <= copied else None
    if is_older:
        return Reason.UNREFERENCED
    if segment.end_offset < log_start and segment.epochs[-1][0] <= lineage.first_epoch:
        return Reason.LOG_START
    end = lineage.shared_end(segment)
    return Reason.LOG_START if 0 <= end < log_start else None
