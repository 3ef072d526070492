"""Removing replicas by topic id, wherever on a node they lie: for deletions that must be proven.

A replica is removed when no folder holds it under a name that a start would load, and that is
durable: bytes go a little later, as in every deletion. Looked at are the logs that are open,
and all other folders of partitions: those that were set aside as strays, those on their way out
after a crash. Only the id in a folder's own metadata file counts. What cannot be ruled out,
since a folder of logs is offline, is not claimed.
"""

import errno
from collections.abc import Callable, Collection
from functools import partial

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.checkpoints import TopicPartition
from ottla.log.dir_loading import FoundFolder, read_topic_id
from ottla.log.log_dir import LogDir
from ottla.log.log_dirs import LogDirs
from ottla.log.names import FolderKind

Replica = tuple[Uuid, int]
"""Topic id and partition of a replica on this node."""

Removed = dict[Replica, OSError | None]
"""None = nothing is left of it that could come back; else why that cannot be said."""


def remove_replicas(log_dirs: LogDirs, wanted: Collection[Replica]) -> Pending[Removed]:
    """Remove replicas; answer for each. To ask again is no mistake."""
    removal = _Removal(log_dirs, wanted)
    removal.start()
    return removal.done


def unopened(disk: Disk, path: str, is_open: Collection[TopicPartition]) -> list[FoundFolder]:
    """Return a log directory's folders of partitions but for the open logs'. Blocks.

    Raises: OSError.
    """
    found: list[FoundFolder] = []
    for name in disk.listdir(path):
        folder = names.parse_folder_name(name)
        if folder is None or (
            folder.kind is FolderKind.LIVE and (folder.topic, folder.partition) in is_open
        ):
            continue
        found.append(FoundFolder(name, *folder, read_topic_id(disk, f"{path}/{name}")))
    return found


class _Removal:
    """One removal on its way through the directories."""

    def __init__(self, log_dirs: LogDirs, wanted: Collection[Replica]) -> None:
        self.done: Pending[Removed] = Pending()
        self._log_dirs = log_dirs
        self._wanted = frozenset(wanted)
        self._found: dict[Replica, LogDir] = {}
        self._errors: dict[Replica, OSError] = {}
        self._unknown: OSError | None = None
        """Why a replica that was found nowhere may lie somewhere still."""
        self._left = 0

    def start(self) -> None:
        """Delete the open logs; once all names are changed look through the directories."""
        log_dirs = self._log_dirs
        for directory in log_dirs.online_dirs:
            for log in list(directory.logs.values()):
                replica = (log.topic_id, log.partition)
                if replica in self._wanted:
                    remove = partial(log_dirs.delete, log.topic, log.partition)
                    self._remove(directory, replica, remove)
        log_dirs.settled().then(self._look)

    def _look(self, _: None) -> None:
        log_dirs = self._log_dirs
        for directory in log_dirs.offline_dirs:
            self._unknown = directory.error
            for replica, holder in self._found.items():
                if holder is directory:
                    self._errors[replica] = OSError(
                        errno.EIO, "it went offline while the replica was to go", directory.path
                    )
        online = log_dirs.online_dirs
        self._left = len(online)
        if not online:
            self._finish()
        for directory in online:
            ports = log_dirs.ports
            look = partial(unopened, ports.disk, directory.path, frozenset(directory.logs))
            ports.workers.submit(look, partial(self._looked, directory))

    def _looked(self, directory: LogDir, result: list[FoundFolder] | BaseException) -> None:
        if isinstance(result, BaseException):
            self._ended(directory, result)
            return
        for folder in result:
            if folder.topic_id is None or self._is_open(directory, folder):
                continue
            replica = (folder.topic_id, folder.partition)
            if replica in self._wanted:
                remove = partial(self._log_dirs.discard, directory, folder)
                self._remove(directory, replica, remove)
        # The renames of this removal, and of those deletions that it finds done already.
        ports = self._log_dirs.ports
        sync = partial(ports.disk.sync_dir, directory.path)
        ports.workers.submit(sync, partial(self._ended, directory))

    def _is_open(self, directory: LogDir, folder: FoundFolder) -> bool:
        """Tell whether a folder has become a log since it was seen: the metadata wants it."""
        return folder.kind is FolderKind.LIVE and (folder.topic, folder.partition) in directory.logs

    def _remove(self, directory: LogDir, replica: Replica, remove: Callable[[], object]) -> None:
        try:
            remove()
            self._found[replica] = directory
        except OSError as error:
            self._errors[replica] = error

    def _ended(self, directory: LogDir, result: BaseException | None) -> None:
        if isinstance(result, OSError):
            self._unknown = result
            for replica, holder in self._found.items():
                if holder is directory:
                    self._errors[replica] = result
        elif result is not None:
            raise result
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        def outcome(replica: Replica) -> OSError | None:
            if replica in self._errors:
                return self._errors[replica]
            return None if replica in self._found else self._unknown

        self.done.complete({replica: outcome(replica) for replica in sorted(self._wanted)})
