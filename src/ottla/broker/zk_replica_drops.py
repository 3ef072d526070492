"""Dropping replicas as a controller's request says, and remembering which of them may lie on.

A replica whose log folder is offline, or fails in the moment in which the replica is to go, lies
there still. Once the metadata has forgotten it nobody else knows of it, and an order to delete it
would be answered as if it had never been here (KAFKA-9946).
"""

from collections.abc import Collection, Iterable, Iterator

from ottla.base.ids import Uuid
from ottla.broker.core import Broker
from ottla.broker.zk_metadata import PartitionName, ZkMetadata, ZkMetadataPort
from ottla.log.log_dirs import LogDirs
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record


def drop_topics(broker: Broker, zk_metadata: ZkMetadataPort, topic_ids: Iterable[Uuid]) -> None:
    """Let whole topics go that are deleted for certain, as far as they are known here."""
    topics = [
        topic for each in topic_ids if (topic := zk_metadata.image.topics.by_id(each)) is not None
    ]
    names = [(topic.name, number) for topic in topics for number in topic.partitions]
    records = [
        each
        for topic in topics
        for each in zk_metadata.facts.deleted_topic(zk_metadata.image, topic.id)
    ]
    drop_replicas(broker, zk_metadata, tuple(records), names)


def drop_replicas(
    broker: Broker,
    zk_metadata: ZkMetadataPort,
    records: tuple[Record, ...],
    names: Collection[PartitionName],
) -> None:
    """Apply records by which these partitions are not hosted here any more."""
    log_dirs = broker.log_dirs
    logs = [(name, log) for name in names if (log := log_dirs.get(*name)) is not None]
    holders = [(name, log.topic_id, log_dirs.directory_of(log)) for name, log in logs]
    unproven = [
        (name, each) for name in names for each in _offline(broker, zk_metadata.image, name)
    ]
    zk_metadata.apply(records)
    unproven += [
        (name, topic_id)
        for name, topic_id, directory in holders
        if directory is not None and not directory.is_online
    ]
    note_unproven(zk_metadata.facts, unproven)


def note_unproven(facts: ZkMetadata, replicas: Iterable[tuple[PartitionName, Uuid]]) -> None:
    """Remember that these may lie in folders that are offline. A later topic's are others."""
    for name, topic_id in replicas:
        facts.unproven.setdefault(name, set()).add(topic_id)


def _offline(broker: Broker, image: ClusterImage, name: PartitionName) -> set[Uuid]:
    """Return the topics whose replica of that name is in a folder that is offline."""
    # Those that no topic is known of are hosted no more since a start, which left out what goes.
    found = broker.log_dirs.offline_topic_ids(*name)
    topic_id = image.topics.id_of(name[0])
    if topic_id is not None and broker.replicas.is_offline(*name):
        found.add(topic_id)
    return found


def unproven_at_start(
    stored: ClusterImage, begun: ClusterImage, node_id: int, log_dirs: LogDirs
) -> Iterator[tuple[PartitionName, Uuid]]:
    """Yield the replicas of topics that go which a start cannot look for, with their topics' ids.

    `stored`: what ZooKeeper has; `begun`: the same without the topics that have begun to go, of
    which this broker hosts nothing any more. Such a replica that was not loaded is gone, or lies
    in a folder that is offline.
    """
    for topic in stored.topics if log_dirs.offline_dirs else ():
        if begun.topics.by_id(topic.id) is not None:
            continue
        for number, state in topic.in_order():
            if node_id in state.replicas and log_dirs.get(topic.name, number) is None:
                yield (topic.name, number), topic.id
