"""Removing replicas by topic id, wherever on a node they lie: for deletions that must be proven.

A replica is removed when no folder holds it under a name that a start would load, and that is
durable: bytes go a little later, as in every deletion. Before that is said the checkpoints are
written anew, since with the answer a topic may take the name. Looked at are the logs that are open,
and all other folders of partitions, as those that were set aside as strays. Only the id in a
folder's own metadata file counts. What cannot be ruled out, since a folder of logs is offline,
is not claimed. Folders that wait for their removal are known, and not read: after the deletion of
a thousand topics there are ten thousand of them.
"""

import errno
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.checkpoints import TopicPartition
from ottla.log.dir_loading import PartitionDir, read_partition_dir
from ottla.log.log_dir import LogDir
from ottla.log.log_dirs import LogDirs
from ottla.log.names import PartitionDirKind
from ottla.log.undeletable_dirs import UndeletableDir

Replica = tuple[Uuid, int]
"""Topic id and partition of a replica on this node."""

Removed = dict[Replica, OSError | None]
"""None = nothing is left of it that could come back; else why that cannot be said."""


def remove_replicas(
    log_dirs: LogDirs, wanted: Collection[Replica], topics: Mapping[Uuid, str] | None = None
) -> Pending[Removed]:
    """Remove replicas; answer for each. To ask again is no mistake.

    `topics`: the names that the topics had, as far as they are known. A folder that cannot be read
    may be any topic's of which the name is not.
    """
    removal = _ReplicaDeletion(log_dirs, wanted, topics or {})
    removal.start()
    return removal.done


def unopened_partition_dirs(
    disk: Disk, path: str, is_open: Collection[TopicPartition]
) -> list[PartitionDir]:
    """Return a directory's folders of partitions but for the open logs', and what leaves.

    Blocks. Raises: OSError.
    """
    found: list[PartitionDir] = []
    for name in disk.listdir(path):
        parsed = names.parse_partition_dir_name(name)
        if parsed is None or parsed.kind is PartitionDirKind.DELETE:
            continue
        if parsed.kind is PartitionDirKind.LIVE and (parsed.topic, parsed.partition) in is_open:
            continue
        folder = read_partition_dir(disk, path, name)
        if folder is not None:
            found.append(folder)
    return found


