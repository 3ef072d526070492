"""Dropping replicas as a controller's request says, and remembering which of them may lie on.

A replica whose log folder is offline, or fails in the moment in which the replica is to go, lies
there still. Once the metadata has forgotten it nobody else knows of it, and an order to delete it
would be answered as if it had never been here (KAFKA-9946).
"""

from collections.abc import Collection

from ottla.broker.core import Broker
from ottla.broker.told import PartitionName, ToldPort
from ottla.metadata.records import Record


def drop_told(
    broker: Broker, told: ToldPort, records: tuple[Record, ...], names: Collection[PartitionName]
) -> None:
    """Apply records by which these partitions are not hosted here any more."""
    log_dirs = broker.log_dirs
    logs = {name: log_dirs.get(*name) for name in names}
    holders = {name: log_dirs.directory_of(log) for name, log in logs.items() if log is not None}
    unproven = [name for name in names if broker.replicas.is_offline(*name)]
    told.apply(records)
    unproven += [
        name
        for name, directory in holders.items()
        if directory is not None and not directory.is_online
    ]
    told.facts.unproven.update(unproven)
