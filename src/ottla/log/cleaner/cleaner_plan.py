"""Which logs are to be cleaned, and how; cheap enough for the loop.

The cleanable part of a log ends before the first of: the active segment; the high watermark; the
last stable offset; the recovery point, or a crash could lose the newer value after the older one
was removed; a segment with a record younger than `min.compaction.lag.ms`, or, where no record has a
timestamp, with a file that is younger.

A log that has a remote prefix is not whole: its replica has yet to copy records from its leader
(`earlier_segments`), and a tombstone of a key in them must not be gone by then.

A log is cleaned once its dirty part exceeds `min.cleanable.dirty.ratio` of what would be read, or
has a record older than `max.compaction.lag.ms`.

Source: LogCleanerManager.{cleanableOffsets, maxCompactionDelay, grabFilthiestCompactedLog},
Cleaner.groupSegmentsBySize; KIP-58, KIP-354.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.log.cleaner.cleaner_job import Group, LastOfProducer, SegmentPlan
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.log.indexes.time_index import ENTRY_SIZE
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.records.batch import HEADER_SIZE


class Cleanable(NamedTuple):
    """The cleanable part of `log`.

    Fields: `segments`: with their plans, from the first that has not expired on; `dirty_ratio`: of
            bytes; `is_overdue`: a dirty record is older than `max.compaction.lag.ms`.
    """

    log: PartitionLog
    segments: tuple[Segment, ...]
    plans: tuple[SegmentPlan, ...]
    first_dirty: int
    dirty_ratio: float
    is_overdue: bool

    @property
    def is_due(self) -> bool:
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_ratio


def find_cleanable(log: PartitionLog, now_ms: int) -> Cleanable | None:
    """Return the cleanable part of a log; None = there is none. Raises: OSError."""
    if log.failed or not log.config.compacts or log.has_remote_prefix:
        return None
    first_dirty = max(log.clean_offset, log.local_log_start_offset)
    segments: list[Segment] = []
    plans: list[SegmentPlan] = []
    clean_bytes = dirty_bytes = 0
    bound = min(log.high_watermark, log.last_stable_offset, log.recovery_point)
    for index, segment in enumerate(log.segments):
        end = log.segments.end_of(index, log.log_end_offset)
        if segment.is_active or end > bound:
            break
        if end <= log.local_log_start_offset:
            continue  # It is about to be deleted.
        if end > first_dirty:
            if _is_too_young(log, segment, now_ms):
                break
            dirty_bytes += segment.size
        else:
            clean_bytes += segment.size
        segments.append(segment)
        plans.append(SegmentPlan(segment.base_offset, end, segment.size))
    if not dirty_bytes:
        return None
    return Cleanable(
        log,
        tuple(segments),
        tuple(plans),
        first_dirty,
        dirty_bytes / (clean_bytes + dirty_bytes),
        _is_overdue(segments, plans, first_dirty, log.config, now_ms),
    )


def _is_too_young(log: PartitionLog, segment: Segment, now_ms: int) -> bool:
    lag_ms = log.config.min_compaction_lag_ms
    return lag_ms > 0 and log.local.newest_ms(segment) > now_ms - lag_ms


def _is_overdue(
    segments: Sequence[Segment],
    plans: Sequence[SegmentPlan],
    first_dirty: int,
    config: LogConfig,
    now_ms: int,
) -> bool:
    lag_ms = config.max_compaction_lag_ms
    if lag_ms == INT64_MAX:
        return False
    dirty = (
        segment for segment, plan in zip(segments, plans, strict=True)
        if plan.end_offset > first_dirty
    )  # fmt: skip
    return any(0 < segment.first_batch_ms() < now_ms - lag_ms for segment in dirty)


def group(plans: Sequence[SegmentPlan], config: LogConfig) -> tuple[Group, ...]:
    """Return groups of segments, each of which fits into one segment even without cleaning."""
    groups: list[Group] = []
    current: list[SegmentPlan] = []
    for plan in plans:
        if current and not _fits([*current, plan], config):
            groups.append(tuple(current))
            current = []
        current.append(plan)
    if current:
        groups.append(tuple(current))
    return tuple(groups)


def _fits(plans: Sequence[SegmentPlan], config: LogConfig) -> bool:
    size = sum(plan.size for plan in plans)
    entries = size // max(config.index_interval_bytes, HEADER_SIZE) + len(plans)
    return (
        size <= config.segment_bytes
        and entries * ENTRY_SIZE <= config.segment_index_bytes
        and plans[-1].end_offset - plans[0].base_offset <= RELATIVE_OFFSET_MAX
    )


def last_of_producers(log: PartitionLog) -> dict[int, LastOfProducer]:
    """Return the last batches of the log's active producers, which a cleaning must keep."""
    return {
        entry.producer_id: LastOfProducer(entry.last_offset, entry.epoch)
        for entry in log.producer_states()
    }
