"""Where a controller's decisions become facts: one port, three back ends.

A back end keeps an image: what it has appended and what others have written (brokers that came,
topics that a tool created). A decider rests on that image; its step is appended under the epoch of
the controller that decided it, and the answer is one of four. Whoever listens hears of every
change in the order in which it came into the image, whoever made it.

Back ends: memory (`ottla.testing.memory_store`), the KRaft log, and ZooKeeper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.controller.step import Step
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True)
class Committed:
    """The step's records are facts. `deltas`: what they changed, one for each part that was
    written as a whole. Listeners have heard of them; what others changed may lie in between."""

    deltas: tuple[ClusterDelta, ...]


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another controller rules: nothing of this part was written, and nothing ever will be."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else had changed these. They have been read anew and are in the image: decide
    again. Parts of a step that is not atomic may have been written: they are in the image, too.
    """

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether it was written cannot be known any more. What it would have changed has been read
    anew and is in the image: decide again."""


Appended = Committed | Fenced | Conflict | Unknown


class MetadataPort(Protocol):
    """One cluster's facts, as one controller reads and writes them."""

    @property
    def image(self) -> ClusterImage:
        """Return the image after everything that was appended and observed."""
        ...

    def append(self, step: Step, epoch: int) -> Pending[Appended | ApiError]:
        """Write a step decided on `image`, which has not changed since. One at a time: the next
        one after this one's answer. A step that can never be written (too large, refused for
        other reasons than the four) raises, or is answered with, an ApiError.

        Order: a part is written; its delta is in the image; listeners hear of it; the next part.
        The answer comes after all that.
        """
        ...

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener` with each change from now on, once it is in the image: what was
        appended and what others wrote. Deltas follow one another: each begins where the one
        before ended."""
        ...
