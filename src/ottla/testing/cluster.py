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

from ottla.testing.layout import ClusterError, NodePlan, check_size, place_nodes
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import free_ports

__all__ = ["Cluster", "ClusterError"]

STOP_SECONDS = 15.0


class Cluster:
    """Brokers and a controller as processes on free ports of this machine.

    Fields: `brokers`: how many; one is a combined node, more get a controller beside them.
            `config`: properties of all nodes, in Kafka's names.
            `data_dir`: where it lives; given, it is kept and may hold a cluster already, else a
            temporary folder is removed at the end.
            `timeout`: seconds to wait for it to serve.
    Raises: ClusterError, with the end of a node's log where a node did not start.
    Order:  `with` starts it, waits until all brokers serve, and stops it at the end. The nodes
            end with this process, however it ends.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        check_size(brokers, 0)
        self._brokers = brokers
        self._config = dict(config or {})
        self._timeout = timeout
        self._kept = data_dir is not None
        self._root = Path(data_dir) if data_dir is not None else None
        self._engine: LocalCluster | None = None
        self._plans: tuple[NodePlan, ...] = ()

    def __enter__(self) -> "Cluster":
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="ottla-"))
        *broker_ports, controller_port = free_ports(self._brokers + 1)
        engine = LocalCluster(self._root, bound=True)
        try:
            entry = engine.prepare(
                place_nodes(self._brokers, 0, broker_ports, controller_port), self._config
            )
            self._engine, self._plans = engine, entry.plans
            engine.start()
            engine.wait_ready(self._timeout)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all nodes, and remove the data folder where it is a temporary one; idempotent."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop(STOP_SECONDS)
        if not self._kept and self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, as clients take them."""
        return self._running.entry().bootstrap

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

    def state(self, node: int) -> str:
        """Return running, starting, paused, stopped or dead."""
        return self._running.state(self._running.entry().node(node))

    def pid(self, node: int) -> int | None:
        """Return the process id of a node that lives."""
        entry = self._running.entry().node(node)
        alive = self._running.state(entry) not in ("stopped", "dead")
        return entry.process.pid if alive and entry.process is not None else None

    def start(self, node: int) -> None:
        """Start a node that was killed or stopped; `wait_ready` waits until it serves.

        Not waiting here lets all nodes be started in any order, one after the other.
        """
        self._running.start([node])

    def stop(self, node: int) -> None:
        """Stop a node in order (SIGTERM), and wait for its end."""
        self._running.stop(STOP_SECONDS, [node])

    def kill(self, node: int) -> None:
        """Kill a node (SIGKILL), and wait for its end."""
        self._running.kill(node)

    def restart(self, node: int) -> None:
        """Stop a node in order, start it again and wait until it serves."""
        self.stop(node)
        self.start(node)
        self._running.wait_ready(self._timeout, [node])

    def pause(self, node: int) -> None:
        """Freeze a node (SIGSTOP): its sockets stay open and nobody answers."""
        self._running.pause(node)

    def resume(self, node: int) -> None:
        """Let a paused node go on."""
        self._running.resume(node)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every node that should run serves and all brokers are unfenced."""
        self._running.wait_ready(self._timeout if timeout is None else timeout)

    def logs(self, node: int) -> str:
        """Return all that a node has printed so far."""
        return self._running.logs(node)

    def data_dir(self, node: int | None = None) -> Path:
        """Return the folder of one node's partitions (its `log.dirs`), or of the whole cluster."""
        root = self._running.data_dir
        return root if node is None else self._running.node_dir(node) / "data"

    @property
    def _running(self) -> LocalCluster:
        if self._engine is None:
            raise ClusterError("the cluster does not run: use it within its `with` block")
        return self._engine
