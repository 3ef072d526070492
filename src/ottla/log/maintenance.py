"""Flushes and retention of a log.

Functions on a `PartitionLog`; they run on the loop.

Retention has two steps: the log start moves, in memory, and readers see nothing below it any more;
the files are deleted once the log start is durable, in a checkpoint or as a metadata snapshot.

Source: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset}, LocalLog.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import names
from ottla.log.flushing import FlushJob
from ottla.log.retention import Reason, SegmentFacts, expired
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


class ExpiredSegment(NamedTuple):
    """A segment that is below the log start now, and will be deleted."""

    base_offset: int
    size: int
    reason: Reason


# --- flush ------------------------------------------------------------------------------


def prepare_flush(
    log: "PartitionLog", *, include_active: bool, under_way: FlushJob | None = None
) -> FlushJob:
    """Pin all unsynced files, and those of the flush `under_way`; return the job that syncs them.

    Raises: OSError.
    """
    active = log.segments.active
    job = FlushJob(
        disk=log.ports.disk,
        offset=log.log_end_offset if include_active else active.base_offset,
        truncation_count=log.truncation_count,
        with_active=include_active,
        active_base=active.base_offset,
    )
    if under_way is not None:
        log.names_changed = log.names_changed or bool(under_way.directories)
        log.epochs.dirty = log.epochs.dirty or bool(under_way.renames)
    try:
        for handle in under_way.handles if under_way is not None else ():
            handle.pin()
            job.handles.append(handle)
        if include_active:
            active.write_indexes()
        for segment in log.segments:
            if segment.unsynced and (include_active or segment is not active):
                pinned = segment.pin_files()
                job.handles += pinned
                segment.unsynced = False
                job.segments.append(segment)
        for handle in log.unsynced_handles:
            try:
                handle.pin()
            except FileNotFoundError:
                continue  # A snapshot that retention has removed since.
            job.handles.append(handle)
        if log.epochs.dirty:
            _add_epochs(log, job)
    except OSError:
        job.release(failed=True)
        raise
    job.files = [handle.file() for handle in job.handles]
    for handle in log.unsynced_handles:
        handle.close()  # With the last pin.
    log.unsynced_handles.clear()
    if log.names_changed or job.renames:
        parent = log.directory.rpartition("/")[0]
        job.directories = [log.directory, parent]
        log.names_changed = False
    return job


def _add_epochs(log: "PartitionLog", job: FlushJob) -> None:
    path = f"{log.directory}/{names.LEADER_EPOCHS}"
    file = log.ports.disk.open(path + names.TEMPORARY, create=True)
    job.own_files.append(file)
    file.truncate(0)
    file.append([log.epochs.encode()])
    job.renames.append((path + names.TEMPORARY, path))
    log.epochs.dirty = False


# --- retention --------------------------------------------------------------------------


def advance_log_start(log: "PartitionLog", offset: int) -> None:
    """Move the log start forward, in memory; it is checkpointed later."""
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.producers.replicated_to(offset)


def expire_segments(log: "PartitionLog", now_ms: int) -> list[ExpiredSegment]:
    """Move the log start behind the expired segments; return them. Raises: OSError."""
    reasons = expired(
        _facts(log),
        log.config,
        now_ms=now_ms,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
    )
    count = len(reasons)
    if not count:
        return []
    if count == len(log.segments):
        log.roll(now_ms)
    advance_log_start(log, log.segments[count].base_offset)
    return [
        ExpiredSegment(log.segments[index].base_offset, log.segments[index].size, reason)
        for index, reason in enumerate(reasons)
    ]


def delete_expired_segments(log: "PartitionLog", durable_start: int) -> int:
    """Delete the segments that are wholly below a log start that is durable; return how many.

    The files are renamed one by one, and a power loss may undo any of the renames. Without a
    durable log start recovery would take a gap among the segments for lost records.
    Raises: OSError.
    """
    count = expired_count(log, min(durable_start, log.log_start_offset))
    if log.limits or not count:
        return 0  # Limits lower the checkpointed log start; they are removed soon.
    gone = log.segments.take_first(count)
    log.size_bytes -= sum(segment.size for segment in gone)
    delete_segments(log, gone)
    _delete_snapshots(log, below=log.segments.first.base_offset)
    return count


def expired_count(log: "PartitionLog", start: int) -> int:
    """Return how many segments are wholly below an offset; never the active one."""
    count = 0
    while count + 1 < len(log.segments) and log.segments[count + 1].base_offset <= start:
        count += 1
    return count


def _facts(log: "PartitionLog") -> list[SegmentFacts]:
    """Return the segments' facts for retention; a largest timestamp is read once and kept."""
    facts: list[SegmentFacts] = []
    needs_time = log.config.deletes and log.config.retention_ms >= 0
    for index, segment in enumerate(log.segments):
        end = log.segments.end_of(index, log.log_end_offset)
        newest = _newest_ms(log, segment) if needs_time and end <= log.high_watermark else 0
        facts.append(
            SegmentFacts(segment.base_offset, end, segment.size, newest, segment.is_active)
        )
    return facts


def _newest_ms(log: "PartitionLog", segment: Segment) -> int:
    timestamp = segment.max_timestamp.timestamp
    if timestamp >= 0:
        return timestamp
    # Records without timestamps age with their file.
    return log.ports.disk.modified_ms(segment.path(names.LOG))


def delete_segments(log: "PartitionLog", segments: Iterable[Segment]) -> None:
    """Rename the segments' files to `.deleted`, and remove them after `file.delete.delay.ms`.

    Readers can go on: the files stay open while pinned. Raises: OSError.
    """
    disk = log.ports.disk
    renamed: list[str] = []
    for segment in segments:
        for suffix in names.SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            try:
                disk.rename(path, path + names.DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + names.DELETED)
        segment.moved(segment.directory, names.DELETED)
        segment.close()

    def remove() -> None:
        for path in renamed:
            disk.remove(path)

    def removed(result: BaseException | None) -> None:
        if isinstance(result, OSError):
            log.ports.on_failure(log, result)
        elif result is not None:
            raise result

    def delay_over() -> None:
        log.delayed_deletions -= 1
        log.ports.workers.submit(remove, removed)

    log.delayed_deletions += 1
    due_ms = log.ports.clock.monotonic_ms() + log.config.file_delete_delay_ms
    log.ports.timers.at(due_ms, delay_over)


def _delete_snapshots(log: "PartitionLog", *, below: int) -> None:
    for offset in [offset for offset in log.snapshots if offset < below]:
        log.ports.disk.remove(f"{log.directory}/{names.segment_name(offset, names.SNAPSHOT)}")
        log.snapshots.remove(offset)
