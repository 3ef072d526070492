"""All log directories of a broker, and the logs in them.

Order of a start: `acquire` (locks, node and cluster ids), `load` (recovery in workers), then
`get_or_create` as the metadata says. A directory whose disk fails goes offline with all its logs;
the others stay online. What to do with a partition directory found at start is the caller's
decision: see `load`.

Source: LogManager; KIP-112, KIP-858.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending, completed, gather
from ottla.base.ports import Clock, Dice, Disk, Workers, is_shortage
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.async_delete import AsyncDelete
from ottla.log.dirs.checkpoint_rewrite import CheckpointRewrites
from ottla.log.dirs.checkpoints import TopicPartition
from ottla.log.dirs.dir_loading import (
    ConfigOf,
    Decide,
    DirLoader,
    PartitionDir,
    duplicates,
    read_partition_dir,
)
from ottla.log.dirs.dir_shutdown import DirShutdown
from ottla.log.dirs.log_dir import CHECKPOINTS, DirectoryRefused, LogDir, Written
from ottla.log.dirs.undeletable_dirs import UndeletableDir
from ottla.log.expired_segments import ExpiredSegments
from ottla.log.file_cache import FileCache, OutOfDescriptors
from ottla.log.names import PartitionDirKind
from ottla.log.opening import open_log
from ottla.log.partition_log import LogPorts, PartitionLog

__all__ = ["DirectoryRefused", "LoadResult", "LogDirs"]

OPEN_FILES_DEFAULT = 512
"""Half of what the usual soft limit of 1024 descriptors allows."""

RECOVERY_THREADS_DEFAULT = 2
"""num.recovery.threads.per.data.dir."""


class NameTaken(UndeletableDir):
    """A log cannot be created: its name is taken by a file or an unusable directory.

    The log directory stays online.
    """


class LoadResult(NamedTuple):
    """What a start found.

    Fields: `strays`: names of stray partition directories; `problem`: why the node must not start,
            None = it may: a partition has two directories; `unusable`: the errors of partition
            directories that were not loaded.
    """

    logs: tuple[PartitionLog, ...]
    strays: tuple[str, ...]
    problem: str | None = None
    unusable: tuple[OSError, ...] = ()


class LogDirs:
    """See the module.

    Fields: `on_offline`: called with a directory that failed and its logs, unless the caller of
            `fail` reported the failure itself. `on_log_removed`: called with each log that is
            deleted or renamed to `-stray`.
    """

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        paths: Sequence[str],
        *,
        dice: Dice | None = None,
        open_files_max: int = OPEN_FILES_DEFAULT,
        recovery_threads: int = RECOVERY_THREADS_DEFAULT,
        delete_delay_ms: int = 60_000,
    ) -> None:
        assert paths
        self.on_offline: Callable[[LogDir, list[PartitionLog]], None] | None = None
        self.on_log_removed: Callable[[PartitionLog], None] | None = None
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._recovery_threads = recovery_threads
        self._has_failed = False  # A directory, since the start.
        self.ports = LogPorts(
            disk=disk,
            files=FileCache(disk, open_files_max),
            workers=workers,
            timers=timers,
            clock=clock,
            on_failure=lambda log, error: self._log_failed(log, error),
            on_truncated=lambda log: self._rewrites.schedule(self.directory_of(log)),
            jitter_ms=lambda bound: dice.below(bound + 1) if dice is not None else 0,
        )
        self.dirs: tuple[LogDir, ...] = tuple(
            LogDir(disk, workers, path, self._dir_failed) for path in dict.fromkeys(paths)
        )
        self._async_delete = AsyncDelete(
            disk,
            workers,
            clock,
            timers,
            delay_ms=delete_delay_ms,
            failed=self._dir_failed,
            log_removed=self._log_removed,
            batch_ended=lambda: self._rewrites.write_due(),
        )
        self._rewrites = CheckpointRewrites(
            disk,
            workers,
            clock,
            timers,
            failed=self._dir_failed,
            is_busy=lambda: self._async_delete.is_busy,
        )
        self._expired = ExpiredSegments(
            disk,
            workers,
            clock,
            timers,
            failed=lambda log, error: self._log_failed(log, error),
        )

    def set_delete_delay(self, delay_ms: int) -> None:
        """Set how long the bytes of replicas that are deleted from now on stay on disk."""
        self._async_delete.delay_ms = delay_ms

    # --- start ---------------------------------------------------------------------------

    def acquire(self, *, node_id: int, cluster_id: str | None) -> None:
        """Lock the directories and check their meta.properties. Blocks.

        Raises: DirectoryRefused where one is locked or belongs to another node; OSError where none
                is usable.
        """
        for directory in self.dirs:
            try:
                directory.acquire(node_id=node_id, cluster_id=cluster_id)
            except OSError as error:
                directory.error = error
            except DirectoryRefused:
                self.release()
                raise
        if not self.online_dirs:
            raise self.dirs[0].error or OSError("no log directory")

    def load(self, decide: Decide, config_of: ConfigOf) -> Pending[LoadResult]:
        """Find and load the logs of all directories.

        `decide(topic, partition, topic_id)` is called, on the loop, for each partition directory
        with a topic id.
        """
        result: Pending[LoadResult] = Pending()
        loaders = [
            DirLoader(
                self.ports,
                directory,
                decide=decide,
                config_of=config_of,
                threads=self._recovery_threads,
                mark=self._async_delete.rename_dir,
                failed=self._lose,  # For whatever reason its logs are not loaded.
            )
            for directory in self.online_dirs
        ]
        remaining = [len(loaders)]
        strays: list[str] = []

        def loaded(found: list[str] | None) -> None:
            remaining[0] -= 1
            strays.extend(found or ())
            if remaining[0] == 0:
                unusable = (error for each in self.dirs for error in each.unusable.values())
                result.complete(
                    LoadResult(
                        tuple(self.logs()),
                        tuple(sorted(strays)),
                        self._duplicate(),
                        tuple(unusable),
                    )
                )

        for loader in loaders:
            loader.done.then(loaded)
            loader.start()
        return result

    def _duplicate(self) -> str | None:
        for (topic, partition), first, second in duplicates(self.dirs):
            return (
                f"Duplicate log directories for {topic}-{partition} are found in both {first} "
                f"and {second}. Delete the one that is known to have failed recently."
            )
        return None

    # --- the logs ------------------------------------------------------------------------

    @property
    def online_dirs(self) -> tuple[LogDir, ...]:
        return tuple(directory for directory in self.dirs if directory.is_online)

    @property
    def offline_dirs(self) -> tuple[LogDir, ...]:
        return tuple(directory for directory in self.dirs if not directory.is_online)

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        """The ids of the directories that are online and have one."""
        return tuple(each.directory_id for each in self.online_dirs if each.directory_id != NO_UUID)

    @property
    def below_high_watermark(self) -> list[str]:
        """The logs that ended below their checkpointed high watermark at start, or may have."""
        return [name for directory in self.dirs for name in directory.below_high_watermark]

    @property
    def damaged_checkpoints(self) -> int:
        """How many checkpoints the start found damaged."""
        return sum(len(directory.damaged_checkpoints) for directory in self.dirs)

    def logs(self) -> Iterator[PartitionLog]:
        """Yield the logs that are online."""
        for directory in self.dirs:
            yield from directory.logs.values()

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return a log that is here and online."""
        for directory in self.dirs:
            log = directory.logs.get((topic, partition))
            if log is not None:
                return log
        return None

    def offline_topic_ids(self, topic: str, partition: int) -> set[Uuid]:
        """Return the ids of topics whose partition is, or may be, in an offline directory."""
        key = (topic, partition)
        return {lost for each in self.offline_dirs for lost in each.offline_replicas.get(key, ())}

    def directory_of(self, log: PartitionLog) -> LogDir | None:
        """Return the log directory that holds `log` now."""
        for directory in self.dirs:
            if directory.logs.get((log.topic, log.partition)) is log:
                return directory
        return None

    def get_or_create(
        self,
        topic: str,
        topic_id: Uuid,
        partition: int,
        config: LogConfig,
        *,
        directory_id: Uuid = NO_UUID,
        is_new: bool = True,
    ) -> PartitionLog:
        """Return the log of a partition of this topic id; create it if it does not exist.

        A log of the same name but another topic id is renamed to `-stray` first, and kept.

        Fields: `directory_id`: the log directory that the metadata names, zero = the one with the
                fewest logs; `is_new`: no data can exist elsewhere. Otherwise an offline directory
                may hold it, and no second, empty copy may be created (KAFKA-16234).
        Raises: UndeletableDir; OSError where its directory is offline, or where the disk fails:
                then the directory goes offline, too; OutOfDescriptors: a retry may succeed.
        """
        self._async_delete.rename_now((topic, partition))
        found = self.get(topic, partition)
        if found is not None and found.topic_id == topic_id:
            return found
        self._check_usable((topic, partition))
        if found is not None:
            holder = self.directory_of(found)
            assert holder is not None
            self._async_delete.remove_log(holder, found, PartitionDirKind.STRAY)
        directory = self._choose(topic, topic_id, partition, directory_id, is_new)
        path = f"{directory.path}/{names.partition_dir_name(topic, partition)}"
        was_there = True
        try:
            was_there = self._rename_other_incarnation(directory, path, topic, partition, topic_id)
            if directory.write_stale_marker((topic, partition), path):
                self._rewrites.schedule(directory)
            log = open_log(
                self.ports, path, topic=topic, partition=partition, topic_id=topic_id, config=config
            )
        except UndeletableDir:
            raise
        except OSError as error:
            if is_shortage(error):
                if not was_there:  # Else a part of it would become a stray with the next try.
                    with suppress(OSError):
                        self._disk.rmtree(path)
                raise OutOfDescriptors(path) from error
            # A part of it may be there.
            directory.add_offline_replica((topic, partition), topic_id)
            self._fail_soon(directory, error)
            raise
        directory.logs[(topic, partition)] = log
        return log

    def _fail_soon(self, directory: LogDir, error: OSError) -> None:
        # Not at once: the caller is applying a metadata update.
        now_ms = self._clock.monotonic_ms()
        self._timers.at(now_ms, lambda: self._dir_failed(directory, error))

    def _rename_other_incarnation(
        self, directory: LogDir, path: str, topic: str, partition: int, topic_id: Uuid
    ) -> bool:
        """Rename a directory of this name that belongs to another incarnation of the topic; return
        whether there is one of this incarnation."""
        # A link first: its target, which may be another disk, need not be readable.
        if not self._disk.is_link(path) and not self._disk.exists(path):
            return False
        partition_dir = read_partition_dir(self._disk, directory.path, path.rpartition("/")[2])
        if partition_dir is None:
            raise NameTaken(errno.ENOTDIR, "Not a directory", path)
        if partition_dir.error is not None:
            error = partition_dir.error
            raise NameTaken(error.errno, error.strerror, error.filename)
        if partition_dir.topic_id != topic_id:
            self._async_delete.rename_dir(directory, partition_dir, PartitionDirKind.STRAY)
            return False
        return True

    def _check_usable(self, key: TopicPartition) -> None:
        for directory in self.online_dirs:
            error = directory.unusable_error(key)
            if error is not None:
                raise NameTaken(error.errno, error.strerror, error.filename)

    def _choose(
        self, topic: str, topic_id: Uuid, partition: int, directory_id: Uuid, is_new: bool
    ) -> LogDir:
        key = (topic, partition)
        for directory in self.dirs:
            is_wanted = directory_id != NO_UUID and directory.directory_id == directory_id
            # One that has just failed is still online, until this turn of the loop is over.
            may_hold_it = topic_id in directory.offline_replicas.get(key, ())
            if may_hold_it or (is_wanted and not directory.is_online):
                directory.add_offline_replica(key, topic_id)
                raise OSError(5, f"the log of {topic}-{partition} is offline", directory.path)
        if not is_new and self.offline_dirs:
            for directory in self.offline_dirs:
                directory.add_offline_replica(key, topic_id)
            offline = ", ".join(directory.path for directory in self.offline_dirs)
            raise OSError(5, f"{topic}-{partition} may be on an offline directory", offline)
        for directory in self.online_dirs:
            # Elsewhere, a loss of power may leave two.
            if directory.may_bring_back((topic_id, partition)):
                return directory
        for directory in self.online_dirs:
            if directory_id != NO_UUID and directory.directory_id == directory_id:
                return directory
        if not self.online_dirs:
            raise OSError(5, "all log directories are offline", self.dirs[0].path)
        return min(self.online_dirs, key=lambda directory: len(directory.logs))

    def delete(self, topic: str, partition: int) -> bool:
        """Delete a log: its name is free at once, its directory is removed later.

        A log that is not here, or whose directory has vanished, counts as deleted; return whether
        there was one. Replicas in an offline directory are kept and remembered: if one were created
        a second time, the next start with both directories would refuse to go on.
        In a large batch the rename may be postponed: see `renames_done`.

        Raises: UndeletableDir; OSError.
        """
        log = self.get(topic, partition)
        if log is None:
            return False
        directory_of_it = self.directory_of(log)
        assert directory_of_it is not None
        self._async_delete.delete(directory_of_it, log)
        return True

    def delete_dir(self, directory: LogDir, partition_dir: PartitionDir) -> None:
        """Delete a partition directory that no open log uses. Raises: OSError."""
        if partition_dir.kind is not PartitionDirKind.DELETE:  # Else it is scheduled already.
            self._async_delete.rename_dir(directory, partition_dir, PartitionDirKind.DELETE)
            self._rewrites.schedule(directory)

    def renames_done(self) -> Pending[None]:
        """Return a promise that completes when the directories of all deleted logs are renamed."""
        return self._async_delete.renames_done()

    def rewritten(self, directory: LogDir) -> Written:
        """Return a promise that completes when no checkpoint has an entry of a deleted log.

        See `CheckpointRewrites`.
        """
        return self._rewrites.rewritten(directory)

    def _log_removed(self, directory: LogDir, log: PartitionLog) -> None:
        self._rewrites.schedule(directory)
        if self.on_log_removed is not None:
            self.on_log_removed(log)

    def delete_expired_segments(self) -> None:
        """Delete the segments below the log starts, once these are durable."""
        self._expired.delete(self.online_dirs)

    # --- checkpoints ---------------------------------------------------------------------

    def note_running(self, broker_epoch: int, boot_id: str) -> None:
        """Write the broker epoch and boot id into each directory, in workers.

        Not once one has failed: the next start is one after an unclean shutdown then.
        """
        if self._has_failed:
            return
        for directory in self.online_dirs:
            written = directory.write_running(broker_epoch, boot_id)
            # Meanwhile one may have failed.
            written.then(lambda _: self._mark_unclean() if self._has_failed else None)

    def _mark_unclean(self) -> None:
        """Let the next start treat this as an unclean shutdown.

        A disk that fails, or is read-only since, may refuse the removal of its own note, and be
        repaired while the machine is up: so the notes of the other directories are removed, too.
        """
        self._has_failed = True
        for directory in self.dirs:
            directory.mark_unclean()

    def checkpoint_recovery_points(self) -> None:
        """Write each log's recovery point, in workers."""
        self._checkpoint(names.RECOVERY_POINTS)

    def checkpoint_log_starts(self) -> None:
        """Write each log's start offset, in workers."""
        self._checkpoint(names.LOG_STARTS)

    def checkpoint_log_start(self, log: PartitionLog) -> Written:
        """Write the log starts of this log's directory, in a worker.

        Once the promise has completed no start takes the log start back to a lower one: remote
        segments below it may be deleted.
        """
        directory = self.directory_of(log)
        if directory is None:
            return completed(OSError(errno.EIO, "the log is offline", log.directory))
        return directory.checkpoint(names.LOG_STARTS)

    def checkpoint_high_watermarks(self) -> None:
        """Write each log's high watermark, in workers."""
        self._checkpoint(names.HIGH_WATERMARKS)

    def checkpoint_cleaned(self, log: PartitionLog) -> None:
        """Write the cleaner offsets of this log's directory, in a worker."""
        directory = self.directory_of(log)
        if directory is not None:
            directory.checkpoint(names.CLEANER_OFFSETS)

    def checkpoint(self) -> None:
        """Write all checkpoints, in workers."""
        for name in CHECKPOINTS:
            self._checkpoint(name)

    def _checkpoint(self, name: str) -> None:
        for directory in self.dirs:
            directory.checkpoint(name)

    # --- failure -------------------------------------------------------------------------

    def fail(self, log: PartitionLog, error: OSError) -> list[PartitionLog]:
        """Take the directory of `log` offline; return its logs, `log` included.

        None of them for want of a descriptor: no disk has failed then.
        """
        if is_shortage(error):
            return []
        directory = self.directory_of(log)
        log.fail()
        if directory is None:
            return [log]
        return self._take_offline(directory, error)

    def take_log_offline(self, log: PartitionLog, reason: OSError) -> None:
        """Take one log offline until the next start; its directory keeps its name."""
        directory = self.directory_of(log)
        log.fail()
        if directory is not None:
            directory.take_log_offline(log, reason)

    def _take_offline(self, directory: LogDir, error: OSError) -> list[PartitionLog]:
        if directory.error is None:
            directory.error = error
            self._mark_unclean()
        lost = list(directory.logs.values())
        for key, log in directory.logs.items():
            directory.add_offline_replica(key, log.topic_id)
            log.fail()
        directory.logs.clear()
        self._async_delete.directory_offline(directory)
        return lost

    def _log_failed(self, log: PartitionLog, error: OSError) -> None:
        """Handle a disk error of a worker; the log may have been deleted since."""
        directory = self.directory_of(log)
        if directory is not None:
            self._dir_failed(directory, error)

    def _dir_failed(self, directory: LogDir, error: OSError) -> None:
        if not is_shortage(error):
            self._lose(directory, error)

    def _lose(self, directory: LogDir, error: OSError) -> None:
        if directory.error is not None:
            return
        lost = self._take_offline(directory, error)
        if self.on_offline is not None:
            self.on_offline(directory, lost)

    # --- end -----------------------------------------------------------------------------

    def shutdown(self, broker_epoch: int = -1) -> Pending[None]:
        """Flush everything, write the clean shutdown files, release the locks.

        The files have the broker epoch only if no directory has failed: none is written before all
        are flushed.
        """
        self._async_delete.rename_all_now()
        dirs = self.online_dirs
        done: Pending[None] = Pending()

        def flushed(results: list[bool]) -> None:
            epoch = -1 if self._has_failed else broker_epoch
            clean = [each for each, is_clean in zip(dirs, results, strict=True) if is_clean]
            gather([self._write_clean_shutdown_file(each, epoch) for each in clean]).then(ended)

        def ended(_: list[None]) -> None:
            self.release()
            done.complete(None)

        gather([self._flush_and_close(directory) for directory in dirs]).then(flushed)
        return done

    def _write_clean_shutdown_file(self, directory: LogDir, broker_epoch: int) -> Pending[None]:
        """Write the file in a worker; one that cannot be written is left out."""
        written: Pending[None] = Pending()

        def ended(result: BaseException | None) -> None:
            written.complete(None)
            if result is not None and not isinstance(result, OSError):
                raise result

        self._workers.submit(partial(directory.write_clean_shutdown_file, broker_epoch), ended)
        return written

    def _flush_and_close(self, directory: LogDir) -> Pending[bool]:
        """Flush and close a directory's logs; complete with whether it may have the file."""
        closing = DirShutdown(
            self.ports, directory, rewritten=self.rewritten, mark_unclean=self._mark_unclean
        )
        closing.start()
        return closing.done

    def release(self) -> None:
        """Release the locks: after `shutdown`, or after a refused start."""
        for directory in self.dirs:
            directory.release()
