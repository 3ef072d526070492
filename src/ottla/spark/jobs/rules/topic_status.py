"""Whether objects of a topic may be in the store at all, by what the cluster says of it. Pure."""

from dataclasses import dataclass
from enum import Enum, auto

from ottla.base.ids import Uuid
from ottla.metadata.deletions import Remote
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity
from ottla.spark.jobs.rules.partition_view import PartitionView
from ottla.tiered.segment_metadata import NO_FLOOR


class Existence(Enum):
    """What the cluster knows of a topic id."""

    EXISTS = auto()
    PURGING = auto()
    """It is deleted, and its objects are being deleted."""
    PURGED = auto()
    """It is deleted, and the ledger says that none of its objects is left."""
    UNKNOWN = auto()
    """Neither a topic nor the deletion ledger has the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """One topic id.

    Fields: `receipt`: the ledger's state in words, "" = it is not in the ledger.
            `tiering`, `tiered_epoch`, `floor`, `purge_pending`: of a topic that exists; the state
            in words.
    """

    topic: str
    topic_id: Uuid
    existence: Existence
    receipt: str = ""
    tiering: str = ""
    tiered_epoch: int = 0
    floor: int = NO_FLOOR
    purge_pending: bool = False

    @property
    def floor_is_purged(self) -> int:
        """The floor of which the controller says that nothing is left; 0 = it says nothing."""
        return NO_FLOOR if self.purge_pending else self.floor


def existence_of_deleted(remote: int, *, is_finished: bool) -> Existence:
    """Return the status of a topic in the deletion ledger.

    A topic that was never tiered has nothing in the store, as one that is purged.
    """
    if remote == Remote.PENDING and not is_finished:
        return Existence.PURGING
    return Existence.PURGED


def check_absent(view: PartitionView, status: TopicStatus) -> list[Finding]:
    """Return what is wrong with the objects of a topic that does not exist."""
    assert status.existence is not Existence.EXISTS
    if status.existence is Existence.PURGED:
        return [
            view.finding(
                Kind.LEFTOVER,
                Severity.ERROR,
                f"the topic is deleted, and the ledger says: remote tier {status.receipt}",
                object=name,
            )
            for name in sorted(view.objects)
        ]
    if status.existence is Existence.PURGING:
        return []
    old = [each for each in view.objects.values() if view.is_old(each.modified_ms)]
    if not old:
        return []
    return [
        view.finding(
            Kind.UNKNOWN_TOPIC,
            Severity.WARNING,
            f"{len(old)} objects of {sum(each.size_bytes for each in old)} bytes: neither a topic "
            "of this cluster nor its deletion ledger has this id",
            object=min(each.name for each in old),
        )
    ]
