"""`GET /metrics`: a node's metrics over HTTP/1.1, for Prometheus.

One request per connection, which is closed after its response. Connections, the bytes of a request
and its time are bounded. Where there are too many connections, those that have waited longest for
their peers are closed: first those without a request, then those whose response is not read. So a
scrape is served beside any number of slow peers; it is refused only where as many others are being
rendered. The text is rendered in pieces, between which the loop serves others, and once for all
simultaneous scrapes.

Source: RFC 9112 (message syntax), Prometheus' exposition formats.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import Enum
from http import HTTPStatus

from ottla.base.limits import (
    METRICS_CONNECTIONS_MAX,
    METRICS_REQUEST_BYTES_MAX,
    METRICS_REQUEST_SECONDS_MAX,
    METRICS_RESPONSE_SECONDS_MAX,
)
from ottla.base.metrics import CONTENT_TYPE, Family, render
from ottla.host.log_dirs.descriptors import ACCEPTS_PER_TURN_MIN

log = logging.getLogger(__name__)

PATH = "/metrics"
PIECES_AT_ONCE = 500
"""Lines rendered before the loop serves others: about a millisecond."""

VERSIONS = ("HTTP/1.0", "HTTP/1.1")


class MetricsServer:
    """Listens on one address. `families` is called at each scrape."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, families: Callable[[], Iterable[Family]]
    ) -> None:
        self._loop = loop
        self._families = families
        self._server: asyncio.Server | None = None
        self._text: asyncio.Task[bytes] | None = None
        self.connections: dict[MetricsConnection, None] = {}
        """In the order in which they were accepted."""

    async def listen(self, host: str, port: int) -> int:
        """Serve; return the port. Raises: OSError."""
        self._server = await self._loop.create_server(
            lambda: MetricsConnection(self, self._loop),
            host or None,
            port,
            backlog=ACCEPTS_PER_TURN_MIN,
            reuse_address=True,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening and end what is open."""
        if self._server is not None:
            self._server.close()
        if self._text is not None:
            self._text.cancel()
        for connection in list(self.connections):
            connection.abort()

    def make_room(self) -> bool:
        """Where there are too many connections, close the one that waited longest for its peer.

        Returns: False = all others are being rendered.
        """
        if len(self.connections) <= METRICS_CONNECTIONS_MAX:
            return True
        *others, _newest = self.connections
        for waits in (Stage.AWAITING_REQUEST, Stage.SENDING):
            for connection in others:
                if connection.stage is waits:
                    connection.abort()
                    del self.connections[connection]
                    return True
        return False

    async def text(self) -> bytes:
        """Return the text as of now; simultaneous scrapes share it."""
        if self._text is None:
            self._text = self._loop.create_task(self._render())
            self._text.add_done_callback(self._rendered)
        # A connection that closes must not cancel it for the others.
        return await asyncio.shield(self._text)

    def _rendered(self, text: "asyncio.Task[bytes]") -> None:
        self._text = None

    async def _render(self) -> bytes:
        pieces: list[str] = []
        for piece in render(self._families()):
            pieces.append(piece)
            if len(pieces) % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return "".join(pieces).encode()


class Stage(Enum):
    """What a connection waits for: the request, the text, the peer to read the response."""

    AWAITING_REQUEST = 0
    RENDERING = 1
    SENDING = 2


class MetricsConnection(asyncio.Protocol):
    """One connection: a request's head, a response, the end."""

    def __init__(self, server: MetricsServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._head = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self.stage = Stage.AWAITING_REQUEST

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._deadline = self._loop.call_later(METRICS_REQUEST_SECONDS_MAX, self.abort)
        self._server.connections[self] = None
        if not self._server.make_room():
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up."""
        self._deadline.cancel()
        self._server.connections.pop(self, None)
        if self._answering is not None:
            self._answering.cancel()

    def abort(self) -> None:
        """Abort: its time is over, or the node stops."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read the request's head; what follows is ignored."""
        if self.stage is not Stage.AWAITING_REQUEST:
            return
        # Three bytes back: the end may have been split.
        searched = max(0, len(self._head) - 3)
        self._head += data[: METRICS_REQUEST_BYTES_MAX + 1]
        end = self._head.find(b"\r\n\r\n", searched)
        if end > METRICS_REQUEST_BYTES_MAX or (end < 0 and _is_too_long(self._head)):
            self._refuse(HTTPStatus.BAD_REQUEST)
        elif end >= 0:
            self._handle(bytes(self._head[:end]))

    def _handle(self, head: bytes) -> None:
        status = status_of(head)
        if status is not HTTPStatus.OK:
            self._refuse(status)
            return
        self.stage = Stage.RENDERING
        self._deadline.cancel()
        self._deadline = self._loop.call_later(METRICS_RESPONSE_SECONDS_MAX, self.abort)
        self._answering = self._loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            text = await self._server.text()
        except Exception:
            log.exception("collecting metrics failed")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._send(HTTPStatus.OK, CONTENT_TYPE, text)

    def _refuse(self, status: HTTPStatus) -> None:
        self._send(status, "text/plain; charset=utf-8", f"{status} {status.phrase}\n".encode())

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.stage = Stage.SENDING
        self._head.clear()
        allow = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {status} {status.phrase}\r\n{allow}Content-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        # Closes once all is sent; the deadline ends it where the peer does not read.
        self._transport.close()


def _is_too_long(head: bytearray) -> bool:
    return len(head) > METRICS_REQUEST_BYTES_MAX


def status_of(head: bytes) -> HTTPStatus:
    """Return the status for the head of a request: OK, or an error."""
    try:
        line, *fields = head.decode("latin-1").split("\r\n")
        method, target, version = line.split(" ")
    except ValueError:
        return HTTPStatus.BAD_REQUEST
    names = [name for name, _, _ in (field.partition(":") for field in fields)]
    colons = all(":" in field for field in fields)
    if version not in VERSIONS or not target.startswith("/") or not colons:
        return HTTPStatus.BAD_REQUEST
    if not all(_is_token(name) for name in (method, *names)):
        return HTTPStatus.BAD_REQUEST
    if target.partition("?")[0] != PATH:
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.OK if method == "GET" else HTTPStatus.METHOD_NOT_ALLOWED


def _is_token(name: str) -> bool:
    """Tell whether a method or a header's name is one (RFC 9110 section 5.6.2)."""
    return name != "" and all(
        each.isascii() and (each.isalnum() or each in "!#$%&'*+-.^_`|~") for each in name
    )
