"""What ZooKeeper mode provides to a node: a session, and a controller that may be elected.

Order of a start: a session, the cluster id, the log directories; listeners are bound; the broker
loads its logs; connections are accepted, and requests wait; the broker registers, and handles
controllers' requests from then on, because only now it can tell them from requests to its previous
process; the controller takes part in elections; once the controller has listed the broker as live,
it serves clients. A shutdown is the reverse: controlled shutdown, the controller resigns, the logs
are flushed and closed, and the session is closed last, with the registration.

Source: KafkaServer.{startup, shutdown}, Kafka 3.9.
"""

import logging
from collections.abc import Callable, Iterator

from ottla.base.metrics import Family, latency_ns
from ottla.base.pending import Pending
from ottla.base.zookeeper import ZkError
from ottla.broker.ports import Listener
from ottla.host.log_dirs.node_dirs import NodeDirs, StartError
from ottla.host.node_ports import Endpoints, NodeListeners, NodePorts
from ottla.host.steps import Steps, within
from ottla.host.zookeeper.broker_mode import ZooKeeperBroker
from ottla.host.zookeeper.controller_node import ZooKeeperController
from ottla.host.zookeeper.measured_session import measured
from ottla.host.zookeeper.metric_families import ZooKeeperFamilies
from ottla.host.zookeeper.node_dirs import ZooKeeperNodeDirs, open_zookeeper_node_dirs
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.host.zookeeper.start_reading import cluster_id_of
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.znodes.fields import ZnodeError

log = logging.getLogger(__name__)

ZOOKEEPER_SHUTDOWN_MS = 3_000
"""How long the requests to ZooKeeper at shutdown may take together."""

ZOOKEEPER_SHUTDOWN_MS_MIN = 300
"""How long each of them may take in any case."""


class ZooKeeperMode:
    """See `ottla.host.node_mode.NodeMode`. `request_latency`: of ZooKeeper.

    `controller`: None until the broker has loaded its logs.
    """

    def __init__(
        self, config: NodeConfig, ports: NodePorts, *, on_failure: Callable[[str], None]
    ) -> None:
        assert ports.open_zookeeper is not None, "ZooKeeper mode needs a way to it"
        self._config = config
        self._ports = ports
        self._on_failure = on_failure
        self._node_dirs: ZooKeeperNodeDirs | None = None
        self._broker: ZooKeeperBroker | None = None
        self.controller: ZooKeeperController | None = None
        self.request_latency = latency_ns()
        self._zookeeper_shutdown_ms = ZOOKEEPER_SHUTDOWN_MS
        self.keeper = SessionKeeper(
            measured(ports.open_zookeeper, ports.ticks_ns, self.request_latency),
            clock=ports.clock,
            timers=ports.timers,
            connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
        )
        self._families = ZooKeeperFamilies(self)

    @property
    def image(self) -> ClusterImage:
        """Return no metadata: the broker has them."""
        return EMPTY

    def open_dirs(self) -> NodeDirs:
        self._node_dirs = open_zookeeper_node_dirs(self._config, self._ports)
        return self._node_dirs

    def join(self, listeners: NodeListeners) -> Steps[None]:
        """Connect, format the log directories. Raises: StartError."""
        config = self._config
        assert self._node_dirs is not None
        connected = yield self.keeper.start()
        session = self.keeper.session
        if not connected or session is None:
            raise StartError(
                f"zookeeper.connect={config.zookeeper_connect}: no connection within"
                f" zookeeper.connection.timeout.ms={config['zookeeper.connection.timeout.ms']}"
            )
        try:
            yield from make_persistent(session)
            cluster_id = yield from cluster_id_of(session, self._ports.dice)
        except (ZkError, ZnodeError) as error:
            raise StartError(f"zookeeper.connect={config.zookeeper_connect}: {error}") from None
        self._node_dirs.adopt(cluster_id)
        log.info("joined cluster %s at %s", cluster_id, config.zookeeper_connect)

    def make_broker(self, endpoints: Endpoints) -> ZooKeeperBroker:
        assert self._node_dirs is not None
        self._broker = ZooKeeperBroker(
            self._config,
            endpoints=endpoints,
            node_dirs=self._node_dirs,
            keeper=self.keeper,
            ports=self._ports,
        )
        return self._broker

    def register(self, listeners: NodeListeners) -> Steps[None]:
        """Accept connections, register, and take part in elections. Raises: StartError."""
        assert self._node_dirs is not None
        assert self._broker is not None
        controller = self.controller = ZooKeeperController(
            self._config,
            cluster_id=self._node_dirs.cluster_id,
            keeper=self.keeper,
            ports=self._ports,
            on_failure=self._on_failure,
        )
        controller.election.add_previous_sessions(self._node_dirs.previous_sessions)
        yield listeners.accept()
        yield from self._broker.register(controller.election)
        controller.start()

    def resign(self) -> Steps[None]:
        """Unregister, then resign.

        ZooKeeper may be unreachable: it is not waited for long, and expires the session itself.
        """
        if self._broker is not None:
            # Before another controller is elected, which would not know of the shutdown.
            yield from self._within_limit(self._broker.unregister())
        if self.controller is not None:
            yield from self._within_limit(self.controller.stop())

    def close(self) -> Steps[None]:
        """Close the session."""
        yield from self._within_limit(self.keeper.close())

    def controller_on(self, listener: Listener) -> tuple[ZooKeeperController | None, None]:
        """Return the controller: requests to it come over the broker's listeners."""
        return self.controller, None

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the session and the controller."""
        return self._families.collect()

    def _within_limit(self, pending: Pending[None]) -> Steps[None]:
        """Wait for a promise, but no longer than is left of the time for all of them."""
        clock = self._ports.clock
        began_ms = clock.monotonic_ms()
        limit_ms = max(self._zookeeper_shutdown_ms, ZOOKEEPER_SHUTDOWN_MS_MIN)
        yield within(limit_ms, pending, clock, self._ports.timers)
        self._zookeeper_shutdown_ms -= clock.monotonic_ms() - began_ms
