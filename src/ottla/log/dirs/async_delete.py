"""Asynchronous deletion of partition directories: renamed at once, removed later.

A partition directory is renamed to `-stray`, and kept for the operator, or to `-delete`, and
removed in workers after file.delete.delay.ms. The directories of one log directory are removed one
at a time: a thousand at once would occupy the workers' threads and hold up every flush.

A metadata change may delete thousands of logs. Each costs a rename and the closing of its files on
the loop, so one turn of the loop renames at most LOGS_PER_STEP_MAX and postpones the others to
later steps. A postponed log is not found any more; a new log of its name has it renamed first.

A directory that a start found empty is renamed to `-stray` and removed in the same way. It is
inspected again before the removal, and kept if anything was written into it. Of a symbolic link the
log's own files and the link are removed; the link's target and other files there are kept.

The entries of a renamed directory stay in the log directory's checkpoints until these are
rewritten, for logs that go in steps after the last step: see `LogDir.stale_entries`,
`ottla.log.dirs.checkpoint_rewrite`.

Source: LogManager.{asyncDelete, deleteLogs}, LocalLog.renameDir.
"""

import contextlib
import errno
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Disk, Workers, is_shortage
from ottla.base.timers import Timer, Timers
from ottla.log import names
from ottla.log.dirs.checkpoints import TopicPartition
from ottla.log.dirs.dir_loading import PartitionDir, is_empty, is_log_file
from ottla.log.dirs.log_dir import LogDir
from ottla.log.dirs.undeletable_dirs import UndeletableDir, is_directory_specific
from ottla.log.names import PartitionDirKind
from ottla.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

NAME_TAKEN_ERRNOS: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
"""Errors of a rename whose target exists; checking first would cost as much again."""


STEP_PAUSE_MS: Final = 1

REMOVE_RETRY_MS: Final = 60_000
"""The first backoff after a failed removal; it doubles with each further one."""

REMOVE_RETRY_MS_MAX: Final = 3_600_000


