"""The log cleaner: keeps at least the newest record of each key of compacted topics.

Every `backoff_ms` it checks all compacted logs and starts to clean the dirtiest ones, as many at a
time as it has threads, until none is dirty enough. It plans and swaps segments on the loop; reading
and rewriting is done by the runner, in other processes. A cleaning is aborted, and its files are
removed, if its log is truncated, deleted, reconfigured or taken offline meanwhile.

No log keeps others from being cleaned: one whose cleaning failed for want of space or memory, or
was killed, is cleaned again after a pause, which doubles with each failure in a row; after any
other failure it is uncleanable.

The clean offset moves once the new names are durable, never before: otherwise an older value that
came back with its old segment would not be cleaned again.

Source: LogCleaner, LogCleanerManager; KIP-71, KIP-354, KIP-534.
"""

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from ottla.base.ports import SHORTAGES, Dice
from ottla.base.timers import Timer
from ottla.log.cleaner.cleaner_job import (
    CleanedSegment,
    CleanerDied,
    CleaningEnd,
    CleaningFailed,
    CleaningJob,
    remove_temporaries,
)
from ottla.log.cleaner.cleaner_plan import Cleanable, find_cleanable, group, last_of_producers
from ottla.log.cleaner.cleaner_swap import Swap, is_as_planned
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.partition_log import PartitionLog
from ottla.log.results import DamagedLog
from ottla.log.segment import Segment

logger = logging.getLogger(__name__)

T = TypeVar("T")

Result = CleanedSegment | CleaningEnd | BaseException

DOUBLINGS_MAX: Final = 6
"""Of `log.cleaner.backoff.ms` after failures: with its default a pause lasts at most 16 min."""

PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT}) | SHORTAGES
"""Errors that may pass, and are none of the disk itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The broker's log.cleaner.* properties. Map and rate are for all threads together."""

    enabled: bool = True
    threads: int = 1
    backoff_ms: int = 15_000
    map_bytes: int = 128 << 20
    map_load_factor: float = 0.9
    write_bytes: int = 512 << 10
    bytes_per_second: float = float("inf")


class Runner(Protocol):
    """Runs cleanings in other threads or processes."""

    def run(self, job: CleaningJob, on_result: Callable[[Result], None]) -> Callable[[], None]:
        """Begin; return a function that cancels the cleaning.

        `on_result` is called on the loop: for each new segment, then with the end or an error.
        """
        ...


class _Cleaning:
    """One cleaning in progress."""

    __slots__ = ("cancel", "groups", "job", "log", "over", "results", "swap", "truncation_count")

    def __init__(
        self, log: PartitionLog, job: CleaningJob, groups: list[tuple[Segment, ...]]
    ) -> None:
        self.log = log
        self.job = job
        self.groups = groups
        self.truncation_count = log.truncation_count
        self.over = False
        self.swap: Swap | None = None
        self.results: deque[Result] = deque()
        """Results that came during a swap."""
        self.cancel: Callable[[], None] | None = None


class _Failures(NamedTuple):
    """How often the cleaning of a log has failed in a row, and until when it is not repeated."""

    in_a_row: int
    until_ms: int


