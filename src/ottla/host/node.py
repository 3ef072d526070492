"""One node put together from its parts: the process behind `ottla server`.

Order of a start: lock and check the folders; the controller, which opens its log and its epoch;
its listeners; then the broker, which registers, replays the metadata up to its registration,
loads its logs, is unfenced and only then accepts clients. Addresses are taken before others are
told of them. A stop goes the other way round. What cannot be mended while running (a metadata
log that cannot be written) stops the process with exit code 1 and a line that says why.
"""

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial

from ottla.base.metrics import Histogram
from ottla.base.pending import Pending
from ottla.broker.api.base import CloseConnection, Connection, Context, Listener
from ottla.broker.dispatch import Chunks, Dispatcher, Outcome, advertised, load_apis, read_header
from ottla.broker.metrics import ApiMetrics
from ottla.host.broker_node import BrokerNode
from ottla.host.controller_node import ControllerNode
from ottla.host.disk import OsDisk
from ottla.host.folders import Folders, StartError, open_folders
from ottla.host.node_metrics import NodeMetrics
from ottla.host.quorum_storage import MetadataDamaged
from ottla.host.server import (
    ConnectionLimits,
    Server,
    SocketOptions,
    describe_listen_error,
    reachable,
)
from ottla.host.storage import read_bootstrap
from ottla.host.voter_links import VoterLinks
from ottla.host.world import LoopTimers, SystemClock, SystemDice, ThreadWorkers
from ottla.metadata.brokers import Endpoint
from ottla.metadata.configs import ConfigsImage
from ottla.metadata.features import SUPPORTED
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.listeners import parse_ip_limits
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)

SLOW_HANDLER_NS = 100_000_000
"""A handler that holds the loop for longer is named in the log."""


