"""One node as a process: the roles of `node_core` behind sockets, on a loop, with signals.

A failure that a running node cannot recover from (a metadata log that cannot be written) ends the
process with exit code 1 and a line that names the reason. `ottla server` runs this.
"""

import asyncio
import logging
import math
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from ottla.base.zookeeper import OpenSession
from ottla.broker.ports import Listener
from ottla.host.gc_pauses import limit_gc_pauses
from ottla.host.kraft.quorum_storage import MetadataDamaged
from ottla.host.log_dirs.cleaner import ProcessRunner
from ottla.host.log_dirs.descriptors import check_limit, descriptor_limit, plan, raise_limit
from ottla.host.log_dirs.disk import OsDisk
from ottla.host.log_dirs.node_dirs import StartError
from ottla.host.net.channel import Channel
from ottla.host.net.dialer import AsyncioDialer
from ottla.host.net.refusals import LOG_SECONDS
from ottla.host.net.server import (
    ConnectionLimits,
    Server,
    SocketOptions,
    describe_listen_error,
    reachable,
)
from ottla.host.node_core import NodeCore
from ottla.host.node_metrics import NodeMetrics
from ottla.host.node_ports import Endpoints, NodePorts
from ottla.host.remote_storage import open_remote_store
from ottla.host.rotating_output import RotatingOutput
from ottla.host.steps import drive_async
from ottla.host.system_ports import LoopTimers, SystemClock, SystemDice, ThreadWorkers, boot_id
from ottla.metadata.configs import ConfigsImage
from ottla.metadata.listeners import parse_ip_limits
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)


