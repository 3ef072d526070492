"""Collects a node's metrics from its parts, and serves them.

The port is opened before the node's listeners, so that a long start can be watched.
"""

import asyncio
import logging
import time
from collections.abc import Iterator

from ottla.base.metrics import Family, Histogram
from ottla.broker.metric_families import broker_families, request_families
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.loop_lag import LoopLag
from ottla.host.metric_families import (
    broker_state_families,
    loop_families,
    metadata_error_families,
    process_families,
    server_families,
)
from ottla.host.net.metrics_server import MetricsServer
from ottla.host.net.server import Server, describe_listen_error
from ottla.host.node_core import NodeCore
from ottla.host.system_ports import LoopTimers

log = logging.getLogger(__name__)

PORT = "metrics.port"


class NodeMetrics:
    """Collects, and serves on `metrics.port` if that is set. `port`: the bound one, or None."""

    def __init__(
        self,
        node: NodeCore,
        loop: asyncio.AbstractEventLoop,
        timers: LoopTimers,
        server: Server,
        syncs: Histogram,
    ) -> None:
        self._node = node
        self._timers = timers
        self._server = server
        self._syncs = syncs
        self._started_ms = time.time_ns() // 1_000_000
        self._lag = LoopLag(loop)
        self._http = MetricsServer(loop, self.families)
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
        self._timers.on_wake = self._lag.timer_ran
        log.info("serving metrics at http://%s:%d/metrics", host or "every address", self.port)

    def stop(self) -> None:
        """Stop serving and measuring."""
        self._timers.on_wake = None
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
        yield from node.mode.families()
        if node.broker is not None:
            yield from broker_state_families(node.broker.mode.state)
            yield from metadata_error_families(node.broker.mode.metadata_errors)
        if broker is not None:
            yield from broker_families(broker)
