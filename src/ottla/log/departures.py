"""Folders of partitions on their way out of a log directory: renamed at once, removed later.

A rename sets a folder aside: as a stray, which stays for people to judge, or to be deleted, which
file.delete.delay.ms later it is, in workers. A directory's folders are removed one after the
other: a thousand at once would hold the workers' threads, and with them every flush.

A change of the metadata may delete thousands of logs. Each costs a rename and the closing of its
files on the loop; so many of one turn go at once, and the others a step later. Until then they
are nobody's: no log of theirs is found, and who needs their names has them go first.

A folder that is set aside leaves its entries in the directory's checkpoints behind until these
are written anew: see `LogDir.stale`.

Source: LogManager.{asyncDelete, deleteLogs}, LocalLog.renameDir.
"""

import errno
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.base.ids import NO_UUID
from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timer, Timers
from ottla.log import names
from ottla.log.checkpoints import TopicPartition
from ottla.log.dir_loading import FoundFolder
from ottla.log.log_dir import LogDir
from ottla.log.names import FolderKind
from ottla.log.partition_log import PartitionLog

TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
"""What a rename says where the new name is another's; asking first would cost as much again."""


STEP_PAUSE_MS: Final = 1


class Departures:
    """See the module.

    Fields: `failed`: takes a directory offline whose disk fails later than its caller could hear
            of; `left`: told of each log that is set aside.
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
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._delay_ms = delay_ms
        self._failed = failed
        self._left = left
        self._step_left = LOGS_PER_STEP_MAX
        self._step: Timer | None = None
        self._postponed: dict[TopicPartition, tuple[LogDir, PartitionLog]] = {}
        self._settled: Pending[None] = completed(None)
        self._due: dict[str, deque[str]] = {}
        """What is to be removed now, by directory; one that is listed has a removal under way."""

    # --- logs ------------------------------------------------------------------------------

    def delete(self, directory: LogDir, log: PartitionLog) -> None:
        """Let a log go, now or a few steps later; it is not found from now on.

        Raises: OSError, where it was to go now; a later failure takes the directory offline.
        """
        if self._step is None:
            self._arm()
        if self._step_left > 0 and not self._postponed:
            self._step_left -= 1
            self.retire(directory, log, FolderKind.DELETE)
            return
        if not self._postponed:
            self._settled = Pending()
        key = (log.topic, log.partition)
        del directory.logs[key]
        log.failed = True
        self._postponed[key] = (directory, log)

    def retire(self, directory: LogDir, log: PartitionLog, kind: FolderKind) -> None:
        """Set a log's folder aside now. Raises: OSError, and then the log is where it was."""
        name = log.directory.rpartition("/")[2]
        folder = FoundFolder(name, log.topic, log.partition, FolderKind.LIVE, log.topic_id)
        name = self.set_aside(directory, folder, kind)
        key = (log.topic, log.partition)
        if directory.logs.get(key) is log:
            del directory.logs[key]
        log.moved(f"{directory.path}/{name}")
        log.close()
        self._left(directory, log)

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
        self._check_settled()

    def settled(self) -> Pending[None]:
        """Return the promise that nothing is put off any more."""
        return self._settled

    def give_up(self, directory: LogDir) -> None:
        """Follow that a directory went offline: what was to leave it lies there still."""
        for key, (holder, log) in list(self._postponed.items()):
            if holder is directory:
                del self._postponed[key]
                directory.lost[key] = log.topic_id
                log.close()
        self._check_settled()

    def _arm(self) -> None:
        due_ms = self._clock.monotonic_ms() + STEP_PAUSE_MS
        self._step = self._timers.at(due_ms, self._next_step)

    def _next_step(self) -> None:
        self._step, self._step_left = None, LOGS_PER_STEP_MAX
        while self._postponed and self._step_left > 0:
            self._step_left -= 1
            self._finish(*self._postponed.pop(next(iter(self._postponed))))
        if self._postponed:
            self._arm()
        self._check_settled()

    def _finish(self, directory: LogDir, log: PartitionLog) -> None:
        try:
            self.retire(directory, log, FolderKind.DELETE)
        except OSError as error:
            directory.lost[log.topic, log.partition] = log.topic_id
            log.close()
            self._failed(directory, error)

    def _check_settled(self) -> None:
        if not self._postponed and not self._settled.done:
            self._settled.complete(None)

    # --- folders ---------------------------------------------------------------------------

    def set_aside(self, directory: LogDir, folder: FoundFolder, kind: FolderKind) -> str:
        """Rename a folder, and let it be removed if it is to go; return its new name.

        Raises: OSError.
        """
        name = folder.name
        if folder.kind is not kind:
            name = self._rename(directory, folder, kind)
            if folder.kind is FolderKind.LIVE:
                directory.forget((folder.topic, folder.partition))
        directory.strays.discard(folder.name)
        if name and kind is FolderKind.STRAY:
            directory.strays.add(name)
        if name and kind is FolderKind.DELETE:
            due_ms = self._clock.monotonic_ms() + self._delay_ms
            self._timers.at(due_ms, lambda: self._remove_soon(directory, name))
        return name

    def _rename(self, directory: LogDir, folder: FoundFolder, kind: FolderKind) -> str:
        """Rename a folder; return its new name, nothing where it has gone already."""
        # The topic id tells incarnations apart; a replica that came and went twice needs more.
        number = int.from_bytes(folder.topic_id or NO_UUID, "big")
        while True:
            token = f"{number % 2**128:032x}"
            name = names.marked_folder_name(folder.topic, folder.partition, token, kind)
            try:
                self._disk.rename(f"{directory.path}/{folder.name}", f"{directory.path}/{name}")
                return name
            except FileNotFoundError:
                return ""  # KAFKA-15391, KAFKA-13403.
            except OSError as error:
                if error.errno not in TAKEN:
                    raise
            number += 1

    def _remove_soon(self, directory: LogDir, name: str) -> None:
        due = self._due.get(directory.path)
        if due is None:
            self._due[directory.path] = deque((name,))
            self._remove_next(directory)
        else:
            due.append(name)

    def _remove_next(self, directory: LogDir) -> None:
        due = self._due[directory.path]
        if not due or not directory.is_online:
            del self._due[directory.path]  # What a broken disk keeps goes with the next start.
            return
        path = f"{directory.path}/{due.popleft()}"
        self._workers.submit(
            lambda: self._disk.rmtree(path), lambda result: self._removed(directory, result)
        )

    def _removed(self, directory: LogDir, result: BaseException | None) -> None:
        if isinstance(result, OSError):
            self._failed(directory, result)
        elif result is not None:
            raise result
        self._remove_next(directory)
