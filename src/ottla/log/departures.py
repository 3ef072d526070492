"""Folders of partitions on their way out of a log directory: renamed at once, removed later.

A rename sets a folder aside: as a stray, which stays for people to judge, or to be deleted, which
file.delete.delay.ms later it is, in workers. A directory's folders are removed one after the
other: a thousand at once would hold the workers' threads, and with them every flush.

A folder that is set aside leaves its entries in the directory's checkpoints behind until these
are written anew: see `LogDir.stale`.

Source: LogManager.{asyncDelete, deleteLogs}, LocalLog.renameDir.
"""

import errno
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.base.ids import NO_UUID
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log import names
from ottla.log.dir_loading import FoundFolder
from ottla.log.log_dir import LogDir
from ottla.log.names import FolderKind

TAKEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
"""What a rename says where the new name is another's; asking first would cost as much again."""


class Departures:
    """See the module. `failed` takes a directory offline whose disk fails in a removal."""

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        *,
        delay_ms: int,
        failed: Callable[[LogDir, OSError], None],
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._delay_ms = delay_ms
        self._failed = failed
        self._due: dict[str, deque[str]] = {}
        """What is to be removed now, by directory; one that is listed has a removal under way."""

    def set_aside(self, directory: LogDir, folder: FoundFolder, kind: FolderKind) -> str:
        """Rename a folder, and let it be removed if it is to go; return its new name.

        Raises: OSError.
        """
        name = folder.name
        if folder.kind is not kind:
            name = self._rename(directory, folder, kind)
            if folder.kind is FolderKind.LIVE:
                directory.forget((folder.topic, folder.partition))
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
