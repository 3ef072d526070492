"""Records without what ZooKeeper cannot hold.

Left out are the records of `NOT_HELD`; of others a replica's log directory, but for a lost one,
which only the controller's image has, and eligible leader replicas (KIP-966). A change of nothing
else is no change: it would bump the partition's epoch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.metadata.records import (
    LEADER_UNCHANGED,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING

NOT_HELD: Final[Mapping[type[Any], str]] = {
    ClearElrRecord: "there are no eligible leader replicas",
    FenceBrokerRecord: "a broker is registered, or not",
    NoOpRecord: "it moves the end of the metadata log, which only KRaft has",
    RegisterControllerRecord: "any broker may be the controller; they register as brokers",
    UnfenceBrokerRecord: "a broker is registered, or not",
}
"""The records that KRaft alone has, each with the reason. They are not replayed either."""

OBSERVED: Final[Mapping[type[Any], str]] = {
    BrokerRegistrationChangeRecord: "the state of a live broker is its controller's own",
    RegisterBrokerRecord: "a broker writes its own ephemeral znode",
    UnregisterBrokerRecord: "a broker's znode ends with its session",
}
"""The records without a writer: they follow from znodes that others write, or from none."""


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
        elif type(record) not in NOT_HELD:
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
