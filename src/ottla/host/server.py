"""Listening sockets of a node, and the connections accepted on them."""

import asyncio
import logging
import socket
from collections import Counter

from ottla.base import limits
from ottla.broker.api.base import Connection, Listener
from ottla.host.connection import FrameBudget, Handler, ServerConnection
from ottla.host.frame_buffers import FrameBuffers

log = logging.getLogger(__name__)


class Server:
    """Accepts on the node's listeners and bounds what peers may hold."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Handler,
        *,
        frame_bytes_max: int = limits.REQUEST_BYTES_MAX,
        connections_max: int = 2**31 - 1,
        connections_per_ip_max: int = 2**31 - 1,
        idle_ms: int = 600_000,
    ) -> None:
        self._loop = loop
        self._handler = handler
        self._frame_bytes_max = frame_bytes_max
        self._connections_max = connections_max
        self._connections_per_ip_max = connections_per_ip_max
        self._idle_ms = idle_ms
        self._lent = memoryview(bytearray(limits.RECEIVE_BUFFER_BYTES))
        self._budget = FrameBudget(limits.FRAMES_HELD_BYTES_MAX)
        self._buffers = FrameBuffers()
        self._servers: list[asyncio.Server] = []
        self._sequence = 0
        self._by_ip: Counter[str] = Counter()
        self.connections: set[ServerConnection] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(
        self, host: str, port: int, listener: Listener, name: str, *, accept: bool = True
    ) -> int:
        """Accept on one address; return the port (asked for or, with 0, chosen).

        Without `accept` the address is only taken: peers are refused until `accept_all`.
        Raises OSError where the address is taken or not this machine's.
        """
        server = await self._loop.create_server(
            lambda: self._protocol(listener, name),
            host or None,
            port,
            backlog=1024,
            reuse_address=True,
            start_serving=accept,
        )
        self._servers.append(server)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._idle_ms / 1000, self._sweep)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def accept_all(self) -> None:
        """Accept on every address that is taken. Raises OSError."""
        for server in self._servers:
            await server.start_serving()

    async def close(self) -> None:
        """Stop accepting and end every connection."""
        for server in self._servers:
            server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close("the server stops")
        await asyncio.sleep(0)

    def _protocol(self, listener: Listener, name: str) -> ServerConnection:
        def facts(local: tuple[str, int], peer: tuple[str, int]) -> Connection:
            self._sequence += 1
            return Connection(
                id=f"{local[0]}:{local[1]}-{peer[0]}:{peer[1]}-{self._sequence}",
                listener=listener,
                listener_name=name,
                client_host=peer[0],
                client_port=peer[1],
            )

        return ServerConnection(
            facts,
            self._handler,
            self._lent,
            self._budget,
            self._buffers,
            frame_bytes_max=self._frame_bytes_max,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: ServerConnection) -> bool:
        host = connection.info.client_host
        self._by_ip[host] += 1
        self.connections.add(connection)
        if len(self.connections) > self._connections_max:
            log.warning("refusing %s: max.connections is reached", connection.info.id)
            return False
        if self._by_ip[host] > self._connections_per_ip_max:
            log.warning("refusing %s: max.connections.per.ip is reached", connection.info.id)
            return False
        return True

    def _closed(self, connection: ServerConnection) -> None:
        host = connection.info.client_host
        self.connections.discard(connection)
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]

    def _sweep(self) -> None:
        """Close what sent nothing since the last sweep; a sweep comes once an idle period."""
        for connection in list(self.connections):
            if not connection.active:
                connection.close("idle for longer than connections.max.idle.ms")
            connection.active = False
        self._sweeper = self._loop.call_later(self._idle_ms / 1000, self._sweep)


def describe_listen_error(error: OSError, host: str, port: int) -> str:
    """Say why an address cannot be listened on, in the operator's words."""
    where = f"{host or '0.0.0.0'}:{port}"
    if error.errno in (98, 48):  # EADDRINUSE on Linux and macOS.
        return f"port {port} is in use: nothing can listen on {where}"
    if isinstance(error, socket.gaierror) or error.errno in (99, 49):
        return f"{where} is not an address of this machine"
    return f"cannot listen on {where}: {error.strerror or error}"
