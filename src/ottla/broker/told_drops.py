"""Dropping replicas as a controller's request says, and remembering which of them may lie on.

A replica whose log folder is offline, or fails in the moment in which the replica is to go, lies
there still. Once the metadata has forgotten it nobody else knows of it, and an order to delete it
would be answered as if it had never been here (KAFKA-9946).
"""

from collections.abc import Collection, Iterable, Iterator

from ottla.base.ids import Uuid
from ottla.broker.core import Broker
from ottla.broker.told import PartitionName, ToldPort
from ottla.log.log_dirs import LogDirs
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record, RemoveTopicRecord


def drop_topics(broker: Broker, told: ToldPort, topic_ids: Iterable[Uuid]) -> None:
    """Let whole topics go, as far as they are known here."""
    topics = [topic for each in topic_ids if (topic := told.image.topics.by_id(each)) is not None]
    names = [(topic.name, number) for topic in topics for number in topic.partitions]
    drop_told(broker, told, tuple(RemoveTopicRecord(topic_id=each.id) for each in topics), names)


def drop_told(
    broker: Broker, told: ToldPort, records: tuple[Record, ...], names: Collection[PartitionName]
) -> None:
    """Apply records by which these partitions are not hosted here any more."""
    log_dirs = broker.log_dirs
    logs = {name: log_dirs.get(*name) for name in names}
    holders = {name: log_dirs.directory_of(log) for name, log in logs.items() if log is not None}
    # The second: it is hosted no more since a start, which left out what goes.
    unproven = [
        name
        for name in names
        if broker.replicas.is_offline(*name) or log_dirs.may_be_offline(*name)
    ]
    told.apply(records)
    unproven += [
        name
        for name, directory in holders.items()
        if directory is not None and not directory.is_online
    ]
    told.facts.unproven.update(unproven)


def unproven_at_start(
    stored: ClusterImage, begun: ClusterImage, node_id: int, log_dirs: LogDirs
) -> Iterator[PartitionName]:
    """Yield the replicas of topics that go which a start cannot look for.

    `stored`: what ZooKeeper has; `begun`: the same without the topics that have begun to go, of
    which this broker hosts nothing any more. Such a replica that was not loaded is gone, or lies
    in a folder that is offline.
    """
    for topic in stored.topics if log_dirs.offline_dirs else ():
        if begun.topics.by_id(topic.id) is not None:
            continue
        for number, state in topic.in_order():
            if node_id in state.replicas and log_dirs.get(topic.name, number) is None:
                yield topic.name, number
