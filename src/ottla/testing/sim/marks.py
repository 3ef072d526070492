"""Coverage marks: which rare paths a history reached, so that no run proves nothing unnoticed.

Most follow from what is observed anyway; those of error codes are what the product counts itself.
"""

from collections import Counter

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.host.node_core import NodeCore
from ottla.metadata.image import PartitionImage
from ottla.metadata.topics import RECOVERED

ORDINARY = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION})
"""What clients are told all the time."""


def marks_of_change(old: PartitionImage, new: PartitionImage) -> list[str]:
    """Return what a committed change did to a partition."""
    marks = []
    if len(new.isr) < len(old.isr):
        marks.append("isr-shrunk")
    elif len(new.isr) > len(old.isr):
        marks.append("isr-expanded")
    if new.elr and not old.elr:
        marks.append("elr-begun")
    if new.adding_replicas or new.removing_replicas:
        marks.append("reassignment-step")
    elif old.adding_replicas or old.removing_replicas:
        marks.append("reassignment-done")
    if old.leader != new.leader:
        marks.append(_mark_of_election(old, new))
    return marks


def _mark_of_election(old: PartitionImage, new: PartitionImage) -> str:
    leader = new.leader
    if leader == NO_LEADER:
        return "leader-lost"
    if leader in old.isr:
        return "leader-changed"
    if leader in old.elr:
        return "elected-from-elr"
    if new.leader_recovery_state == RECOVERED:
        # The change that took the last target of a reassignment into the ISR also elected it.
        return "leader-changed"
    return "elected-last-known" if leader in old.last_known_elr else "elected-uncleanly"


class ErrorMarks:
    """The error codes that one life of a node told, as far as they were not marked yet."""

    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._counted: Counter[int] = Counter()

    def take(self) -> "Counter[str]":
        """Return the marks of what was told since the last time."""
        told: Counter[int] = Counter()
        for api in self._core.apis.values():
            told += api.errors
        broker = None if self._core.broker is None else self._core.broker.broker
        if broker is not None:
            for errors in broker.partition_errors.by_key.values():
                told += errors
        fresh = told - self._counted
        self._counted = told
        return Counter(
            {
                f"told-{Error(code).name.lower().replace('_', '-')}": count
                for code, count in sorted(fresh.items())
                if Error(code) not in ORDINARY
            }
        )
