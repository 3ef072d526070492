"""A node's log directories at start: locked, checked to be this node's, and its logs loaded.

A partition directory is kept where the metadata has this broker as a replica of that topic id. If
it has records it is deleted only on positive evidence, from committed metadata:

| the topic id of a partition directory is             | the directory, or an older stray,    |
|------------------------------------------------------|--------------------------------------|
| known, and the assignment names this broker          | is kept                              |
| known, and the assignment does not name this broker  | is deleted                           |
| known, but the topic has no such partition           | is renamed to a stray and kept       |
| in the deletion ledger, pending or a receipt         | is deleted                           |
| unknown: its receipt has expired, or it is foreign   | is renamed to a stray and kept       |
| missing or damaged, and there is no record in it     | is renamed, then deleted             |
| missing or damaged                                   | is renamed to a stray and kept       |
| not readable, or cannot be renamed                   | is left as it is                     |
| none: the directory is a link to no log              | is left as it is                     |

Strays, and directories that are left as they are, are logged at each start.
"""

import contextlib
import logging
import os
import posixpath
from collections.abc import Iterable

from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.base.ports import Disk
from ottla.broker.logs.log_values import log_values
from ottla.host.kraft.quorum_log import open_quorum_storage
from ottla.host.kraft.quorum_storage import FROM_BACKUP, QuorumStorage
from ottla.host.log_dirs.descriptors import descriptor_limit, plan
from ottla.host.log_dirs.storage import StorageError, read_meta_properties, write_directory_id
from ottla.host.node_ports import NodePorts
from ottla.host.steps import Steps, wait
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoints import decode_clean_shutdown, decode_running, encode_running
from ottla.log.dirs.dir_loading import DamagedMetadata, Verdict
from ottla.log.dirs.log_dirs import DirectoryRefused, LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.remote_definitions import STORAGE_URI, SYSTEM_ENABLE
from ottla.raft.election import FILE_NAME as QUORUM_STATE

log = logging.getLogger(__name__)


class StartError(Exception):
    """The node cannot start; the message is one line for the operator."""


class NodeDirs:
    """A node's log directories and metadata log. `close` releases the locks."""

    def __init__(
        self,
        *,
        cluster_id: str,
        quorum: QuorumStorage | None,
        log_dirs: LogDirs,
        previous_epoch: int = -1,
    ) -> None:
        self.cluster_id = cluster_id
        self._quorum = quorum
        self.log_dirs = log_dirs
        self.previous_broker_epoch = previous_epoch
        """The broker epoch since which the log directories lost nothing: the broker was shut down
        cleanly, or the machine has been up ever since. It may have registered again and died before
        it stored the new epoch. -1 = they may have lost something."""

    @property
    def quorum(self) -> QuorumStorage:
        """Return the metadata log, which nodes of KRaft mode have."""
        assert self._quorum is not None
        return self._quorum

    @property
    def directory_ids(self) -> tuple[Uuid, ...]:
        """Return the ids of the online log directories."""
        return self.log_dirs.directory_ids

    def load_logs(self, image: ClusterImage, config: NodeConfig) -> Steps[None]:
        """Load every log that is this broker's by `image`. Raises: StartError."""

        def decide(_topic: str, partition: int, topic_id: Uuid) -> Verdict:
            return verdict_on(image, config.node_id, topic_id, partition)

        def config_of(topic: str) -> LogConfig:
            return LogConfig.of(log_values(image, config, topic))

        check_remote_topics(image, config)
        self.log_dirs.set_delete_delay(config.dynamic(image)["log.segment.delete.delay.ms"])
        found = yield from wait(self.log_dirs.load(decide, config_of))
        for directory in self.log_dirs.offline_dirs:
            log.error(
                "log directory %s failed: %s; its logs are offline",
                directory.path,
                directory.error,
            )
        if found.problem is not None:
            raise StartError(found.problem)
        check_remote_prefixes(found.logs, config)
        for stray in found.strays:
            log.warning(
                "stray partition directory %s: its partition is not in the metadata; "
                "kept and not used",
                stray,
            )
        for error in found.unusable:
            if isinstance(error, DamagedMetadata):
                log.error(
                    "%s is damaged (%s): the topic id of the log in this directory is unknown; "
                    "the partition is offline on this broker. Restore the file, or move its "
                    "directory away, and restart the broker",
                    error.filename,
                    error.strerror,
                )
                continue
            log.warning(
                "cannot read or move %s (%s): it is left as it is, and no log of that name is "
                "used until a start can read it",
                error.filename,
                error.strerror,
            )
        log.info("loaded %d logs", len(found.logs))

    def close(self) -> None:
        """Close the metadata log and release the locks."""
        if self._quorum is not None:
            self._quorum.close()
        self.log_dirs.release()


