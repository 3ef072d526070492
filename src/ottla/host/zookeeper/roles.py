"""The roles of a node in ZooKeeper mode: a broker, and a controller that may be elected.

Order of a start: a session, the cluster id, the log directories; listeners are bound; the broker
loads its logs; connections are accepted, and requests wait; the broker registers, and handles
controllers' requests from then on, because only now it can tell them from requests to its previous
process; the controller takes part in elections; once the controller has listed the broker as live,
it serves clients. A shutdown is the reverse: controlled shutdown, the controller resigns, the logs
are flushed and closed, and the session is closed last, with the registration.

Source: KafkaServer.{startup, shutdown}, Kafka 3.9.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.metrics import latency_ns
from ottla.base.pending import Pending
from ottla.base.zookeeper import ZkError
from ottla.broker.ports import Listener
from ottla.host.node_dirs import StartError
from ottla.host.node_ports import NodePorts
from ottla.host.steps import Steps
from ottla.host.zookeeper.broker_node import ZooKeeperBrokerNode
from ottla.host.zookeeper.controller_node import ZooKeeperController
from ottla.host.zookeeper.measured_session import measured
from ottla.host.zookeeper.node_dirs import ZooKeeperNodeDirs
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.host.zookeeper.start_reading import cluster_id_of
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.znodes.fields import ZnodeError

if TYPE_CHECKING:
    from ottla.host.node_ports import NodeListeners

log = logging.getLogger(__name__)

ZOOKEEPER_SHUTDOWN_MS = 3_000
"""How long the requests to ZooKeeper at shutdown may take together."""

ZOOKEEPER_SHUTDOWN_MS_MIN = 300
"""How long each of them may take in any case."""


class ZooKeeperRoles:
    """One node's roles.

    Fields: `registered`: kept once the broker knows its epoch: controllers' requests are handled.
            `serving`: kept once clients' requests are handled. `request_latency`: of ZooKeeper.
    """

    def __init__(
        self,
        config: NodeConfig,
        ports: NodePorts,
        node_dirs: ZooKeeperNodeDirs,
        *,
        on_failure: Callable[[str], None],
    ) -> None:
        assert ports.open_zookeeper is not None, "ZooKeeper mode needs a way to it"
        self._config = config
        self._ports = ports
        self._node_dirs = node_dirs
        self._on_failure = on_failure
        self.registered: Pending[None] = Pending()
        self.serving: Pending[None] = Pending()
        self.broker: ZooKeeperBrokerNode | None = None
        self.controller: ZooKeeperController | None = None
        self.request_latency = latency_ns()
        self._zookeeper_shutdown_ms = ZOOKEEPER_SHUTDOWN_MS
        self.keeper = SessionKeeper(
            measured(ports.open_zookeeper, ports.ticks_ns, self.request_latency),
            clock=ports.clock,
            timers=ports.timers,
            connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
        )

    def join(self) -> Steps[str]:
        """Connect, format the log directories; return the cluster id. Raises: StartError."""
        config = self._config
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
        return cluster_id

    def start(self, cluster_id: str, listeners: "NodeListeners") -> Steps[None]:
        """Start both roles; ends when clients are served. Raises: StartError."""
        config = self._config
        endpoints = yield listeners.bind(
            config.broker_listeners, config.advertised_listeners, Listener.CLIENT
        )
        broker = ZooKeeperBrokerNode(
            config,
            cluster_id=cluster_id,
            listeners=endpoints,
            node_dirs=self._node_dirs,
            keeper=self.keeper,
            ports=self._ports,
            on_failure=self._on_failure,
        )
        self.broker = broker
        controller = ZooKeeperController(
            config,
            cluster_id=cluster_id,
            keeper=self.keeper,
            ports=self._ports,
            on_failure=self._on_failure,
        )
        controller.election.add_previous_sessions(self._node_dirs.previous_sessions)
        yield from broker.load()
        self.controller = controller
        yield listeners.accept()
        yield from broker.register(controller.election)
        self.registered.complete(None)
        controller.start()
        yield from broker.serve()
        self.serving.complete(None)

    def stop(self, listeners: "NodeListeners") -> Steps[None]:
        """Stop serving, flush everything, close the session.

        ZooKeeper may be unreachable: it is not waited for long, and expires the session itself.
        """
        if self.broker is not None:
            yield from self.broker.controlled_shutdown()
            # Before another controller is elected, which would not know of the shutdown.
            yield self._within_limit(self.broker.unregister())
        if self.controller is not None:
            yield self._within_limit(self.controller.stop())
        yield listeners.close()
        if self.broker is not None:
            yield from self.broker.close()
        yield self._within_limit(self.keeper.close())

    def _within_limit(self, pending: Pending[None]) -> Pending[None]:
        """Return a promise kept when `pending` is, or at the timeout."""
        finished: Pending[None] = Pending()
        began_ms = self._ports.clock.monotonic_ms()

        def end(_: None = None) -> None:
            if finished.done:
                return
            timer.cancel()
            self._zookeeper_shutdown_ms -= self._ports.clock.monotonic_ms() - began_ms
            finished.complete(None)

        limit_ms = max(self._zookeeper_shutdown_ms, ZOOKEEPER_SHUTDOWN_MS_MIN)
        timer = self._ports.timers.at(began_ms + limit_ms, end)
        pending.then(end)
        return finished
