"""The port to ZooKeeper: sessions, operations, watches.

A `Session` is exactly one ZooKeeper session. After it has expired every open request completes with
SESSION_EXPIRED, and its owner opens a new one. So a request of a deposed controller cannot take
effect in a later session.

Guarantees of the real driver and of the simulator's model: responses come in the order of the
requests; a watch fires at most once, before any response that shows the change; the driver repeats
reads while the session is alive; a write whose connection broke completes with CONNECTION_LOSS, and
may or may not have been applied. Everything is called on the node's loop. Paths are absolute, below
the session's chroot, without it.

Source: the ZooKeeper programmer's guide; ZooKeeper 3.9.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.base.pending import Pending

ANY_VERSION: Final = -1
"""The expected version of a write that matches any version."""


class ZkCode(IntEnum):
    """Why an operation failed, with ZooKeeper's own numbers."""

    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    """Of a multi: another operation than this one failed."""
    CONNECTION_LOSS = -4
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112


class ZkError(Exception):
    """A failed operation, or an unknown outcome. `index`: the failed operation of a multi."""

    def __init__(self, code: ZkCode, path: str = "", index: int | None = None) -> None:
        super().__init__(f"{code.name} {path}".strip())
        self.code = code
        self.path = path
        self.index = index


class Stat(NamedTuple):
    """A node's state beside its data. Times: epoch milliseconds; `ephemeral_owner` 0 = none."""

    czxid: int
    mzxid: int
    version: int
    cversion: int
    ephemeral_owner: int
    created_ms: int
    modified_ms: int


class ZnodeData(NamedTuple):
    """The data and Stat of a znode."""

    data: bytes
    stat: Stat


# -- writes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """A node to create; `sequential` appends ten digits to its name. Answer: its path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Data to set, where the node is at `version`. Answer: the Stat after it."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """A node to delete, where it is at `version` and has no children. Answer: None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """A node that must be at `version`. Answer: None."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check

Result = str | Stat | None
"""The answer to one operation of a multi; see the operations."""


# -- watches and sessions ----------------------------------------------------------------------


class EventKind(Enum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"


class Event(NamedTuple):
    """A change of a watched node, without its data: the watcher must read it again."""

    kind: EventKind
    path: str


Watcher = Callable[[Event], None]


class SessionState(Enum):
    """The state of a session. CLOSED: by its owner; EXPIRED: by ZooKeeper."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


class Session(Protocol):
    """One session with ZooKeeper; see the module."""

    @property
    def id(self) -> int:
        """Return the session's id, as in `Stat.ephemeral_owner`; 0 = not connected yet."""
        ...

    @property
    def state(self) -> SessionState:
        """Return the state. Requests made before the session is connected wait for it."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        """Read a node. The watch is set only if the node exists: DATA_CHANGED, DELETED."""
        ...

    def exists(self, path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        """Read a node's Stat; the watch is set in any case: CREATED, DATA_CHANGED, DELETED."""
        ...

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children, sorted. Watch: CHILDREN_CHANGED, DELETED."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        """Apply all operations or none, in order; the error has the first one that failed."""
        ...

    def close(self) -> Pending[None]:
        """End the session: its ephemeral nodes are deleted. Open requests complete with
        SESSION_EXPIRED; no watch fires any more."""
        ...


class OpenSession(Protocol):
    """Opens sessions with one ensemble."""

    def __call__(self, on_state: Callable[[SessionState], None]) -> Session:
        """Begin a session, which connects in the background; each change calls `on_state`."""
        ...
