"""Coverage marks: counts of the rare paths that a history reached.

Most follow from observations; those of error codes come from the product's own counters.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.host.node_core import NodeCore
from ottla.metadata.image import PartitionImage
from ottla.metadata.topics import RECOVERED

ORDINARY = frozenset({Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION})
"""Error codes that clients get all the time; they are not marked."""


def marks_of_change(old: PartitionImage, new: PartitionImage) -> list[str]:
    """Return what a committed change did to a partition."""
    marks = []
    if len(new.isr) < len(old.isr):
        marks.append("isr-shrunk")
    elif len(new.isr) > len(old.isr):
        marks.append("isr-expanded")
    if new.elr and not old.elr:
        marks.append("elr-begun")
    if new.is_reassigning:
        marks.append("reassignment-step")
    elif old.is_reassigning:
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
        # The change that added the last target of a reassignment to the ISR also elected it.
        return "leader-changed"
    return "elected-last-known" if leader in old.last_known_elr else "elected-uncleanly"


class ErrorMarks:
    """Marks the error codes in the responses of one incarnation of a node."""

    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._counted: dict[int, int] = {}

    def take(self) -> "Counter[str]":
        """Return the marks of the responses since the last call."""
        total: dict[int, int] = {}
        for errors in self._counters():
            for code, count in errors.items():
                total[code] = total.get(code, 0) + count
        before, self._counted = self._counted, total
        if total == before:
            return Counter()
        return Counter(
            {
                f"error-{Error(code).name.lower().replace('_', '-')}": count - before.get(code, 0)
                for code, count in sorted(total.items())
                if count > before.get(code, 0) and Error(code) not in ORDINARY
            }
        )

    def _counters(self) -> Iterator[Mapping[int, int]]:
        for api in self._core.apis.values():
            if api.errors:
                yield api.errors
        broker = None if self._core.broker is None else self._core.broker.broker
        if broker is not None:
            yield from broker.partition_errors.by_key.values()
