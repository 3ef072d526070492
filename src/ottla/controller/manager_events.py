"""What any manager of the controller learns that orders brokers to do something, and what it says.

The managers of deletions (`controller.deletion`) and of disablements (`controller.disabling`) have
events of their own beside these.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage

Order = TypeVar("Order")
Work = TypeVar("Work")


@dataclass(frozen=True, slots=True)
class Elected:
    """This controller begins with a stored image."""

    image: ClusterImage


@dataclass(frozen=True, slots=True)
class Committed:
    """A change of the image, whoever made it."""

    delta: ClusterDelta


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


@dataclass(frozen=True, slots=True)
class Ready(Generic[Order, Work]):
    """What to do after an event, in this order.

    Fields: `wake_at_ms`: when to step `TimePassed`, if no event comes before; None = never.
            `orders`: to send. `work`: to be decided; step `WorkDecided` or `WorkRefused` next. None
            = nothing, or the last work is being decided.
    """

    wake_at_ms: int | None
    orders: tuple[Order, ...]
    work: Work | None