class Node(NodeCore):
    """A running node: its roles behind sockets, on a loop."""

    def __init__(self, config: NodeConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        clock, disk = SystemClock(), OsDisk()
        self._loop_timers = LoopTimers(loop, clock)
        self._workers = ThreadWorkers(loop, config["num.io.threads"])
        ports = NodePorts(
            clock=clock,
            dice=SystemDice(),
            disk=disk,
            timers=self._loop_timers.timers,
            workers=self._workers,
            connect=partial(Channel, AsyncioDialer(loop)),
            cleanings=ProcessRunner(loop),
            ticks_ns=time.perf_counter_ns,
            boot_id=boot_id(),
            call_next_turn=loop.call_soon,
            open_zookeeper=_open_zookeeper(config, loop),
            open_store=lambda config: open_remote_store(config, clock, loop),
        )
        super().__init__(config, ports, on_failure=self._fail)
        self._descriptors = plan(descriptor_limit())
        self._server = Server(
            loop,
            self.handle,
            turns=self.turns,
            frame_bytes_max=config["socket.request.max.bytes"],
            frames_held_bytes_max=(
                config["queued.max.request.bytes"]
                if config["queued.max.request.bytes"] > 0
                else None
            ),
            connection_limits=self._connection_limits,
            idle_ms=config["connections.max.idle.ms"],
            socket_options=socket_options(config),
            sockets_max=self._descriptors.sockets,
            accepts_per_turn=self._descriptors.accepts,
        )
        self._listeners = _SocketListeners(loop, self._server)
        self.metrics = NodeMetrics(
            self, loop, self._loop_timers, self._server, disk.syncs.histogram
        )
        self._limits = ConnectionLimits()
        self._limits_configs: ConfigsImage | None = None
        self.stopping: asyncio.Future[str | None] = loop.create_future()
        """Set by a signal (None) or by a failure (why)."""

    async def start(self) -> None:
        """Start all roles; return when the node serves. Raises StartError, one line for people."""
        limit = self._descriptors.limit
        fault = check_limit(limit)
        if fault is not None:
            raise StartError(fault)
        log.info(
            "file descriptor limit %d: %d for log files, %d for connections",
            limit,
            self._descriptors.log_files,
            self._descriptors.sockets,
        )
        self._workers.start()
        self.open()
        await self.metrics.start()
        await drive_async(self.start_roles(self._listeners))
        mode = "" if self.config.zookeeper_connect is None else ", ZooKeeper mode"
        log.info("node %d started (%s%s)", self.node_id, ", ".join(self.config.roles), mode)

    def _connection_limits(self) -> ConnectionLimits:
        """Return the limits of now: they can be changed while the node runs."""
        image = self.image
        if image.configs is not self._limits_configs:
            self._limits_configs = image.configs
            config = self.config.dynamic(image)
            self._limits = ConnectionLimits(
                total=config["max.connections"],
                per_ip=config["max.connections.per.ip"],
                by_ip=parse_ip_limits(config["max.connections.per.ip.overrides"]),
            )
        return self._limits

    async def stop(self) -> None:
        """Stop serving, flush everything, release the log directories."""
        self.metrics.stop()
        await drive_async(self.stop_roles(self._listeners))
        self._workers.close()
        self._loop_timers.close()
        self.close()
        log.info("node %d stopped", self.node_id)

    def _fail(self, reason: str) -> None:
        if not self.stopping.done():
            self.stopping.set_result(reason)

    def ask_to_stop(self) -> None:
        """Begin a clean shutdown; a second signal changes nothing."""
        if not self.stopping.done():
            self.stopping.set_result(None)


class _SocketListeners:
    """See `ottla.host.node_ports.NodeListeners`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        self._loop = loop
        self._server = server

    async def bind(self, listeners: Endpoints, advertised: Endpoints, kind: Listener) -> Endpoints:
        """Listen, without accepting yet. The look-up of this host's name can take long."""
        bound: dict[str, int] = {}
        for each in listeners:
            try:
                port = await self._server.listen(
                    each.host, each.port, kind, each.name, accept=False
                )
            except OSError as error:
                reason = describe_listen_error(error, each.host, each.port)
                raise StartError(f"listeners={each.name}: {reason}") from None
            bound[each.name] = port
            log.info("listener %s bound to %s:%d", each.name, each.host or "every address", port)
        return await self._loop.run_in_executor(None, reachable, advertised, bound, socket.getfqdn)

    async def accept(self) -> None:
        """Accept connections."""
        try:
            await self._server.accept_all()
        except OSError as error:
            raise StartError(f"listeners={error.strerror}") from None

    async def close(self) -> None:
        """Accept no more, end all connections."""
        await self._server.close()


def _open_zookeeper(config: NodeConfig, loop: asyncio.AbstractEventLoop) -> OpenSession | None:
    """Return what opens ZooKeeper sessions; None in KRaft mode."""
    connect = config.zookeeper_connect
    if connect is None:
        return None
    # Imported here: no other node needs the client, and its import is slow.
    from ottla.host.zookeeper.kazoo.kazoo_session import open_kazoo_session

    return open_kazoo_session(
        connect,
        session_timeout_ms=config["zookeeper.session.timeout.ms"],
        connection_timeout_ms=config["zookeeper.connection.timeout.ms"],
        loop=loop,
    )


SWITCH_SECONDS = 0.0005
"""How long a worker may keep the interpreter's lock while the loop waits for it. With Python's 5 ms
the loop would wait that long each time it returns from the kernel, some ten times for a message."""


def run_node(config: NodeConfig, output: Path | None = None) -> int:
    """Run a node until it is stopped; return the exit code.

    `output`: the file that is its standard output, to be rotated; None = it is not rotated.
    """
    handler = logging.StreamHandler(sys.stdout) if output is None else RotatingOutput(output)
    logging.basicConfig(
        level=logging.INFO,
        handlers=[handler],
        format="[%(asctime)s.%(msecs)03d] %(levelname)s %(message)s (%(name)s)",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    limit_gc_pauses()
    raise_limit()
    return asyncio.run(_run(config))


async def _run(config: NodeConfig) -> int:
    loop = asyncio.get_running_loop()
    node = Node(config, loop)
    loop.set_exception_handler(AcceptFailures())
    for signal_number in _stop_signals():
        loop.add_signal_handler(signal_number, node.ask_to_stop)
    reason = await _until_stopped(node, loop.create_task(node.start()))
    try:
        await node.stop()
    except Exception as error:
        log.exception("shutdown failed")
        reason = reason or f"shutdown failed: {type(error).__name__}: {error}"
    if reason is None:
        return 0
    log.error("node %d stops: %s", config.node_id, reason)
    print(f"ottla server: {reason}", file=sys.stderr)
    return 1


def _stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a node cleanly, as with Kafka; SIGHUP is a closed terminal."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT  # Started with nohup, to outlive its terminal.
    return signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class AcceptFailures:
    """The loop's exception handler: logs a shortage of descriptors at most once a minute.

    asyncio accepts again a second later, so that a shortage passes. All else is handled as usual.
    """

    def __init__(self) -> None:
        self._logged_at = -math.inf
        self.count = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the loop reports."""
        error = context.get("exception")
        if not isinstance(error, OSError) or "socket.accept()" not in context.get("message", ""):
            loop.default_exception_handler(context)
            return
        self.count += 1
        if loop.time() - self._logged_at >= LOG_SECONDS:
            self._logged_at = loop.time()
            reason = error.strerror or error
            log.warning("accepting connections failed (%d times so far): %s", self.count, reason)


async def _until_stopped(node: Node, starting: asyncio.Task[None]) -> str | None:
    """Start and serve until stopped; return why the node failed, None = it was asked to stop."""
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
        # The start must have ended before what it made is closed.
        starting.cancel()
        await asyncio.wait((starting,))
        if node.stopping.done():
            return node.stopping.result()
        return f"startup took longer than server.max.startup.time.ms={limit_ms}"
    except (StartError, MetadataDamaged) as error:
        return str(error)
    except Exception as error:
        log.exception("startup failed")
        return f"startup failed: {type(error).__name__}: {error}"


def socket_options(config: NodeConfig) -> SocketOptions:
    """Return the socket options of the node's properties.

    Buffers are set only where the properties do: the system's buffers grow with the need, and
    Kafka's default of 100 KiB is less than a single fetch.
    """
    send, receive = "socket.send.buffer.bytes", "socket.receive.buffer.bytes"
    return SocketOptions(
        backlog=config["socket.listen.backlog.size"],
        send_buffer_bytes=config[send] if send in config.given else -1,
        receive_buffer_bytes=config[receive] if receive in config.given else -1,
    )
