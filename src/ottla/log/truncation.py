"""Truncating a log, in an order that survives a power loss.

1. Limits for the log's checkpoint entries are made durable (`checkpoint_limits`). From the base
   offset of the cut segment on nothing is trusted: until step 3 has ended the disk may have that
   segment's old pages, its new ones, or a mix.
2. The segments above are deleted and the last one is cut. This need not be durable, since recovery
   reads all of it.
3. A flush makes the truncated log durable. Nothing is appended before: old pages between new ones,
   or an old segment behind them, could look like a log that never existed.

`truncate_to` and `start_at` do steps 1 and 2 on the caller's thread and leave 3 to a flush in a
worker; an append before its end flushes first itself. `truncate_in_background` does step 1 in a
worker, too.

Source: UnifiedLog.{truncateTo, truncateFullyAndStartAt}, LogManager.truncateTo.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.log.dirs.checkpoint_limits import CheckpointLimits, lowest, write_limits
from ottla.log.maintenance import delete_segments
from ottla.log.producer_state import ProducerEntry, ProducerState
from ottla.log.recovery.producer_replay import Extent, prune_snapshots, rebuild_producers
from ottla.log.results import DamagedLog
from ottla.log.segment import DamagedBatch, new_segment

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

Truncated = Pending[OSError | ApiError | None]


def truncate_to(log: "PartitionLog", offset: int) -> bool:
    """Remove the batches that reach `offset`; return whether there were any.

    Raises: ApiError, OSError.
    """
    if offset >= log.log_end_offset:
        # An epoch that begins at the end is one in which this replica was the leader and wrote
        # nothing. If it stayed it would be compared with the leader's again and again.
        log.epochs.truncate_from_end(log.log_end_offset)
        return _drop_deleted(log)
    if offset < log.segments.first.base_offset:
        start_at(log, offset)
        return True
    _check_cut(log, offset)
    limits = _limits_to(log, offset)
    _limit(log, limits)
    _begin_truncation(log, limits)
    gone = log.segments.take_above(offset)
    if gone:
        # From the end: a process that is killed here must not leave a gap.
        delete_segments(log, reversed(gone))
    active = log.segments.active
    active.activate(log.config)
    # A batch may begin below the log start; the log start does not move back.
    end = active.truncate_to(offset)
    log.log_end_offset = max(end, min(offset, log.log_start_offset))
    _apply_new_end(log)
    if not _drop_deleted(log):
        log.flush()
    return True


def _drop_deleted(log: "PartitionLog") -> bool:
    """Start an empty log if all remaining records are below the log start; return whether.

    The epoch cache has no entries for records below the log start. So records that come next may
    be of older epochs than these, and recovery would refuse them as decreasing.
    """
    if log.log_end_offset > log.log_start_offset or not log.size_bytes or log.epochs.entries:
        return False
    start_at(log, log.log_end_offset)
    return True


def _check_cut(log: "PartitionLog", offset: int) -> None:
    """Check that the log can be cut there, before anything changes. Raises: DamagedLog."""
    try:
        log.segments[log.segments.floor(offset)].cut_at(offset)
    except DamagedBatch as damage:
        raise DamagedLog(str(damage), path=damage.path, good_end=damage.good_end) from None


def start_at(log: "PartitionLog", offset: int) -> None:
    """Remove everything and start an empty log at `offset`. Raises: OSError."""
    limits = _limits_of_start(log, offset)
    _limit(log, limits)
    _begin_truncation(log, limits)
    delete_segments(log, reversed(list(log.segments)))
    # Before the new segment is created: a power loss might keep its name and bring an old segment
    # back beside it.
    log.ports.disk.sync_dir(log.directory)
    now_ms = log.ports.clock.now_ms()
    segment = new_segment(log.ports.files, log.directory, offset, log.config, now_ms)
    log.segments.replace_all(segment)
    log.log_end_offset = log.log_start_offset = log.high_watermark = offset
    log.clean_offset = min(log.clean_offset, offset)
    log.size_bytes = 0
    log.epochs.clear()
    log.producers = ProducerState(log.name)
    log.snapshots = prune_snapshots(log.ports.disk, log.directory, -1)
    log.flush()


def truncate_in_background(
    log: "PartitionLog", offset: int, is_wanted: Callable[[], bool]
) -> Truncated:
    """Do as `truncate_to`, without a sync on the loop: see `_in_background`."""
    if offset < log.segments.first.base_offset:
        return truncate_fully_in_background(log, offset, is_wanted)
    if offset >= log.log_end_offset:
        return _in_background(log, None, partial(truncate_to, log, offset), is_wanted)
    limits = _limits_to(log, offset)
    return _in_background(log, limits, partial(truncate_to, log, offset), is_wanted)


def truncate_fully_in_background(
    log: "PartitionLog", offset: int, is_wanted: Callable[[], bool]
) -> Truncated:
    """Do as `start_at`, without a sync of the limits on the loop: see `_in_background`."""
    limits = _limits_of_start(log, offset)
    return _in_background(log, limits, partial(start_at, log, offset), is_wanted)


def _in_background(
    log: "PartitionLog",
    limits: CheckpointLimits | None,
    shorten: Callable[[], object],
    is_wanted: Callable[[], bool],
) -> Truncated:
    """Write the limits in a worker, truncate the log on the loop, flush it in a worker.

    `is_wanted` is called before the second step: the truncation may be obsolete by then. The
    promise completes when the truncated log is durable, or will not be truncated. A disk error
    takes the log offline and is passed to `LogPorts.on_failure`, too.
    """
    done: Truncated = Pending()

    def limited(result: BaseException | None) -> None:
        if isinstance(result, OSError):
            if not log.failed:  # Else its directory may be another log's, or deleted.
                log.fail()
                log.ports.on_failure(log, result)
            done.complete(result)
        elif result is not None:
            raise result
        else:
            if limits is not None:
                log.limits[number] = limits
            proceed()

    def proceed() -> None:
        if log.failed:
            done.complete(None)
            return
        if not is_wanted():
            log.ports.on_truncated(log)  # To remove the limits, which are not needed.
            done.complete(None)
            return
        try:
            shorten()
        except (OSError, ApiError) as error:
            done.complete(error)
            return
        if log.truncation_unflushed:
            log.flush().then(flushed)
        else:
            done.complete(None)

    def flushed(error: OSError | None) -> None:
        done.complete(error)

    if limits is None or _is_limited(log, limits):
        proceed()
    else:
        number = log.next_limits_number()
        write = partial(write_limits, log.ports.disk, log.directory, number, limits)
        log.ports.workers.submit(write, limited)
    return done


def _limits_to(log: "PartitionLog", offset: int) -> CheckpointLimits:
    base = log.segments[log.segments.floor(offset)].base_offset
    return CheckpointLimits(
        recovery_point=min(log.recovery_point, base),
        log_start_offset=min(log.log_start_offset, offset),
        # If `offset` is within a batch, the end is not known yet.
        high_watermark=log.high_watermark if log.high_watermark <= offset else base,
        clean_offset=log.clean_offset if log.clean_offset <= offset else base,
    )


def _limits_of_start(log: "PartitionLog", offset: int) -> CheckpointLimits:
    # Until the flush any of the old segments may come back.
    return CheckpointLimits(
        recovery_point=min(log.recovery_point, log.segments.first.base_offset, offset),
        log_start_offset=min(log.log_start_offset, offset),
        high_watermark=offset,
        clean_offset=min(log.clean_offset, offset),
    )


def _is_limited(log: "PartitionLog", limits: CheckpointLimits) -> bool:
    """Return whether no checkpoint entry, however old, exceeds the limits."""
    if not log.ports.has_checkpoints:
        return True
    checkpointed = CheckpointLimits(
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        clean_offset=log.clean_offset,
    )
    lowered = lowest((checkpointed, *log.limits.values()))
    return all(now <= most for now, most in zip(lowered, limits, strict=True))


def _limit(log: "PartitionLog", limits: CheckpointLimits) -> None:
    if not _is_limited(log, limits):
        number = log.next_limits_number()
        write_limits(log.ports.disk, log.directory, number, limits)
        log.limits[number] = limits


def _begin_truncation(log: "PartitionLog", limits: CheckpointLimits) -> None:
    """End swaps, flushes and cleanings of the log's old content. Raises: OSError."""
    while log.swap is not None:  # The end of one may begin the next one.
        log.swap.settle()
    log.truncation_count += 1
    log.recovery_point = limits.recovery_point
    log.truncation_unflushed = log.names_changed = True
    if log.limits:
        log.ports.on_truncated(log)


def _apply_new_end(log: "PartitionLog") -> None:
    end = log.log_end_offset
    log.clean_offset = min(log.clean_offset, end)
    log.size_bytes = sum(segment.size for segment in log.segments)
    log.epochs.truncate_from_end(end)
    log.high_watermark = min(log.high_watermark, end)
    log.log_start_offset = min(log.log_start_offset, end)
    disk = log.ports.disk
    log.snapshots = prune_snapshots(disk, log.directory, end)
    extents = [Extent(segment.base_offset, segment.size) for segment in log.segments]
    before = log.producers.entries
    log.producers = rebuild_producers(disk, log.directory, log.name, extents, end)
    log.producers.fill_append_times(lambda entry: _appended_ms(before.get(entry.producer_id)))
    log.producers.replicated_to(log.high_watermark)


def _appended_ms(former: ProducerEntry | None) -> int | None:
    # A producer's remaining batches were appended before the truncated ones.
    return None if former is None else former.appended_ms
