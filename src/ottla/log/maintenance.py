"""What happens to a log beside appending and reading: flushes, retention, truncation.

These functions are methods of `PartitionLog` in all but place. They run on the loop.

Source: UnifiedLog.{deleteOldSegments, maybeIncrementLogStartOffset, truncateTo,
truncateFullyAndStartAt}, LocalLog.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log import names
from ottla.log.flushing import FlushJob
from ottla.log.producer_replay import Extent, prune_snapshots, rebuild_producers
from ottla.log.producer_state import ProducerState
from ottla.log.retention import Reason, SegmentFacts, expired
from ottla.log.segment import Segment, new_segment
from ottla.log.validation import api_error
from ottla.records.errors import RecordsError

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


class DeletedSegment(NamedTuple):
    """A segment that retention took away."""

    base_offset: int
    size: int
    reason: Reason


# --- flush ------------------------------------------------------------------------------


def prepare_flush(
    log: "PartitionLog", *, include_active: bool, under_way: FlushJob | None = None
) -> FlushJob:
    """Pin all that is unsynced, or `under_way`, and return the job that syncs it.

    Raises: OSError.
    """
    active = log.segments.active
    job = FlushJob(
        disk=log.ports.disk,
        offset=log.log_end_offset if include_active else active.base_offset,
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
    """Move the log start forward, in memory; the checkpoint follows."""
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.producers.replicated_to(offset)


def apply_retention(log: "PartitionLog", now_ms: int) -> list[DeletedSegment]:
    """Delete the segments that may go; return them. Raises: OSError."""
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
    # First the log start, then the files: a reader never meets a gap.
    advance_log_start(log, log.segments[count].base_offset)
    gone = log.segments.take_first(count)
    deleted = [
        DeletedSegment(segment.base_offset, segment.size, reason)
        for segment, reason in zip(gone, reasons, strict=True)
    ]
    log.size_bytes -= sum(segment.size for segment in gone)
    delete_segments(log, gone)
    _delete_snapshots(log, below=log.segments.first.base_offset)
    return deleted


def _facts(log: "PartitionLog") -> list[SegmentFacts]:
    """Return what retention asks; a segment's largest timestamp is read once and kept."""
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
    """Rename the segments' files away, and remove them after `file.delete.delay.ms`.

    Whoever reads one of them keeps reading: the files stay open while pinned. Raises: OSError.
    """
    disk = log.ports.disk
    doomed: list[str] = []
    for segment in segments:
        for suffix in names.SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            try:
                disk.rename(path, path + names.DELETED)
            except FileNotFoundError:
                continue
            doomed.append(path + names.DELETED)
        segment.moved(segment.directory, names.DELETED)
        segment.close()

    def remove() -> None:
        for path in doomed:
            disk.remove(path)

    def removed(result: BaseException | None) -> None:
        if isinstance(result, OSError):
            log.ports.on_failure(log, result)
        elif result is not None:
            raise result

    due_ms = log.ports.clock.monotonic_ms() + log.config.file_delete_delay_ms
    log.ports.timers.at(due_ms, lambda: log.ports.workers.submit(remove, removed))


def _delete_snapshots(log: "PartitionLog", *, below: int) -> None:
    for offset in [offset for offset in log.snapshots if offset < below]:
        log.ports.disk.remove(f"{log.directory}/{names.segment_name(offset, names.SNAPSHOT)}")
        log.snapshots.remove(offset)


# --- truncation -------------------------------------------------------------------------


def truncate_to(log: "PartitionLog", offset: int) -> bool:
    """Drop the batches that reach `offset`. Raises: ApiError, OSError."""
    if offset >= log.log_end_offset:
        # An epoch that begins at the end is one that this replica led in and wrote nothing: it
        # would be compared with the leader's for ever.
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments.first.base_offset:
        start_at(log, offset)
        return True
    gone = log.segments.take_above(offset)
    if gone:
        # From the end, and durably before the rest is cut: a crash must not leave a hole with
        # records behind it.
        delete_segments(log, reversed(gone))
        log.ports.disk.sync_dir(log.directory)
    active = log.segments.active
    try:
        active.activate(log.config)
        # A batch may reach back below the log start, which never follows it.
        end = active.truncate_to(offset)
        log.log_end_offset = max(end, min(offset, log.log_start_offset))
    except RecordsError as error:
        raise api_error(error) from None
    _shortened(log)
    return True


def _shortened(log: "PartitionLog") -> None:
    end = log.log_end_offset
    log.shortened += 1
    log.clean_offset = min(log.clean_offset, end)
    log.size_bytes = sum(segment.size for segment in log.segments)
    log.epochs.truncate_from_end(end)
    log.high_watermark = min(log.high_watermark, end)
    _lower_recovery_point(log, end)
    log.log_start_offset = min(log.log_start_offset, end)
    disk = log.ports.disk
    log.snapshots = prune_snapshots(disk, log.directory, end)
    extents = [Extent(segment.base_offset, segment.size) for segment in log.segments]
    log.producers = rebuild_producers(disk, log.directory, log.name, extents, end)
    log.producers.replicated_to(log.high_watermark)


def _lower_recovery_point(log: "PartitionLog", end: int) -> None:
    # What is appended from here on is new: a checkpoint that says otherwise would be trusted.
    if log.recovery_point > end:
        log.recovery_point = end
        log.ports.on_shortened(log)


def start_at(log: "PartitionLog", offset: int) -> None:
    """Drop everything and begin an empty log at `offset`. Raises: OSError."""
    now_ms = log.ports.clock.now_ms()
    log.shortened += 1
    log.clean_offset = min(log.clean_offset, offset)
    delete_segments(log, reversed(list(log.segments)))
    # Durably, before anything new is there: a power loss might keep the new segment's name and
    # bring an old one back beside it.
    log.ports.disk.sync_dir(log.directory)
    segment = new_segment(log.ports.files, log.directory, offset, log.config, now_ms)
    log.segments.replace_all(segment)
    log.log_end_offset = log.log_start_offset = log.high_watermark = offset
    _lower_recovery_point(log, offset)
    log.size_bytes = 0
    log.epochs.clear()
    log.producers = ProducerState(log.name)
    log.snapshots = prune_snapshots(log.ports.disk, log.directory, -1)
    log.names_changed = True
