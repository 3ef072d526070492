"""The port through which a controller's decisions are committed: one port, three back ends.

A back end keeps an image: what it has appended and what others have written (brokers that
appeared, topics that a tool created). A decider uses that image; its step is appended under the
epoch of the controller that decided it, with one of four outcomes. Listeners get every committed
change in the order in which it came, whoever made it.

Back ends: memory (`ottla.testing.memory_store`), the KRaft log (`ottla.host.kraft.metadata_log`),
and ZooKeeper (`ottla.host.zookeeper.store.store`). All are used by one runtime,
`ottla.host.controller.controller_runtime`.
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
    """The step's records are committed. `deltas`: what they changed, one for each part that was
    written atomically. Listeners have got them; changes of others may lie in between.
    """

    deltas: tuple[ClusterDelta, ...]


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another controller is active: this one writes nothing more. What it has appended to a log
    that others replicate may still be committed by the next one.
    """


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another writer had changed these keys. They have been read again and are in the image: decide
    again. Parts of a splittable step may have been written: they are in the image, too.
    """

    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether it was written cannot be known. What it would have changed has been read
    again and is in the image: decide again.
    """


Appended = Committed | Fenced | Conflict | Unknown


class MetadataPort(Protocol):
    """The metadata of one cluster, as one controller reads and writes it."""

    @property
    def is_pipelined(self) -> bool:
        """Tell whether the next decision may be made while an append is under way.

        Where it may, `image` has what is under way, and outcomes come in the order of the appends.
        """
        ...

    @property
    def image(self) -> ClusterImage:
        """Return the image after everything that was appended and observed; the next decision is
        made on it. When the controller loses its epoch, it falls back to the committed one."""
        ...

    @property
    def committed_image(self) -> ClusterImage:
        """Return the image that listeners have got."""
        ...

    def append(self, step: Step, epoch: int) -> Pending[Appended | ApiError]:
        """Write a step decided on `image`, which has not changed since. Where the back end is not
        pipelined, one at a time: the next one after this one's outcome. A step that can never be
        written (too large, refused for other reasons than the four) raises, or completes with, an
        ApiError. A step without records writes nothing: its outcome comes once all that it may
        rest on, which is in `image`, is committed.

        Order: a part is committed; its delta is in `committed_image`; listeners are called; the
        next part. The outcome comes after all that.
        """
        ...

    def subscribe(self, listener: Callable[[ClusterDelta], None]) -> None:
        """Call `listener`, which does not raise, with each change from now on, once it is in
        `committed_image`: what was appended and what others wrote. Deltas follow one another: each
        begins where the one before ended."""
        ...
