"""A model of ZooKeeper in virtual time: one ensemble, its sessions, its watches, its faults.

    zookeeper = ZooKeeperModel(scheduler, Random(7))
    open_session = session_opener(zookeeper, "node 1", process, session_timeout_ms=6_000)

The ensemble is one tree that all clients see: every read after a write shows it. (Servers of a real
ensemble may lag behind each other. Here the only lag is the response's delay.) While the servers
elect a leader, no request is answered; afterwards every session has its full timeout again.

Watches are kept by the servers: each belongs to a connection and fires once. A client that
reconnects within its session sends its pending watches and the last zxid that it has seen, and gets
the events that it missed, as far as a node's Stat shows them: a node that was deleted and created
again has "changed", one that was created and deleted again has no event.

Faults: `cut`, `heal`, `break_connection`, `expire`, `down`, `up`, and the rates of `faults`.
Everything is determined by the scheduler and one random stream.

Source: ZooKeeper 3.9 (SessionTrackerImpl, DataTree.setWatches, WatchManager).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from ottla.base.zookeeper import (
    Create,
    Delete,
    Event,
    EventKind,
    Operation,
    Result,
    Stat,
    ZkError,
)
from ottla.testing.sim.scheduler import START_MS, Process, Scheduler
from ottla.testing.sim.scheduler import Event as Happening
from ottla.testing.sim.zookeeper.zookeeper_tree import Author, Tree, parent_of
from ottla.testing.sim.zookeeper.zookeeper_wire import Connection, ZooKeeperFaults

__all__ = ["Written", "ZooKeeperFaults", "ZooKeeperModel"]

FIRST_SESSION_ID = 0x1000_0000_0000


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction that was done, at a virtual time. `client` None: a session's end."""

    at_ms: int
    zxid: int
    client: object
    session: int
    operations: tuple[Operation, ...]
    results: tuple[Result, ...]


@dataclass(slots=True)
class ServerSession:
    """A session on the servers. `touched_us`: when its client's last message arrived."""

    id: int
    client: object
    timeout_us: int
    touched_us: int
    connection: Connection


