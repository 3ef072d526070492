"""Folders of partitions on their way out of a log directory: renamed at once, removed later.

A rename sets a folder aside: as a stray, which stays for people to judge, or to be deleted, which
file.delete.delay.ms later it is, in workers. A directory's folders are removed one after the
other: a thousand at once would hold the workers' threads, and with them every flush.

A change of the metadata may delete thousands of logs. Each costs a rename and the closing of its
files on the loop; so many of one turn go at once, and the others a step later. Until then they
are nobody's: no log of theirs is found, and who needs their names has them go first.

What a start took for empty goes likewise, from among the strays: it is looked at once more before
its removal, and stays where anything has come into it. Of a folder that people linked to another
place the log's own files go, and the link; that place, and what else lies there, is theirs.

The entries of a renamed directory stay in the log directory's checkpoints until these are
rewritten, for logs that go in steps after the last step: see `LogDir.stale_entries`,
`ottla.log.checkpoint_rewrite`.

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
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timer, Timers
from ottla.log import names
from ottla.log.checkpoints import TopicPartition
from ottla.log.dir_loading import PartitionDir, is_empty, is_log_file
from ottla.log.log_dir import LogDir
from ottla.log.names import PartitionDirKind
from ottla.log.partition_log import PartitionLog
from ottla.log.undeletable_dirs import UndeletableDir, is_directory_specific

logger = logging.getLogger(__name__)

TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
"""What a rename says where the new name is another's; asking first would cost as much again."""


STEP_PAUSE_MS: Final = 1

REMOVE_AGAIN_MS: Final = 60_000
"""The pause before a folder that could not be removed is tried again; each later one is longer."""

REMOVE_AGAIN_MS_MAX: Final = 3_600_000


