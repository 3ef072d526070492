"""The end of a log directory: its logs are flushed and closed, then its checkpoints are written.

A few logs at a time, as their flushes have their turn (`ottla.log.flush_queue`): steps stay short,
and few files are open.

Source: LogManager.shutdown.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.base.errors import ApiError
from ottla.base.limits import LOGS_CLOSED_AT_ONCE
from ottla.base.pending import Pending
from ottla.log.dirs.log_dir import LogDir, Written
from ottla.log.disk_ports import DiskPorts
from ottla.log.flushing import FlushJob
from ottla.log.partition_log import PartitionLog


class DirShutdown:
    """See the module.

    Fields: `done`: completes with whether the directory may have the clean shutdown file;
            `rewritten`: see `LogDirs.rewritten`; `mark_unclean`: called when a sync has failed.
    """

    def __init__(
        self,
        ports: DiskPorts,
        directory: LogDir,
        *,
        rewritten: Callable[[LogDir], Written],
        mark_unclean: Callable[[], None],
    ) -> None:
        self.done: Pending[bool] = Pending()
        self._workers = ports.workers
        self._flushes = ports.files.flushes
        self._directory = directory
        self._rewritten = rewritten
        self._mark_unclean = mark_unclean
        self._logs = deque(directory.logs.values())
        self._running = 0
        self._is_clean = directory.may_be_clean
        self._has_failed = False
        self._is_ending = False

    def start(self) -> None:
        """Begin; the rest runs in callbacks of the workers."""
        while self._logs and self._running < LOGS_CLOSED_AT_ONCE:
            self._running += 1
            self._flushes.enter(partial(self._flush, self._logs.popleft()))
        if not self._running and not self._is_ending:
            self._is_ending = True
            self._end()

    def _flush(self, log: PartitionLog) -> None:
        # If the directory failed meanwhile, all of its logs are closed.
        job = None if self._is_lost else _last_job(log)
        if job is not None:
            self._flushes.take(job.file_count)
            self._workers.submit(job.run, partial(self._flushed, log, job))
            return
        self._is_clean = False
        log.close_flushed()
        self._go_on()

    def _flushed(self, log: PartitionLog, job: FlushJob, result: BaseException | None) -> None:
        files = job.file_count
        job.release(failed=result is not None)
        self._flushes.leave(files)
        if result is not None:
            self._sync_failed()
        elif not self._is_lost:
            log.flushed(job)
            if job.is_partial:
                self._logs.appendleft(log)
            else:
                log.close_flushed()
        self._go_on()
        if result is not None and not isinstance(result, OSError):
            raise result

    def _sync_failed(self) -> None:
        """Close the logs; after a failed sync the data may be lost, whatever a second returns."""
        self._has_failed = True
        self._logs.clear()
        for log in self._directory.logs.values():
            log.close()
        self._mark_unclean()

    @property
    def _is_lost(self) -> bool:
        return self._has_failed or self._directory.error is not None

    def _go_on(self) -> None:
        self._running -= 1
        self.start()

    def _end(self) -> None:
        if self._is_lost:
            self.done.complete(False)
            return
        rewritten = self._rewritten(self._directory)
        rewritten.then(lambda _: self._directory.checkpoint_all().then(self._written))

    def _written(self, error: OSError | None) -> None:
        self.done.complete(self._is_clean and error is None)


def _last_job(log: PartitionLog) -> FlushJob | None:
    """Return what a log has to flush at its end, or a part of it.

    None = its disk fails, no descriptor is left, or it was deleted before its turn came.
    """
    with suppress(OSError, ApiError):
        return log.prepare_close()
    return None
