"""Records without what ZooKeeper cannot hold.

Left out: a replica's log directory, but for a lost one, which only the controller's image
has; eligible leader replicas (KIP-966); fencing, since a broker is registered or
not; records about controllers. A change of nothing else is no change: it would bump the
partition's epoch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ottla.metadata.records import (
    LEADER_UNCHANGED,
    ClearElrRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING

NOT_HELD: Final = (
    ClearElrRecord,
    FenceBrokerRecord,
    NoOpRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
)


def normalised(records: Iterable[Record]) -> Iterator[Record]:
    """Yield the records as they can be written, and must be replayed, in ZooKeeper mode."""
    for record in records:
        if isinstance(record, PartitionRecord):
            yield _without_directories(record)
        elif isinstance(record, PartitionChangeRecord):
            change = replace(
                record, directories=None, eligible_leader_replicas=None, last_known_elr=None
            )
            if not _is_empty(change):
                yield change
        elif not isinstance(record, NOT_HELD):
            yield record


def _without_directories(record: PartitionRecord) -> PartitionRecord:
    directories = tuple(
        each if each == DIRECTORY_LOST else DIRECTORY_MIGRATING for each in record.directories
    )
    return replace(
        record, directories=directories, eligible_leader_replicas=None, last_known_elr=None
    )


def _is_empty(change: PartitionChangeRecord) -> bool:
    return (
        change.isr is None
        and change.leader == LEADER_UNCHANGED
        and change.replicas is None
        and change.removing_replicas is None
        and change.adding_replicas is None
        and change.leader_recovery_state < 0
    )
