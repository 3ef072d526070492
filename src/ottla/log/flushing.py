"""Flushing a log: a worker thread syncs files while the loop goes on appending.

The loop prepares a job: it writes the new entries of indexes and leader epochs to their files, and
opens and pins every file with unsynced bytes. The worker syncs them by descriptor, so a rename of
the directory does no harm, and renames the new epoch file. Back on the loop the recovery point
moves. A log has one `FlushJob` in progress; later requests share the next one (group commit). Only
the flush before the log is closed, and one on the caller's thread, may run beside it.

The flushes of all logs take turns (`flush_queue`), and a job pins a bounded number of files: the
small ones first, then those of the oldest segments. The rest is in the next job. Without a
descriptor no job begins; nothing is lost, and the flush is tried again.

Source: UnifiedLog.{flush, roll}, LocalLog.flush; KAFKA-15391, KAFKA-13403 (a renamed directory).
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from ottla.base.pending import Pending, completed
from ottla.base.ports import Disk, File, as_failure, is_shortage
from ottla.log import names
from ottla.log.disk_ports import DiskPorts
from ottla.log.epoch_cache import EpochCache
from ottla.log.file_cache import Handle, OutOfDescriptors
from ottla.log.local_log import LocalLog
from ottla.log.segment import Segment

Flushed = Pending[OSError | None]

RETRY_MS: Final = 1_000
"""After how long a flush is tried again that found no file descriptor."""


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """One flush.

    Fields: `offset`: up to where the log is durable once `run` has returned, unless the log was
            truncated since; `truncation_count`: the log's when the job was prepared;
            `with_active`: the active segment is included; `active_base`: its base offset then;
            `is_partial`: further files are to be synced, by another job; `syncs_first`: directory
            to sync before the renames, "" = none; `is_superseded`: another flush writes the leader
            epochs in its place; `is_over`: it was released.
    """

    disk: Disk
    offset: int
    truncation_count: int
    with_active: bool
    active_base: int
    is_partial: bool = False
    syncs_first: str = ""
    is_superseded: bool = False
    is_over: bool = False
    segments: list[Segment] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Sync everything. Blocks: for a worker thread. Raises: OSError; after a shortage of
        descriptors it may run again."""
        for file in self.files:
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

    def ends_before(self, offset: int) -> None:
        """Leave what follows to another job."""
        self.offset, self.with_active, self.is_partial = offset, False, True

    @property
    def file_count(self) -> int:
        """How many files it holds open, until `release`."""
        return len(self.handles)

    def release(self, *, failed: bool) -> None:
        """Unpin the files, on the loop; after a failure the segments are unsynced again."""
        for handle in self.handles:
            handle.unpin()
        self.handles.clear()
        self.is_over = True
        if failed:
            for segment in self.segments:
                segment.unsynced = True


