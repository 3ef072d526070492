"""What the deletion manager learns, each a plain value, and what it returns."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import DeletionWork, Replica
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True)
class Elected:
    """This controller begins with a stored image."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Committed:
    """A change of the image, whoever made it."""

    delta: ClusterDelta


@dataclass(frozen=True, slots=True)
class DeletionsAnswered:
    """A broker's response to a request to delete replicas: the error of each."""

    broker_id: int
    broker_epoch: int
    results: Mapping[Replica, Error]


@dataclass(frozen=True, slots=True)
class OrdersDropped:
    """A broker's request to delete replicas will have no response."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IneligibleTopics:
    """The topics whose deletion must not begin now.

    Fields: `preferred_elections`: with preferred leader elections under way. `reassignments`: with
            a reassignment that was requested but is not in the image yet.
    """

    preferred_elections: frozenset[str] = frozenset()
    reassignments: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MarkersChanged:
    """The topics that have a deletion marker now."""

    names: Collection[str]


@dataclass(frozen=True, slots=True)
class WorkDecided:
    """The work is decided, and its records are committed."""


@dataclass(frozen=True, slots=True)
class WorkRefused:
    """The work could not be written, or not all of it."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `Ready.wake_at_ms`. `wall_ms`: epoch milliseconds."""

    wall_ms: int


Event = (
    Elected
    | Committed
    | DeletionsAnswered
    | OrdersDropped
    | IneligibleTopics
    | MarkersChanged
    | WorkDecided
    | WorkRefused
    | TimePassed
)


@dataclass(frozen=True, slots=True)
class Ready:
    """What to do after an event, in this order.

    Fields: `wake_at_ms`: when to step `TimePassed`, if no event comes before. `orders`: to send.
            `work`: to be decided (`deletion_policy.decide`); step `WorkDecided` or `WorkRefused`
            next. None = nothing, or the last work is being decided.
    """

    wake_at_ms: int
    orders: tuple[DeletionOrder, ...]
    work: DeletionWork | None
