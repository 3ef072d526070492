"""The tree of znodes, as one server holds it, and its operations.

A transaction is all or nothing; each of its operations sees the effects of those before it. All of
them have its zxid. Watch events follow from the changes, in their order: a node that one
transaction creates and deletes has both events.

Source: ZooKeeper 3.9 (PrepRequestProcessor for checks and their order; DataTree, DataNode for
Stats).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    Operation,
    Result,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZnodeData,
)

REQUEST_BYTES_MAX = 0xFFFFF
"""jute.maxbuffer: a server ends the connection over which a longer request comes."""

OPERATION_BYTES = 64
"""More than an operation's header, access list and lengths take."""


@dataclass(slots=True)
class Node:
    """A node. `creations`: of children, ever; a sequential child is named after it."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    created_ms: int
    modified_ms: int
    version: int = 0
    creations: int = 0
    ephemeral_owner: int = 0
    children: set[str] = field(default_factory=set)

    @property
    def stat(self) -> Stat:
        """Return the node's Stat; `cversion` counts creations and deletions of children."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            version=self.version,
            cversion=2 * self.creations - len(self.children),
            ephemeral_owner=self.ephemeral_owner,
            created_ms=self.created_ms,
            modified_ms=self.modified_ms,
        )


class Author(NamedTuple):
    """The session of a transaction, its zxid, and the servers' wall-clock time."""

    session: int
    zxid: int
    now_ms: int


