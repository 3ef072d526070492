"""ZooKeeper as Ottla's code sees it: one session, its operations, its watches.

A `Session` is one ZooKeeper session and never another one: when it has expired, everything that
it was asked is answered SESSION_EXPIRED, and whoever needs ZooKeeper opens a new one. So nothing
that a deposed controller asked for can be done in its next life.

What is promised, of the real driver and of the simulator's model alike: requests are answered in
the order in which they were made; a watch fires at most once, before any answer that shows the
change; reads are repeated by the driver while the session lives; a write whose connection broke
is answered CONNECTION_LOSS, and may have been done or not. Everything is called on the node's
loop. Paths are absolute, below the session's chroot, without it.

Source: the ZooKeeper programmer's guide; ZooKeeper 3.9.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.base.pending import Pending

ANY_VERSION: Final = -1
"""As the expected version of a write: whatever the node has."""


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
    """A refusal, or that the outcome is unknown. `index`: the operation of a multi that failed."""

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
    """A node as it was read."""

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
    """What became of a watched node. It carries no data: who wants to know reads again."""

    kind: EventKind
    path: str


Watcher = Callable[[Event], None]


class SessionState(Enum):
    """Whether a session is there. CLOSED: by its owner, in order; EXPIRED: by ZooKeeper."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


class Session(Protocol):
    """One session with ZooKeeper; see the module."""

    @property
    def id(self) -> int:
        """Return the session's id, as ephemeral nodes name their owner; 0 = not connected yet."""
        ...

    @property
    def state(self) -> SessionState:
        """Return whether it can be used. Requests made before it is connected wait for it."""
        ...

    def get(self, path: str, watch: Watcher | None = None) -> Pending[ZnodeData | ZkError]:
        """Read a node. The watch is set only where there is one: DATA_CHANGED, DELETED."""
        ...

    def exists(self, path: str, watch: Watcher | None = None) -> Pending[Stat | ZkError | None]:
        """Ask for a node; the watch is set either way: CREATED, DATA_CHANGED, DELETED."""
        ...

    def children(
        self, path: str, watch: Watcher | None = None
    ) -> Pending[tuple[str, ...] | ZkError]:
        """Read the names of a node's children, sorted. Watch: CHILDREN_CHANGED, DELETED."""
        ...

    def multi(self, operations: Sequence[Operation]) -> Pending[tuple[Result, ...] | ZkError]:
        """Do all or nothing, in order; the error names the first operation that failed."""
        ...

    def close(self) -> Pending[None]:
        """End the session: its ephemeral nodes go at once. What is unanswered is answered
        SESSION_EXPIRED; no watch fires any more."""
        ...


class OpenSession(Protocol):
    """Opens sessions: the way to one ensemble."""

    def __call__(self, on_state: Callable[[SessionState], None]) -> Session:
        """Begin a session, which connects in the background. `on_state` hears of each change."""
        ...
