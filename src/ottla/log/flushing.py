"""Flushing a log: a worker thread syncs files while the loop goes on appending.

The loop prepares a job: it writes the new entries of indexes and leader epochs to their files, and
opens and pins every file with unsynced bytes. The worker syncs them by descriptor, so a rename of
the directory does no harm, and renames the new epoch file. Back on the loop the recovery point
moves. A log has one job in progress; later requests share the next one (group commit).

Source: UnifiedLog.{flush, roll}, LocalLog.flush; KAFKA-15391, KAFKA-13403 (a renamed directory).
"""

import contextlib
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.pending import Pending, completed
from ottla.base.ports import Disk, File
from ottla.log.file_cache import Handle
from ottla.log.segment import Segment

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog

Flushed = Pending[OSError | None]


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """One flush.

    Fields: `offset`: up to where the log is durable once `run` has returned, unless the log was
            truncated since; `truncation_count`: the log's when the job was prepared;
            `with_active`: the active segment is included; `active_base`: its base offset then.
    """

    disk: Disk
    offset: int
    truncation_count: int
    with_active: bool
    active_base: int
    segments: list[Segment] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    own_files: list[File] = field(default_factory=list)
    """Opened and closed by this job alone."""
    renames: list[tuple[str, str]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Sync everything. Blocks: for a worker thread. Raises: OSError."""
        try:
            for file in (*self.files, *self.own_files):
                file.sync()
            # If the directory was renamed for deletion its names do not matter any more.
            for source, target in self.renames:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.rename(source, target)
            for directory in self.directories:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(directory)
        finally:
            for file in self.own_files:
                file.close()

    def release(self, *, failed: bool) -> None:
        """Unpin the files, on the loop; after a failure the segments are unsynced again."""
        for handle in self.handles:
            handle.unpin()
        self.handles.clear()
        for file in self.own_files:
            file.close()
        if failed:
            for segment in self.segments:
                segment.unsynced = True


class Flusher:
    """One log's flushes in workers: at most one in progress, `job`.

    It has a reference to its log only during a flush. Otherwise a deleted log would need the cycle
    collector, which holds up the loop when thousands are deleted.
    """

    __slots__ = ("_waiting", "job")

    def __init__(self) -> None:
        self.job: FlushJob | None = None
        self._waiting: list[tuple[Flushed, bool]] = []

    def flush(self, log: "PartitionLog", *, include_active: bool) -> Flushed:
        """Flush what was appended so far; without the active segment, up to its start."""
        if log.failed:
            return completed(_offline(log))
        done: Flushed = Pending()
        self._waiting.append((done, include_active))
        if self.job is None:
            self._start(log)
        return done

    def _start(self, log: "PartitionLog") -> None:
        waiting, self._waiting = self._waiting, []
        everything = any(include_active for _, include_active in waiting)
        try:
            job = self.job = log.flush_job(include_active=everything)
        except OSError as error:
            self._ended(log, None, error, waiting)
            return
        log.ports.workers.submit(job.run, lambda result: self._ended(log, job, result, waiting))

    def _ended(
        self,
        log: "PartitionLog",
        job: FlushJob | None,
        result: BaseException | None,
        waiting: list[tuple[Flushed, bool]],
    ) -> None:
        self.job = None
        if job is not None:
            job.release(failed=result is not None)
        error = result if isinstance(result, OSError) else None
        if error is not None:
            # No retry: after a failed fsync its pages may be gone from the page cache.
            log.fail()
            log.ports.on_failure(log, error)
        elif result is not None:
            raise result
        elif job is not None and not log.failed:
            log.flushed(job)
        if log.failed:
            waiting, self._waiting = waiting + self._waiting, []
            error = error or _offline(log)
        for done, _ in waiting:
            done.complete(error)
        if self._waiting and self.job is None:
            self._start(log)


def _offline(log: "PartitionLog") -> OSError:
    return OSError(errno.EIO, "the log is offline", log.directory)
