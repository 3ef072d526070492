"""A broker's log directories in ZooKeeper mode: the first start formats them.

`meta.properties` is of version 0: cluster.id and broker.id. A directory without one becomes this
broker's at the first start; one of another cluster or broker is refused, and so is one that was
formatted for KRaft mode, whose topics ZooKeeper does not have.

Beside it is `.ottla_zookeeper_session`, with the id of this broker's last session: see
`ottla.host.zookeeper.registration`.

Source: KafkaServer (InconsistentClusterIdException, MetaPropertiesEnsemble), Kafka 3.9.
"""

import logging
import os
import posixpath
from typing import Final

from ottla.base.pending import Pending, gather, nothing
from ottla.base.ports import Disk
from ottla.host.log_dirs.node_dirs import NodeDirs, StartError, lock_log_dirs
from ottla.host.log_dirs.storage import StorageError, read_meta_properties
from ottla.host.node_ports import NodePorts
from ottla.log.dirs.log_dir import CoalescedWrite
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.names import META_PROPERTIES
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)

VERSION: Final = 0
SESSION: Final = ".ottla_zookeeper_session"


class ZooKeeperNodeDirs(NodeDirs):
    """See the module, and `NodeDirs`."""

    def __init__(self, ports: NodePorts, config: NodeConfig, log_dirs: LogDirs) -> None:
        super().__init__(cluster_id="", quorum=None, log_dirs=log_dirs)
        self._ports = ports
        self._config = config
        self.previous_sessions: tuple[int, ...] = tuple(
            stored
            for directory in log_dirs.online_dirs
            if (stored := _stored_session(ports.disk, directory.path))
        )
        """The sessions of previous processes of this broker, as far as they were stored."""
        # One write of a file at a time: an older session's, still in a worker, must not come last.
        self._session_files = {
            each.path: CoalescedWrite(
                ports.disk, ports.workers, posixpath.join(each.path, SESSION), nothing, lambda: None
            )
            for each in log_dirs.online_dirs
        }

    def adopt(self, cluster_id: str) -> None:
        """Write the cluster id into the log directories. Blocks. Raises: StartError."""
        for directory in self.log_dirs.online_dirs:
            self._adopt(directory.path, cluster_id)
        self.cluster_id = cluster_id

    def _adopt(self, path: str, cluster_id: str) -> None:
        disk, node_id = self._ports.disk, self._config.node_id
        wanted = MetaProperties(version=VERSION, cluster_id=cluster_id, node_id=node_id)
        try:
            found = read_meta_properties(disk, path) or MetaProperties(version=VERSION)
            if found.version != VERSION:
                raise StartError(
                    f"{path} was formatted for KRaft mode, and zookeeper.connect is set: remove"
                    " zookeeper.connect, or set other log.dirs"
                )
            if found.cluster_id not in (None, cluster_id):
                raise StartError(
                    f"The Cluster ID {cluster_id} doesn't match stored clusterId"
                    f" {found.cluster_id} in {path}: the broker is trying to join the wrong"
                    " cluster; the configured zookeeper.connect may be wrong"
                )
            if found != wanted:
                data = encode_meta_properties(wanted)
                disk.write_atomic(posixpath.join(path, META_PROPERTIES), data)
        except (StorageError, OSError) as error:
            raise StartError(f"{path}: {error}") from None

    def store_session(self, session_id: int) -> Pending[None]:
        """Write a session's id into each online log directory, in workers; one is enough."""
        data = f"{session_id}\n".encode()

        def written(results: list[OSError | None]) -> None:
            for error in filter(None, results):
                log.warning(
                    "writing the ZooKeeper session id failed: %s; a restart after a kill "
                    "may wait for the session to expire",
                    error,
                )

        files = (self._session_files[each.path] for each in self.log_dirs.online_dirs)
        return gather([file.write(lambda: data) for file in files]).map(written)


def open_zookeeper_node_dirs(config: NodeConfig, ports: NodePorts) -> ZooKeeperNodeDirs:
    """Lock and check the log directories. Blocks. Raises: StartError."""
    paths = [os.path.abspath(path) for path in config.log_dirs]
    log_dirs = lock_log_dirs(config, ports, paths, cluster_id=None)
    return ZooKeeperNodeDirs(ports, config, log_dirs)


def _stored_session(disk: Disk, path: str) -> int:
    """Return the stored session id; 0 = none."""
    try:
        return int(disk.read_bytes(posixpath.join(path, SESSION)))
    except (OSError, ValueError):
        return 0