class Node:
    """A running node. See `ottla.broker.api.base.NodeFacts`."""

    def __init__(self, config: NodeConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.node_id: int = config.node_id
        self.cluster_id = ""
        self.supported_features = {
            each.name: (each.min_version, each.max_version) for each in SUPPORTED
        }
        self._loop = loop
        self._clock = SystemClock()
        self._dice = SystemDice()
        self._disk = OsDisk()
        self._loop_timers = LoopTimers(loop, self._clock)
        self._workers = ThreadWorkers(loop, config["num.io.threads"])
        self._endpoints = load_apis()
        self._advertised = {each: advertised(self._endpoints, each) for each in Listener}
        self._dispatcher = Dispatcher(self._endpoints)
        self._server = Server(
            loop,
            self.handle,
            frame_bytes_max=config["socket.request.max.bytes"],
            frames_held_bytes_max=(
                config["queued.max.request.bytes"]
                if config["queued.max.request.bytes"] > 0
                else None
            ),
            connection_limits=self._connection_limits,
            idle_ms=config["connections.max.idle.ms"],
            socket_options=socket_options(config),
        )
        self.metrics = NodeMetrics(self, loop, self._server, self._disk.syncs.histogram)
        self._limits = ConnectionLimits()
        self._limits_said_in: ConfigsImage | None = None
        self._folders: Folders | None = None
        self._controller: ControllerNode | None = None
        self._peers: VoterLinks | None = None
        self._broker: BrokerNode | None = None
        self.stopping: asyncio.Future[str | None] = loop.create_future()
        """Set by a signal (None) or by a failure (why)."""

    # -- NodeFacts -----------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """Return the newest committed metadata of this node."""
        if self._broker is not None:
            return self._broker.image
        if self._controller is not None:
            return self._controller.runtime.committed_image
        return EMPTY

    def advertised(self, listener: Listener) -> Mapping[int, range]:
        """Return what ApiVersions tells on a listener."""
        return self._advertised[listener]

    def dispatch_embedded(self, ctx: Context, frame: memoryview) -> Pending[bytes | None]:
        """Handle a request that came inside an Envelope."""
        answer: Pending[bytes | None] = Pending()
        try:
            _header, body_at = read_header(frame)
            outcome = self._dispatcher.dispatch(ctx, frame, body_at)
        except CloseConnection as reason:
            log.info("a forwarded request has no answer: %s", reason)
            answer.complete(None)
            return answer
        except Exception:
            # Its broker's connection carries other clients' requests too, and must not end.
            log.exception("a forwarded request failed")
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
    def broker(self) -> BrokerNode | None:
        """Return the broker role, once it is put together."""
        return self._broker

    @property
    def controller(self) -> ControllerNode | None:
        """Return the controller role, once it is put together."""
        return self._controller

    # -- requests ------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        """Handle one frame of a connection."""
        began_ns = time.perf_counter_ns()
        header, body_at = read_header(frame)
        metrics = self._dispatcher.metrics.get(header.api_key)
        if metrics is not None:
            metrics.requests += 1
            metrics.request_bytes += len(frame)
        on_controller = connection.listener is Listener.CONTROLLER
        broker, controller = self._broker, self._controller
        ctx = Context(
            header,
            connection,
            self._clock.now_ms(),
            self._clock.monotonic_ms(),
            self,
            None if on_controller or broker is None else broker.broker,
            controller if on_controller else None,
            controller.runtime.quorum if on_controller and controller is not None else None,
        )
        outcome = self._dispatcher.dispatch(ctx, frame, body_at)
        held_ns = time.perf_counter_ns() - began_ns
        assert metrics is not None, "what is not served was refused"
        metrics.local.observe(held_ns)
        if isinstance(outcome, Pending) and not outcome.done:
            metrics.parked.observe(held_ns)
            outcome.then(partial(_answered, metrics.late, began_ns))
        if held_ns > SLOW_HANDLER_NS:
            held_ms = held_ns // 1_000_000
            log.warning("%s held the loop for %d ms (%d bytes)", metrics.name, held_ms, len(frame))
        return outcome

    # -- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all roles; return when the node serves. Raises StartError, one line for people."""
        self._folders = open_folders(
            self._disk,
            self.config,
            clock=self._clock,
            dice=self._dice,
            timers=self._loop_timers.timers,
            workers=self._workers,
        )
        self.cluster_id = self._folders.cluster_id
        await self.metrics.start()
        if self.config.is_controller:
            await self._start_controller(self._folders)
        if self.config.is_broker:
            await self._start_broker(self._folders)
        log.info("node %d is started (%s)", self.node_id, ", ".join(self.config.roles))

    async def _start_controller(self, folders: Folders) -> None:
        bound = await self._listen_on(self.config.controller_listeners, Listener.CONTROLLER)
        voters = {voter.id: (voter.host, voter.port) for voter in self.config.quorum_voters}
        if len(voters) > 1:
            self._peers = VoterLinks(self._loop, voters, self.config, self.cluster_id, self._clock)
        controller = ControllerNode(
            self.config,
            cluster_id=self.cluster_id,
            listeners=await self._told(self.config.advertised_controller_listeners, bound),
            storage=folders.quorum,
            bootstrap=read_bootstrap(self._disk, self.config.metadata_log_dir),
            clock=self._clock,
            dice=self._dice,
            timers=self._loop_timers.timers,
            workers=self._workers,
            on_failure=self._fail,
            peers=None if self._peers is None else self._peers.peers,
        )
        self._controller = controller
        controller.runtime.start()
        await self._accept_all()

    async def _start_broker(self, folders: Folders) -> None:
        bound = await self._listen_on(self.config.broker_listeners, Listener.CLIENT)
        self._broker = BrokerNode(
            self.config,
            cluster_id=self.cluster_id,
            listeners=await self._told(self.config.advertised_listeners, bound),
            folders=folders,
            controller=self._controller,
            loop=self._loop,
            clock=self._clock,
            dice=self._dice,
            timers=self._loop_timers.timers,
            workers=self._workers,
            on_failure=self._fail,
        )
        await self._broker.load()
        # A client that came before the broker is unfenced would be told of a cluster without
        # brokers, and librdkafka believes that for a minute.
        await self._broker.serve()
        await self._accept_all()

    async def _listen_on(self, endpoints: Iterable[Endpoint], kind: Listener) -> dict[str, int]:
        """Take addresses, without accepting yet; return their ports by listener name."""
        bound: dict[str, int] = {}
        for each in endpoints:
            try:
                port = await self._server.listen(
                    each.host, each.port, kind, each.name, accept=False
                )
            except OSError as error:
                reason = describe_listen_error(error, each.host, each.port)
                raise StartError(f"listeners={each.name}: {reason}") from None
            bound[each.name] = port
            log.info("%s has %s:%d", each.name, each.host or "every address", port)
        return bound

    async def _told(
        self, endpoints: tuple[Endpoint, ...], bound: Mapping[str, int]
    ) -> tuple[Endpoint, ...]:
        """Return endpoints as others are told of them; a look-up of the own name can take long."""
        return await self._loop.run_in_executor(None, reachable, endpoints, bound, socket.getfqdn)

    async def _accept_all(self) -> None:
        try:
            await self._server.accept_all()
        except OSError as error:
            raise StartError(f"listeners: {error.strerror or error}") from None

    def _connection_limits(self) -> ConnectionLimits:
        """Return what counts now: the limits can be changed while the node runs."""
        image = self.image
        if image.configs is not self._limits_said_in:
            self._limits_said_in = image.configs
            config = self.config.dynamic(image)
            self._limits = ConnectionLimits(
                total=config["max.connections"],
                per_ip=config["max.connections.per.ip"],
                by_ip=parse_ip_limits(config["max.connections.per.ip.overrides"]),
            )
        return self._limits

    async def stop(self) -> None:
        """Stop serving, write all that is to be kept, release the folders."""
        self.metrics.stop()
        if self._broker is not None:
            await self._broker.leave()
        if self._controller is not None and self._peers is not None:
            # Another voter takes over while this one closes its files.
            self._controller.stop()
            await self._peers.close()
        await self._server.close()
        if self._broker is not None:
            await self._broker.close()
        if self._controller is not None and self._peers is None:
            self._controller.stop()
        self._workers.close()
        self._loop_timers.close()
        if self._folders is not None:
            self._folders.close()
        log.info("node %d is stopped", self.node_id)

    def _fail(self, reason: str) -> None:
        if not self.stopping.done():
            self.stopping.set_result(reason)

    def ask_to_stop(self) -> None:
        """Begin a clean stop; a second signal changes nothing."""
        if not self.stopping.done():
            self.stopping.set_result(None)


def run_node(config: NodeConfig) -> int:
    """Run a node until it is told to stop; return the exit code."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="[%(asctime)s.%(msecs)03d] %(levelname)s %(message)s (%(name)s)",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    return asyncio.run(_run(config))


async def _run(config: NodeConfig) -> int:
    loop = asyncio.get_running_loop()
    node = Node(config, loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.ask_to_stop)
    reason = await _until_stopped(node, loop.create_task(node.start()))
    try:
        await node.stop()
    except Exception as error:
        log.exception("the stop failed")
        reason = reason or f"the stop failed: {type(error).__name__}: {error}"
    if reason is None:
        return 0
    log.error("node %d stops: %s", config.node_id, reason)
    print(f"ottla server: {reason}", file=sys.stderr)
    return 1


async def _until_stopped(node: Node, starting: asyncio.Task[None]) -> str | None:
    """Start and serve until told to stop; return why it must stop, None = it was asked to."""
    limit_ms = node.config["server.max.startup.time.ms"]
    try:
        await asyncio.wait(
            (starting, node.stopping),
            timeout=limit_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if starting.done():
            starting.result()
            return await node.stopping
        # What is half made must stand still before it is taken down.
        starting.cancel()
        await asyncio.wait((starting,))
        if node.stopping.done():
            return node.stopping.result()
        return f"the start took longer than server.max.startup.time.ms={limit_ms}"
    except (StartError, MetadataDamaged) as error:
        return str(error)
    except Exception as error:
        log.exception("the start failed")
        return f"the start failed: {type(error).__name__}: {error}"


def socket_options(config: NodeConfig) -> SocketOptions:
    """Return what the node's file says of sockets.

    Buffers are set only where the file says so: the system's own grow with the need, and
    Kafka's default of 100 KiB is less than a single fetch.
    """
    send, receive = "socket.send.buffer.bytes", "socket.receive.buffer.bytes"
    return SocketOptions(
        backlog=config["socket.listen.backlog.size"],
        send_buffer_bytes=config[send] if send in config.given else -1,
        receive_buffer_bytes=config[receive] if receive in config.given else -1,
    )


def _answered(late: Histogram, began_ns: int, _answer: Chunks | None) -> None:
    late.observe(time.perf_counter_ns() - began_ns)


def _unframed(chunks: Chunks | None) -> bytes | None:
    """Return a response without its size; the embedded ones never hold file slices."""
    return None if chunks is None else b"".join(chunks)[4:]