class ZooKeeperModel:
    """The servers. `tree` is theirs; tests look at it and change nothing."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        *,
        trace: Callable[[str], None] = lambda text: None,
        mark: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.scheduler = scheduler
        self.random = random
        self.faults = ZooKeeperFaults()
        self.tree = Tree()
        self.zxid = 0
        self.is_up = True
        self.mark = mark
        self.sessions: dict[int, ServerSession] = {}
        self._trace = trace
        self._opened = 0
        self._cut: dict[object, None] = {}
        self._responses_held: dict[object, None] = {}
        self._connections: dict[Connection, None] = {}
        """Connections that their clients have not closed."""
        self._data_watches: dict[str, dict[Connection, None]] = {}
        self._child_watches: dict[str, dict[Connection, None]] = {}
        self._observers: list[Callable[[Written], None]] = []
        self._bounds: dict[int, Happening] = {}

    def observe(self, observer: Callable[[Written], None]) -> None:
        """Call `observer` with each transaction, once it is done."""
        self._observers.append(observer)

    # -- faults --------------------------------------------------------------------------------

    def cut(self, client: object) -> None:
        """Cut a client off from the ensemble; neither end is notified."""
        self.mark("zookeeper-cut")
        self._cut[client] = None
        self._hold_where_cut()

    def hold_answers(self, client: object) -> None:
        """Hold the responses to a client; its requests are processed."""
        self._responses_held[client] = None
        self._hold_where_cut()

    def heal(self, client: object) -> None:
        """End a cut; what was held is delivered."""
        self._cut.pop(client, None)
        self._responses_held.pop(client, None)
        self._hold_where_cut()

    def heal_all(self) -> None:
        """End all faults that last."""
        self._cut.clear()
        self._responses_held.clear()
        self.faults.slow = self.faults.broken = 0.0
        self.up()
        self._hold_where_cut()

    def break_connection(self, client: object) -> None:
        """Break a client's connections; it may connect again at once."""
        for connection in [each for each in self._connections if each.client == client]:
            self._break(connection)

    def expire(self, session_id: int) -> None:
        """Expire a session now."""
        if session_id in self.sessions:
            self._end(self.sessions[session_id], "expired")

    def down(self, *, silently: bool = False) -> None:
        """Stop serving: connections break, or hang if `silently`."""
        if not self.is_up:
            return
        self.mark("zookeeper-down")
        self.is_up = False
        for connection in list(self._connections):
            if not silently:
                self._break(connection)
        self._hold_where_cut()

    def up(self) -> None:
        """Serve again; the new leader gives each session its full timeout."""
        if self.is_up:
            return
        self.is_up = True
        for session in self.sessions.values():
            self._touch(session)
        self._hold_where_cut()

    def _hold_where_cut(self) -> None:
        for connection in list(self._connections):
            self._hold(connection)

    def _hold(self, connection: Connection) -> None:
        cut = not self.is_up or connection.client in self._cut
        connection.hold(requests=cut, responses=cut or connection.client in self._responses_held)

    def _break(self, connection: Connection) -> None:
        self.mark("zookeeper-connection-broken")
        self._forget_watches(connection)
        if connection.client in self._cut or connection.client in self._responses_held:
            connection.server_open = False  # The client is not notified; it will miss the pings.
            return
        connection.break_both()
        if not self.is_up:
            # Requests that the servers had not processed are lost.
            connection.server_open = False
        del self._connections[connection]
        connection.hold(requests=False, responses=False)

    # -- connections ---------------------------------------------------------------------------

    def connect(
        self,
        client: object,
        process: Process | None,
        on_event: Callable[[Connection, Event], None],
        on_closed: Callable[[Connection], None],
    ) -> Connection:
        """Open a connection; while no server serves it hangs until its client closes it."""
        connection = Connection(
            self.scheduler,
            self.random,
            self.faults,
            client=client,
            process=process,
            on_event=on_event,
            on_closed=on_closed,
        )
        self._connections[connection] = None
        self._hold(connection)
        return connection

    def attach(self, connection: Connection, session: ServerSession) -> None:
        """Move a session to a new connection.

        Requests that arrive later on the old one are dropped.
        """
        old, session.connection = session.connection, connection
        if old is not connection:
            old.server_open = False
            self._forget_watches(old)
        self._touch(session)

    def given_up(self, connection: Connection) -> None:
        """The client has closed a connection; what it sent may still be processed."""
        connection.shut_by_client()
        if self._connections.pop(connection, 0) is None:
            self._forget_watches(connection)
            connection.hold(requests=False, responses=False)

    def maybe_break(self, connection: Connection) -> None:
        """Let the rates decide whether a connection breaks now."""
        broken = self.faults.broken
        if broken and self.random.random() < broken and connection in self._connections:
            self._break(connection)

    # -- sessions ------------------------------------------------------------------------------

    def begin_session(self, connection: Connection, timeout_us: int, chroot: str) -> ServerSession:
        """Begin a session; its chroot is created if missing."""
        self._opened += 1
        self.zxid += 1
        session = ServerSession(
            FIRST_SESSION_ID + self._opened,
            connection.client,
            timeout_us,
            self.scheduler.now_us,
            connection,
        )
        self.sessions[session.id] = session
        self._note(f"session {session.id} of {connection.client}")
        missing = []
        path = chroot
        while path and path != "/" and path not in self.tree.nodes:
            missing.append(Create(path))
            path = parent_of(path)
        if missing:
            self.write(session, tuple(reversed(missing)))
        self._touch(session)
        return session

    def ping(self, session_id: int) -> None:
        """Take a ping of a session's client."""
        session = self.sessions.get(session_id)
        if session is not None and self.is_up:
            self._touch(session)

    def _touch(self, session: ServerSession) -> None:
        session.touched_us = self.scheduler.now_us
        if session.id not in self._bounds:
            self._bound(session)

    def _bound(self, session: ServerSession) -> None:
        self._bounds[session.id] = self.scheduler.at(
            session.touched_us + session.timeout_us, lambda: self._look(session)
        )

    def _look(self, session: ServerSession) -> None:
        """Expire a session without messages for its timeout; a new leader restarts the timeouts."""
        del self._bounds[session.id]
        if self.sessions.get(session.id) is not session or not self.is_up:
            return
        if self.scheduler.now_us - session.touched_us >= session.timeout_us:
            self._end(session, "expired")
        else:
            self._bound(session)

    def end_session(self, session: ServerSession) -> None:
        """Close a session at its client's request."""
        if self.sessions.get(session.id) is session:
            self._end(session, "closed")

    def _end(self, session: ServerSession, why: str) -> None:
        del self.sessions[session.id]
        bound = self._bounds.pop(session.id, None)
        if bound is not None:
            bound.cancel()
        self.zxid += 1
        self._note(f"session {session.id} {why}")
        if why == "expired":
            self.mark("zookeeper-session-expired")
        self._forget_watches(session.connection)
        owned = sorted(self.tree.ephemerals.get(session.id, ()))
        self._fire(self.tree.end_session(Author(session.id, self.zxid, self._now_ms)))
        self._observed(None, session.id, tuple(Delete(path) for path in owned), ())
        connection = session.connection
        if why == "expired":
            connection.shut_by_server()
        if connection.process is not None and not connection.process.alive:
            self._connections.pop(connection, None)

    # -- requests ------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return START_MS + self.scheduler.now_ms

    def write(
        self, session: ServerSession, operations: Sequence[Operation]
    ) -> tuple[Result, ...] | ZkError:
        """Process a transaction; it has its own zxid even if it is rejected."""
        self.zxid += 1
        author = Author(session.id, self.zxid, self._now_ms)
        done = self.tree.apply(operations, author)
        if isinstance(done, ZkError):
            self._note(f"{session.id} refused {operations!r} {done}")
            return done
        results, events = done
        self._note(f"{session.id} wrote {operations!r}")
        self._fire(events)
        self._observed(session.client, session.id, tuple(operations), results)
        return results

    def remove(self, path: str) -> None:
        """Delete a znode, if it exists, as an operator's tool does, whichever session owns it."""
        self.zxid += 1
        done = self.tree.apply((Delete(path),), Author(0, self.zxid, self._now_ms))
        if not isinstance(done, ZkError):
            self.mark("zookeeper-znode-removed")
            self._note(f"an operator removed {path}")
            self._fire(done[1])

    def _observed(
        self,
        client: object,
        session_id: int,
        operations: tuple[Operation, ...],
        results: tuple[Result, ...],
    ) -> None:
        written = Written(self.scheduler.now_ms, self.zxid, client, session_id, operations, results)
        for observer in self._observers:
            observer(written)

    def exists(self, path: str) -> Stat | None:
        """Return a node's Stat."""
        node = self.tree.nodes.get(path)
        return None if node is None else node.stat

    def watch(self, connection: Connection, path: str, *, children: bool) -> None:
        """Set a watch on a node's data, or on the names of its children."""
        if connection in self._connections:
            table = self._child_watches if children else self._data_watches
            table.setdefault(path, {})[connection] = None
            connection.watched.add((children, path))

    def _forget_watches(self, connection: Connection) -> None:
        for children, path in connection.watched:
            table = self._child_watches if children else self._data_watches
            waiting = table.get(path, {})
            waiting.pop(connection, None)
            if not waiting:
                table.pop(path, None)
        connection.watched.clear()

    def _fire(self, events: Sequence[Event]) -> None:
        """Fire the watches of changed nodes, in the order of the changes; each fires once."""
        for event in events:
            waiting: dict[Connection, None] = {}
            if event.kind is not EventKind.CHILDREN_CHANGED:
                waiting |= self._used(self._data_watches, event.path, children=False)
            if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
                waiting |= self._used(self._child_watches, event.path, children=True)
            for connection in waiting:
                connection.event(event)

    def _used(
        self, table: dict[str, dict[Connection, None]], path: str, *, children: bool
    ) -> dict[Connection, None]:
        waiting = table.pop(path, {})
        for connection in waiting:
            connection.watched.discard((children, path))
        return waiting

    def missed(self, connection: Connection, path: str, *, since_zxid: int, kind: str) -> None:
        """Set a watch again after a reconnect, or send the event that it has missed.

        `kind`: "data" (set on a node), "exist" (set where there was none), "children".
        """
        node = self.tree.nodes.get(path)
        event: EventKind | None = None
        if kind == "exist":
            event = None if node is None else EventKind.CREATED
        elif node is None:
            event = EventKind.DELETED
        elif kind == "data":
            event = EventKind.DATA_CHANGED if node.mzxid > since_zxid else None
        else:
            event = EventKind.CHILDREN_CHANGED if node.pzxid > since_zxid else None
        if event is None:
            self.watch(connection, path, children=kind == "children")
        else:
            self.mark("zookeeper-watch-missed")
            connection.event(Event(event, path))

    def _note(self, text: str) -> None:
        self._trace(f"{self.zxid} {text}")