class AsyncDelete:
    """See the module.

    Fields: `delay_ms`: from a rename to the removal; of those from now on.
            `failed`: takes a log directory offline whose disk fails after the caller returned;
            `log_removed`: called for each log whose directory is renamed; `batch_ended`: called
            when the last log of a batch is renamed, see `is_busy`.
    """

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        *,
        delay_ms: int,
        failed: Callable[[LogDir, OSError], None],
        log_removed: Callable[[LogDir, PartitionLog], None],
        batch_ended: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self.delay_ms = delay_ms
        self._failed = failed
        self._log_removed = log_removed
        self._batch_ended = batch_ended
        self._step_left = LOGS_PER_STEP_MAX
        self._step: Timer | None = None
        self._postponed: dict[TopicPartition, tuple[LogDir, PartitionLog]] = {}
        self._settled: Pending[None] = completed(None)
        self._due: dict[str, deque[PartitionDir]] = {}
        """What is to be removed now, by log directory; a listed one has a removal in progress."""
        self._backoffs_ms: dict[str, int] = {}
        """The last backoff of each directory that could not be removed, by path."""

    # --- logs ------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a batch of deletions is in progress: those of one turn, with the postponed."""
        return self._step is not None

    def delete(self, directory: LogDir, log: PartitionLog) -> None:
        """Delete a log: rename it now or a few steps later. It is not found from now on.

        Raises: OSError from a rename made now; a later failure takes the log directory offline.
        """
        if self._step is None:
            self._arm()
        if self._step_left > 0 and not self._postponed:
            self._step_left -= 1
            self.remove_log(directory, log, PartitionDirKind.DELETE)
            return
        if not self._postponed:
            self._settled = Pending()
        key = (log.topic, log.partition)
        del directory.logs[key]
        log.local.failed = True
        self._postponed[key] = (directory, log)

    def remove_log(self, directory: LogDir, log: PartitionLog, kind: PartitionDirKind) -> None:
        """Rename a log's directory now, and close the log.

        Raises: UndeletableDir: the log is closed all the same; OSError: nothing has changed.
        """
        found = log.directory.rpartition("/")[2]
        partition_dir = PartitionDir(
            found, log.topic, log.partition, PartitionDirKind.LIVE, log.topic_id
        )
        kept: UndeletableDir | None = None
        try:
            name = self.rename_dir(directory, partition_dir, kind)
        except UndeletableDir as error:
            kept, name = error, partition_dir.name
            logger.warning(
                "Renaming %s failed: %s; the directory is kept and not used until the next start",
                log.directory,
                error.strerror,
            )
        key = (log.topic, log.partition)
        if directory.logs.get(key) is log:
            del directory.logs[key]
        log.moved(f"{directory.path}/{name}")
        log.close()
        self._log_removed(directory, log)
        if kept is not None:
            raise kept

    def rename_now(self, key: TopicPartition) -> None:
        """Rename a partition's postponed directory now: another log takes the name."""
        postponed = self._postponed.pop(key, None)
        if postponed is not None:
            self._rename_postponed(*postponed)
            self._check_settled()

    def rename_all_now(self) -> None:
        """Rename all postponed directories now."""
        while self._postponed:
            self._rename_postponed(*self._postponed.pop(next(iter(self._postponed))))
        self._end()

    def renames_done(self) -> Pending[None]:
        """Return a promise that completes when no rename is postponed."""
        return self._settled

    def directory_offline(self, directory: LogDir) -> None:
        """Give up the postponed renames of a log directory that went offline."""
        for key, (holder, log) in list(self._postponed.items()):
            if holder is directory:
                del self._postponed[key]
                directory.add_offline_replica(key, log.topic_id)
                log.close()
        self._check_settled()

    def _arm(self) -> None:
        due_ms = self._clock.monotonic_ms() + STEP_PAUSE_MS
        self._step = self._timers.at(due_ms, self._next_step)

    def _next_step(self) -> None:
        self._step_left = LOGS_PER_STEP_MAX
        while self._postponed and self._step_left > 0:
            self._step_left -= 1
            self._rename_postponed(*self._postponed.pop(next(iter(self._postponed))))
        if self._postponed:
            self._arm()
        else:
            self._end()

    def _end(self) -> None:
        if self._step is not None:
            self._step.cancel()
        self._step, self._step_left = None, LOGS_PER_STEP_MAX
        self._batch_ended()
        self._check_settled()

    def _rename_postponed(self, directory: LogDir, log: PartitionLog) -> None:
        try:
            self.remove_log(directory, log, PartitionDirKind.DELETE)
        except UndeletableDir:
            pass  # It is in `LogDir.unusable`: a later removal of the replica reports it.
        except OSError as error:
            directory.add_offline_replica((log.topic, log.partition), log.topic_id)
            log.close()
            self._failed(directory, error)

    def _check_settled(self) -> None:
        if not self._postponed and not self._settled.done:
            self._settled.complete(None)

    # --- directories -----------------------------------------------------------------------

    def rename_dir(
        self, directory: LogDir, partition_dir: PartitionDir, kind: PartitionDirKind
    ) -> str:
        """Rename a partition directory, and schedule its removal; return its new name.

        Raises: UndeletableDir: no log of its name is created then; OSError.
        """
        name = partition_dir.name
        if partition_dir.kind is not kind:
            try:
                name = self._rename(directory, partition_dir, kind)
            except OSError as error:
                if is_directory_specific(error):
                    raise _mark_unusable(directory, partition_dir, error) from None
                raise
            if partition_dir.kind is PartitionDirKind.LIVE:
                directory.mark_entries_stale((partition_dir.topic, partition_dir.partition))
        directory.strays.discard(partition_dir.name)
        directory.unusable.pop(partition_dir.name, None)  # It could be renamed: it is well again.
        is_removed = kind is PartitionDirKind.DELETE or partition_dir.is_empty
        if name and not is_removed:
            directory.strays.add(name)
        if name and is_removed:
            renamed = partition_dir._replace(name=name, kind=kind)
            directory.deleting.setdefault(_replica(partition_dir), set()).add(name)
            due_ms = self._clock.monotonic_ms() + self.delay_ms
            self._timers.at(due_ms, lambda: self._remove_soon(directory, renamed))
        return name

    def _rename(
        self, directory: LogDir, partition_dir: PartitionDir, kind: PartitionDirKind
    ) -> str:
        """Rename a partition directory; return its new name, "" where it does not exist."""
        # The topic id makes the name unique; a replica that was deleted before needs another one.
        number = int.from_bytes(partition_dir.topic_id or NO_UUID, "big")
        deleting = directory.deleting.get(_replica(partition_dir), ())
        old = f"{directory.path}/{partition_dir.name}"
        is_link = self._disk.is_link(old)
        while True:
            token = f"{number % 2**128:032x}"
            name = names.partition_dir_name_with_suffix(
                partition_dir.topic, partition_dir.partition, token, kind
            )
            number += 1
            new = f"{directory.path}/{name}"
            # rename(2) replaces an empty directory, and a link replaces a link, whose log could
            # not be found again.
            if name in deleting or (is_link and self._is_there(new)):
                continue
            try:
                self._disk.rename(old, new)
                return name
            except FileNotFoundError:
                return ""  # KAFKA-15391, KAFKA-13403.
            except NotADirectoryError:
                if not self._is_there(new):  # Else the target is a link, the source a directory.
                    raise
            except OSError as error:
                if error.errno not in NAME_TAKEN_ERRNOS:
                    raise

    def _is_there(self, path: str) -> bool:
        return self._disk.is_link(path) or self._disk.exists(path)

    def _remove_soon(self, directory: LogDir, partition_dir: PartitionDir) -> None:
        due = self._due.get(directory.path)
        if due is None:
            self._due[directory.path] = deque((partition_dir,))
            self._remove_next(directory)
        else:
            due.append(partition_dir)

    def _remove_next(self, directory: LogDir) -> None:
        due = self._due[directory.path]
        if not due or not directory.is_online:
            del self._due[directory.path]  # The next start removes the rest.
            return
        partition_dir = due.popleft()
        path = f"{directory.path}/{partition_dir.name}"
        self._workers.submit(
            partial(_remove, self._disk, path, if_empty=partition_dir.is_empty),
            partial(self._removed, directory, partition_dir),
        )

    def _removed(
        self, directory: LogDir, partition_dir: PartitionDir, result: bool | BaseException
    ) -> None:
        if isinstance(result, OSError):
            if is_directory_specific(result) or is_shortage(result):
                self._retry_removal(directory, partition_dir, result)
            else:
                self._failed(directory, result)
        elif isinstance(result, BaseException):
            raise result
        elif directory.is_online:  # Else its new name may not be durable: it is not removed yet.
            self._backoffs_ms.pop(f"{directory.path}/{partition_dir.name}", None)
            if not result:
                directory.strays.add(partition_dir.name)
            replica = _replica(partition_dir)
            directory.deleting[replica].remove(partition_dir.name)
            directory.durable_renames.discard(partition_dir.name)
            if not directory.deleting[replica]:
                del directory.deleting[replica]
        self._remove_next(directory)

    def _retry_removal(
        self, directory: LogDir, partition_dir: PartitionDir, error: OSError
    ) -> None:
        """Schedule the next attempt; the first failure is logged, once after each start."""
        path = f"{directory.path}/{partition_dir.name}"
        if path not in self._backoffs_ms:
            logger.warning("Removing %s failed: %s; retrying later", path, error)
        backoff_ms = min(self._backoffs_ms.get(path, REMOVE_RETRY_MS // 2) * 2, REMOVE_RETRY_MS_MAX)
        self._backoffs_ms[path] = backoff_ms
        due_ms = self._clock.monotonic_ms() + backoff_ms
        self._timers.at(due_ms, lambda: self._remove_soon(directory, partition_dir))


def _mark_unusable(
    directory: LogDir, partition_dir: PartitionDir, error: OSError
) -> UndeletableDir:
    """Note that a partition directory could not be renamed; return the error."""
    kept = UndeletableDir(error.errno, error.strerror, f"{directory.path}/{partition_dir.name}")
    directory.unusable[partition_dir.name] = kept
    if partition_dir.kind is not PartitionDirKind.LIVE:
        directory.strays.add(partition_dir.name)
    return kept


def _replica(partition_dir: PartitionDir) -> tuple[Uuid, int]:
    return partition_dir.topic_id or NO_UUID, partition_dir.partition


def _remove(disk: Disk, path: str, *, if_empty: bool) -> bool:
    """Remove a directory, with `if_empty` only if it is still empty; return whether. Blocks.

    Raises: OSError.
    """
    if if_empty and disk.exists(path) and not is_empty(disk, path):
        return False
    if disk.is_link(path):
        # The target may be another disk. An error there is no failure of the log directory.
        with contextlib.suppress(OSError):
            for name in filter(is_log_file, disk.listdir(path)):
                with contextlib.suppress(OSError):
                    disk.remove(f"{path}/{name}")
            disk.sync_dir(path)  # Without the link a file that comes back would not be found.
    disk.rmtree(path)
    return True
