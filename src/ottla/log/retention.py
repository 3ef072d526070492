"""Which segments of a log retention deletes.

Segments are deleted from the oldest on, only below the high watermark, and never the active one: if
all of them are expired the log rolls first. Below the log start offset segments are deleted
whatever the policy; by size and time only if `cleanup.policy` has `delete`.

A log whose segments are copied to remote storage deletes its local copies by local.retention.ms and
local.retention.bytes, and only those that are copied. The active segment is sealed when the local
retention expires it, since only sealed segments are copied (KAFKA-15047). The retention of the
whole log is the remote log manager's. While a log that is not copied any more still has records in
remote storage alone, nothing that follows them is deleted.

Source: UnifiedLog.{deleteOldSegments, deleteRetentionMsBreachedSegments,
deleteRetentionSizeBreachedSegments, deleteLogStartOffsetBreachedSegments}; KIP-405.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from ottla.log.config import LogConfig


class Reason(Enum):
    """Why a segment is deleted, in the order of the checks."""

    LOG_START = "it is below the log start offset"
    LOCAL_START = "it is below the local log start offset"
    SIZE = "the log exceeds retention.bytes"
    TIME = "its newest record is older than retention.ms"
    LOCAL_SIZE = "it is in remote storage, and the local log exceeds local.retention.bytes"
    LOCAL_TIME = "it is in remote storage, and its newest record is older than local.retention.ms"


class SegmentFacts(NamedTuple):
    """A segment's facts for retention; `end_offset` is the next one's base offset."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int
    is_active: bool


class ExpiredSegment(NamedTuple):
    """A segment that is below the log start or local log start now, and will be deleted."""

    base_offset: int
    size: int
    reason: Reason


class LocalExpiry(NamedTuple):
    """The result of a local retention check.

    Fields: `reasons`: why each segment is deleted, from the oldest on; `rolls`: the active segment
            is expired, too, and is to be sealed.
    """

    reasons: tuple[Reason, ...]
    rolls: bool


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


def expired_locally(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    local_log_start_offset: int,
    high_watermark: int,
    copied_to: int,
) -> LocalExpiry:
    """Return which local segments of a log with remote storage to delete; never the active one.

    Fields: `copied_to`: the end of what is in remote storage, exclusive.
    """
    excess = sum(segment.size for segment in segments) - config.local_retention_bytes
    by_size = config.remote_storage and config.local_retention_bytes >= 0
    by_time = config.remote_storage and config.local_retention_ms >= 0
    reasons: list[Reason] = []
    is_blocked = False
    for segment in segments:
        if segment.end_offset > high_watermark or (segment.is_active and segment.size == 0):
            break
        if segment.end_offset <= log_start_offset and not segment.is_active:
            reason = Reason.LOG_START
        elif segment.end_offset <= local_log_start_offset and not segment.is_active:
            reason = Reason.LOCAL_START
        elif by_size and excess >= segment.size:
            reason = Reason.LOCAL_SIZE
        elif by_time and now_ms - segment.newest_ms > config.local_retention_ms:
            reason = Reason.LOCAL_TIME
        else:
            break
        if segment.is_active:
            return LocalExpiry(tuple(reasons), rolls=True)
        is_decided = segment.end_offset <= local_log_start_offset
        is_blocked = is_blocked or not (is_decided or segment.end_offset <= copied_to)
        if not is_blocked:
            reasons.append(reason)
        excess -= segment.size
    return LocalExpiry(tuple(reasons), rolls=False)