class AsyncDelete:
    """See the module.

    Fields: `failed`: takes a directory offline whose disk fails later than its caller could hear
            of; `left`: told of each log that is set aside; `ended`: told when no further log is to
            go with those that have gone since `is_busy`.
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
        left: Callable[[LogDir, PartitionLog], None],
        ended: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._delay_ms = delay_ms
        self._failed = failed
        self._left = left
        self._ended = ended
        self._step_left = LOGS_PER_STEP_MAX
        self._step: Timer | None = None
        self._postponed: dict[TopicPartition, tuple[LogDir, PartitionLog]] = {}
        self._settled: Pending[None] = completed(None)
        self._due: dict[str, deque[PartitionDir]] = {}
        """What is to be removed now, by directory; one that is listed has a removal under way."""
        self._pauses_ms: dict[str, int] = {}
        """The last pause of each folder that could not be removed, by path."""

    # --- logs ------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a batch of logs is on its way: those of one turn, and what is put off of them."""
        return self._step is not None

    def delete(self, directory: LogDir, log: PartitionLog) -> None:
        """Let a log go, now or a few steps later; it is not found from now on.

        Raises: OSError, where it was to go now; a later failure takes the directory offline.
        """
        if self._step is None:
            self._arm()
        if self._step_left > 0 and not self._postponed:
            self._step_left -= 1
            self.retire(directory, log, PartitionDirKind.DELETE)
            return
        if not self._postponed:
            self._settled = Pending()
        key = (log.topic, log.partition)
        del directory.logs[key]
        log.failed = True
        self._postponed[key] = (directory, log)

    def retire(self, directory: LogDir, log: PartitionLog, kind: PartitionDirKind) -> None:
        """Set a log's folder aside now.

        Raises: FolderKept, and then the log is closed all the same; OSError, and then it is where
        it was.
        """
        found = log.directory.rpartition("/")[2]
        folder = PartitionDir(found, log.topic, log.partition, PartitionDirKind.LIVE, log.topic_id)
        kept: UndeletableDir | None = None
        try:
            name = self.set_aside(directory, folder, kind)
        except UndeletableDir as error:
            kept, name = error, folder.name
            logger.warning("%s cannot be moved (%s): kept, not used", log.directory, error.strerror)
        key = (log.topic, log.partition)
        if directory.logs.get(key) is log:
            del directory.logs[key]
        log.moved(f"{directory.path}/{name}")
        log.close()
        self._left(directory, log)
        if kept is not None:
            raise kept

    def finish(self, key: TopicPartition) -> None:
        """Have what was put off of a partition happen now: another log takes the name."""
        postponed = self._postponed.pop(key, None)
        if postponed is not None:
            self._finish(*postponed)
            self._check_settled()

    def finish_all(self) -> None:
        """Have all that was put off happen now."""
        while self._postponed:
            self._finish(*self._postponed.pop(next(iter(self._postponed))))
        self._end()

    def renames_done(self) -> Pending[None]:
        """Return the promise that nothing is put off any more."""
        return self._settled

    def give_up(self, directory: LogDir) -> None:
        """Follow that a directory went offline: what was to leave it lies there still."""
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
            self._finish(*self._postponed.pop(next(iter(self._postponed))))
        if self._postponed:
            self._arm()
        else:
            self._end()

    def _end(self) -> None:
        if self._step is not None:
            self._step.cancel()
        self._step, self._step_left = None, LOGS_PER_STEP_MAX
        self._ended()
        self._check_settled()

    def _finish(self, directory: LogDir, log: PartitionLog) -> None:
        try:
            self.retire(directory, log, PartitionDirKind.DELETE)
        except UndeletableDir:
            pass  # Whoever orders its removal hears of it.
        except OSError as error:
            directory.add_offline_replica((log.topic, log.partition), log.topic_id)
            log.close()
            self._failed(directory, error)

    def _check_settled(self) -> None:
        if not self._postponed and not self._settled.done:
            self._settled.complete(None)

    # --- folders ---------------------------------------------------------------------------

    def set_aside(self, directory: LogDir, folder: PartitionDir, kind: PartitionDirKind) -> str:
        """Rename a folder, and let it be removed if it is to go; return its new name.

        Raises: FolderKept, and then no log of its name is made; OSError.
        """
        name = folder.name
        if folder.kind is not kind:
            try:
                name = self._rename(directory, folder, kind)
            except OSError as error:
                if is_directory_specific(error):
                    raise _keep(directory, folder, error) from None
                raise
            if folder.kind is PartitionDirKind.LIVE:
                directory.mark_entries_stale((folder.topic, folder.partition))
        directory.strays.discard(folder.name)
        directory.unusable.pop(folder.name, None)  # What was wrong with it was mended since.
        goes = kind is PartitionDirKind.DELETE or folder.is_empty
        if name and not goes:
            directory.strays.add(name)
        if name and goes:
            renamed = folder._replace(name=name, kind=kind)
            directory.deleting.setdefault(_replica(folder), set()).add(name)
            due_ms = self._clock.monotonic_ms() + self._delay_ms
            self._timers.at(due_ms, lambda: self._remove_soon(directory, renamed))
        return name

    def _rename(self, directory: LogDir, folder: PartitionDir, kind: PartitionDirKind) -> str:
        """Rename a folder; return its new name, nothing where it has gone already."""
        # The topic id tells incarnations apart; a replica that came and went twice needs more.
        number = int.from_bytes(folder.topic_id or NO_UUID, "big")
        leaving = directory.deleting.get(_replica(folder), ())
        old = f"{directory.path}/{folder.name}"
        is_link = self._disk.is_link(old)
        while True:
            token = f"{number % 2**128:032x}"
            name = names.partition_dir_name_with_suffix(folder.topic, folder.partition, token, kind)
            number += 1
            new = f"{directory.path}/{name}"
            # One that a worker has emptied would be replaced, and by a link another link, whose
            # log nobody would find again: that is no mistake to a rename.
            if name in leaving or (is_link and self._is_there(new)):
                continue
            try:
                self._disk.rename(old, new)
                return name
            except FileNotFoundError:
                return ""  # KAFKA-15391, KAFKA-13403.
            except NotADirectoryError:
                if not self._is_there(new):  # Else it is a link, and this is a folder.
                    raise
            except OSError as error:
                if error.errno not in TAKEN:
                    raise

    def _is_there(self, path: str) -> bool:
        return self._disk.exists(path) or self._disk.is_link(path)

    def _remove_soon(self, directory: LogDir, folder: PartitionDir) -> None:
        due = self._due.get(directory.path)
        if due is None:
            self._due[directory.path] = deque((folder,))
            self._remove_next(directory)
        else:
            due.append(folder)

    def _remove_next(self, directory: LogDir) -> None:
        due = self._due[directory.path]
        if not due or not directory.is_online:
            del self._due[directory.path]  # What a broken disk keeps goes with the next start.
            return
        folder = due.popleft()
        path = f"{directory.path}/{folder.name}"
        self._workers.submit(
            partial(_remove, self._disk, path, if_empty=folder.is_empty),
            partial(self._removed, directory, folder),
        )

    def _removed(
        self, directory: LogDir, folder: PartitionDir, result: bool | BaseException
    ) -> None:
        if isinstance(result, OSError):
            if is_directory_specific(result):
                self._remove_again(directory, folder, result)
            else:
                self._failed(directory, result)
        elif isinstance(result, BaseException):
            raise result
        elif directory.is_online:  # Else its new name may not be durable: it is leaving still.
            self._pauses_ms.pop(f"{directory.path}/{folder.name}", None)
            if not result:
                directory.strays.add(folder.name)
            replica = _replica(folder)
            directory.deleting[replica].remove(folder.name)
            directory.durable_renames.discard(folder.name)
            if not directory.deleting[replica]:
                del directory.deleting[replica]
        self._remove_next(directory)

    def _remove_again(self, directory: LogDir, folder: PartitionDir, error: OSError) -> None:
        """Try a folder again later, and say once that it stays so long; so does each start."""
        path = f"{directory.path}/{folder.name}"
        if path not in self._pauses_ms:
            logger.warning("%s cannot be removed (%s): tried again later", path, error)
        pause_ms = min(self._pauses_ms.get(path, REMOVE_AGAIN_MS // 2) * 2, REMOVE_AGAIN_MS_MAX)
        self._pauses_ms[path] = pause_ms
        due_ms = self._clock.monotonic_ms() + pause_ms
        self._timers.at(due_ms, lambda: self._remove_soon(directory, folder))


def _keep(directory: LogDir, folder: PartitionDir, error: OSError) -> UndeletableDir:
    """Note that a folder stays where it is; return why."""
    kept = UndeletableDir(error.errno, error.strerror, f"{directory.path}/{folder.name}")
    directory.unusable[folder.name] = kept
    if folder.kind is not PartitionDirKind.LIVE:
        directory.strays.add(folder.name)
    return kept


def _replica(folder: PartitionDir) -> tuple[Uuid, int]:
    return folder.topic_id or NO_UUID, folder.partition


def _remove(disk: Disk, path: str, *, if_empty: bool) -> bool:
    """Remove a folder, or one only if it is empty still; tell whether it is gone. Blocks.

    Raises: OSError.
    """
    if if_empty and disk.exists(path) and not is_empty(disk, path):
        return False
    if disk.is_link(path):
        # It may lead to a whole disk. What refuses there is no failure of the log directory.
        with contextlib.suppress(OSError):
            for name in filter(is_log_file, disk.listdir(path)):
                with contextlib.suppress(OSError):
                    disk.remove(f"{path}/{name}")
            disk.sync_dir(path)  # Once the link has gone nobody would find what comes back.
    disk.rmtree(path)
    return True