def check_remote_topics(image: ClusterImage, config: NodeConfig) -> None:
    """Refuse a start that would leave topics' remote segments unread. Raises: StartError."""
    if config[SYSTEM_ENABLE]:
        return
    tiered = [topic.name for topic in image.topics if image.has_remote_log(topic.name)]
    if tiered:
        raise StartError(
            f"{SYSTEM_ENABLE}=false, and {len(tiered)} topics have remote storage, the first is"
            f" {tiered[0]}: set {SYSTEM_ENABLE}=true and {STORAGE_URI}"
        )


def check_remote_prefixes(logs: Iterable[PartitionLog], config: NodeConfig) -> None:
    """Refuse a start that would leave logs without records that are not in remote storage any more.

    They were given up while this broker was down. Only a broker with remote storage moves the log
    start, or copies from its leader what that has. Raises: StartError.
    """
    if config[SYSTEM_ENABLE]:
        return
    lacking = [each.name for each in logs if each.has_remote_prefix]
    if lacking:
        raise StartError(
            f"{SYSTEM_ENABLE}=false, and {len(lacking)} logs lack records that were in remote"
            f" storage, the first is {lacking[0]}: set {SYSTEM_ENABLE}=true and {STORAGE_URI} until"
            " the broker has copied them from their leaders"
        )


def verdict_on(image: ClusterImage, node_id: int, topic_id: Uuid, partition: int) -> Verdict:
    """Return what is done with a partition directory: see the module's table."""
    known = image.topics.by_id(topic_id)
    if known is None:
        # Any entry is evidence, whatever the state of this broker's replica: the topic is deleted.
        return Verdict.STRAY if image.deletions.of(topic_id) is None else Verdict.DELETE
    state = known.partitions.get(partition)
    if state is None:
        # Topics do not shrink: the metadata is older than the directory, as after a restore.
        return Verdict.STRAY
    return Verdict.KEEP if node_id in state.replicas else Verdict.DELETE


def lock_log_dirs(
    config: NodeConfig, ports: NodePorts, paths: list[str], *, cluster_id: str | None
) -> LogDirs:
    """Lock log directories, check that they are this node's. Blocks. Raises: StartError."""
    log_dirs = LogDirs(
        ports.disk,
        ports.workers,
        ports.clock,
        ports.timers,
        paths,
        dice=ports.dice,
        open_files_max=plan(descriptor_limit()).log_files,
        recovery_threads=config["num.recovery.threads.per.data.dir"],
        delete_delay_ms=config["log.segment.delete.delay.ms"],
    )
    try:
        log_dirs.acquire(node_id=config.node_id, cluster_id=cluster_id)
    except (DirectoryRefused, OSError) as error:
        log_dirs.release()
        raise _start_error(error, paths[0]) from None
    return log_dirs


