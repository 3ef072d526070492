"""A node's roles put together, and the requests that come to them, without a socket or a loop.

Order of a start: lock and check the log directories; start the controller, which opens its log;
its listeners; then the broker, which registers, replays the metadata up to its registration,
loads its logs, is unfenced and only then accepts clients. Listeners are bound before their
addresses are registered. A shutdown begins with the broker. `NodeListeners` are sockets in a
process and names of a simulated network in the simulator. How a node of ZooKeeper mode starts and
stops is in `ottla.host.zookeeper.roles`.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.base.authorizer import ALLOW_ALL, Authorizer
from ottla.base.metrics import Histogram
from ottla.base.pending import Pending
from ottla.base.turns import Turns
from ottla.broker.api.base import Context
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
from ottla.host.kraft.broker_node import BrokerNode
from ottla.host.kraft.controller_node import ControllerNode
from ottla.host.kraft.controller_shutdown import others_shut_down
from ottla.host.kraft.voter_links import VoterLinks
from ottla.host.node_dirs import NodeDirs, open_node_dirs
from ottla.host.node_ports import NodeListeners, NodePorts
from ottla.host.remote_storage import storage_uri
from ottla.host.steps import Steps
from ottla.host.storage import read_bootstrap
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.wire.frames import RequestHeader

if TYPE_CHECKING:
    from ottla.host.zookeeper.broker_node import ZooKeeperBrokerNode
    from ottla.host.zookeeper.roles import ZooKeeperRoles

log = logging.getLogger(__name__)

CONTROLLER_REQUESTS = frozenset({4, 5, 6})
"""LeaderAndIsr, StopReplica and UpdateMetadata, which the controller of ZooKeeper mode sends."""

SLOW_HANDLER_NS = 100_000_000
"""A handler that holds the loop for longer is logged."""


class NodeCore:
    """A node's roles. See `ottla.broker.api.base.NodeFacts`, `ottla.host.node_metrics.NodeParts`.

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
        self._node_dirs: NodeDirs | None = None
        self._roles: ZooKeeperRoles | None = None
        self._controller: ControllerNode | None = None
        self._peers: VoterLinks | None = None
        self._broker: BrokerNode | None = None

    def _call_by_timer(self, turn: Callable[[], None]) -> None:
        self.ports.timers.at(self.ports.clock.monotonic_ms(), turn)

    # -- NodeFacts -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """Return the newest committed metadata of this node."""
        broker = self.broker
        if broker is not None:
            return broker.image
        if self._controller is not None:
            return self._controller.runtime.committed_image
        return EMPTY

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

    # -- NodeParts -----------------------------------------------------------------------------

    @property
    def apis(self) -> Mapping[int, ApiMetrics]:
        """Return what was counted of requests, by API key."""
        return self._dispatcher.metrics

    @property
    def broker(self) -> "BrokerNode | ZooKeeperBrokerNode | None":
        """Return the broker role; None before it is made."""
        return self._broker if self._roles is None else self._roles.broker

    @property
    def controller(self) -> ControllerNode | None:
        """Return the controller role of KRaft mode; None before it is made."""
        return self._controller

    @property
    def zookeeper(self) -> "ZooKeeperRoles | None":
        """Return the roles of ZooKeeper mode; None before the log directories are open."""
        return self._roles

    # -- requests ------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        """Handle one frame of a connection."""
        ports = self.ports
        began_ns = ports.ticks_ns()
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
        held_ns = ports.ticks_ns() - began_ns
        assert metrics is not None, "what is not served was refused"
        metrics.local.observe(held_ns)
        if isinstance(outcome, Pending) and not outcome.done:
            metrics.delayed.observe(held_ns)
            outcome.then(partial(self._on_delayed_response, metrics.late, began_ns))
        if held_ns > SLOW_HANDLER_NS:
            held_ms = held_ns // 1_000_000
            log.warning("%s held the loop for %d ms (%d bytes)", metrics.name, held_ms, len(frame))
        return outcome

    def _context(self, connection: Connection, header: RequestHeader) -> Context:
        """Return the context of a request that came over a connection."""
        clock = self.ports.clock
        now = (clock.now_ms(), clock.monotonic_ms())
        if self._roles is not None:
            broker = self._roles.broker
            own_broker = None if broker is None else broker.broker
            return Context(
                header,
                connection,
                *now,
                self,
                own_broker,
                self._roles.controller,
                authorizer=self.authorizer,
            )
        on_controller = connection.listener is Listener.CONTROLLER
        controller = self._controller if on_controller else None
        return Context(
            header,
            connection,
            *now,
            self,
            None if on_controller or self._broker is None else self._broker.broker,
            controller,
            None if controller is None else controller.log.quorum,
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
        roles = self._roles
        if roles is None or roles.serving.done:
            return None
        if key in CONTROLLER_REQUESTS:
            return None if roles.registered.done else roles.registered
        endpoint = self._dispatcher.endpoints.get(key)
        waits = endpoint is not None and endpoint.api.is_for_clients and key != API_VERSIONS
        return roles.serving if waits else None

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
        ports = self.ports
        storage_uri(self.config)
        if self.config.zookeeper_connect is not None:
            from ottla.host.zookeeper.node_dirs import open_zookeeper_node_dirs
            from ottla.host.zookeeper.roles import ZooKeeperRoles

            self._node_dirs = node_dirs = open_zookeeper_node_dirs(self.config, ports)
            self._roles = ZooKeeperRoles(self.config, ports, node_dirs, on_failure=self._on_failure)
            return
        self._node_dirs = open_node_dirs(
            ports.disk,
            self.config,
            clock=ports.clock,
            dice=ports.dice,
            timers=ports.timers,
            workers=ports.workers,
            boot_id=ports.boot_id,
        )
        self.cluster_id = self._node_dirs.cluster_id

    def start_roles(self, listeners: NodeListeners) -> Steps[None]:
        """Start the roles; ends when the node serves. Raises: StartError, MetadataDamaged."""
        assert self._node_dirs is not None
        if self._roles is not None:
            self.cluster_id = yield from self._roles.join()
            yield from self._roles.start(self.cluster_id, listeners)
            return
        if self.config.is_controller:
            yield from self._start_controller(self._node_dirs, listeners)
        if self.config.is_broker:
            yield from self._start_broker(self._node_dirs, listeners)

    def _start_controller(self, node_dirs: NodeDirs, listeners: NodeListeners) -> Steps[None]:
        config, ports = self.config, self.ports
        endpoints = yield listeners.bind(
            config.controller_listeners, config.advertised_controller_listeners, Listener.CONTROLLER
        )
        voters = {voter.id: (voter.host, voter.port) for voter in config.quorum_voters}
        if len(voters) > 1:
            self._peers = VoterLinks(
                ports.connect, voters, config, self.cluster_id, ports.clock, ports.timers
            )
        controller = ControllerNode(
            config,
            cluster_id=self.cluster_id,
            listeners=endpoints,
            storage=node_dirs.quorum,
            bootstrap=read_bootstrap(ports.disk, config.metadata_log_dir),
            clock=ports.clock,
            dice=ports.dice,
            timers=ports.timers,
            workers=ports.workers,
            connect=ports.connect,
            on_failure=self._on_failure,
            peers=None if self._peers is None else self._peers.peers,
        )
        self._controller = controller
        controller.log.start()
        yield listeners.accept()

    def _start_broker(self, node_dirs: NodeDirs, listeners: NodeListeners) -> Steps[None]:
        config = self.config
        endpoints = yield listeners.bind(
            config.broker_listeners, config.advertised_listeners, Listener.CLIENT
        )
        self._broker = BrokerNode(
            config,
            cluster_id=self.cluster_id,
            listeners=endpoints,
            node_dirs=node_dirs,
            controller=self._controller,
            ports=self.ports,
            turns=self.turns,
            on_failure=self._on_failure,
        )
        yield from self._broker.load()
        # Before the broker is unfenced a client would get metadata without brokers, which
        # librdkafka caches for a minute.
        yield from self._broker.serve()
        yield listeners.accept()

    def stop_roles(self, listeners: NodeListeners) -> Steps[None]:
        """Stop serving, flush everything; call `close` next.

        The broker's controlled shutdown comes before the controller of the same node resigns, and
        that before files are closed, so that another voter takes over meanwhile.
        """
        if self._roles is not None:
            yield from self._roles.stop(listeners)
            return
        if self._broker is not None:
            yield from self._broker.controlled_shutdown()
        if self._controller is not None:
            runtime, ports = self._controller.runtime, self.ports
            yield others_shut_down(
                lambda: runtime.committed_image, self.node_id, ports.clock, ports.timers
            )
            self._controller.stop()
        if self._peers is not None:
            yield self._peers.close()
        yield listeners.close()
        if self._broker is not None:
            yield from self._broker.close()

    def close(self) -> None:
        """Close the metadata log and release the log directories."""
        if self._node_dirs is not None:
            self._node_dirs.close()


def _complete(answer: Pending[Chunks | None], chunks: Chunks | None) -> None:
    answer.complete(chunks)


def _unframed(chunks: Chunks | None) -> bytes | None:
    """Return a response without its size. What brokers forward is answered without file slices."""
    return None if chunks is None else b"".join(chunks)[4:]
