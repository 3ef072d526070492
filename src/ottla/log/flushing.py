"""Flushing a log: a worker thread syncs files while the loop goes on appending.

The loop prepares a job: it writes the new entries of indexes and leader epochs to their files, and
opens and pins every file with unsynced bytes. The worker syncs them by descriptor, so a rename of
the directory does no harm, and renames the new epoch file. Back on the loop the recovery point
moves. A log has one `FlushJob` in progress; later requests share the next one (group commit). Only
the flush before the log is closed, and one on the caller's thread, may run beside it.

Source: UnifiedLog.{flush, roll}, LocalLog.flush; KAFKA-15391, KAFKA-13403 (a renamed directory).
"""

import contextlib
from dataclasses import dataclass, field
from typing import Protocol

from ottla.base.pending import Pending, completed
from ottla.base.ports import Disk, File
from ottla.log import names
from ottla.log.disk_ports import DiskPorts
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import Handle
from ottla.log.local_log import LocalLog
from ottla.log.segment import Segment

Flushed = Pending[OSError | None]


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """One flush.

    Fields: `offset`: up to where the log is durable once `run` has returned, unless the log was
            truncated since; `truncation_count`: the log's when the job was prepared;
            `with_active`: the active segment is included; `active_base`: its base offset then;
            `syncs_first`: directory to sync before the renames, "" = none; `is_superseded`:
            another flush writes the leader epochs in its place.
    """

    disk: Disk
    offset: int
    truncation_count: int
    with_active: bool
    active_base: int
    syncs_first: str = ""
    is_superseded: bool = False
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
            if self.syncs_first:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(self.syncs_first)
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


class FlushOwner(Protocol):
    """What a flush tells its log. Passed with each flush, so that a log is no reference cycle."""

    def fail(self) -> None:
        """Take the log offline."""
        ...

    def disk_failed(self, error: OSError) -> None:
        """Take the log offline, and report why."""
        ...

    def flushed(self, job: FlushJob) -> None:
        """Note that a job has run."""
        ...