class _Waiting(NamedTuple):
    """A request for a flush: up to `end`, `with_active`: the active segment, too."""

    done: Flushed
    with_active: bool
    end: int


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
        "_is_queued",
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
        self._waiting: list[_Waiting] = []
        """For the next one."""
        self._is_queued = False
        """Whether the next one waits for its turn, or to be tried again."""
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
        """Return whether something has been unflushed for `flush.ms`, and no flush waits for it."""
        unflushed = self._local.log_end_offset > self.recovery_point and not self._waiting
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
        local = self._local
        end = local.log_end_offset if include_active else local.segments.active.base_offset
        self._waiting.append(_Waiting(done, include_active, end))
        if self._job is None and not self._is_queued:
            self._enter(owner)
        return done

    def _enter(self, owner: FlushOwner) -> None:
        self._is_queued = True
        self._ports.files.flushes.enter(lambda: self._begin(owner))

    def _begin(self, owner: FlushOwner) -> None:
        """Start a flush, whose turn it is."""
        self._is_queued = False
        if self._local.failed:
            self.closed()
        elif self._job is None:  # Else it is the last one.
            self._start(owner)

    def _start(self, owner: FlushOwner) -> None:
        waiting, self._waiting = self._waiting, []
        everything = any(each.with_active for each in waiting)
        try:
            job = self._job = self.job(include_active=everything)
        except OutOfDescriptors:
            self._waiting, self._is_queued = waiting, True
            self._later(lambda: self._enter(owner))
        except OSError as error:
            self._ended(owner, None, error, waiting)
        else:
            self._ports.files.flushes.take(job.file_count)
            self._submit(owner, job, waiting)

    def _submit(self, owner: FlushOwner, job: FlushJob, waiting: list[_Waiting]) -> None:
        def ended(result: BaseException | None) -> None:
            if is_shortage(result):
                self._later(lambda: self._submit(owner, job, waiting))
            else:
                self._ended(owner, job, result, waiting)

        self._ports.workers.submit(job.run, ended)

    def _later(self, retry: Callable[[], None]) -> None:
        self._ports.timers.at(self._ports.clock.monotonic_ms() + RETRY_MS, retry)

    def _ended(
        self,
        owner: FlushOwner,
        job: FlushJob | None,
        result: BaseException | None,
        waiting: list[_Waiting],
    ) -> None:
        files = 0 if job is None else job.file_count
        try:
            self._settle(owner, job, result, waiting)
        finally:
            self._ports.files.flushes.leave(files)

    def _settle(
        self,
        owner: FlushOwner,
        job: FlushJob | None,
        result: BaseException | None,
        waiting: list[_Waiting],
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
        elif job is not None and job.is_partial:
            left = [each for each in waiting if self._is_left(each)]
            waiting = [each for each in waiting if not self._is_left(each)]
            self._waiting = left + self._waiting
        for each in waiting:
            each.done.complete(error)
        if self._waiting and self._job is None and not self._is_queued:
            self._enter(owner)

    def _is_left(self, each: _Waiting) -> bool:
        """Tell whether a request waits for another job, after a partial one.

        A truncation may end at the recovery point, and not be durable.
        """
        cut = each.with_active and self.truncation_unflushed
        return cut or each.end > self.recovery_point

    def last_job(self) -> FlushJob:
        """Return the flush before the log is closed, as `job`. Raises: OSError.

        No other one begins: it would leave out what this one covers, and may end earlier.
        """
        job = self._job = self.job()
        return job

    def closed(self) -> None:
        """Complete what has waited for the end of the last flush: it never begins."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.done.complete(self._local.offline_error())

    # --- one flush -----------------------------------------------------------------------

    def job(self, *, include_active: bool = True) -> FlushJob:
        """Return a flush to run in a worker; the caller then calls `release` and `flushed`.

        It includes what a flush in progress covers, which may end later. Raises: OSError,
        OutOfDescriptors.
        """
        local = self._local
        local.check_usable()
        under_way = None if self._job is None or self._job.is_over else self._job
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
            small = self._pin(job, under_way)
            if self._epochs.dirty:
                self._add_epochs(job, under_way)
        except (OSError, OutOfDescriptors):
            job.release(failed=True)
            raise
        job.files = [handle.file() for handle in job.handles]
        for handle in local.unsynced_handles[:small]:
            handle.close()  # With the last pin.
        del local.unsynced_handles[:small]
        if local.names_changed or job.renames:
            parent = local.directory.rpartition("/")[0]
            job.directories = [local.directory, parent]
            local.names_changed = False
        return job

    def _pin(self, job: FlushJob, under_way: FlushJob | None) -> int:
        """Pin the files to sync; return how many of the small ones are among them.

        A job is partial if there are too many: producers' snapshots come before the segments that
        begin there. Raises: OSError, OutOfDescriptors.
        """
        for handle in under_way.handles if under_way is not None else ():
            handle.pin()
            job.handles.append(handle)
        left = self._ports.files.flushes.room - 1  # The last one is that of the epochs.
        active = self._local.segments.active
        if job.with_active:
            active.write_indexes()
        small = self._local.unsynced_handles
        for handle in small[:left]:
            try:
                handle.pin()
            except FileNotFoundError:
                continue  # A snapshot that retention has removed since.
            job.handles.append(handle)
        if len(small) > left:
            job.ends_before(self.recovery_point)
            return left
        left -= len(small)
        for segment in self._local.segments:
            if segment.unsynced and (job.with_active or segment is not active):
                if left < len(names.SEGMENT_SUFFIXES) and (small or job.segments):
                    job.ends_before(segment.base_offset)
                    break
                pinned = segment.pin_files()
                job.handles += pinned
                segment.unsynced = False
                job.segments.append(segment)
                left -= len(pinned)
        return len(small)

    def _add_epochs(self, job: FlushJob, under_way: FlushJob | None) -> None:
        """Write the leader epochs to a temporary file, which `job` syncs and renames.

        A flush under way may rename its own at any moment: nothing unsynced may be in that file,
        nor may it replace this one later. Raises: OSError, OutOfDescriptors.
        """
        path = f"{self._local.directory}/{names.LEADER_EPOCHS}"
        temporary, superseded = path + names.TEMPORARY, ""
        if under_way is not None and under_way.renames:
            source = under_way.renames[0][0].rpartition("/")[2]
            superseded = f"{self._local.directory}/{source}"
            temporary = superseded + names.TEMPORARY
        handle = self._ports.files.handle(temporary)
        try:
            file = handle.file(create=True)
            file.truncate(0)
            file.append([self._epochs.encode()])
            handle.pin()
        finally:
            handle.close()  # With the pin.
        job.handles.append(handle)
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
        """Flush on the caller's thread. Raises: OSError; OutOfDescriptors, before it begins."""
        is_partial = True
        while is_partial:
            job = self.job()
            try:
                job.run()
            except OSError as error:
                # No retry: after a failed fsync its pages may be gone from the page cache.
                job.release(failed=True)
                owner.fail()
                if is_shortage(error):
                    raise as_failure(error) from error
                raise
            job.release(failed=False)
            owner.flushed(job)
            is_partial = job.is_partial
