"""Deleting the segments below the local log starts, in an order that survives a power loss.

The local log start is the log start, if the log has no remote prefix (`remote_prefix`).

1. The log is flushed up to the first segment that remains, where a flush has not ended yet: with it
   the snapshot of the producers there, which nothing else has once the segments are gone.
2. The log start checkpoint of the log directory is written, durably, then that of the local log
   starts.
3. The partition directory is synced, so that limits which a truncation left there
   (`checkpoint_limits`), and which would lower the checkpointed log start, cannot come back.
4. The segments' files are renamed and later removed. A power loss may undo any of the renames; the
   next start removes what it finds below the local log start.

Without the second step a start that finds an older segment, but not the next one, would take the
gap for lost records, and truncate the log there.

Source: UnifiedLog.deleteOldSegments, whose log start is checkpointed later.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.pending import gather
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.dirs.log_dir import LogDir
from ottla.log.partition_log import PartitionLog

STEP_PAUSE_MS = 1


class _Due(NamedTuple):
    """A log with segments to delete, as it was when its start was checkpointed."""

    log: PartitionLog
    start: int
    truncation_count: int
    limits_number: int
    path: str


class ExpiredSegments:
    """See the module. `failed`: takes a log offline whose disk fails."""

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        *,
        failed: Callable[[PartitionLog, OSError], None],
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._failed = failed

    def delete(self, directories: Iterable[LogDir]) -> None:
        """Delete the expired segments of all logs in some directories that are online."""
        for directory in directories:
            due = tuple(
                _due(log)
                for log in directory.logs.values()
                if not log.failed and not log.truncation.may_be_limited and log.has_expired_segments
            )
            if due:
                logs = [each.log for each in due if not _is_durable_below(each.log, each.start)]
                self._flush(directory, due, logs)

    def _flush(self, directory: LogDir, due: Sequence[_Due], logs: Sequence[PartitionLog]) -> None:
        flushes = [log.flush(include_active=False) for log in logs[:LOGS_PER_STEP_MAX]]
        left = logs[LOGS_PER_STEP_MAX:]

        def flushed(_errors: object) -> None:
            # A flush that fails takes the directory offline, and its checkpoint fails.
            if left:
                self._flush(directory, due, left)
            else:
                self._checkpoint(directory, due)

        gather(flushes).then(flushed)

    def _checkpoint(self, directory: LogDir, due: Sequence[_Due]) -> None:
        written = directory.checkpoint(names.LOG_STARTS)
        written.then(partial(self._checkpointed, directory, due))

    def _checkpointed(self, directory: LogDir, due: Sequence[_Due], error: OSError | None) -> None:
        # A disk that fails has taken the directory offline.
        if error is None and due:
            self._workers.submit(
                lambda: self._sync_names(due[:LOGS_PER_STEP_MAX]),
                partial(self._synced, directory, due),
            )

    def _sync_names(self, due: Iterable[_Due]) -> None:
        for each in due:
            try:
                self._disk.sync_dir(each.path)
            except FileNotFoundError:
                continue  # It was deleted meanwhile.

    def _synced(self, directory: LogDir, due: Sequence[_Due], result: BaseException | None) -> None:
        if isinstance(result, OSError):
            directory.fail(result)
            return
        if result is not None:
            raise result
        for each in due[:LOGS_PER_STEP_MAX]:
            log = each.log
            # Limits that were begun since may be on the disk, or come back with a power loss.
            if log.failed or _due(log)._replace(start=each.start) != each:
                continue
            if directory.logs.get((log.topic, log.partition)) is not log:
                continue
            try:
                log.delete_expired_segments(each.start)
            except OSError as error:
                self._failed(log, error)
        left = due[LOGS_PER_STEP_MAX:]
        if left:
            due_ms = self._clock.monotonic_ms() + STEP_PAUSE_MS
            self._timers.at(due_ms, lambda: self._checkpointed(directory, left, None))


def _due(log: PartitionLog) -> _Due:
    limits_number = log.truncation.limit_files.last_number
    return _Due(log, log.local_log_start_offset, log.truncation_count, limits_number, log.directory)


def _is_durable_below(log: PartitionLog, start: int) -> bool:
    """Return whether everything before the segment of an offset is durable."""
    return log.recovery_point >= log.segments[log.segments.floor(start)].base_offset
