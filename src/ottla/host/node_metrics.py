"""Collects a node's metrics from its parts, and serves them.

The port is opened before the node's listeners, so that a long start can be watched.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.metrics import Family, Histogram
from ottla.broker.metric_families import broker_families, request_families
from ottla.broker.metrics import ApiMetrics
from ottla.host.controller_channel_metrics import channel_families
from ottla.host.kraft.broker_node import BrokerNode
from ottla.host.kraft.controller_node import ControllerNode
from ottla.host.loop_lag import LoopLag
from ottla.host.metric_families import (
    ControllerFamilies,
    broker_state_families,
    loop_families,
    metadata_error_families,
    process_families,
    raft_families,
    server_families,
)
from ottla.host.net.metrics_server import MetricsServer
from ottla.host.net.server import Server, describe_listen_error
from ottla.host.node_dirs import StartError
from ottla.metadata.node_config import NodeConfig

if TYPE_CHECKING:
    from ottla.host.zookeeper.broker_node import ZooKeeperBrokerNode
    from ottla.host.zookeeper.metric_families import ZooKeeperFamilies
    from ottla.host.zookeeper.roles import ZooKeeperRoles

log = logging.getLogger(__name__)

PORT = "metrics.port"


class NodeParts(Protocol):
    """The parts of a node that have metrics."""

    config: NodeConfig

    @property
    def apis(self) -> Mapping[int, ApiMetrics]:
        """Return what was counted of requests, by API key."""
        ...

    @property
    def broker(self) -> "BrokerNode | ZooKeeperBrokerNode | None":
        """Return the broker role; None before it is made."""
        ...

    @property
    def controller(self) -> ControllerNode | None:
        """Return the controller role of KRaft mode; None before it is made."""
        ...

    @property
    def zookeeper(self) -> "ZooKeeperRoles | None":
        """Return the roles of ZooKeeper mode; None before they are made."""
        ...


class NodeMetrics:
    """Collects, and serves on `metrics.port` if that is set. `port`: the bound one, or None."""

    def __init__(
        self,
        node: NodeParts,
        loop: asyncio.AbstractEventLoop,
        server: Server,
        syncs: Histogram,
    ) -> None:
        self._node = node
        self._server = server
        self._syncs = syncs
        self._started_ms = time.time_ns() // 1_000_000
        self._lag = LoopLag(loop)
        self._http = MetricsServer(loop, self.families)
        self._controller: ControllerFamilies | None = None
        self._zookeeper: ZooKeeperFamilies | None = None
        self.port: int | None = None

    async def start(self) -> None:
        """Listen beside the node's first listener, on its address. Raises: StartError."""
        config = self._node.config
        port = config[PORT]
        if port < 0:
            return
        host = config.listeners[0].host
        try:
            self.port = await self._http.listen(host, port)
        except OSError as error:
            reason = describe_listen_error(error, host, port)
            raise StartError(f"{PORT}={port}: {reason}") from None
        self._lag.start()
        log.info("serving metrics at http://%s:%d/metrics", host or "every address", self.port)

    def stop(self) -> None:
        """Stop serving and measuring."""
        self._lag.stop()
        self._http.close()

    def families(self) -> Iterator[Family]:
        """Yield all families as of now, by the node's roles."""
        node = self._node
        yield from process_families(self._started_ms)
        yield from loop_families(self._lag.lag, self._syncs)
        yield from server_families(self._server)
        broker = node.broker.broker if node.broker is not None else None
        names = {key: each.name for key, each in node.apis.items()}
        by_key = {} if broker is None else broker.partition_errors.by_key
        yield from request_families(
            list(node.apis.values()), {names[key]: errors for key, errors in by_key.items()}
        )
        yield from self._controller_families(node)
        if node.broker is not None:
            yield from broker_state_families(node.broker.state)
            yield from metadata_error_families(node.broker.metadata_errors)
        if broker is not None:
            yield from broker_families(broker)

    def _controller_families(self, node: NodeParts) -> Iterator[Family]:
        if node.zookeeper is not None:
            if self._zookeeper is None:
                from ottla.host.zookeeper.metric_families import ZooKeeperFamilies

                self._zookeeper = ZooKeeperFamilies(node.zookeeper)
            yield from self._zookeeper.collect()
        elif node.controller is not None:
            if self._controller is None:
                self._controller = ControllerFamilies(node.controller.log, node.controller.runtime)
            yield from raft_families(node.controller.log.raft)
            yield from self._controller.collect(node.controller.timed_out_heartbeats)
            yield from channel_families(node.controller.deletions.channels)
        elif isinstance(node.broker, BrokerNode):
            yield from raft_families(node.broker.raft)
