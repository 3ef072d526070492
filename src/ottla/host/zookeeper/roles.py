"""A node of ZooKeeper mode put together: a broker, and the controller that it may be elected to be.

Order of a start: a session, the cluster's id, the folders; the listeners' addresses are taken; the
broker loads what it has; requests are let in, and wait; it registers, and hears controllers from
then on, for only now it can tell what they say to it from what they said to its former life; it
stands for election; once the controller has named it, it serves clients. A stop goes the other
way: the broker asks to leave, the controller resigns, the logs are written down, and the session
ends last, which takes the registration with it.

Source: KafkaServer.{startup, shutdown}, Kafka 3.9.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.metrics import latency_ns
from ottla.base.pending import Pending
from ottla.base.zookeeper import ZkError
from ottla.broker.api.base import Listener
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
    from ottla.host.node_core import NodeListeners

log = logging.getLogger(__name__)

ZOOKEEPER_SHUTDOWN_MS = 3_000
"""How long the last requests to ZooKeeper may take together."""

ZOOKEEPER_SHUTDOWN_MS_MIN = 300
"""How long each of them may take in any case."""


class ZooKeeperRoles:
    """One node's roles.

    Fields: `registered`: kept once the broker knows its own epoch, and controllers may be heard.
            `serving`: kept once clients may be answered. `request_latency`: of ZooKeeper.
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
        """Connect, and make the folders those of the cluster; return its id. Raises: StartError."""
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
        """Stop serving, write all that is to be kept, end the session.

        ZooKeeper may be out of reach: it is not waited for long, and forgets the session itself.
        """
        if self.broker is not None:
            yield from self.broker.controlled_shutdown()
            # Before another controller is elected, which would not know that this broker leaves.
            yield self._within_limit(self.broker.unregister())
        if self.controller is not None:
            yield self._within_limit(self.controller.stop())
        yield listeners.close()
        if self.broker is not None:
            yield from self.broker.close()
        yield self._within_limit(self.keeper.close())

    def _within_limit(self, pending: Pending[None]) -> Pending[None]:
        """Return a promise kept when `pending` is, or when ZooKeeper has been waited for enough."""
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
