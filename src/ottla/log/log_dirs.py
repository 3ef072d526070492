"""All log directories of a broker, and the logs in them.

Order of a start: `acquire` (locks, whose they are), `load` (recovery in workers), then
`get_or_create` as the metadata says. A directory whose disk fails goes offline with all its logs;
the others go on. Nothing here decides what a folder is worth: `load` asks.

Source: LogManager; KIP-112, KIP-858.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice, Disk, Workers
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.async_delete import AsyncDelete
from ottla.log.checkpoint_rewrite import CheckpointRewrites
from ottla.log.checkpoints import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.dir_loading import (
    ConfigOf,
    Decide,
    DirLoader,
    PartitionDir,
    duplicates,
    read_partition_dir,
)
from ottla.log.expired_segments import ExpiredSegments
from ottla.log.file_cache import FileCache
from ottla.log.flushing import FlushJob
from ottla.log.log_dir import CHECKPOINTS, DirectoryRefused, LogDir, Written
from ottla.log.log_ports import LogPorts
from ottla.log.names import PartitionDirKind
from ottla.log.opening import open_log
from ottla.log.partition_log import PartitionLog
from ottla.log.undeletable_dirs import UndeletableDir

__all__ = ["DirectoryRefused", "LoadResult", "LogDirs"]

OPEN_FILES_DEFAULT = 512
"""Half of what the usual soft limit of 1024 descriptors allows."""

RECOVERY_THREADS_DEFAULT = 2
"""num.recovery.threads.per.data.dir."""


class NameTaken(UndeletableDir):
    """A log cannot be made: something of its name is there that is none, or cannot be read.

    Its directory is well.
    """


class LoadResult(NamedTuple):
    """What a start found: the logs, the names of folders set aside as strays, and what forbids
    to go on (None = nothing): a partition that is in two folders. `unusable`: why folders that
    are called like a partition's were left alone.
    """

    logs: tuple[PartitionLog, ...]
    strays: tuple[str, ...]
    problem: str | None = None
    unusable: tuple[OSError, ...] = ()


class LogDirs:
    """See the module.

    Fields: `on_offline`: told of a directory that failed and of the logs lost with it, unless the
            caller of `fail` was the one who noticed. `on_log_removed`: told of each log that is
            deleted or set aside.
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
        self._departures = AsyncDelete(
            disk,
            workers,
            clock,
            timers,
            delay_ms=delete_delay_ms,
            failed=self._dir_failed,
            left=self._left,
            ended=lambda: self._rewrites.begin(),
        )
        self._rewrites = CheckpointRewrites(
            disk,
            workers,
            clock,
            timers,
            failed=self._dir_failed,
            is_busy=lambda: self._departures.is_busy,
        )
        self._expired = ExpiredSegments(
            disk,
            workers,
            clock,
            timers,
            failed=lambda log, error: self._log_failed(log, error),
        )

    # --- start ---------------------------------------------------------------------------

    def acquire(self, *, node_id: int, cluster_id: str | None) -> None:
        """Lock the directories and check whose they are. Blocks.

        Raises: DirectoryRefused where one is locked or another node's; OSError where none works.
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

        `decide(topic, partition, topic_id)` is asked, on the loop, of each folder that has an id.
        """
        result: Pending[LoadResult] = Pending()
        loaders = [
            DirLoader(
                self.ports,
                directory,
                decide=decide,
                config_of=config_of,
                threads=self._recovery_threads,
                mark=self._departures.set_aside,
                failed=self._dir_failed,
            )
            for directory in self.online_dirs
        ]
        left = [len(loaders)]
        strays: list[str] = []

        def loaded(found: list[str] | None) -> None:
            left[0] -= 1
            strays.extend(found or ())
            if left[0] == 0:
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
        """The logs that were found to end below their checkpointed high watermark."""
        return [name for directory in self.dirs for name in directory.below_high_watermark]

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
        """Return the topics whose log of that name is, or may be, in an offline directory."""
        key = (topic, partition)
        return {lost for each in self.offline_dirs for lost in each.offline_replicas.get(key, ())}

    def directory_of(self, log: PartitionLog) -> LogDir | None:
        """Return the directory that holds `log` now."""
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
        """Return the log of a partition of this topic id, made where it is not here yet.

        A log of the same name but another id is set aside first, never touched otherwise.

        Fields: `directory_id`: where the metadata wants it, zero = wherever there are fewest;
                `is_new`: no data can exist elsewhere. Otherwise an offline directory may hold
                it, and a second copy must not begin from nothing (KAFKA-16234).
        Raises: FolderKept; OSError where its directory is offline, or the disk fails, which the
                directory then goes offline for, too.
        """
        self._departures.finish((topic, partition))
        found = self.get(topic, partition)
        if found is not None and found.topic_id == topic_id:
            return found
        self._refuse_hidden((topic, partition))
        if found is not None:
            holder = self.directory_of(found)
            assert holder is not None
            self._departures.retire(holder, found, PartitionDirKind.STRAY)
        directory = self._choose(topic, topic_id, partition, directory_id, is_new)
        path = f"{directory.path}/{names.partition_dir_name(topic, partition)}"
        try:
            self._clear_the_way(directory, path, topic, partition, topic_id)
            if directory.write_stale_marker((topic, partition), path):
                self._rewrites.schedule(directory)
            log = open_log(
                self.ports, path, topic=topic, partition=partition, topic_id=topic_id, config=config
            )
        except UndeletableDir:
            raise
        except OSError as error:
            self._fail_soon(directory, error)
            raise
        directory.logs[(topic, partition)] = log
        return log

    def _fail_soon(self, directory: LogDir, error: OSError) -> None:
        # Not at once: who asks for a log is in the midst of following the metadata.
        now_ms = self._clock.monotonic_ms()
        self._timers.at(now_ms, lambda: self._dir_failed(directory, error))

    def _clear_the_way(
        self, directory: LogDir, path: str, topic: str, partition: int, topic_id: Uuid
    ) -> None:
        """Set aside a folder that has the name already but is another incarnation's."""
        if not self._disk.exists(path) and not self._disk.is_link(path):
            return
        folder = read_partition_dir(self._disk, directory.path, path.rpartition("/")[2])
        if folder is None:
            raise NameTaken(errno.ENOTDIR, "Not a directory", path)
        if folder.error is not None:
            error = folder.error
            raise NameTaken(error.errno, error.strerror, error.filename)
        if folder.topic_id != topic_id:
            self._departures.set_aside(directory, folder, PartitionDirKind.STRAY)

    def _refuse_hidden(self, key: TopicPartition) -> None:
        for directory in self.online_dirs:
            error = directory.unusable_error(key)
            if error is not None:
                raise NameTaken(error.errno, error.strerror, error.filename)

    def _choose(
        self, topic: str, topic_id: Uuid, partition: int, directory_id: Uuid, is_new: bool
    ) -> LogDir:
        key = (topic, partition)
        for directory in self.offline_dirs:
            wanted = directory_id != NO_UUID and directory.directory_id == directory_id
            if wanted or topic_id in directory.offline_replicas.get(key, ()):
                directory.add_offline_replica(key, topic_id)
                raise OSError(5, f"the log of {topic}-{partition} is offline", directory.path)
        if not is_new and self.offline_dirs:
            for directory in self.offline_dirs:
                directory.add_offline_replica(key, topic_id)
            offline = ", ".join(directory.path for directory in self.offline_dirs)
            raise OSError(5, f"{topic}-{partition} may be on an offline directory", offline)
        for directory in self.online_dirs:
            if directory_id != NO_UUID and directory.directory_id == directory_id:
                return directory
        if not self.online_dirs:
            raise OSError(5, "all log directories are offline", self.dirs[0].path)
        return min(self.online_dirs, key=lambda directory: len(directory.logs))

    def delete(self, topic: str, partition: int) -> bool:
        """Delete a log: its name is free at once, its folder goes a little later.

        A log that is not here, or whose folder has vanished, counts as deleted; return whether
        there was one. What an offline directory holds stays there, and is remembered: a replica
        that comes back would begin a second time, and the start after the mending refuse both.
        One of very many is renamed a moment later: see `renames_done`. Raises: FolderKept; OSError.
        """
        log = self.get(topic, partition)
        if log is None:
            return False
        directory_of_it = self.directory_of(log)
        assert directory_of_it is not None
        self._departures.delete(directory_of_it, log)
        return True

    def delete_dir(self, directory: LogDir, folder: PartitionDir) -> None:
        """Let a folder that no open log uses go, as a deleted log's does. Raises: OSError."""
        if folder.kind is not PartitionDirKind.DELETE:  # Else it goes already.
            self._departures.set_aside(directory, folder, PartitionDirKind.DELETE)
            self._rewrites.schedule(directory)

    def renames_done(self) -> Pending[None]:
        """Return the promise that every log that was deleted has its folder's name no more."""
        return self._departures.renames_done()

    def rewritten(self, directory: LogDir) -> Written:
        """Return the promise that no checkpoint speaks of what left a directory.

        See `CheckpointRewrites`.
        """
        return self._rewrites.rewritten(directory)

    def _left(self, directory: LogDir, log: PartitionLog) -> None:
        self._rewrites.schedule(directory)
        if self.on_log_removed is not None:
            self.on_log_removed(log)

    def delete_expired_segments(self) -> None:
        """Delete the segments below the log starts, once these are durable."""
        self._expired.delete(self.online_dirs)

    # --- checkpoints ---------------------------------------------------------------------

    def note_running(self, broker_epoch: int, boot_id: str) -> None:
        """Write into each directory, in workers, which registration uses it, in which boot."""
        for directory in self.online_dirs:
            directory.write_running(broker_epoch, boot_id)

    def checkpoint_recovery_points(self) -> None:
        """Write up to where each log was flushed, in workers."""
        self._checkpoint(names.RECOVERY_POINTS)

    def checkpoint_log_starts(self) -> None:
        """Write where each log starts, in workers."""
        self._checkpoint(names.LOG_STARTS)

    def checkpoint_high_watermarks(self) -> None:
        """Write each log's high watermark, in workers."""
        self._checkpoint(names.HIGH_WATERMARKS)

    def checkpoint_cleaned(self, log: PartitionLog) -> None:
        """Write up to where the logs of this one's directory are clean, in a worker."""
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
        """Take the directory of `log` offline; return the logs lost with it, `log` included."""
        directory = self.directory_of(log)
        log.fail()
        if directory is None:
            return [log]
        return self._take_offline(directory, error)

    def take_log_offline(self, log: PartitionLog, reason: OSError) -> None:
        """Take one log out of use until the next start; its folder stays, and so does its name."""
        directory = self.directory_of(log)
        log.fail()
        if directory is not None:
            directory.take_log_offline(log, reason)

    def _take_offline(self, directory: LogDir, error: OSError) -> list[PartitionLog]:
        if directory.error is None:
            directory.error = error
            directory.mark_unclean()
        lost = list(directory.logs.values())
        for key, log in directory.logs.items():
            directory.add_offline_replica(key, log.topic_id)
            log.fail()
        directory.logs.clear()
        self._departures.give_up(directory)
        return lost

    def _log_failed(self, log: PartitionLog, error: OSError) -> None:
        """A worker met a broken disk under a log, which may have been deleted since."""
        directory = self.directory_of(log)
        if directory is not None:
            self._dir_failed(directory, error)

    def _dir_failed(self, directory: LogDir, error: OSError) -> None:
        if directory.error is not None:
            return
        lost = self._take_offline(directory, error)
        if self.on_offline is not None:
            self.on_offline(directory, lost)

    # --- end -----------------------------------------------------------------------------

    def shutdown(self, broker_epoch: int = -1) -> Pending[None]:
        """Flush everything, say on disk that it was done, give the locks back."""
        done: Pending[None] = Pending()
        self._departures.finish_all()
        dirs = self.online_dirs
        left = [len(dirs)]

        def ended(directory: LogDir, result: BaseException | None) -> None:
            directory.release()
            left[0] -= 1
            if left[0] == 0:
                self.release()
                done.complete(None)
            if result is not None and not isinstance(result, OSError):
                raise result

        if not dirs:
            self.release()
            done.complete(None)
        for directory in dirs:
            self._shut(directory, broker_epoch, ended)
        return done

    def _shut(
        self,
        directory: LogDir,
        broker_epoch: int,
        ended: Callable[[LogDir, BaseException | None], None],
    ) -> None:
        clean = directory.may_be_clean
        logs = iter(tuple(directory.logs.values()))

        def close_some() -> None:
            """Close a few, so that no more files are open at once, and no step is long."""
            nonlocal clean
            some = tuple(islice(logs, LOGS_PER_STEP_MAX))
            if not some:
                self.rewritten(directory).then(lambda _: directory.checkpoint_all().then(written))
                return
            jobs: list[tuple[PartitionLog, FlushJob]] = []
            for log in some:
                try:
                    jobs.append((log, log.prepare_close()))
                except OSError:
                    clean = False

            def flush() -> None:
                for _, job in jobs:
                    job.run()

            self._workers.submit(flush, lambda result: flushed(some, jobs, result))

        def flushed(
            some: tuple[PartitionLog, ...],
            jobs: list[tuple[PartitionLog, FlushJob]],
            result: BaseException | None,
        ) -> None:
            for log, job in jobs:
                job.release(failed=result is not None)
                if result is None:
                    log.flushed(job)
            if result is not None:
                for log in directory.logs.values():
                    log.close()
                # What a failed sync was to write may be gone, and the process ends by itself.
                directory.mark_unclean()
                ended(directory, result)
                return
            for log in some:
                log.close()
            close_some()

        def written(error: OSError | None) -> None:
            vouches = clean and error is None
            # Last of all: it vouches for everything else.
            self._workers.submit(
                lambda: directory.write_clean_shutdown_file(broker_epoch) if vouches else None,
                lambda result: ended(directory, result),
            )

        close_some()

    def release(self) -> None:
        """Give the locks back: after `shutdown`, or where a start was refused."""
        for directory in self.dirs:
            directory.release()