class Tree:
    """All nodes by path. `ephemerals`: the paths that a session owns."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0, 0, 0, 0)}
        self.ephemerals: dict[int, set[str]] = {}
        self._undo: list[tuple[str, Node | None]] = []

    # -- reading -------------------------------------------------------------------------------

    def get(self, path: str) -> ZnodeData | ZkError:
        """Return a node's data and Stat."""
        node = self.nodes.get(path)
        return ZkError(ZkCode.NO_NODE, path) if node is None else ZnodeData(node.data, node.stat)

    def children(self, path: str) -> tuple[str, ...] | ZkError:
        """Return the names of a node's children, sorted."""
        node = self.nodes.get(path)
        return ZkError(ZkCode.NO_NODE, path) if node is None else tuple(sorted(node.children))

    # -- writing -------------------------------------------------------------------------------

    def apply(
        self, operations: Sequence[Operation], author: Author
    ) -> tuple[tuple[Result, ...], list[Event]] | ZkError:
        """Apply all operations, or none; return their results and events."""
        results: list[Result] = []
        events: list[Event] = []
        self._undo = []
        for index, operation in enumerate(operations):
            try:
                results.append(self._do(operation, author, events))
            except ZkError as error:
                self._take_back()
                return ZkError(error.code, error.path, index)
        self._undo = []
        return tuple(results), events

    def end_session(self, author: Author) -> list[Event]:
        """Delete a session's ephemeral nodes, in the order of the paths; return the events."""
        events: list[Event] = []
        self._undo = []
        for path in sorted(self.ephemerals.pop(author.session, set())):
            self._remove(path, author, events)
        self._undo = []
        return events

    def _do(self, operation: Operation, author: Author, events: list[Event]) -> Result:
        match operation:
            case Create():
                return self._create(operation, author, events)
            case SetData():
                return self._set(operation, author, events)
            case Delete():
                self._delete(operation, author, events)
            case Check():
                self._at_version(operation.path, operation.version)
        return None

    def _create(self, create: Create, author: Author, events: list[Event]) -> str:
        path = create.path
        check_path(path)
        parent_path = parent_of(path)
        if parent_path not in self.nodes:
            raise ZkError(ZkCode.NO_NODE, path)
        parent = self._changing(parent_path)
        if create.sequential:
            path = f"{path}{parent.creations:010d}"
        if path in self.nodes:
            raise ZkError(ZkCode.NODE_EXISTS, path)
        if parent.ephemeral_owner:
            raise ZkError(ZkCode.NO_CHILDREN_FOR_EPHEMERALS, path)
        zxid, now_ms = author.zxid, author.now_ms
        owner = author.session if create.ephemeral else 0
        self._undo.append((path, None))
        self.nodes[path] = Node(
            create.data, zxid, zxid, zxid, now_ms, now_ms, ephemeral_owner=owner
        )
        if owner:
            self.ephemerals.setdefault(owner, set()).add(path)
        parent.children.add(name_of(path))
        parent.creations += 1
        parent.pzxid = zxid
        events.append(Event(EventKind.CREATED, path))
        events.append(Event(EventKind.CHILDREN_CHANGED, parent_path))
        return path

    def _set(self, change: SetData, author: Author, events: list[Event]) -> Stat:
        self._at_version(change.path, change.version)
        node = self._changing(change.path)
        node.data = change.data
        node.version += 1
        node.mzxid = author.zxid
        node.modified_ms = author.now_ms
        events.append(Event(EventKind.DATA_CHANGED, change.path))
        return node.stat

    def _delete(self, delete: Delete, author: Author, events: list[Event]) -> None:
        path = delete.path
        if path == "/":
            raise ZkError(ZkCode.BAD_ARGUMENTS, path)
        node = self._at_version(path, delete.version)
        if node.children:
            raise ZkError(ZkCode.NOT_EMPTY, path)
        self._remove(path, author, events)

    def _remove(self, path: str, author: Author, events: list[Event]) -> None:
        node = self._changing(path)
        parent_path = parent_of(path)
        parent = self._changing(parent_path)
        del self.nodes[path]
        self.ephemerals.get(node.ephemeral_owner, set()).discard(path)
        parent.children.discard(name_of(path))
        parent.pzxid = author.zxid
        events.append(Event(EventKind.DELETED, path))
        events.append(Event(EventKind.CHILDREN_CHANGED, parent_path))

    def _at_version(self, path: str, version: int) -> Node:
        check_path(path)
        node = self.nodes.get(path)
        if node is None:
            raise ZkError(ZkCode.NO_NODE, path)
        if version not in (ANY_VERSION, node.version):
            raise ZkError(ZkCode.BAD_VERSION, path)
        return node

    # -- rollback ------------------------------------------------------------------------------

    def _changing(self, path: str) -> Node:
        """Return a node to change, after saving its state for a rollback."""
        node = self.nodes[path]
        kept = Node(
            node.data,
            node.czxid,
            node.mzxid,
            node.pzxid,
            node.created_ms,
            node.modified_ms,
            node.version,
            node.creations,
            node.ephemeral_owner,
            set(node.children),
        )
        self._undo.append((path, kept))
        return node

    def _take_back(self) -> None:
        while self._undo:
            path, node = self._undo.pop()
            there = self.nodes.pop(path, None)
            if there is not None and there.ephemeral_owner:
                self.ephemerals[there.ephemeral_owner].discard(path)
            if node is not None:
                self.nodes[path] = node
                if node.ephemeral_owner:
                    self.ephemerals.setdefault(node.ephemeral_owner, set()).add(path)


def parent_of(path: str) -> str:
    """Return the path of a node's parent."""
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    """Return a node's own name."""
    return path[path.rindex("/") + 1 :]


def check_path(path: str) -> None:
    """Raise ZkError for an invalid path. (A server accepts a sequential node named by its number
    alone; not all drivers send it.)
    """
    names = path.split("/")[1:]
    well = path.startswith("/") and (path == "/" or all(names))
    if not well or "\0" in path or any(name in (".", "..") for name in names):
        raise ZkError(ZkCode.BAD_ARGUMENTS, path)


def request_bytes(operations: Sequence[Operation]) -> int:
    """Return an upper estimate of a request's size."""
    return sum(
        OPERATION_BYTES
        + len(operation.path.encode())
        + (len(operation.data) if isinstance(operation, Create | SetData) else 0)
        for operation in operations
    )
