"""A real cluster for tests, as a context manager.

with Cluster(brokers=3) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    cluster.kill(2)
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ottla.testing import cluster_facts, cluster_file
from ottla.testing.cluster_facts import PartitionFacts
from ottla.testing.layout import (
    ClusterError,
    NodePlan,
    check_size,
    controller_count,
    place_brokers,
    place_nodes,
    with_metrics,
)
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import HOST, free_ports
from ottla.testing.remote_events import KINDS, RemoteEvent, read_events
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.tiered.object_names import ObjectKind

__all__ = ["Cluster", "ClusterError"]

STOP_SECONDS = 30.0


class Cluster:
    """Brokers and controllers as processes on free ports of this machine.

    Fields: `brokers`: how many.
            `controllers`: how many nodes are controllers alone, with ids from 101; 0 = none: the
            first three brokers (the first one, of one or two) are controllers too.
            `zookeeper`: for a cluster in ZooKeeper mode: True = a server of its own, which ends
            with it; a running `ZooKeeperServer`; or a zookeeper.connect string. It has no
            separate controllers: one of the brokers is elected.
            `config`: properties of all nodes, in Kafka's names.
            `remote_storage`: tiered storage: True = in a directory beside the nodes' own, kept as
            long as they are (see `remote_dir`); or the URI of a store that all nodes reach.
            `metrics`: whether nodes serve metrics; see `metrics_address`.
            `data_dir`: its directory; if given, it is kept and may hold a cluster already, else a
            temporary directory is removed at the end.
            `timeout`: seconds to wait for it to serve.
    Raises: ClusterError, with the end of a node's log where a node did not start.
    Order:  `with` starts it, waits until all brokers serve, and stops it at the end. The nodes
            end with this process, however it ends.
    """

    def __init__(
        self,
        brokers: int = 1,
        controllers: int = 0,
        *,
        zookeeper: "bool | str | ZooKeeperServer" = False,
        config: Mapping[str, str] | None = None,
        remote_storage: bool | str = False,
        metrics: bool = False,
        data_dir: str | Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        check_size(brokers, controllers)
        if zookeeper and controllers:
            raise ClusterError(f"{controllers} controllers over ZooKeeper: expected 0")
        self._zookeeper = zookeeper
        self._own_server: ZooKeeperServer | None = None
        self._brokers = brokers
        self._controllers = controllers
        self._metrics = metrics
        self._config = dict(config or {})
        self._remote_storage = remote_storage
        self._timeout = timeout
        self._kept = data_dir is not None
        self._root = Path(data_dir) if data_dir is not None else None
        self._engine: LocalCluster | None = None
        self._plans: tuple[NodePlan, ...] = ()

    def __enter__(self) -> "Cluster":
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="ottla-"))
        engine = LocalCluster(self._root, bound=True)
        try:
            zookeeper = self._zookeeper_connect(self._root)
            plans = self._place(self._root) if zookeeper is None else self._place_over_zookeeper()
            entry = engine.prepare(plans, self._config | self._remote_config(), zookeeper)
            self._engine, self._plans = engine, entry.plans
            engine.start()
            engine.wait_ready(self._timeout)
        except BaseException:
            self.close()
            raise
        return self

    def _remote_config(self) -> dict[str, str]:
        """Return the properties that enable tiered storage."""
        if not self._remote_storage:
            return {}
        own = self._remote_storage is True
        if own:
            self.remote_dir.mkdir(parents=True, exist_ok=True)
        uri = self.remote_dir.as_uri() if own else str(self._remote_storage)
        return {
            "remote.log.storage.system.enable": "true",
            "ottla.remote.storage.uri": uri,
            "ottla.remote.storage.event.dir": str(self._event_dir),
        }

    @property
    def remote_dir(self) -> Path:
        """The directory of the cluster's own remote storage."""
        if self._root is None:
            raise ClusterError("the cluster does not run")
        return self._root.resolve() / "remote"

    @property
    def _event_dir(self) -> Path:
        if self._root is None:
            raise ClusterError("the cluster does not run")
        return self._root.resolve() / "remote-events"

    def remote_events(
        self,
        kind: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        object_kind: ObjectKind | None = ObjectKind.LOG,
    ) -> list[RemoteEvent]:
        """Return what brokers did in remote storage so far, in the order of time.

        `kind`: copy, fetch or delete; None = any. `object_kind`: which of a segment's files, None =
        any: the .log file alone stands for the segment. Without remote storage there are none.
        """
        if kind is not None and kind not in KINDS.values():
            raise ValueError(f"kind={kind!r}: expected one of {', '.join(KINDS.values())}")
        return [
            each
            for each in read_events(self._event_dir)
            if kind in (None, each.kind)
            and topic in (None, each.topic)
            and partition in (None, each.partition)
            and object_kind in (None, each.object_kind)
        ]

    def _zookeeper_connect(self, root: Path) -> str | None:
        """Return what the brokers connect to, and start it where it is the cluster's own."""
        if isinstance(self._zookeeper, ZooKeeperServer):
            return self._zookeeper.connect
        if isinstance(self._zookeeper, str):
            return self._zookeeper
        if not self._zookeeper:
            return None
        self._own_server = ZooKeeperServer(data_dir=root / "zookeeper", timeout=self._timeout)
        self._own_server.start()
        return self._own_server.connect

    def _place_over_zookeeper(self) -> tuple[NodePlan, ...]:
        count = self._brokers
        ports = free_ports(2 * count if self._metrics else count)
        plans = place_brokers(ports[:count])
        if not self._metrics:
            return plans
        return tuple(
            with_metrics(plan, port) for plan, port in zip(plans, ports[count:], strict=True)
        )

    def _place(self, root: Path) -> tuple[NodePlan, ...]:
        """Return the nodes on free ports."""
        brokers, controllers = self._brokers, self._controllers
        if controllers == 0 and cluster_file.exists(root):
            # A directory from before combined nodes were the default is used as it is.
            stored = cluster_file.load(root).plans
            controllers = sum(not plan.is_broker for plan in stored)
        count = controller_count(brokers, controllers)
        # Each controller, combined or not, has a port of its own.
        ports = free_ports(brokers + count + (brokers + controllers if self._metrics else 0))
        plans = place_nodes(brokers, controllers, ports[:brokers], ports[brokers : brokers + count])
        if not self._metrics:
            return plans
        rest = ports[brokers + count :]
        return tuple(with_metrics(plan, port) for plan, port in zip(plans, rest, strict=True))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes, and remove a temporary data directory; idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop(STOP_SECONDS)
        server, self._own_server = self._own_server, None
        if server is not None:
            server.close()
        if not self._kept and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as clients take them."""
        return self._running.entry().bootstrap

    @property
    def zookeeper(self) -> ZooKeeperServer | None:
        """The ZooKeeper servers; None in KRaft mode, and where only their address is known."""
        given = self._zookeeper
        return given if isinstance(given, ZooKeeperServer) else self._own_server

    @property
    def zookeeper_connect(self) -> str | None:
        """What the brokers connect to; None in KRaft mode."""
        return self._running.entry().zookeeper

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """All nodes, brokers first: the order in which to stop them."""
        return self._plans

    @property
    def brokers(self) -> tuple[NodePlan, ...]:
        """The nodes that are brokers."""
        return tuple(plan for plan in self._plans if plan.is_broker)

    def address(self, node: int) -> str:
        """Return where one broker listens, as `host:port`."""
        return f"127.0.0.1:{self._running.entry().node(node).plan.port}"

    def controller_address(self, node: int) -> str:
        """Return where one node's controller listens, as `host:port`."""
        port = self._running.entry().node(node).plan.controller_port
        if port is None:
            raise ClusterError(f"node {node} is no controller")
        return f"{HOST}:{port}"

    def metrics_address(self, node: int) -> str:
        """Return where one node serves metrics, as `host:port`; they are under `/metrics`."""
        port = self._running.entry().node(node).plan.metrics_port
        if port is None:
            raise ClusterError("no metrics are served: expected Cluster(..., metrics=True)")
        return f"{HOST}:{port}"

    @property
    def controllers(self) -> tuple[NodePlan, ...]:
        """The nodes that are controllers, combined ones too; none are over ZooKeeper."""
        return tuple(plan for plan in self._plans if plan.controller_port is not None)

    @property
    def controller(self) -> int | None:
        """The id of the active controller; None while there is none."""
        over_zookeeper = self._running.entry().zookeeper is not None
        return cluster_facts.active_controller(self._answering(), over_zookeeper=over_zookeeper)

    def wait_controller(self, besides: int | None = None, timeout: float | None = None) -> int:
        """Wait until a controller is active, another one than `besides`; return its id."""
        return cluster_facts.until(
            lambda: self._controller_besides(besides),
            "an active controller" + ("" if besides is None else f" other than {besides}"),
            self._timeout if timeout is None else timeout,
        )

    def _controller_besides(self, besides: int | None) -> int | None:
        found = self.controller
        return None if found == besides else found

    def partitions(self, topic: str) -> dict[int, PartitionFacts]:
        """Return a topic's partitions in a broker's metadata, by partition; empty = no such topic.

        Raises ClusterError where no broker answers.
        """
        return cluster_facts.partitions(self._answering(), topic)

    def wait_in_sync(self, topic: str | None = None, timeout: float | None = None) -> None:
        """Wait until each partition has a leader, and all its replicas are in sync.

        `topic`: only its partitions; None = of all topics, internal ones too. `timeout`: seconds.
        """
        cluster_facts.until(
            lambda: cluster_facts.all_in_sync(self._answering(), topic),
            f"all replicas of {topic or 'all topics'} to be in sync",
            self._timeout if timeout is None else timeout,
        )

    def _answering(self) -> list[NodePlan]:
        """Return the running nodes: a request to a paused one would only time out."""
        running = self._running
        return [node.plan for node in running.entry().nodes if running.state(node) == "running"]

    def state(self, node: int) -> str:
        """Return running, starting, paused, stopped or dead."""
        return self._running.state(self._running.entry().node(node))

    def pid(self, node: int) -> int | None:
        """Return the process id of a running node."""
        entry = self._running.entry().node(node)
        alive = self._running.state(entry) not in ("stopped", "dead")
        return entry.process.pid if alive and entry.process is not None else None

    def start(self, node: int | None = None) -> None:
        """Start a node that was killed or stopped, or all; `wait_ready` waits until it serves.

        Not waiting here lets all nodes be started in any order, one after the other.
        """
        self._running.start(None if node is None else [node])

    def stop(self, node: int | None = None) -> None:
        """Stop a node in order (SIGTERM), or all at once, and wait for the end.

        One after the other, the last nodes of a quorum would wait in vain for a controller to
        answer their controlled shutdown.
        """
        self._running.stop(STOP_SECONDS, None if node is None else [node])

    def kill(self, node: int) -> None:
        """Kill a node (SIGKILL), and wait for its end."""
        self._running.kill(node)

    def restart(self, node: int) -> None:
        """Stop a node in order, start it again and wait until it serves."""
        self.stop(node)
        self.start(node)
        self._running.wait_ready(self._timeout, [node])

    def pause(self, node: int) -> None:
        """Pause a node (SIGSTOP): its sockets stay open and it does not answer."""
        self._running.pause(node)

    def resume(self, node: int) -> None:
        """Resume a paused node (SIGCONT)."""
        self._running.resume(node)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every node that should run serves and all brokers are unfenced."""
        self._running.wait_ready(self._timeout if timeout is None else timeout)

    def logs(self, node: int) -> str:
        """Return all that a node has printed so far."""
        return self._running.logs(node)

    def data_dir(self, node: int | None = None) -> Path:
        """Return one node's log directory (`log.dirs`), or the data directory of the cluster."""
        root = self._running.data_dir
        return root if node is None else self._running.node_dir(node) / "data"

    @property
    def _running(self) -> LocalCluster:
        if self._engine is None:
            raise ClusterError("the cluster does not run: use it within its `with` block")
        return self._engine
