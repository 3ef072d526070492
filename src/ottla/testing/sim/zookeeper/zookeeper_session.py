"""A client's session with the simulated ZooKeeper: `ottla.base.zookeeper.Session` on a model.

It behaves as a driver: it reconnects, repeats reads, fails writes whose connection broke with
CONNECTION_LOSS, gives up a silent connection after two thirds of the session timeout, keeps its
watches across reconnects, and learns only from the servers that its session has expired.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.base.pending import Pending, completed
from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    OpenSession,
    Operation,
    Result,
    Session,
    SessionState,
    SetData,
    Stat,
    Watcher,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.testing.sim.scheduler import Call, Process
from ottla.testing.sim.zookeeper.zookeeper import ServerSession, ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_tree import REQUEST_BYTES_MAX, request_bytes
from ottla.testing.sim.zookeeper.zookeeper_wire import MS, Connection

BEATS = 6
"""Pings per session timeout; after four without a response the connection is given up."""

RETRY_MS_MAX = 1_000

OVER = (SessionState.EXPIRED, SessionState.CLOSED)


@dataclass(slots=True)
class Request:
    """A request without a response yet. `kind`: the method's name.

    `is_sent`: on the current connection. `lost`: a write that was sent on a connection that broke,
    and may have been processed; it fails with CONNECTION_LOSS in its turn.
    """

    kind: str
    path: str
    pending: Pending[Any]
    watcher: Watcher | None = None
    operations: tuple[Operation, ...] = ()
    is_sent: bool = False
    lost: bool = False


class ModelSession:
    """One session; see the module."""

    def __init__(
        self,
        servers: ZooKeeperModel,
        client: object,
        process: Process | None,
        on_state: Callable[[SessionState], None],
        *,
        session_timeout_us: int,
        connection_timeout_us: int,
        chroot: str,
    ) -> None:
        self.id = 0
        self.state = SessionState.CONNECTING
        self._servers = servers
        self._scheduler = servers.scheduler
        self._client = client
        self._process = process
        self._on_state = on_state
        self._timeout_us = session_timeout_us
        self._connecting_us = min(connection_timeout_us, session_timeout_us // 3)
        self._chroot = chroot.rstrip("/")
        self._connection: Connection | None = None
        self._server: ServerSession | None = None
        self._seen_zxid = 0
        self._requests: deque[Request] = deque()
        self._watchers: dict[str, dict[str, list[Watcher]]] = {
            "data": {},
            "exist": {},
            "children": {},
        }
        self._closed: Pending[None] | None = None
        self._later(0, self._connect)
        self._scheduler.after(self._timeout_us // BEATS, self._beat)

    # -- the contract --------------------------------------------------------------------------

    def get(self, path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        """Read a node."""
        return self._ask(Request("get", path, Pending(), watch))

    def exists(self, path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        """Return a node's Stat, if it exists."""
        return self._ask(Request("exists", path, Pending(), watch))

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children."""
        return self._ask(Request("children", path, Pending(), watch))

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        """Run a transaction."""
        return self._ask(Request("multi", "", Pending(), operations=tuple(operations)))

    def close(self) -> Pending[None]:
        """End the session."""
        if self._closed is not None:
            return self._closed
        closed = self._closed = Pending[None]()
        if self.state in OVER:
            closed.complete(None)
            return closed
        connection, server = self._connection, self._server
        if self.state is SessionState.CONNECTED and connection is not None and server is not None:
            connection.send_request(lambda: self._serve_close(connection, server))
            self._later(self._connecting_us, lambda: self._connection_closed(connection))
        else:
            self._shut()
            closed.complete(None)
        self._end(SessionState.CLOSED)
        return closed

    # -- connections ---------------------------------------------------------------------------

    def _later(self, delay_us: int, call: Call) -> None:
        self._scheduler.after(delay_us, call, self._process)

    def _connect(self) -> None:
        if self.state in OVER or self._connection is not None:
            return
        servers = self._servers
        connection = servers.connect(
            self._client, self._process, self._watch_fired, self._connection_closed
        )
        self._connection = connection
        connection.send_request(lambda: self._serve_connect(connection))
        self._later(self._connecting_us, lambda: self._connect_timed_out(connection))

    def _connect_timed_out(self, connection: Connection) -> None:
        if connection is self._connection and self.state is not SessionState.CONNECTED:
            self._connection_closed(connection)

    def _connection_closed(self, connection: Connection) -> None:
        """The connection has broken, or was given up."""
        if connection is not self._connection:
            return
        self._shut()
        if self.state in OVER:
            if self._closed is not None:
                self._closed.complete(None)
            return
        self._later(self._servers.random.randrange(1, RETRY_MS_MAX) * MS, self._connect)
        if self.state is not SessionState.CONNECTED:
            return
        for request in self._requests:
            request.lost = request.lost or (request.is_sent and request.kind == "multi")
            request.is_sent = False
        self._become(SessionState.SUSPENDED)
        self._fail_lost()

    def _fail_lost(self) -> None:
        """Fail the writes whose connection broke, as far as it is their turn."""
        while self._requests and self._requests[0].lost:
            self._requests.popleft().pending.complete(ZkError(ZkCode.CONNECTION_LOSS))

    def _shut(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._servers.given_up(connection)

    def _beat(self) -> None:
        """Exchange pings, as the driver's thread does; give up a connection that is silent."""
        process, connection = self._process, self._connection
        if (process is not None and not process.alive) or self.state in OVER:
            return
        self._scheduler.after(self._timeout_us // BEATS, self._beat)
        if connection is None or self.state is not SessionState.CONNECTED:
            return
        now_us = self._scheduler.now_us
        if process is not None and process.paused:
            connection.last_heard_us = now_us  # A paused client does not check the time.
        elif connection.answers_pings:
            connection.last_heard_us = now_us
            self._servers.ping(self.id)
        elif now_us - connection.last_heard_us >= self._timeout_us * 2 // 3:
            self._later(0, lambda: self._connection_closed(connection))

    # -- on the servers ------------------------------------------------------------------------

    def _serve_connect(self, connection: Connection) -> None:
        servers = self._servers
        if not connection.client_open:
            return
        if self._server is None:
            server = servers.begin_session(connection, self._timeout_us, self._chroot)
            connection.respond(lambda: self._connected(connection, server))
        elif servers.sessions.get(self.id) is not self._server:
            connection.respond(lambda: self._expired(connection))
        else:
            server = self._server
            servers.attach(connection, server)
            connection.respond(lambda: self._connected(connection, server))
            for kind, watched in self._watchers.items():
                for path in sorted(watched):
                    servers.missed(connection, path, since_zxid=self._seen_zxid, kind=kind)

    def _serve(self, connection: Connection, server: ServerSession, request: Request) -> None:
        servers = self._servers
        if servers.sessions.get(server.id) is not server:
            return  # The end of the session has closed the connection.
        answer: object
        path = self._full(request.path)
        if request.kind == "multi":
            operations = [self._rooted(each) for each in request.operations]
            if request_bytes(operations) > REQUEST_BYTES_MAX:
                answer = ZkError(ZkCode.BAD_ARGUMENTS)  # A driver does not send it.
            else:
                answer = servers.write(server, operations)
        elif request.kind == "get":
            answer = servers.tree.get(path)
        elif request.kind == "children":
            answer = servers.tree.children(path)
        else:
            answer = servers.exists(path)
        watched = not isinstance(answer, ZkError)
        if request.watcher is not None and watched:
            servers.watch(connection, path, children=request.kind == "children")
        zxid = servers.zxid
        connection.respond(lambda: self._answered(connection, request, answer, zxid))

    def _serve_close(self, connection: Connection, server: ServerSession) -> None:
        self._servers.end_session(server)
        connection.respond(lambda: self._connection_closed(connection))

    # -- on the client -------------------------------------------------------------------------

    def _connected(self, connection: Connection, server: ServerSession) -> None:
        if connection is not self._connection or self.state in OVER:
            return
        self.id, self._server = server.id, server
        # Reads made before go first, so that answers keep their order.
        self._become(SessionState.CONNECTED)
        self._send()

    def _expired(self, connection: Connection) -> None:
        if connection is self._connection and self.state not in OVER:
            self._shut()
            self._end(SessionState.EXPIRED)

    def _end(self, state: SessionState) -> None:
        """End the session: pending requests fail, watches are dropped."""
        requests, self._requests = self._requests, deque()
        for watched in self._watchers.values():
            watched.clear()
        self._become(state)
        for request in requests:
            request.pending.complete(ZkError(ZkCode.SESSION_EXPIRED, request.path))

    def _become(self, state: SessionState) -> None:
        self.state = state
        self._on_state(state)

    def _ask(self, request: Request) -> Pending[Any]:
        if self.state in OVER:
            return completed(ZkError(ZkCode.SESSION_EXPIRED, request.path))
        self._requests.append(request)
        self._send()
        return request.pending

    def _send(self) -> None:
        """Send the requests that were not sent on this connection."""
        connection, server = self._connection, self._server
        if self.state is not SessionState.CONNECTED or connection is None or server is None:
            return
        for request in self._requests:
            if not request.is_sent and not request.lost:
                request.is_sent = True
                connection.send_request(partial(self._serve, connection, server, request))
                self._servers.maybe_break(connection)

    def _answered(
        self, connection: Connection, request: Request, answer: object, zxid: int
    ) -> None:
        if connection is not self._connection or self.state in OVER:
            return
        assert self._requests[0] is request
        self._requests.popleft()
        self._seen_zxid = max(self._seen_zxid, zxid)
        if request.watcher is not None and not isinstance(answer, ZkError):
            kind = {"get": "data", "children": "children"}.get(request.kind, "data")
            if request.kind == "exists" and answer is None:
                kind = "exist"
            path = self._chroot + request.path
            self._watchers[kind].setdefault(path, []).append(request.watcher)
        if isinstance(answer, ZkError):
            answer = ZkError(answer.code, self._bare(answer.path), answer.index)
        elif request.kind == "multi":
            assert isinstance(answer, tuple)
            answer = tuple(self._bare(each) if isinstance(each, str) else each for each in answer)
        request.pending.complete(answer)
        self._fail_lost()

    def _watch_fired(self, connection: Connection, event: Event) -> None:
        """Call the watchers of an event, each once."""
        if connection is not self._connection or self.state in OVER:
            return
        watchers: list[Watcher] = []
        if event.kind is not EventKind.CHILDREN_CHANGED:
            watchers += self._watchers["data"].pop(event.path, [])
            watchers += self._watchers["exist"].pop(event.path, [])
        if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            watchers += self._watchers["children"].pop(event.path, [])
        relative = Event(event.kind, self._bare(event.path))
        for watcher in watchers:
            if self.state not in OVER:
                watcher(relative)

    # -- the chroot ----------------------------------------------------------------------------

    def _rooted(self, operation: Operation) -> Operation:
        path = self._full(operation.path)
        match operation:
            case Create():
                return Create(path, operation.data, operation.ephemeral, operation.sequential)
            case SetData():
                return SetData(path, operation.data, operation.version)
            case Delete():
                return Delete(path, operation.version)
            case Check():
                return Check(path, operation.version)

    def _full(self, path: str) -> str:
        return self._chroot if self._chroot and path == "/" else self._chroot + path

    def _bare(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"


def session_opener(
    servers: ZooKeeperModel,
    client: object,
    process: Process | None = None,
    *,
    session_timeout_ms: int = 18_000,
    connection_timeout_ms: int | None = None,
    chroot: str = "",
) -> OpenSession:
    """Return a function that opens sessions of a client, whose key for faults is `client`."""

    def open_session(on_state: Callable[[SessionState], None]) -> Session:
        return ModelSession(
            servers,
            client,
            process,
            on_state,
            session_timeout_us=session_timeout_ms * MS,
            connection_timeout_us=(connection_timeout_ms or session_timeout_ms) * MS,
            chroot=chroot,
        )

    return open_session
