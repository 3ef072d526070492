"""A ZooKeeper session over kazoo: one client for one session, never used for another one.

All state belongs to the loop; kazoo's thread only passes on to it, in order. `RequestQueue` defines
the order in which requests are sent and answered, also over lost connections. Each later connection
begins with a write that changes nothing: its response comes after all earlier writes, whatever
server the session has moved to, so that reads show the results of lost multis. Then each watch is
set again (see `kazoo_watches`), and then queued requests are sent. `session_probe` detects a
session that has ended while its connection has not.

Not covered: that a server reads the last bytes of a lost connection after the session's next
connection was served. kazoo waits at least 0.06 s in between.

Not done: authentication, TLS, read-only servers.
Source: kazoo 2.11; ZooKeeper 3.9 programmer's guide; Kafka's ZooKeeperClient for the chroot.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, SessionExpiredError
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from ottla.base.pending import Pending, completed, nothing
from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Event,
    EventKind,
    OpenSession,
    Operation,
    Result,
    Session,
    SessionState,
    Stat,
    Watcher,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.host.zookeeper.kazoo.kazoo_handler import DirectHandler
from ottla.host.zookeeper.kazoo.kazoo_requests import (
    REQUEST_BYTES_MAX,
    UNDONE_PERHAPS,
    below,
    error_of,
    full_path,
    results_of,
    size_of,
    stat_of,
    transaction,
)
from ottla.host.zookeeper.kazoo.kazoo_watches import NodeVersion, Watches
from ottla.host.zookeeper.request_queue import Request, RequestQueue, Stage, safely
from ottla.host.zookeeper.session_probe import SessionProbe

log = logging.getLogger(__name__)

RECONNECT_SECONDS_MIN: Final = 0.1
RECONNECT_SECONDS_MAX: Final = 1.0
CLOSE_SECONDS_MAX: Final = 5.0
"""How long closing a session is awaited; without a response the server expires the session."""

EVENT_KINDS: Final = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.DATA_CHANGED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}
OVER: Final = (SessionState.EXPIRED, SessionState.CLOSED)


def open_kazoo_session(
    hosts: str,
    *,
    session_timeout_ms: int,
    connection_timeout_ms: int,
    loop: asyncio.AbstractEventLoop,
) -> OpenSession:
    """Return a function that opens sessions with `hosts`: "host:port,host:port/chroot".

    `connection_timeout_ms` bounds each attempt to reach one server. A missing chroot is created at
    the first connection. Raises: ValueError for `hosts` without servers.
    """
    servers, chroot = collect_hosts(hosts)
    named, _, _ = hosts.partition("/")
    root = (chroot or "").rstrip("/")
    share_ms = session_timeout_ms / len(servers)
    made = False

    def note_made() -> None:
        nonlocal made
        made = True

    def open_session(on_state: Callable[[SessionState], None]) -> Session:
        session = KazooSession(
            named,
            root,
            session_timeout_ms=session_timeout_ms,
            connect_seconds=min(share_ms, connection_timeout_ms) / 1000,
            loop=loop,
            on_state=on_state,
            on_root_made=None if made or not root else note_made,
        )
        session.start()
        return session

    return open_session


class KazooSession:
    """See the module, and `ottla.base.zookeeper.Session` for the guarantees."""

    def __init__(
        self,
        servers: str,
        root: str,
        *,
        session_timeout_ms: int,
        connect_seconds: float,
        loop: asyncio.AbstractEventLoop,
        on_state: Callable[[SessionState], None],
        on_root_made: Callable[[], None] | None,
    ) -> None:
        self._root = root
        self._loop = loop
        self._on_state = on_state
        self._on_root_made = on_root_made
        self._handler = DirectHandler(connect_seconds)
        self._client = KazooClient(
            servers,
            timeout=session_timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_SECONDS_MIN,
                max_delay=RECONNECT_SECONDS_MAX,
                sleep_func=self._handler.sleep_func,
            ),
            logger=_QUIET,
        )
        self._servers = servers
        self._state = SessionState.CONNECTING
        self._id = 0
        self._queue = RequestQueue(self._send)
        self._watches = Watches()
        self._probe = SessionProbe(
            loop, lambda: self.multi((Check("/", ANY_VERSION),)), session_timeout_ms / 1000
        )
        self._closed: Pending[None] = Pending()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def start(self) -> None:
        """Connect, on kazoo's thread."""
        self._client.add_listener(self._on_kazoo_state)
        self._client.start_async()

    @property
    def id(self) -> int:
        """Return the session's id; 0 = not connected yet."""
        return self._id

    @property
    def state(self) -> SessionState:
        """Return the state of the session."""
        return self._state

    # -- requests ------------------------------------------------------------------------------

    def get(self, path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        """Read a node; see the port."""

        def convert(answer: Any) -> ZnodeData | ZkError:
            if isinstance(answer, Exception):
                return error_of(answer, path)
            data, stat = answer
            if watch is not None:
                self._watches.add_data(path, watch, _data_version(stat))
            return ZnodeData(data or b"", stat_of(stat))

        full = full_path(self._root, path)
        on_event = None if watch is None else self._on_kazoo_event
        return self._read(lambda: self._client.get_async(full, on_event), convert, path)

    def exists(self, path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        """Read a node's stat; see the port."""

        def convert(answer: Any) -> Stat | ZkError | None:
            if isinstance(answer, Exception):
                return error_of(answer, path)
            if watch is not None:
                self._watches.add_data(path, watch, _data_version(answer))
            return None if answer is None else stat_of(answer)

        full = full_path(self._root, path)
        on_event = None if watch is None else self._on_kazoo_event
        return self._read(lambda: self._client.exists_async(full, on_event), convert, path)

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children; see the port."""

        def convert(answer: Any) -> tuple[str, ...] | ZkError:
            if isinstance(answer, Exception):
                return error_of(answer, path)
            names, stat = answer
            if watch is not None:
                self._watches.add_children(path, watch, _children_version(stat))
            return tuple(sorted(names))

        full = full_path(self._root, path)
        on_event = None if watch is None else self._on_kazoo_event
        return self._read(
            lambda: self._client.get_children_async(full, on_event, include_data=True),
            convert,
            path,
        )

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        """Do all or nothing; see the port. A multi that is too large is BAD_ARGUMENTS."""
        requested = tuple(operations)
        path = requested[0].path if requested else ""
        too_large = size_of(self._root, requested) > REQUEST_BYTES_MAX

        def convert(answer: Any) -> tuple[Result, ...] | ZkError:
            if too_large:
                return ZkError(ZkCode.BAD_ARGUMENTS, path)
            if isinstance(answer, Exception):
                return error_of(answer, path)
            return results_of(self._root, requested, answer)

        client = self._client
        return self._submit(
            lambda: transaction(client, self._root, requested).commit_async(),
            convert,
            path,
            refused=too_large,
        )

    def _read(
        self, send: Callable[[], object], convert: Callable[[Any], Any], path: str
    ) -> Pending[Any]:
        return self._submit(send, convert, path, repeats=True)

    def _submit(
        self,
        send: Callable[[], object],
        convert: Callable[[Any], Any],
        path: str,
        *,
        repeats: bool = False,
        refused: bool = False,
    ) -> Pending[Any]:
        """Queue a request; a refused one is not sent and only answered in turn."""
        if self._state in OVER:
            return completed(ZkError(ZkCode.SESSION_EXPIRED, path))
        pending: Pending[Any] = Pending()

        def finish(answer: Any) -> None:
            session_over = answer is None and self._state in OVER
            pending.complete(
                ZkError(ZkCode.SESSION_EXPIRED, path) if session_over else convert(answer)
            )

        request = Request(send, finish, repeats)
        if refused:
            request.stage = Stage.ANSWERED
            # Not at once: the caller does not have the promise yet.
            self._loop.call_soon(self._queue.deliver)
        self._queue.add(request)
        return pending

    def _send(self, request: Request) -> None:
        attempt = request.attempt

        def on_result(result: Any) -> None:
            answer = result.value if result.successful() else result.exception
            self._hand_over(self._arrived, request, attempt, answer)

        self._handler.on_result = on_result
        try:
            request.send()
        finally:
            self._handler.on_result = None

    def _arrived(self, request: Request, attempt: int, answer: Any) -> None:
        undone = isinstance(answer, UNDONE_PERHAPS)
        self._queue.arrived(request, attempt, answer, undone=undone)
        if _is_expired(answer):
            # kazoo takes it as the error of that request alone, and the server keeps the connection
            # of a session that ended just as it moved there: nothing else reports the end.
            self._lost()

    # -- kazoo's thread ------------------------------------------------------------------------

    def _hand_over(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # The loop has closed.
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_kazoo_event(self, event: WatchedEvent) -> None:
        kind = EVENT_KINDS.get(event.type)
        if kind is not None:  # Others are events of the session's state.
            self._hand_over(self._fire, Event(kind, below(self._root, event.path)))

    def _on_kazoo_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._handler.session_over = True
            self._hand_over(self._lost)
        elif state == KazooState.SUSPENDED:
            self._hand_over(self._suspended)
        else:
            identity = self._client.client_id
            self._hand_over(self._connected, identity[0] if identity is not None else 0)

    # -- states --------------------------------------------------------------------------------

    def _connected(self, session_id: int) -> None:
        if self._state in OVER:
            self._stop_client()
            return
        assert self._id in (0, session_id), "the session id has changed"
        self._id = session_id
        log.info("connected to ZooKeeper at %s, session 0x%x", self._servers, self._id % 2**64)
        self._probe.connected(is_first=self._state is SessionState.CONNECTING)
        first = [*self._make_root(), *self._restore()]
        self._become(SessionState.CONNECTED)
        self._queue.connected(first)

    def _suspended(self) -> None:
        if self._state in OVER:
            return
        log.warning("lost the connection to ZooKeeper at %s", self._servers)
        self._probe.stop()
        self._become(SessionState.SUSPENDED)
        self._queue.broken()

    def _lost(self) -> None:
        if self._state in OVER:
            self._stop_client()
            return
        log.warning("ZooKeeper session 0x%x expired", self._id % 2**64)
        self._end(SessionState.EXPIRED)
        self._stop_client()

    def _end(self, state: SessionState) -> None:
        self._probe.stop()
        self._watches.clear()
        unanswered = self._queue.end()
        self._become(state)
        for request in unanswered:
            safely(request.finish, None)

    def close(self) -> Pending[None]:
        """End the session; see the port. It ends within CLOSE_SECONDS_MAX, answered or not.

        Where the connection is lost at the moment, the next one is awaited: otherwise servers would
        keep the session's ephemeral nodes for its whole timeout.
        """
        if self._state not in OVER:
            is_connected = self._client.connected or not self._id
            # Unanswered requests end here; kazoo still closes its session.
            self._end(SessionState.CLOSED)
            self._timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._give_up)
            if is_connected:
                self._stop_client()
        return self._closed

    def _give_up(self) -> None:
        self._stop_client()
        self._closed.complete(None)

    def _stop_client(self) -> None:
        """Have kazoo close its session and its thread, which takes long without responses."""
        if self._is_stopping:
            return
        self._is_stopping = self._handler.session_over = True
        if self._timer is None:
            self._timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._give_up)
        timer = self._timer

        def stopped() -> None:
            timer.cancel()
            self._closed.complete(None)

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            except Exception as error:
                log.info("closing a ZooKeeper session failed: %s", error)
            self._hand_over(stopped)

        threading.Thread(target=stop, name="ottla-zookeeper-close", daemon=True).start()

    def _become(self, state: SessionState) -> None:
        if state is not self._state:
            self._state = state
            safely(self._on_state, state)

    def _fire(self, event: Event) -> None:
        for watcher in self._watches.fire(event):
            safely(watcher, event)

    # -- connections ---------------------------------------------------------------------------

    def _make_root(self) -> Iterator[Request]:
        """Create the chroot and its parents, where missing."""
        if self._on_root_made is None:
            return
        names = self._root.split("/")[1:]
        for count in range(1, len(names) + 1):
            yield self._make_node("/" + "/".join(names[:count]), is_last=count == len(names))

    def _make_node(self, path: str, *, is_last: bool) -> Request:
        operations = (Create(path),)

        def finish(answer: Any) -> None:
            error = answer if isinstance(answer, Exception) else results_of("", operations, answer)
            exists = not isinstance(error, Exception) or (
                isinstance(error, ZkError) and error.code is ZkCode.NODE_EXISTS
            )
            if not exists:
                log.warning("creating the ZooKeeper chroot %s failed: %s", path, error)
            elif is_last and self._on_root_made is not None:
                self._on_root_made()
                self._on_root_made = None

        return Request(lambda: transaction(self._client, "", operations).commit_async(), finish)

    def _restore(self) -> Iterator[Request]:
        """Catch up with the leader, then read all watched nodes and set their watches again."""
        if self._state is SessionState.CONNECTING:
            return
        barrier = (Check("/", ANY_VERSION),)
        yield Request(lambda: transaction(self._client, "", barrier).commit_async(), nothing)
        for path in self._watches.data:
            yield self._rewatch_data(path)
        for path in self._watches.children:
            yield self._rewatch_children(path)

    def _rewatch_data(self, path: str) -> Request:
        full = full_path(self._root, path)
        return Request(
            lambda: self._client.exists_async(full, self._on_kazoo_event),
            lambda answer: self._on_data_reread(path, answer),
        )

    def _rewatch_children(self, path: str) -> Request:
        full = full_path(self._root, path)
        return Request(
            lambda: self._client.get_children_async(full, self._on_kazoo_event, include_data=True),
            lambda answer: self._on_children_reread(path, answer),
        )

    def _on_data_reread(self, path: str, answer: Any) -> None:
        version: NodeVersion = (-1,) if isinstance(answer, Exception) else _data_version(answer)
        for watcher, event in self._watches.data_reread(path, version):
            safely(watcher, event)

    def _on_children_reread(self, path: str, answer: Any) -> None:
        version: NodeVersion = None
        if not isinstance(answer, Exception):
            version = _children_version(answer[1])
        elif not isinstance(answer, NoNodeError):
            version = (-1,)  # The watcher reads again, and gets the error.
        for watcher, event in self._watches.children_reread(path, version):
            safely(watcher, event)


def _data_version(stat: Any) -> NodeVersion:
    return None if stat is None else (stat.czxid, stat.mzxid)


def _children_version(stat: Any) -> NodeVersion:
    return (stat.czxid, stat.pzxid)


def _is_expired(answer: Any) -> bool:
    """Tell whether a response, or a part of it, is that the session has expired."""
    answers = answer if isinstance(answer, list) else [answer]
    return any(isinstance(each, SessionExpiredError) for each in answers)


_QUIET = logging.getLogger("ottla.kazoo")
"""kazoo logs each attempt to connect as a warning; the session logs the result once."""
_QUIET.setLevel(logging.ERROR)
