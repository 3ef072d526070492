"""Shortening a log, in the order that survives a loss of power.

1. What the checkpoints say too much of the log is limited, durably (`checkpoint_limits`): from the
   base of the segment that is cut on nothing is trusted, for until step 3 has ended the disk may
   have that segment as it was, as it is, or some pages of each.
2. The segments above are dropped and the last one is cut: nothing of this need be durable, since
   recovery reads all of it.
3. A flush makes the shorter log durable. Nothing is appended before: an old page between new ones,
   or an old segment behind them, may look like a log that never was.

`truncate_to` and `start_at` do 1 and 2 where they are called, and leave 3 to a flush in a worker;
an append that comes before its end flushes first itself. Who can wait lets 1 be done in a worker,
too: `in_background`.

Source: UnifiedLog.{truncateTo, truncateFullyAndStartAt}, LogManager.truncateTo.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.log.checkpoint_limits import CheckpointLimits, lowest, write_limits
from ottla.log.maintenance import delete_segments
from ottla.log.producer_replay import Extent, prune_snapshots, rebuild_producers
from ottla.log.producer_state import ProducerEntry, ProducerState
from ottla.log.results import DamagedLog
from ottla.log.segment import DamagedBatch, new_segment

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

Truncated = Pending[OSError | ApiError | None]


def truncate_to(log: "PartitionLog", offset: int) -> bool:
    """Drop the batches that reach `offset`; tell whether there were any.

    Raises: ApiError, OSError.
    """
    if offset >= log.log_end_offset:
        # An epoch that begins at the end is one that this replica led in and wrote nothing: it
        # would be compared with the leader's for ever.
        log.epochs.truncate_from_end(log.log_end_offset)
        return _drop_deleted(log)
    if offset < log.segments.first.base_offset:
        start_at(log, offset)
        return True
    _check_cut(log, offset)
    limits = _limits_to(log, offset)
    _limit(log, limits)
    _begin(log, limits)
    gone = log.segments.take_above(offset)
    if gone:
        # From the end: a process that is killed here must not leave a hole.
        delete_segments(log, reversed(gone))
    active = log.segments.active
    active.activate(log.config)
    # A batch may reach back below the log start, which never follows it.
    end = active.truncate_to(offset)
    log.log_end_offset = max(end, min(offset, log.log_start_offset))
    _follow_end(log)
    if not _drop_deleted(log):
        log.flush()
    return True


def _drop_deleted(log: "PartitionLog") -> bool:
    """Begin anew where all that is left was deleted before; tell whether it was so.

    The epochs of deleted records are forgotten, so a leader's records that come next may be of
    older ones: behind the deleted ones recovery would refuse them.
    """
    if log.log_end_offset > log.log_start_offset or not log.size_bytes or log.epochs.entries:
        return False
    start_at(log, log.log_end_offset)
    return True


def _check_cut(log: "PartitionLog", offset: int) -> None:
    """Look whether the log can be cut there, before anything of it changes. Raises: DamagedLog."""
    try:
        log.segments[log.segments.floor(offset)].cut_at(offset)
    except DamagedBatch as damage:
        raise DamagedLog(str(damage), path=damage.path, good_end=damage.good_end) from None


def start_at(log: "PartitionLog", offset: int) -> None:
    """Drop everything and begin an empty log at `offset`. Raises: OSError."""
    limits = _limits_of_start(log, offset)
    _limit(log, limits)
    _begin(log, limits)
    delete_segments(log, reversed(list(log.segments)))
    # Before anything new is there: a power loss might keep the new segment's name and bring an
    # old one back beside it.
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
    """Do as `start_at`, without waiting for the limits on the loop: see `_in_background`."""
    limits = _limits_of_start(log, offset)
    return _in_background(log, limits, partial(start_at, log, offset), is_wanted)


def _in_background(
    log: "PartitionLog",
    limits: CheckpointLimits | None,
    shorten: Callable[[], object],
    is_wanted: Callable[[], bool],
) -> Truncated:
    """Limit the checkpoints in a worker, shorten the log on the loop, flush it in a worker.

    `is_wanted` is asked before the second step: the log may be another's by then. The promise is
    kept when the shorter log is durable, or will not be shortened; the disk's failure takes the log
    offline and is told to `LogPorts.on_failure` as well.
    """
    done: Truncated = Pending()

    def limited(result: BaseException | None) -> None:
        if isinstance(result, OSError):
            if not log.failed:  # Else its folder may be another's, or gone.
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
            log.ports.on_truncated(log)  # For the limits that are there for nothing.
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
        # Where the end will lie within a batch is not known yet.
        high_watermark=log.high_watermark if log.high_watermark <= offset else base,
        clean_offset=log.clean_offset if log.clean_offset <= offset else base,
    )


def _limits_of_start(log: "PartitionLog", offset: int) -> CheckpointLimits:
    # Of the old segments any may come back, until the flush.
    return CheckpointLimits(
        recovery_point=min(log.recovery_point, log.segments.first.base_offset, offset),
        log_start_offset=min(log.log_start_offset, offset),
        high_watermark=offset,
        clean_offset=min(log.clean_offset, offset),
    )


def _is_limited(log: "PartitionLog", limits: CheckpointLimits) -> bool:
    """Tell whether no checkpoint, as old as it may be, says more than that."""
    if not log.ports.has_checkpoints:
        return True
    said = CheckpointLimits(
        recovery_point=log.recovery_point,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        clean_offset=log.clean_offset,
    )
    there = lowest((said, *log.limits.values()))
    return all(now <= most for now, most in zip(there, limits, strict=True))


def _limit(log: "PartitionLog", limits: CheckpointLimits) -> None:
    if not _is_limited(log, limits):
        number = log.next_limits_number()
        write_limits(log.ports.disk, log.directory, number, limits)
        log.limits[number] = limits


def _begin(log: "PartitionLog", limits: CheckpointLimits) -> None:
    """Let nothing from here on take the log for what it was. Raises: OSError."""
    while log.swap is not None:  # The end of one lets the next one begin.
        log.swap.settle()
    log.truncation_count += 1
    log.recovery_point = limits.recovery_point
    log.truncation_unflushed = log.names_changed = True
    if log.limits:
        log.ports.on_truncated(log)


def _follow_end(log: "PartitionLog") -> None:
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
    log.producers.date(lambda entry: _appended_ms(before.get(entry.producer_id)))
    log.producers.replicated_to(log.high_watermark)


def _appended_ms(former: ProducerEntry | None) -> int | None:
    # What is left of a producer's batches was appended before those that are cut off.
    return None if former is None else former.appended_ms