def open_node_dirs(config: NodeConfig, ports: NodePorts) -> NodeDirs:
    """Lock and check the log directories, open the metadata log. Blocks. Raises: StartError."""
    disk, boot_id = ports.disk, ports.boot_id
    paths = [os.path.abspath(path) for path in config.log_dirs]
    metadata_path = os.path.abspath(config.metadata_log_dir)
    cluster_id = _cluster_id(disk, metadata_path)
    # A separate metadata log directory is locked and checked like a log directory, without logs.
    locked = paths if config.is_broker else [metadata_path]
    log_dirs = lock_log_dirs(config, ports, locked, cluster_id=cluster_id)
    # Under the lock: a process that is still stopping may remove its notes if its flush fails.
    clean = [_clean_epoch(disk, path) for path in paths]
    running = [_running_epoch(disk, path, boot_id) for path in paths]
    try:
        _format_new_dirs(config, ports, log_dirs, cluster_id)
        quorum = open_quorum_storage(
            disk,
            metadata_path,
            clock=ports.clock,
            timers=ports.timers,
            workers=ports.workers,
            segment_bytes=config["metadata.log.segment.bytes"],
            segment_ms=config["metadata.log.segment.ms"],
            remedy=_remedy(config),
        )
    except Exception as error:
        log_dirs.release()
        if isinstance(error, OSError):
            raise _start_error(error, metadata_path) from None
        raise
    left = min(map(max, clean, running), default=-1)
    if boot_id and min(running, default=-1) < left:
        for path in paths:
            _note_what_is_left(disk, path, left, boot_id)
    return NodeDirs(
        cluster_id=cluster_id,
        quorum=quorum,
        log_dirs=log_dirs,
        previous_epoch=left,
    )


def _format_new_dirs(
    config: NodeConfig, ports: NodePorts, log_dirs: LogDirs, cluster_id: str
) -> None:
    """Give a directory id to each log directory that has none: its disk was added or replaced.

    The controller knows log directories by their ids alone. It would not learn that one without an
    id failed, and the replicas in it would stay leaders.
    Source: KafkaRaftServer.initializeLogDirs; KIP-858. Raises: StartError.
    """
    for directory in log_dirs.online_dirs:
        if directory.directory_id != NO_UUID:
            continue
        path = directory.path
        try:
            found = read_meta_properties(ports.disk, path)
            if found is not None and found.version == 0:
                raise StartError(
                    f"{path} was formatted for ZooKeeper mode, and process.roles is set: remove"
                    " process.roles, or set other log.dirs"
                )
            directory.directory_id = write_directory_id(
                ports.disk, path, cluster_id, config.node_id, ports.dice
            )
        except OSError as error:
            directory.error = error
            if not log_dirs.online_dirs:
                raise _start_error(error, path) from None
            continue
        log.info("formatted %s with directory id %s", path, uuid_text(directory.directory_id))


def _start_error(error: DirectoryRefused | OSError, path: str) -> StartError:
    if isinstance(error, OSError):
        return StartError(f"{error.filename or path}: {error.strerror or error}")
    return StartError(str(error))


def _remedy(config: NodeConfig) -> str:
    """Return what the operator has to do where the metadata log is damaged."""
    if not config.is_controller:
        return "remove the directory to have the broker fetch the metadata again"
    if len(config.quorum_voters) <= 1:
        return FROM_BACKUP
    return (
        f"{FROM_BACKUP}, or, only if all other controllers run and have caught up, remove all of "
        f"it but {QUORUM_STATE} to have it fetched from them"
    )


def _cluster_id(disk: Disk, path: str) -> str:
    try:
        properties = read_meta_properties(disk, path)
    except (StorageError, OSError) as error:
        raise StartError(str(error)) from None
    if properties is None or properties.cluster_id is None:
        raise StartError(
            f"No readable meta.properties file found in {path}: expected a formatted directory; "
            "run `ottla storage format` first"
        )
    return properties.cluster_id


def _clean_epoch(disk: Disk, path: str) -> int:
    """Return the broker epoch of a clean shutdown; -1 where the last one was not clean."""
    try:
        return decode_clean_shutdown(disk.read_bytes(posixpath.join(path, names.CLEAN_SHUTDOWN)))
    except OSError:
        return -1


def _running_epoch(disk: Disk, path: str, boot_id: str) -> int:
    """Return the broker epoch since which nothing was lost in this boot; -1 = unknown."""
    try:
        return decode_running(disk.read_bytes(posixpath.join(path, names.RUNNING)), boot_id)
    except OSError:
        return -1


def _note_what_is_left(disk: Disk, path: str, epoch: int, boot_id: str) -> None:
    """Store the epoch of a clean shutdown, valid for as long as the machine is up."""
    note = encode_running(epoch, boot_id)
    with contextlib.suppress(OSError):
        disk.write_atomic(posixpath.join(path, names.RUNNING), note)
