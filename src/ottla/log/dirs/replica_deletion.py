"""Removing replicas by topic id from all log directories of a node, with proof for each.

A replica counts as removed when no partition directory holds it under a name that a start would
load, durably; the files are removed later, as in every deletion. The checkpoints are rewritten
before the result is returned, since a new topic may then take the name. Open logs and all other
partition directories, strays included, are searched. Only the topic id in `partition.metadata`
counts. A replica that may be in an offline log directory gets an error instead. Directories that
wait for their removal are known and not read: after the deletion of a thousand topics there are ten
thousand of them.
"""

import errno
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.dirs.checkpoints import TopicPartition
from ottla.log.dirs.dir_loading import PartitionDir, read_partition_dir
from ottla.log.dirs.log_dir import LogDir
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.undeletable_dirs import UndeletableDir
from ottla.log.names import PartitionDirKind

Replica = tuple[Uuid, int]
"""Topic id and partition of a replica on this node."""

Removed = dict[Replica, OSError | None]
"""None = nothing of the replica is left that could come back; else why that is not certain."""


def remove_replicas(
    log_dirs: LogDirs, wanted: Collection[Replica], topics: Mapping[Uuid, str] | None = None
) -> Pending[Removed]:
    """Remove replicas; return the result of each. Idempotent.

    `topics`: the names of the topics, as far as known. An unreadable directory may belong to any
    topic whose name is not known.
    """
    removal = _ReplicaDeletion(log_dirs, wanted, topics or {})
    removal.start()
    return removal.done


def unopened_partition_dirs(
    disk: Disk, path: str, is_open: Collection[TopicPartition]
) -> list[PartitionDir]:
    """Return the partition directories without an open log, but for those being deleted.

    Blocks. Raises: OSError.
    """
    found: list[PartitionDir] = []
    for name in disk.listdir(path):
        parsed = names.parse_partition_dir_name(name)
        if parsed is None or parsed.kind is PartitionDirKind.DELETE:
            continue
        if parsed.kind is PartitionDirKind.LIVE and (parsed.topic, parsed.partition) in is_open:
            continue
        partition_dir = read_partition_dir(disk, path, name)
        if partition_dir is not None:
            found.append(partition_dir)
    return found


class _ReplicaDeletion:
    """One removal over all log directories."""

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
        """Why a replica that was not found may still exist."""
        self._unreadable: dict[int, list[PartitionDir]] = defaultdict(list)
        """By partition: unreadable directories, which may hold a replica that was not found.

        They do not affect a replica that was found elsewhere.
        """
        self._remaining = 0

    def start(self) -> None:
        """Delete the open logs; when all renames are done search the directories."""
        log_dirs = self._log_dirs
        for directory in log_dirs.online_dirs:
            for log in list(directory.logs.values()):
                replica = (log.topic_id, log.partition)
                if replica in self._wanted:
                    remove = partial(log_dirs.delete, log.topic, log.partition)
                    self._remove(directory, replica, remove)
        log_dirs.renames_done().then(self._scan)

    def _scan(self, _: None) -> None:
        log_dirs = self._log_dirs
        for directory in log_dirs.offline_dirs:
            self._went_offline(directory)
            offline = {
                (each, key[1]) for key, ids in directory.offline_replicas.items() for each in ids
            }
            for replica in self._wanted & (offline | directory.may_come_back()):
                # Also if it is found elsewhere: it may have been moved between directories.
                self._errors[replica] = OSError(errno.EIO, "it is offline", directory.path)
        online = log_dirs.online_dirs
        self._remaining = len(online)
        if not online:
            self._finish()
        for directory in online:
            ports = log_dirs.ports
            scan = partial(
                unopened_partition_dirs, ports.disk, directory.path, frozenset(directory.logs)
            )
            ports.workers.submit(scan, partial(self._scanned, directory))

    def _scanned(self, directory: LogDir, result: list[PartitionDir] | BaseException) -> None:
        if isinstance(result, BaseException):
            self._ended(directory, result)
            return
        for replica in self._wanted & directory.deleting.keys():
            self._found.setdefault(replica, directory)
        for partition_dir in result:
            if partition_dir.error is not None:
                self._unreadable[partition_dir.partition].append(partition_dir)
            if partition_dir.topic_id is None or self._is_open(directory, partition_dir):
                continue
            replica = (partition_dir.topic_id, partition_dir.partition)
            if replica in self._wanted:
                remove = partial(self._log_dirs.delete_dir, directory, partition_dir)
                self._remove(directory, replica, remove)
        if directory.error is not None:
            self._ended(directory, directory.error)
            return
        # The sync covers the renames of this removal and of earlier deletions.
        ports = self._log_dirs.ports
        sync = partial(ports.disk.sync_dir, directory.path)
        ports.workers.submit(sync, partial(self._synced, directory))

    def _synced(self, directory: LogDir, result: BaseException | None) -> None:
        if result is None:
            self._log_dirs.rewritten(directory).then(
                partial(self._checkpoints_rewritten, directory, directory.is_online)
            )
            return
        if isinstance(result, OSError):
            # A second sync would succeed though the renames may be lost with the next power loss:
            # after a failed fsync its pages may be gone from the page cache.
            directory.fail(result)
        self._ended(directory, result)

    def _checkpoints_rewritten(
        self, directory: LogDir, was_online: bool, failure: OSError | None
    ) -> None:
        """End with a directory whose checkpoints were rewritten, or could not be.

        If one could not be written the directory goes offline, but the replica counts as removed:
        the rename is durable, and the next start drops entries of logs that it does not find. As an
        error it would last until that start, since an offline directory cannot be searched: the
        deletion would wait for a disk that has nothing of it.
        """
        if failure is not None or not was_online:
            # A disk reports an error once: another sync may have got the one of these renames.
            self._went_offline(directory)
        self._ended(directory, None)

    def _went_offline(self, directory: LogDir) -> None:
        self._unknown = directory.error
        for replica, holder in self._found.items():
            if holder is directory:
                self._errors[replica] = OSError(
                    errno.EIO, "it went offline during the removal", directory.path
                )

    def _is_open(self, directory: LogDir, partition_dir: PartitionDir) -> bool:
        """Return whether a log was opened in a directory since it was listed."""
        return (
            partition_dir.kind is PartitionDirKind.LIVE
            and (partition_dir.topic, partition_dir.partition) in directory.logs
        )

    def _remove(self, directory: LogDir, replica: Replica, remove: Callable[[], object]) -> None:
        try:
            remove()
            self._found[replica] = directory
        except UndeletableDir as error:
            self._errors[replica] = error
        except OSError as error:
            topic_id, partition = replica
            if topic_id in self._topics:
                directory.add_offline_replica((self._topics[topic_id], partition), topic_id)
            # Not `directory.error`: an offline directory's error covers replicas it never had, too.
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
        self._remaining -= 1
        if self._remaining == 0:
            self._finish()

    def _finish(self) -> None:
        def outcome(replica: Replica) -> OSError | None:
            if replica in self._errors:
                return self._errors[replica]
            if replica in self._found:
                return None
            return self._unknown or self._unreadable_dir_error(replica)

        self.done.complete({replica: outcome(replica) for replica in sorted(self._wanted)})

    def _unreadable_dir_error(self, replica: Replica) -> OSError | None:
        """Return the error of an unreadable directory of this replica's name; None = none."""
        topic_id, partition = replica
        topic = self._topics.get(topic_id)
        for partition_dir in self._unreadable.get(partition, ()):
            if topic is None or partition_dir.topic == names.topic_in_name(
                topic, partition, partition_dir.kind
            ):
                return partition_dir.error
        return None
