"""What a broker's parts need of its node: the controller, connections, the other brokers.

Only Protocols and the values that pass through them, so that any part of the broker may import
this module.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from ottla.controller.context import DecisionContext
    from ottla.controller.step import Decision
    from ottla.metadata.image import ClusterImage

R = TypeVar("R")

Message = Any
"""A message class of `ottla.wire.messages`; each handler names its own."""

Listeners = tuple[tuple[str, str, int], ...]
"""Name, host and port of each listener of a node."""


class CloseConnection(Exception):
    """The peer's connection must be closed: its request has no response in the protocol.

    Raised by handlers (Produce with acks=0 that failed) and by the dispatcher (garbage).
    """


class Listener(Enum):
    """The kinds of listener. One port may be client and inter-broker listener at once."""

    CLIENT = "client"
    INTER_BROKER = "inter-broker"
    CONTROLLER = "controller"


@dataclass(slots=True)
class Connection:
    """What a server remembers of one connection, besides its bytes."""

    id: str
    """`local-host:port-remote-host:port-sequence`, as Kafka's request log names connections."""
    listener: Listener
    listener_name: str
    client_host: str
    client_port: int
    principal: Principal = ANONYMOUS
    """Who sends its requests. Of a forwarded request: the principal of the client's connection."""
    software_name: str = "unknown"
    software_version: str = "unknown"
    refusal: str | None = None
    """Why its last request has no response, where that was found out later."""
    throttle_ms: int = 0
    """How long it is muted, that is not read, once its current request is answered (KIP-219), or
    handled, if it has no response: a handler of such a request sets it itself."""
    closed: Pending[None] = field(default_factory=Pending)
    """Completes when the connection closes: its delayed requests are released then."""

    def take_throttle_ms(self) -> int:
        """Return how long to mute the connection now; 0 = not at all."""
        throttle_ms, self.throttle_ms = self.throttle_ms, 0
        return throttle_ms


class ControllerPort(Protocol):
    """The active controller of this node, as handlers and the channel see it."""

    @property
    def context(self) -> "DecisionContext":
        """Return the deciders' context besides the image: configuration, dice, live brokers."""
        ...

    @property
    def image(self) -> "ClusterImage":
        """Return the appended image, which the next decision uses."""
        ...

    @property
    def is_active(self) -> bool:
        """Tell whether this is the active controller; else `run` answers NOT_CONTROLLER."""
        ...

    def run(
        self, decide: "Callable[[ClusterImage], Decision[R]]", *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide now; answer when the decision's records are committed.

        `deadline_ms` is monotonic: a decision that could not start by then is not made and is
        answered REQUEST_TIMED_OUT. Where this is not the active controller: NOT_CONTROLLER.
        """
        ...


class ImageHolder(Protocol):
    """A broker, as far as forwarding has to know it."""

    @property
    def image(self) -> "ClusterImage":
        """Return the newest metadata that the broker has applied."""
        ...


class RequestContext(Protocol):
    """The context of a request that is forwarded: where it came from, and to which broker."""

    @property
    def connection(self) -> Connection:
        """Return the client's connection."""
        ...

    @property
    def principal(self) -> Principal:
        """Return who sends the request."""
        ...

    @property
    def broker(self) -> ImageHolder:
        """Return the broker that forwards."""
        ...


Forwarded = bytes | ApiError | None
"""A controller's response, header included. ApiError = none answered in time; None = it could not
answer this request."""


class Forwarder(Protocol):
    """A broker's connection to the active controller."""

    def forward(self, ctx: RequestContext, frame: bytes) -> Pending[Forwarded]:
        """Forward a client's request inside an Envelope."""
        ...

    def call(self, request: Message, *, timeout_ms: int) -> Pending[Message | ApiError]:
        """Send one of the broker's own requests (ids, registration, topic creation)."""
        ...


class Sender(Protocol):
    """A way to one other node. Requests are answered in the order in which they were sent."""

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send one request; return the promise of its response, or of the error.

        Bytes in a response belong to the sender: they are valid only while the promise's listeners
        run.
        """
        ...


METADATA_PRODUCE_LANE = -1
METADATA_TAIL_LANE = -2
METADATA_CATCH_UP_LANE = -3
"""The lanes of requests to `__remote_log_metadata`; replica fetchers have those from 0 on."""
BACKFILL_LANE = -4
"""The lane of followers that copy earlier records than replica fetchers do."""


class Peers(Protocol):
    """The other brokers: the network of followers, over connections or the simulator's own."""

    def to(self, broker_id: int, lane: int = 0) -> Sender:
        """Return the connection to a broker. Different lanes are different connections."""
        ...
