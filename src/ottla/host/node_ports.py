"""The ports of a node's roles to clocks, disks and network, which the simulator replaces."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.base.errors import ApiError
from ottla.base.object_store import ObjectStore, Pool
from ottla.base.pending import Pending
from ottla.base.ports import Clock, Dice, Disk, Workers
from ottla.base.timers import Timers
from ottla.base.turns import CallNextTurn
from ottla.base.zookeeper import OpenSession
from ottla.broker.ports import Listener
from ottla.host.net.dialer import Address
from ottla.log.cleaner.log_cleaner import Runner
from ottla.metadata.brokers import Endpoint
from ottla.metadata.node_config import NodeConfig

__all__ = [
    "Address",
    "ChooseEndpoint",
    "CleaningRunner",
    "Connect",
    "Endpoints",
    "Link",
    "NodeListeners",
    "NodePorts",
    "OpenStore",
    "OpenedStore",
]

ChooseEndpoint = Callable[[], Address | None]


Endpoints = tuple[Endpoint, ...]


class NodeListeners(Protocol):
    """A node's listeners."""

    def bind(
        self, listeners: Endpoints, advertised: Endpoints, kind: Listener
    ) -> Pending[Endpoints] | Awaitable[Endpoints]:
        """Bind, without accepting yet; return `advertised` with hosts and ports filled in."""
        ...

    def accept(self) -> Pending[None] | Awaitable[None]:
        """Accept connections on all bound listeners."""
        ...

    def close(self) -> Pending[None] | Awaitable[None]:
        """Stop accepting; end all connections."""
        ...


class Link(Protocol):
    """A channel to one other node at a time. See `ottla.host.net.channel.Channel`."""

    @property
    def connected(self) -> bool:
        """Tell whether there is a connection."""
        ...

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send one request; return its response, or the error."""
        ...

    def withdraw(self, answer: Pending[Any | ApiError]) -> bool:
        """Cancel a request that still waits for a connection; return whether it did."""
        ...

    def retarget(self) -> None:
        """Close the connection where another endpoint is chosen now."""
        ...

    def close(self) -> None:
        """End the connection; everything unanswered fails with NETWORK_EXCEPTION."""
        ...


class Connect(Protocol):
    """Makes links; each connects when it has something to send."""

    def __call__(
        self,
        choose_endpoint: ChooseEndpoint,
        *,
        client_id: str,
        backoff_ms: int = ...,
        backoff_max_ms: int = ...,
        connect_timeout_ms: int = ...,
        connect_timeout_max_ms: int = ...,
        patient: bool = ...,
    ) -> Link:
        """Return a link to the endpoint that `choose_endpoint` returns."""
        ...


class CleaningRunner(Runner, Protocol):
    """Runs log cleanings, and waits for their end when the node stops."""

    def close(self) -> None:
        """Return once all cleanings, which were asked to end, have ended."""
        ...


class OpenedStore(ObjectStore, Protocol):
    """The node's object store, which it closes when it stops."""

    def resize(self, pool: Pool, running_max: int, queued_max: int) -> None:
        """Have a pool run and queue another number of operations; those under way go on."""
        ...

    def close(self) -> None:
        """Cancel what is under way; a store that hangs is not waited for."""
        ...


OpenStore = Callable[[NodeConfig], OpenedStore]
"""Opens the store of `ottla.remote.storage.uri`. Nothing is sent to it yet. Raises: StartError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """The ports of one process.

    Fields: `connect`: makes links to other nodes; `cleanings`: runs log cleanings;
            `boot_id`: identifies this boot of the machine, "" = unknown;
            `ticks_ns`: a clock for measuring how long handlers take, and for nothing else;
            `call_next_turn`: calls back in the loop's next turn, None = a timer does;
            `open_zookeeper`: opens ZooKeeper sessions, in ZooKeeper mode;
            `open_store`: opens the object store of tiered storage.
    """

    clock: Clock
    dice: Dice
    disk: Disk
    timers: Timers
    workers: Workers
    connect: Connect
    cleanings: CleaningRunner
    ticks_ns: Callable[[], int]
    boot_id: str = ""
    call_next_turn: CallNextTurn | None = None
    open_zookeeper: OpenSession | None = None
    open_store: OpenStore | None = None
