"""What the deletion manager learns, each a plain value."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.manager_events import (
    Committed,
    Elected,
    TimePassed,
    WorkDecided,
    WorkRefused,
)


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