class _ReplicaDeletion:
    """One removal on its way through the directories."""

    def __init__(
        self, log_dirs: LogDirs, wanted: Collection[Replica], topics: Mapping[Uuid, str]
    ) -> None:
        self.done: Pending[Removed] = Pending()
        self._log_dirs = log_dirs
        self._wanted = frozenset(wanted)
        self._topics = topics
        self._found: dict[Replica, LogDir] = {}
        self._errors: dict[Replica, OSError] = {}
        self._unknown: OSError | None = None
        """Why a replica that was found nowhere may lie somewhere still."""
        self._unread: dict[int, list[PartitionDir]] = defaultdict(list)
        """By partition: folders that may be a replica's that is found nowhere, but are not read.

        What is found elsewhere cannot be in one, and is not held up.
        """
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
        log_dirs.renames_done().then(self._look)

    def _look(self, _: None) -> None:
        log_dirs = self._log_dirs
        for directory in log_dirs.offline_dirs:
            self._went_offline(directory)
            lost = {
                (each, key[1]) for key, ids in directory.offline_replicas.items() for each in ids
            }
            for replica in self._wanted & (lost | directory.may_come_back()):
                # Whatever else is found of it: it may have left another directory before.
                self._errors[replica] = OSError(errno.EIO, "it is offline", directory.path)
        online = log_dirs.online_dirs
        self._left = len(online)
        if not online:
            self._finish()
        for directory in online:
            ports = log_dirs.ports
            look = partial(
                unopened_partition_dirs, ports.disk, directory.path, frozenset(directory.logs)
            )
            ports.workers.submit(look, partial(self._looked, directory))

    def _looked(self, directory: LogDir, result: list[PartitionDir] | BaseException) -> None:
        if isinstance(result, BaseException):
            self._ended(directory, result)
            return
        for replica in self._wanted & directory.deleting.keys():
            self._found.setdefault(replica, directory)
        for folder in result:
            if folder.error is not None:
                self._unread[folder.partition].append(folder)
            if folder.topic_id is None or self._is_open(directory, folder):
                continue
            replica = (folder.topic_id, folder.partition)
            if replica in self._wanted:
                remove = partial(self._log_dirs.delete_dir, directory, folder)
                self._remove(directory, replica, remove)
        if directory.error is not None:
            self._ended(directory, directory.error)
            return
        # The renames of this removal, and of those deletions that it finds done already.
        ports = self._log_dirs.ports
        sync = partial(ports.disk.sync_dir, directory.path)
        ports.workers.submit(sync, partial(self._synced, directory))

    def _synced(self, directory: LogDir, result: BaseException | None) -> None:
        if result is None:
            self._log_dirs.rewritten(directory).then(
                partial(self._told, directory, directory.is_online)
            )
            return
        if isinstance(result, OSError):
            # The next one would say that all is well, and the names could be back after a loss of
            # power: what a failed fsync was to write may be gone from the page cache.
            directory.fail(result)
        self._ended(directory, result)

    def _told(self, directory: LogDir, was_online: bool, failure: OSError | None) -> None:
        """End with a directory of which the checkpoints have nothing any more, or never will.

        Where one cannot be written its directory goes offline, and the replica is removed all the
        same: its new name is durable, and the start after the mending goes by what it finds. Were
        that an error it would be one until then, since nobody can look through an offline
        directory: a deletion would wait for a disk on which nothing of it is left.
        """
        if failure is not None or not was_online:
            # A disk tells an error once: another sync may have been told that of these names.
            self._went_offline(directory)
        self._ended(directory, None)

    def _went_offline(self, directory: LogDir) -> None:
        self._unknown = directory.error
        for replica, holder in self._found.items():
            if holder is directory:
                self._errors[replica] = OSError(
                    errno.EIO, "it went offline while the replica was to go", directory.path
                )

    def _is_open(self, directory: LogDir, folder: PartitionDir) -> bool:
        """Tell whether a folder has become a log since it was seen: the metadata wants it."""
        return (
            folder.kind is PartitionDirKind.LIVE
            and (folder.topic, folder.partition) in directory.logs
        )

    def _remove(self, directory: LogDir, replica: Replica, remove: Callable[[], object]) -> None:
        try:
            remove()
            self._found[replica] = directory
        except UndeletableDir as error:
            self._errors[replica] = error
        except OSError as error:
            topic_id, number = replica
            if topic_id in self._topics:
                directory.add_offline_replica((self._topics[topic_id], number), topic_id)
            # Not the directory's own error: that one means what it never had, too.
            self._errors[replica] = OSError(error.errno, error.strerror, directory.path)
            directory.fail(error)

    def _ended(self, directory: LogDir, result: BaseException | None) -> None:
        if isinstance(result, OSError):
            self._unknown = result
            for replica, holder in self._found.items():
                if holder is directory:
                    self._errors[replica] = OSError(result.errno, result.strerror, directory.path)
        elif result is not None:
            raise result
        self._left -= 1
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        def outcome(replica: Replica) -> OSError | None:
            if replica in self._errors:
                return self._errors[replica]
            if replica in self._found:
                return None
            return self._unknown or self._hidden(replica)

        self.done.complete({replica: outcome(replica) for replica in sorted(self._wanted)})

    def _hidden(self, replica: Replica) -> OSError | None:
        """Return why a folder was not read that is called like this replica's; None = none is."""
        topic_id, number = replica
        topic = self._topics.get(topic_id)
        for folder in self._unread.get(number, ()):
            if topic is None or folder.topic == names.topic_in_name(topic, number, folder.kind):
                return folder.error
        return None
