"""What any manager of the controller learns that orders brokers to do something.

The managers of deletions (`controller.deletion`) and of disablements (`controller.disabling`) have
events of their own beside these.
"""

from dataclasses import dataclass

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
class WorkDecided:
    """The work is decided, and its records are committed."""


@dataclass(frozen=True, slots=True)
class WorkRefused:
    """The work could not be written, or not all of it."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It is `Ready.wake_at_ms`. `wall_ms`: epoch milliseconds."""

    wall_ms: int
