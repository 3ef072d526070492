"""Which segments of a log retention deletes.

Segments are deleted from the oldest on, only below the high watermark, and never the active one: if
all of them are expired the log rolls first. Below the log start offset segments are deleted
whatever the policy; by size and time only if `cleanup.policy` has `delete`.

Source: UnifiedLog.deleteOldSegments and the three deleteRetention… methods.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ottla.log.config import LogConfig


class Reason(Enum):
    """Why a segment is deleted, in the order of the checks."""

    LOG_START = "it is below the log start offset"
    SIZE = "the log exceeds retention.bytes"
    TIME = "its newest record is older than retention.ms"


class SegmentFacts(NamedTuple):
    """A segment's facts for retention; `end_offset` is the next one's base offset."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    is_active: bool


class ExpiredSegment(NamedTuple):
    """A segment that is below the log start now, and will be deleted."""

    base_offset: int
    size: int
    reason: Reason


def expired(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> tuple[Reason, ...]:
    """Return the reason for each segment to delete, from the oldest on.

    An empty active segment is never deleted.
    """
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    by_size = config.deletes and config.retention_bytes >= 0
    by_time = config.deletes and config.retention_ms >= 0
    reasons: list[Reason] = []
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_active and segment.size == 0):
            break
        if segment.end_offset <= log_start_offset and not segment.is_active:
            reasons.append(Reason.LOG_START)
        elif by_size and excess >= segment.size:
            reasons.append(Reason.SIZE)
        elif by_time and now_ms - segment.newest_ms > config.retention_ms:
            reasons.append(Reason.TIME)
        else:
            break
        excess -= segment.size
    return tuple(reasons)