class LogCleaner:
    """See the module. `settings` is called each time, so a change takes effect at once."""

    def __init__(
        self,
        log_dirs: LogDirs,
        runner: Runner,
        dice: Dice,
        settings: Callable[[], CleanerSettings],
    ) -> None:
        self._log_dirs = log_dirs
        self._ports = log_dirs.ports
        self._runner = runner
        self._dice = dice
        self._settings = settings
        self._timer: Timer | None = None
        self._stopped = False
        self._under_way: list[_Cleaning] = []
        self._uncleanable: dict[PartitionLog, object] = {}
        """Uncleanable logs, until their configuration changes or the broker restarts."""
        self._failures: dict[PartitionLog, _Failures] = {}
        """Of the logs whose last cleaning has failed in a way that may pass."""
        self._unreadable: dict[PartitionLog, tuple[tuple[int, ...], int]] = {}
        """The batches that the last cleaning of each log could not decode."""
        log_dirs.on_log_removed = self._retired

    def start(self) -> None:
        """Start the periodic check, first after `backoff_ms`."""
        self._arm()

    def stop(self) -> None:
        """Abort all cleanings; their files are removed now or by the next start."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for cleaning in list(self._under_way):
            self._abort(cleaning)

    def _arm(self) -> None:
        due_ms = self._ports.clock.monotonic_ms() + max(1, self._settings().backoff_ms)
        self._timer = self._ports.timers.at(due_ms, self._wake)

    def _wake(self) -> None:
        if not self._stopped:
            self._arm()
            self.start_cleanings()

    def start_cleanings(self) -> None:
        """Start to clean the dirtiest logs, as many as there are free threads."""
        settings = self._settings()
        for cleaning in list(self._under_way):
            if not self._is_current(cleaning):
                self._abort(cleaning)
        free = settings.threads - len(self._under_way)
        if self._stopped or not settings.enabled or free <= 0:
            return
        logs = list(self._log_dirs.logs())
        self._uncleanable = _of(logs, self._uncleanable)
        self._failures = _of(logs, self._failures)
        self._unreadable = _of(logs, self._unreadable)
        due = [found for log in logs if (found := self._due(log))]
        due.sort(key=lambda found: found.dirty_ratio, reverse=True)
        for found in due[:free]:
            self._begin(found, settings)

    def _due(self, log: PartitionLog) -> Cleanable | None:
        if not log.config.compacts or any(each.log is log for each in self._under_way):
            return None
        if self._uncleanable.get(log) is log.config:
            return None
        failures = self._failures.get(log)
        if failures is not None and self._ports.clock.monotonic_ms() < failures.until_ms:
            return None
        if log.local.swap is not None:
            return None  # Of an aborted cleaning: what a new one would read is being renamed.
        if log.recovery_point < log.segments.active.base_offset:
            # As after a crash: only durable segments may be cleaned, so flush them first.
            log.flush(include_active=False)
        try:
            found = find_cleanable(log, self._ports.clock.now_ms())
        except OutOfDescriptors:
            return None  # The next check tries again.
        except OSError as error:
            self._ports.on_failure(log, error)
            return None
        return found if found is not None and found.is_due else None

    def _begin(self, found: Cleanable, settings: CleanerSettings) -> None:
        log, config = found.log, found.log.config
        groups = group(found.plans, config)
        segments = iter(found.segments)
        try:
            aborted = log.aborted_transactions(found.plans[0].base_offset, found.plans[-1][1])
        except OutOfDescriptors:
            return
        except OSError as error:
            self._ports.on_failure(log, error)
            return
        except DamagedLog as damage:
            self._note_uncleanable(log, damage)
            return
        job = CleaningJob(
            directory=log.directory,
            token=self._dice.random_bytes(8).hex(),
            groups=groups,
            first_dirty=found.first_dirty,
            now_ms=self._ports.clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            map_bytes=settings.map_bytes // settings.threads,
            map_load_factor=settings.map_load_factor,
            index_interval_bytes=config.index_interval_bytes,
            write_bytes=settings.write_bytes,
            bytes_per_second=settings.bytes_per_second / settings.threads,
            aborted=tuple(aborted),
            producers=last_of_producers(log),
            levels=dict(config.levels or {}),
        )
        cleaning = _Cleaning(log, job, [tuple(next(segments) for _ in each) for each in groups])
        self._under_way.append(cleaning)
        log.retention.cleaned_from = found.plans[0].base_offset
        cancel = self._runner.run(job, lambda result: self._result(cleaning, result))
        if not cleaning.over:
            cleaning.cancel = cancel

    def _retired(self, log: PartitionLog) -> None:
        """Abort the cleaning of a deleted log: another log may take its directory's name."""
        for cleaning in list(self._under_way):
            if cleaning.log is log:
                self._abort(cleaning)

    # --- results -------------------------------------------------------------------------

    def _result(self, cleaning: _Cleaning, result: Result) -> None:
        if cleaning.over:
            return
        if cleaning.swap is not None:
            cleaning.results.append(result)
            return
        try:
            self._handle(cleaning, result)
        except Exception as error:
            # Our bug. The cleaning must not keep its thread because of it.
            if not cleaning.over:
                self._failed(cleaning, error)
            raise

    def _handle(self, cleaning: _Cleaning, result: Result) -> None:
        if isinstance(result, CleanedSegment):
            self._begin_swap(cleaning, result)
        elif isinstance(result, CleaningEnd):
            self._finish(cleaning, result)
        else:
            self._failed(cleaning, result)

    def _is_current(self, cleaning: _Cleaning) -> bool:
        log, job, swap = cleaning.log, cleaning.job, cleaning.swap
        replaced = swap.group if swap is not None and swap.is_replaced else -1
        return all(
            is_as_planned(log, job, cleaning.truncation_count, old_segments)
            for number, old_segments in enumerate(cleaning.groups)
            if old_segments and number != replaced
        )

    def _begin_swap(self, cleaning: _Cleaning, cleaned: CleanedSegment) -> None:
        log, old_segments = cleaning.log, cleaning.groups[cleaned.group]
        if not is_as_planned(log, cleaning.job, cleaning.truncation_count, old_segments):
            self._abort(cleaning)
            return
        cleaning.swap = Swap(
            log,
            cleaning.job,
            cleaned,
            old_segments,
            truncation_count=cleaning.truncation_count,
            ended=lambda outcome: self._swapped(cleaning, cleaned, outcome),
        )
        cleaning.swap.begin()

    def _swapped(
        self, cleaning: _Cleaning, cleaned: CleanedSegment, outcome: bool | OSError
    ) -> None:
        cleaning.swap = None
        if cleaning.over:
            # Its log may be due again; not in this turn, in which a truncation may have ended it.
            self._ports.timers.at(self._ports.clock.monotonic_ms(), self.start_cleanings)
        elif outcome is True:
            cleaning.groups[cleaned.group] = ()
            while cleaning.results and cleaning.swap is None:
                self._result(cleaning, cleaning.results.popleft())
        else:
            self._abort(cleaning)
        if isinstance(outcome, OSError):
            self._ports.on_failure(cleaning.log, outcome)

    def _finish(self, cleaning: _Cleaning, end: CleaningEnd) -> None:
        log, truncation_count = cleaning.log, cleaning.truncation_count
        self._over(cleaning)
        logger.info(
            "Cleaned %s up to offset %d: %d bytes read, %d written; %d of %d records retained",
            log.name,
            end.end_offset,
            end.bytes_read,
            end.bytes_written,
            end.records_kept,
            end.records_read,
        )
        self._warn_of_unreadable(log, end)
        self._failures.pop(log, None)
        if log.failed or log.truncation_count != truncation_count:
            return

        def durable(error: OSError | None) -> None:
            if error is None and not log.failed and log.truncation_count == truncation_count:
                log.offsets.clean_offset = max(log.clean_offset, end.end_offset)
                self._log_dirs.checkpoint_cleaned(log)
            # Other logs may be due, or this one again, if its keys exceeded the map.
            self.start_cleanings()

        log.flush(include_active=False).then(durable)

    def _warn_of_unreadable(self, log: PartitionLog, end: CleaningEnd) -> None:
        """Log the batches that could not be decoded, once as long as they are the same."""
        found = end.unreadable, end.unreadable_count
        if end.unreadable_count and self._unreadable.get(log) != found:
            logger.warning(
                "Cleaning %s: %d batches cannot be decoded and are kept as they are; base offsets "
                "%s%s",
                log.name,
                end.unreadable_count,
                ", ".join(map(str, end.unreadable)),
                ", …" if end.unreadable_count > len(end.unreadable) else "",
            )
        self._unreadable[log] = found

    def _failed(self, cleaning: _Cleaning, error: BaseException) -> None:
        log = cleaning.log
        sound = self._is_current(cleaning)
        self._abort(cleaning)
        if not sound:
            return
        if isinstance(error, OSError) and error.errno not in PASSING:
            self._ports.on_failure(log, error)
        elif isinstance(error, OSError | CleanerDied):
            self._pause(log)
            logger.warning("Cleaning %s failed: %s; retrying later", log.name, error)
        else:
            self._note_uncleanable(log, error)

    def _note_uncleanable(self, log: PartitionLog, error: BaseException) -> None:
        self._uncleanable[log] = log.config
        logger.warning(
            "Cleaning %s failed: %s; the partition is uncleanable until its configuration "
            "changes or the broker restarts",
            log.name,
            error,
            # Another error than these is a fault of the cleaner.
            exc_info=None if isinstance(error, CleaningFailed | DamagedLog) else error,
        )

    def _pause(self, log: PartitionLog) -> None:
        before = self._failures.get(log)
        in_a_row = 1 if before is None else before.in_a_row + 1
        pause_ms = self._settings().backoff_ms * 2 ** min(in_a_row, DOUBLINGS_MAX)
        self._failures[log] = _Failures(in_a_row, self._ports.clock.monotonic_ms() + pause_ms)

    def _abort(self, cleaning: _Cleaning) -> None:
        self._over(cleaning)
        if cleaning.cancel is not None:
            cleaning.cancel()
        if cleaning.swap is not None:
            try:
                cleaning.swap.cancel()
            except OSError as error:
                self._ports.on_failure(cleaning.log, error)
        disk, job = self._ports.disk, cleaning.job
        self._ports.workers.submit(lambda: remove_temporaries(disk, job), lambda result: None)

    def _over(self, cleaning: _Cleaning) -> None:
        cleaning.over = True
        self._under_way.remove(cleaning)
        cleaning.log.retention.cleaned_from = None


def _of(logs: Iterable[PartitionLog], known: Mapping[PartitionLog, T]) -> dict[PartitionLog, T]:
    """Return what is known of logs that are still here."""
    return {log: known[log] for log in logs if log in known}