class LogFlusher:
    """What is durable of one log, and its flushes.

    Fields: `recovery_point`: everything below it survives a crash; `truncation_count`: how often
            the log was truncated; `truncation_unflushed`: it was truncated since the last flush, so
            nothing may be appended before the next one.
    """

    __slots__ = (
        "_epochs",
        "_job",
        "_last_flush_ms",
        "_local",
        "_ports",
        "_waiting",
        "recovery_point",
        "truncation_count",
        "truncation_unflushed",
    )

    def __init__(
        self, ports: DiskPorts, local: LocalLog, epochs: EpochCache, recovery_point: int
    ) -> None:
        self._ports = ports
        self._local = local
        self._epochs = epochs
        self._job: FlushJob | None = None
        """The flush in progress; the last one stays."""
        self._waiting: list[tuple[Flushed, bool]] = []
        """For the next one: (promise, with the active segment)."""
        self._last_flush_ms = ports.clock.now_ms()
        self.recovery_point = recovery_point
        self.truncation_count, self.truncation_unflushed = 0, False

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point to checkpoint: a segment's end only once it is sealed and durable.

        A start trusts the segments that end there. The active one may be sealed at any time, which
        completes its indexes, and a power loss may come before the next flush.
        """
        point = self.recovery_point
        is_open_end = self._local.segments.active.base_offset < point == self._local.log_end_offset
        return point - 1 if is_open_end else point

    @property
    def is_flushing(self) -> bool:
        """Whether a flush in a worker is in progress."""
        return self._job is not None

    def needs_flush(self, now_ms: int) -> bool:
        """Return whether something has been unflushed for `flush.ms`."""
        unflushed = self._local.log_end_offset > self.recovery_point
        return unflushed and now_ms - self._last_flush_ms >= self._local.config.flush_ms

    def rolled(self, base_offset: int) -> None:
        """Note that the segment before `base_offset` was sealed."""
        # It is not durable: its indexes have just been completed.
        self.recovery_point = min(self.recovery_point, base_offset - 1)

    def truncated(self, recovery_point: int) -> None:
        """Note that a truncation begins, after which nothing is durable above a point."""
        self.truncation_count += 1
        self.recovery_point = recovery_point
        self.truncation_unflushed = self._local.names_changed = True

    # --- flushes in workers --------------------------------------------------------------

    def flush(self, owner: FlushOwner, *, include_active: bool = True) -> Flushed:
        """Do as `PartitionLog.flush`."""
        if self._local.failed:
            return completed(self._local.offline_error())
        done: Flushed = Pending()
        self._waiting.append((done, include_active))
        if self._job is None:
            self._start(owner)
        return done

    def _start(self, owner: FlushOwner) -> None:
        waiting, self._waiting = self._waiting, []
        everything = any(include_active for _, include_active in waiting)
        try:
            job = self._job = self.job(include_active=everything)
        except OSError as error:
            self._ended(owner, None, error, waiting)
            return
        self._ports.workers.submit(job.run, lambda result: self._ended(owner, job, result, waiting))

    def _ended(
        self,
        owner: FlushOwner,
        job: FlushJob | None,
        result: BaseException | None,
        waiting: list[tuple[Flushed, bool]],
    ) -> None:
        if self._job is job:
            self._job = None
        if job is not None:
            job.release(failed=result is not None)
        error = result if isinstance(result, OSError) else None
        if error is not None:
            # No retry: after a failed fsync its pages may be gone from the page cache.
            owner.disk_failed(error)
        elif result is not None:
            raise result
        elif job is not None and not self._local.failed:
            owner.flushed(job)
        if self._local.failed:
            waiting, self._waiting = waiting + self._waiting, []
            error = error or self._local.offline_error()
        for done, _ in waiting:
            done.complete(error)
        if self._waiting and self._job is None:
            self._start(owner)

    def last_job(self) -> FlushJob:
        """Return the flush before the log is closed, as `job`. Raises: OSError.

        No other one begins: it would leave out what this one covers, and may end earlier.
        """
        job = self._job = self.job()
        return job

    def closed(self) -> None:
        """Complete what has waited for the end of the last flush: it never begins."""
        waiting, self._waiting = self._waiting, []
        for done, _ in waiting:
            done.complete(self._local.offline_error())

    # --- one flush -----------------------------------------------------------------------

    def job(self, *, include_active: bool = True) -> FlushJob:
        """Return a flush to run in a worker; the caller then calls `release` and `flushed`.

        It includes what a flush in progress covers, which may end later. Raises: OSError.
        """
        local = self._local
        local.check_usable()
        under_way = self._job
        active = local.segments.active
        job = FlushJob(
            disk=self._ports.disk,
            offset=local.log_end_offset if include_active else active.base_offset,
            truncation_count=self.truncation_count,
            with_active=include_active,
            active_base=active.base_offset,
        )
        if under_way is not None:
            local.names_changed = local.names_changed or bool(under_way.directories)
            self._epochs.dirty = self._epochs.dirty or bool(under_way.renames)
            job.syncs_first = under_way.syncs_first
        try:
            self._pin(job, under_way)
            if self._epochs.dirty:
                self._add_epochs(job, under_way)
        except OSError:
            job.release(failed=True)
            raise
        job.files = [handle.file() for handle in job.handles]
        for handle in local.unsynced_handles:
            handle.close()  # With the last pin.
        local.unsynced_handles.clear()
        if local.names_changed or job.renames:
            parent = local.directory.rpartition("/")[0]
            job.directories = [local.directory, parent]
            local.names_changed = False
        return job

    def _pin(self, job: FlushJob, under_way: FlushJob | None) -> None:
        """Pin the files to sync. Raises: OSError."""
        for handle in under_way.handles if under_way is not None else ():
            handle.pin()
            job.handles.append(handle)
        active = self._local.segments.active
        if job.with_active:
            active.write_indexes()
        for segment in self._local.segments:
            if segment.unsynced and (job.with_active or segment is not active):
                pinned = segment.pin_files()
                job.handles += pinned
                segment.unsynced = False
                job.segments.append(segment)
        for handle in self._local.unsynced_handles:
            try:
                handle.pin()
            except FileNotFoundError:
                continue  # A snapshot that retention has removed since.
            job.handles.append(handle)

    def _add_epochs(self, job: FlushJob, under_way: FlushJob | None) -> None:
        """Write the leader epochs to a temporary file, which `job` syncs and renames.

        A flush under way may rename its own at any moment: nothing unsynced may be in that file,
        nor may it replace this one later. Raises: OSError.
        """
        path = f"{self._local.directory}/{names.LEADER_EPOCHS}"
        temporary, superseded = path + names.TEMPORARY, ""
        if under_way is not None and under_way.renames:
            source = under_way.renames[0][0].rpartition("/")[2]
            superseded = f"{self._local.directory}/{source}"
            temporary = superseded + names.TEMPORARY
        file = self._ports.disk.open(temporary, create=True)
        job.own_files.append(file)
        file.truncate(0)
        file.append([self._epochs.encode()])
        job.renames.append((temporary, path))
        if superseded and under_way is not None:
            self._ports.disk.remove(superseded)
            under_way.is_superseded = True
        if self._epochs.has_dropped:
            # Limits that were removed would take the log start back below the file's entries.
            job.syncs_first = self._local.directory
        self._epochs.dirty = self._epochs.has_dropped = False

    def flushed(self, job: FlushJob) -> bool:
        """Move the recovery point: `job` has run. Return whether a truncation before is durable."""
        self._last_flush_ms = self._ports.clock.now_ms()
        if job.directories:
            self._local.begins_durably = True
        if job.truncation_count != self.truncation_count:
            return False  # The log was truncated, and what was appended since was not synced.
        if job.is_superseded:
            return False  # The leader epochs may not be durable before the other flush has run.
        point = min(job.offset, self._local.log_end_offset)
        if job.active_base < point <= self._local.segments.active.base_offset:
            point -= 1  # The segment that ends there may have been sealed after the job began.
        self.recovery_point = max(self.recovery_point, point)
        if job.with_active:
            self.truncation_unflushed = False
        return job.with_active

    def flush_now(self, owner: FlushOwner) -> None:
        """Flush on the caller's thread. Raises: OSError."""
        job = self.job()
        try:
            job.run()
        except OSError:
            # No retry: after a failed fsync its pages may be gone from the page cache.
            job.release(failed=True)
            owner.fail()
            raise
        job.release(failed=False)
        owner.flushed(job)
