"""A node's roles put together, and the requests that come to them, without a socket or a loop.

Order of a start, in both modes: lock and check the log directories; join the cluster; bind the
broker's listeners, whose addresses it registers; read the metadata; load the logs; serve, once the
cluster knows that the broker is live. What a step does in a mode is in `ottla.host.node_mode`. A
shutdown is the reverse: the broker's controlled shutdown, the controller, the connections, the
logs. `NodeListeners` are sockets in a process and names of a simulated network in the simulator.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from ottla.base.authorizer import ALLOW_ALL, Authorizer
from ottla.base.metrics import Histogram
from ottla.base.pending import Pending
from ottla.base.turns import Turns
from ottla.broker.api.base import Context
from ottla.broker.api.plain_produce import NOT_PLAIN, NotPlain, PlainProduces
from ottla.broker.dispatch import (
    API_VERSIONS,
    Chunks,
    Dispatcher,
    Outcome,
    advertised,
    load_apis,
    read_header,
)
from ottla.broker.metrics import ApiMetrics
from ottla.broker.ports import CloseConnection, Connection, Listener
from ottla.host.broker_node import BrokerNode
from ottla.host.kraft.node_mode import KRaftMode
from ottla.host.log_dirs.node_dirs import NodeDirs
from ottla.host.node_mode import NodeMode
from ottla.host.node_ports import NodeListeners, NodePorts
from ottla.host.remote_storage import storage_uri
from ottla.host.steps import Steps
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.wire.frames import RequestHeader
from ottla.wire.registry import PRODUCE

log = logging.getLogger(__name__)

CONTROLLER_REQUESTS = frozenset({4, 5, 6, 1001})
"""LeaderAndIsr, StopReplica, UpdateMetadata and DisableRemoteTopic, which the controller of
ZooKeeper mode sends."""

SLOW_HANDLER_NS = 100_000_000
"""A handler that holds the loop for longer is logged."""


class NodeCore:
    """A node's roles. See `ottla.broker.api.base.NodeFacts`.

    `on_failure` is called with the reason why the node must stop.
    """

    def __init__(
        self, config: NodeConfig, ports: NodePorts, *, on_failure: Callable[[str], None]
    ) -> None:
        self.config = config
        self.node_id: int = config.node_id
        self.cluster_id = ""
        in_zookeeper = config.zookeeper_connect is not None
        self.supported_features = {
            each.name: (each.min_version, each.max_version)
            for each in SUPPORTED
            if not in_zookeeper
        }
        self.ports = ports
        self.authorizer: Authorizer = ALLOW_ALL
        """Asked about each request of this node."""
        self._on_failure = on_failure
        endpoints = load_apis()
        self._advertised = {
            (each, to_ottla): advertised(endpoints, each, zookeeper=in_zookeeper, to_ottla=to_ottla)
            for each in Listener
            for to_ottla in (False, True)
        }
        self.turns = Turns(ports.ticks_ns, ports.call_next_turn or self._call_by_timer)
        self._dispatcher = Dispatcher(
            endpoints, timers=ports.timers, turns=self.turns, zookeeper=in_zookeeper
        )
        self._plain_produces = PlainProduces(self._context, self._dispatcher.encoded_late)
        self._node_dirs: NodeDirs | None = None
        self.mode = _mode_of(config, ports, self.turns, on_failure)
        self.broker: BrokerNode | None = None
        """None before its listeners are bound, and on a controller."""

    def _call_by_timer(self, turn: Callable[[], None]) -> None:
        self.ports.timers.at(self.ports.clock.monotonic_ms(), turn)

    # -- NodeFacts -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """Return the newest committed metadata of this node."""
        return self.mode.image if self.broker is None else self.broker.image

    def advertised(self, listener: Listener, *, to_ottla: bool = False) -> Mapping[int, range]:
        """Return the versions that ApiVersions answers on a listener."""
        return self._advertised[listener, to_ottla]

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        """Handle a request that came inside an Envelope."""
        answer: Pending[bytes | None] = Pending()
        try:
            _header, body_at = read_header(frame)
            outcome = self._dispatcher.dispatch(ctx, frame, body_at, embedded=True)
        except CloseConnection as reason:
            log.info("forwarded request closed without a response: %s", reason)
            answer.complete(None)
            return answer
        except Exception:
            # The forwarding broker's connection carries other clients' requests, and must stay
            # open.
            log.exception("forwarded request failed")
            answer.complete(None)
            return answer
        if isinstance(outcome, Pending):
            return outcome.map(_unframed)
        answer.complete(_unframed(outcome))
        return answer

    # -- metrics -------------------------------------------------------------------------------

    @property
    def apis(self) -> Mapping[int, ApiMetrics]:
        """Return what was counted of requests, by API key."""
        return self._dispatcher.metrics

    # -- requests ------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        """Handle one frame of a connection."""
        ports = self.ports
        began_ns = ports.ticks_ns()
        outcome: Outcome
        plain = self._produce_plainly(connection, frame)
        if isinstance(plain, NotPlain):
            metrics, outcome = self._handle_any(connection, frame)
        else:
            metrics, outcome = self._dispatcher.metrics[PRODUCE], plain
            metrics.requests += 1
            metrics.request_bytes += len(frame)
        held_ns = ports.ticks_ns() - began_ns
        metrics.local.observe(held_ns)
        if isinstance(outcome, Pending) and not outcome.done:
            metrics.delayed.observe(held_ns)
            outcome.then(partial(self._on_delayed_response, metrics.late, began_ns))
        if held_ns > SLOW_HANDLER_NS:
            held_ms = held_ns // 1_000_000
            log.warning("%s held the loop for %d ms (%d bytes)", metrics.name, held_ms, len(frame))
        return outcome

    def _produce_plainly(self, connection: Connection, frame: memoryview) -> Outcome | NotPlain:
        node = self.broker
        if (
            node is None
            or node.broker is None
            or self.authorizer is not ALLOW_ALL
            or connection.listener is not Listener.CLIENT
            or not node.mode.serving.done
        ):
            return NOT_PLAIN
        return self._plain_produces.handle(node.broker.replicas, connection, frame)

    def _handle_any(self, connection: Connection, frame: memoryview) -> tuple[ApiMetrics, Outcome]:
        header, body_at = read_header(frame)
        metrics = self._dispatcher.metrics.get(header.api_key)
        if metrics is not None:
            metrics.requests += 1
            metrics.request_bytes += len(frame)
        outcome: Outcome
        until = self._waits_for(header.api_key)
        if until is not None:
            outcome = self._handle_later(until, connection, header, frame, body_at)
        else:
            outcome = self._dispatcher.dispatch(self._context(connection, header), frame, body_at)
        assert metrics is not None, "what is not served was refused"
        return metrics, outcome

    def _context(self, connection: Connection, header: RequestHeader) -> Context:
        """Return the context of a request that came over a connection."""
        clock = self.ports.clock
        now = (clock.now_ms(), clock.monotonic_ms())
        controller, quorum = self.mode.controller_on(connection.listener)
        node = None if connection.listener is Listener.CONTROLLER else self.broker
        return Context(
            header,
            connection,
            *now,
            self,
            None if node is None else node.broker,
            controller,
            quorum,
            authorizer=self.authorizer,
        )

    def _waits_for(self, key: int) -> Pending[None] | None:
        """Return what a request waits for that arrives before the broker can handle it, or None.

        In ZooKeeper mode the controller can reach a broker before it can answer clients: it would
        answer them with a cluster without itself, which librdkafka caches for a minute. Requests
        of the controller can also arrive before the broker knows its own epoch, while the
        registration of its previous process may still exist: by a request to that one it would
        lead with a log that this process may have lost. Such requests are delayed, not rejected,
        because some may be the first to the new registration and are not sent again; once the
        epoch is known, the broker epoch in the request tells them apart.
        """
        mode = None if self.broker is None else self.broker.mode
        if mode is None or mode.serving.done:
            return None
        if key in CONTROLLER_REQUESTS:
            return None if mode.registered.done else mode.registered
        endpoint = self._dispatcher.endpoints.get(key)
        waits = endpoint is not None and endpoint.api.is_for_clients and key != API_VERSIONS
        return mode.serving if waits else None

    def _handle_later(
        self,
        until: Pending[None],
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        body_at: int,
    ) -> Pending[Chunks | None]:
        """Handle a request once `until` is kept; its connection handles no other one before.

        It is dropped where the connection ends before. Requests of several connections are handled
        in the order in which they arrived.
        """
        answer: Pending[Chunks | None] = Pending()
        copy = memoryview(bytearray(frame))  # The connection reads into the buffer again.

        def handle(_: None) -> None:
            if connection.closed.done:
                return
            outcome: Outcome = None
            try:
                outcome = self._dispatcher.dispatch(
                    self._context(connection, header), copy, body_at
                )
            except CloseConnection as reason:
                connection.refusal = str(reason)
            except Exception:
                # The connection is closed; the start of the node goes on.
                log.exception("%s: a delayed request failed", connection.id)
            if isinstance(outcome, Pending):
                outcome.then(lambda chunks: _complete(answer, chunks))
            else:
                answer.complete(outcome)

        until.then(handle)
        return answer

    def _on_delayed_response(self, late: Histogram, began_ns: int, _answer: Chunks | None) -> None:
        late.observe(self.ports.ticks_ns() - began_ns)

    # -- lifecycle -----------------------------------------------------------------------------

    def open(self) -> None:
        """Lock and check the log directories, open the metadata log. Blocks. Raises: StartError."""
        storage_uri(self.config)
        self._node_dirs = self.mode.open_dirs()
        self.cluster_id = self._node_dirs.cluster_id

    def start_roles(self, listeners: NodeListeners) -> Steps[None]:
        """Start the roles; ends when the node serves. Raises: StartError, MetadataDamaged."""
        config, mode, node_dirs = self.config, self.mode, self._node_dirs
        assert node_dirs is not None
        yield from mode.join(listeners)
        self.cluster_id = node_dirs.cluster_id
        if not config.is_broker:
            return
        endpoints = yield listeners.bind(
            config.broker_listeners, config.advertised_listeners, Listener.CLIENT
        )
        self.broker = BrokerNode(
            config,
            mode.make_broker(endpoints),
            node_dirs=node_dirs,
            ports=self.ports,
            on_failure=self._on_failure,
        )
        yield from self.broker.load()
        yield from mode.register(listeners)
        yield from self.broker.serve()
        yield listeners.accept()

    def stop_roles(self, listeners: NodeListeners) -> Steps[None]:
        """Stop serving, flush everything; call `close` next.

        The broker's controlled shutdown comes before the controller of the same node resigns, and
        that before files are closed, so that another one takes over meanwhile.
        """
        if self.broker is not None:
            yield from self.broker.controlled_shutdown()
        yield from self.mode.resign()
        yield listeners.close()
        if self.broker is not None:
            yield from self.broker.close()
        yield from self.mode.close()

    def close(self) -> None:
        """Close the metadata log and release the log directories."""
        if self._node_dirs is not None:
            self._node_dirs.close()


def _mode_of(
    config: NodeConfig, ports: NodePorts, turns: Turns, on_failure: Callable[[str], None]
) -> NodeMode:
    if config.zookeeper_connect is None:
        return KRaftMode(config, ports, turns, on_failure=on_failure)
    # Imported here: no other node needs it.
    from ottla.host.zookeeper.node_mode import ZooKeeperMode

    return ZooKeeperMode(config, ports, on_failure=on_failure)


def _complete(answer: Pending[Chunks | None], chunks: Chunks | None) -> None:
    answer.complete(chunks)


def _unframed(chunks: Chunks | None) -> bytes | None:
    """Return a response without its size. What brokers forward is answered without file slices."""
    return None if chunks is None else b"".join(chunks)[4:]
