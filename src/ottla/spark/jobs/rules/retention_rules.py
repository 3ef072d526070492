"""What a retention setting would keep and delete of one partition's remote segments. Pure.

The decision is the brokers' own (`tiered.expiration`): whole segments, from the oldest on, up to
the first one that the setting keeps. What only the local log has counts for the size of the log and
is kept: brokers delete it only once it is copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.tiered.expiration import plan_expiration
from ottla.tiered.lineage import Lineage
from ottla.tiered.manifest import ManifestState
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import NO_FLOOR, SegmentMetadata, copy_finished, copy_started
from ottla.tiered.visible_segments import VisibleSegments

UNLIMITED: Final = -1
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A retention of the whole log; -1 = no limit.

    `name`: the property that differs from the present setting, "" = it is the present one.
    """

    name: str
    retention_ms: int
    retention_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a setting leaves.

    Fields: records are counted by offsets. `log_start_offset`: where the log would begin.
            `oldest_kept_ms`: the newest timestamp in the oldest segment that is kept; None = none
            is kept.
    """

    kept_segments: int = 0
    kept_bytes: int = 0
    kept_records: int = 0
    deleted_segments: int = 0
    deleted_bytes: int = 0
    deleted_records: int = 0
    log_start_offset: int = 0
    oldest_kept_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """A partition for the rules. `local_only_bytes`: of what only its local log has."""

    remote: RemoteLog
    lineage: Lineage
    log_start: int
    local_only_bytes: int = 0


def settings(
    present: tuple[int, int], ms: Iterable[int], size_bytes: Iterable[int]
) -> tuple[Setting, ...]:
    """Return the present setting, and one for each candidate, which changes one property of it."""
    present_ms, present_bytes = present
    now = Setting(name="", retention_ms=present_ms, retention_bytes=present_bytes)
    by_time = (replace(now, name=RETENTION_MS, retention_ms=each) for each in ms)
    by_size = (replace(now, name=RETENTION_BYTES, retention_bytes=each) for each in size_bytes)
    return now, *by_time, *by_size


def log_of_manifests(
    state: ManifestState, *, log_start: int | None = None, local: tuple[int, int] | None = None
) -> RetainedLog:
    """Return a partition as its manifests have it.

    Fields: `log_start`: the leader's; None = that of the manifests. `local`: where the leader's
            local log begins, and its size; None = not known.
    """
    remote = RemoteLog()
    for each in state.segments.values():
        if state.floor == NO_FLOOR or each.tiered_epoch > state.floor:
            _add(remote, each)
    lineage = state.lineage()
    start = state.log_start_offset if log_start is None else log_start
    # Segments that are also local are counted with the remote tier.
    visible = VisibleSegments()
    visible.update(remote, lineage)
    local_only = 0
    if local is not None:
        local_start, local_bytes = local
        both = sum(
            each.segment.size_bytes
            for each in visible.segments
            if each.segment.start_offset >= local_start
        )
        local_only = max(0, local_bytes - both)
    return RetainedLog(remote, lineage, start, local_only)


def _add(remote: RemoteLog, segment: SegmentMetadata) -> None:
    remote.replay(copy_started(segment))
    remote.replay(copy_finished(segment))


def outcomes(log: RetainedLog, candidates: Sequence[Setting], now_ms: int) -> list[Outcome]:
    """Return what each setting leaves at a time."""
    visible = VisibleSegments()
    visible.update(log.remote, log.lineage)
    return [_outcome(log, each, now_ms, visible) for each in candidates]


def _outcome(log: RetainedLog, setting: Setting, now_ms: int, visible: VisibleSegments) -> Outcome:
    plan = plan_expiration(
        log.remote,
        log.lineage,
        log_start=log.log_start,
        retention_ms=setting.retention_ms,
        retention_bytes=setting.retention_bytes,
        local_only_bytes=log.local_only_bytes,
        now_ms=now_ms,
        visible=visible,
    )
    deleted = {segment.segment_id for segment, _ in plan.delete}
    counts = {False: [0, 0, 0], True: [0, 0, 0]}
    oldest_kept_ms: int | None = None
    reached = log.log_start
    for segment, end in visible.segments:
        is_deleted = segment.segment_id in deleted
        if not is_deleted and oldest_kept_ms is None:
            oldest_kept_ms = segment.max_timestamp_ms
        sums = counts[is_deleted]
        sums[0] += 1
        sums[1] += segment.size_bytes
        # Segments of different leaders may overlap: an offset counts once.
        sums[2] += max(0, end + 1 - max(reached, segment.start_offset))
        reached = max(reached, end + 1)
    kept, gone = counts[False], counts[True]
    return Outcome(
        kept_segments=kept[0],
        kept_bytes=kept[1],
        kept_records=kept[2],
        deleted_segments=gone[0],
        deleted_bytes=gone[1],
        deleted_records=gone[2],
        log_start_offset=plan.log_start_offset,
        oldest_kept_ms=oldest_kept_ms,
    )
