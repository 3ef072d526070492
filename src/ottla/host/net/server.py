"""Listening sockets of a node, and the connections accepted on them."""

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.base import limits
from ottla.base.turns import Turns
from ottla.broker.ports import Connection, Listener
from ottla.host.log_dirs.descriptors import ACCEPTS_PER_TURN_MAX, SocketBudget
from ottla.host.net.connection import NO_ROOM, FrameBudget, Handler, ServerConnection
from ottla.host.net.frame_buffers import FrameBuffers
from ottla.host.net.refusals import Refusal, Refusals
from ottla.host.net.response_batch import ResponseBatch
from ottla.host.net.transport import MakeTransport, PlainTransport, Transport
from ottla.metadata.brokers import Endpoint

UNLIMITED = 2**31 - 1

UNREAD_WATCH_SECONDS = 0.1
"""The delay after a large response until unread bytes are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be: in all, from one address, from those in `by_ip`."""

    total: int = UNLIMITED
    per_ip: int = UNLIMITED
    by_ip: Mapping[str, int] = field(default_factory=dict)


NO_LIMITS = ConnectionLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """The socket options of every listener; a buffer of -1 = the system's default."""

    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Server:
    """Accepts on the node's listeners and bounds the resources of peers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        *,
        turns: Turns | None = None,
        frame_bytes_max: int = limits.REQUEST_BYTES_MAX,
        frames_held_bytes_max: int | None = None,
        connection_limits: Callable[[], ConnectionLimits] = lambda: NO_LIMITS,
        idle_ms: int = 600_000,
        frame_seconds_max: float = limits.FRAME_SECONDS_MAX,
        unread_bytes_max: int = limits.UNREAD_BYTES_MAX,
        socket_options: SocketOptions = SocketOptions(),
        sockets_max: int = UNLIMITED,
        accepts_per_turn: int = ACCEPTS_PER_TURN_MAX,
        make_transport: MakeTransport = PlainTransport,
    ) -> None:
        """`connection_limits` is called at each connection; `idle_ms` below 0 = never idle.

        `sockets_max`: descriptors that connections may take; `accepts_per_turn`: how many a
        listener accepts in one turn of the loop; `make_transport` makes that of a connection.
        """
        self._loop = loop
        self._handler = handler
        self._turns = turns or Turns(time.perf_counter_ns, loop.call_soon)
        self._frame_bytes_max = frame_bytes_max
        self._connection_limits = connection_limits
        self._idle_ms = idle_ms
        self._frame_seconds_max = frame_seconds_max
        self._unread_bytes_max = unread_bytes_max
        self._unread_watch: asyncio.TimerHandle | None = None
        self._frame_sweeper: asyncio.TimerHandle | None = None
        self._sockets = SocketBudget(sockets_max)
        self._accepts_per_turn = accepts_per_turn
        self._make_transport = make_transport
        self.refusals: dict[str, Refusals] = {}
        """By listener."""
        self._socket_options = socket_options
        self._shared_buffer = memoryview(bytearray(limits.RECEIVE_BUFFER_BYTES))
        if frames_held_bytes_max is None:
            # Otherwise a frame of the largest size might not fit beside others.
            frames_held_bytes_max = max(limits.FRAMES_HELD_BYTES_MAX, 2 * frame_bytes_max)
        self._budget = FrameBudget(frames_held_bytes_max)
        self._buffers = FrameBuffers()
        self._batch = ResponseBatch(loop.call_soon, time.perf_counter_ns)
        self._servers: list[asyncio.Server] = []
        self.listener_names: list[str] = []
        self._sequence = 0
        self._by_ip: Counter[str] = Counter()
        self.connections: set[ServerConnection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def listen(
        self, host: str, port: int, listener: Listener, name: str, *, accept: bool = True
    ) -> int:
        """Listen on one address; return the port (the given one or, for 0, the chosen one).

        Without `accept` the address is only bound: peers are refused until `accept_all`.
        Raises OSError where the address is in use or not of this machine.
        """
        self.refusals.setdefault(name, Refusals(self._loop, name))
        server = await self._loop.create_server(
            lambda: self._protocol(listener, name),
            host or None,
            port,
            backlog=self._accepts_per_turn,  # `_set_backlog` sets what its name says.
            reuse_address=True,
            start_serving=accept,
        )
        self._servers.append(server)
        self.listener_names.append(name)
        self._set_options(server)
        if accept:
            self._set_backlog(server)
        if self._sweeper is None and self._idle_ms >= 0:
            self._sweeper = self._loop.call_later(self._idle_ms / 1000, self._sweep)
        if self._frame_sweeper is None:
            self._sweep_frames()
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    def _set_options(self, server: asyncio.Server) -> None:
        """Set the buffers of the listening sockets, whose connections inherit them."""
        options = self._socket_options
        for name, size in (
            (socket.SO_SNDBUF, options.send_buffer_bytes),
            (socket.SO_RCVBUF, options.receive_buffer_bytes),
        ):
            if size >= 0:
                for listening in server.sockets:
                    listening.setsockopt(socket.SOL_SOCKET, name, size)

    def _set_backlog(self, server: asyncio.Server) -> None:
        """Let the system queue as many connections as is configured."""
        for listening in server.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(self._socket_options.backlog)

    @property
    def accepted(self) -> int:
        """Return the number of accepted connections."""
        return self._sequence

    @property
    def frames_held_bytes(self) -> int:
        """Return the bytes of unfinished and queued requests."""
        return self._budget.used_bytes

    async def accept_all(self) -> None:
        """Accept on every bound address.

        Raises OSError, with the listener's name and the address in its text, where another process
        has bound the address too and was the first to accept on it.
        """
        for name, server in zip(self.listener_names, self._servers, strict=True):
            host, port = server.sockets[0].getsockname()[:2]
            try:
                await server.start_serving()
            except OSError as error:
                reason = describe_listen_error(error, host, port)
                raise OSError(error.errno, f"{name}: {reason}") from None
            self._set_backlog(server)

    async def close(self) -> None:
        """Stop accepting and close every connection."""
        self._is_closed = True
        for server in self._servers:
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
        # Connections that asyncio has accepted get their transports in the next turn. A server that
        # is closed before that would leak their sockets.
        await asyncio.sleep(0)
        for server in self._servers:
            server.close()
        for sweeper in (self._sweeper, self._frame_sweeper, self._unread_watch):
            if sweeper is not None:
                sweeper.cancel()
        for connection in list(self.connections):
            connection.close("the server is shutting down")
        for refusals in self.refusals.values():
            refusals.close()
        await asyncio.sleep(0)

    def _protocol(self, listener: Listener, name: str) -> ServerConnection:
        def connection_info(transport: Transport) -> Connection:
            self._sequence += 1
            local, peer = transport.local, transport.peer
            return Connection(
                id=f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{self._sequence}",
                listener=listener,
                listener_name=name,
                client_host=peer[0],
                client_port=peer[1],
                principal=transport.principal,
            )

        return ServerConnection(
            connection_info,
            self._handler,
            self._shared_buffer,
            self._budget,
            self._buffers,
            self._turns,
            self._sockets,
            self.refusals[name],
            self._batch,
            frame_bytes_max=self._frame_bytes_max,
            make_transport=self._make_transport,
            on_open=self._opened,
            on_budget_exceeded=self._make_room,
            on_large_response=self._watch_unread,
            on_close=self._closed,
        )

    def _opened(self, connection: ServerConnection) -> bool:
        host = connection.info.client_host
        self._by_ip[host] += 1
        self.connections.add(connection)
        connection.has_descriptor = self._sockets.take()
        if self._is_closed:
            return False
        allowed = self._connection_limits()
        if len(self.connections) > allowed.total:
            why, detail = Refusal.MAX_CONNECTIONS, "max.connections is reached"
        elif self._by_ip[host] > allowed.by_ip.get(host, allowed.per_ip):
            why, detail = Refusal.MAX_CONNECTIONS_PER_IP, "max.connections.per.ip is reached"
        elif not connection.has_descriptor:
            detail = f"the process may have no more than {self._sockets.limit} connections"
            why = Refusal.DESCRIPTORS
        else:
            return True
        self._refused(connection, why, detail)
        return False

    def _refused(self, connection: ServerConnection, why: Refusal, detail: str) -> None:
        listener = connection.info.listener_name
        self.refusals[listener].note(why, f"{connection.info.id}: {detail}")

    def _closed(self, connection: ServerConnection) -> None:
        host = connection.info.client_host
        self.connections.discard(connection)
        if connection.has_descriptor:
            self._sockets.give_back()
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]

    def _make_room(self, requester: ServerConnection, count: int) -> None:
        """Close the connections with the slowest frames, young ones last, until bytes are free.

        Then those that do not read their responses while their requests wait. `requester` closes
        itself where it would be the next one. `count`: the bytes that are needed.
        """
        now = self._loop.time()
        unfinished = sorted(
            (each for each in self.connections if each.unfinished_bytes),
            key=lambda each: (
                each.age(now) < limits.FRAME_GRACE_SECONDS,
                each.rate(now),
                -each.unfinished_bytes,
            ),
        )
        unread = [each for each in self.connections if each.is_unread and each not in unfinished]
        # Some more than needed, so that the next request for bytes does not have to search again.
        wanted = min(self._budget.limit_bytes, count + self._budget.limit_bytes // 16)
        for each in (*unfinished, *unread):
            if each is requester:
                return
            each.close(NO_ROOM, Refusal.SLOW_REQUEST)
            if self._budget.free_bytes >= wanted:
                return

    def _watch_unread(self) -> None:
        """Schedule a check of unread bytes."""
        if self._unread_watch is None:
            self._unread_watch = self._loop.call_later(UNREAD_WATCH_SECONDS, self._cut_off_unread)

    def _cut_off_unread(self) -> None:
        """Where responses take too much memory, close the connections that have not read for
        longest.

        The last one may hold any number of bytes: it is one response.
        """
        self._unread_watch = None
        unread = {each: size for each in self.connections if (size := each.unread_bytes)}
        total = sum(unread.values())
        for each in sorted(unread, key=lambda each: each.unread_since)[:-1]:
            if total <= self._unread_bytes_max:
                return
            each.cut_off("its responses are not read, and too many bytes of responses are unread")
            total -= unread[each]

    def _sweep_frames(self) -> None:
        """Close where a frame takes too long."""
        self._watch_unread()
        now, limit = self._loop.time(), self._frame_seconds_max
        for connection in list(self.connections):
            connection.close_unfinished(now, limit)
        self._frame_sweeper = self._loop.call_later(limit / 12, self._sweep_frames)

    def _sweep(self) -> None:
        """Close idle connections: those inactive since the last sweep, one idle period ago."""
        for connection in list(self.connections):
            connection.close_if_idle()
        self._sweeper = self._loop.call_later(self._idle_ms / 1000, self._sweep)


def reachable(
    endpoints: Iterable[Endpoint], bound: Mapping[str, int], own_name: Callable[[], str]
) -> tuple[Endpoint, ...]:
    """Return endpoints as others can use them.

    An empty host becomes this machine's name, port 0 the port of the listener (`bound`,
    by listener name). Source: ListenerInfo, Kafka 4.0.
    """
    return tuple(
        replace(each, host=each.host or own_name(), port=each.port or bound[each.name])
        for each in endpoints
    )


def describe_listen_error(error: OSError, host: str, port: int) -> str:
    """Return why listening on an address failed, as a message for the operator."""
    where = f"{host or '0.0.0.0'}:{port}"
    if error.errno in (98, 48):  # EADDRINUSE on Linux and macOS.
        return f"port {port} is in use: nothing can listen on {where}"
    if isinstance(error, socket.gaierror) or error.errno in (99, 49):
        return f"{where} is not an address of this machine"
    return f"cannot listen on {where}: {error.strerror or error}"
