"""Removes replicas at a controller's request, and remembers deletions that could not be confirmed.

A replica whose log directory is offline, or fails during the deletion, is still there. Once it is
out of the metadata, a StopReplica that deletes it would be answered as if it had never been here
(KAFKA-9946).
"""

from collections.abc import Collection, Iterable, Iterator

from ottla.base.ids import Uuid
from ottla.broker.core import Broker
from ottla.broker.zookeeper.zk_metadata import PartitionName, ZkMetadata, ZkMetadataPort
from ottla.log.dirs.log_dirs import LogDirs
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import Record


def drop_topics(broker: Broker, zk_metadata: ZkMetadataPort, topic_ids: Iterable[Uuid]) -> None:
    """Remove topics that are deleted for certain, as far as they are known here."""
    topics = [
        topic for each in topic_ids if (topic := zk_metadata.image.topics.by_id(each)) is not None
    ]
    names = [(topic.name, partition_id) for topic in topics for partition_id in topic.partitions]
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
    """Apply records after which these partitions are no longer hosted here."""
    log_dirs = broker.log_dirs
    logs = [(name, log) for name in names if (log := log_dirs.get(*name)) is not None]
    holders = [(name, log.topic_id, log_dirs.directory_of(log)) for name, log in logs]
    unconfirmed_deletions = [
        (name, each) for name in names for each in _offline(broker, zk_metadata.image, name)
    ]
    zk_metadata.apply(records)
    unconfirmed_deletions += [
        (name, topic_id)
        for name, topic_id, directory in holders
        if directory is not None and not directory.is_online
    ]
    note_unconfirmed(zk_metadata.facts, unconfirmed_deletions)


def note_unconfirmed(facts: ZkMetadata, replicas: Iterable[tuple[PartitionName, Uuid]]) -> None:
    """Remember that these replicas may be in log directories that are offline."""
    for name, topic_id in replicas:
        facts.unconfirmed_deletions.setdefault(name, set()).add(topic_id)


def unconfirmed_ids(broker: Broker, facts: ZkMetadata, name: PartitionName) -> set[Uuid]:
    """Return the topics whose replica of that name may be in a log directory that is offline.

    While all are online, what was offline was the replica alone, for damage or as its name was
    taken, and is deleted as others are.
    """
    return facts.unconfirmed_deletions.get(name, set()) if broker.log_dirs.offline_dirs else set()


def _offline(broker: Broker, image: ClusterImage, name: PartitionName) -> set[Uuid]:
    """Return the topics whose replica of that name is in an offline log directory."""
    # The first are of topics that were being deleted at the start, and so were not loaded.
    found = broker.log_dirs.offline_topic_ids(*name)
    topic_id = image.topics.id_of(name[0])
    if topic_id is not None and broker.replicas.is_offline(*name):
        found.add(topic_id)
    return found


def unconfirmed_at_start(
    stored: ClusterImage, begun: ClusterImage, node_id: int, log_dirs: LogDirs
) -> Iterator[tuple[PartitionName, Uuid]]:
    """Yield the replicas of topics being deleted that may be in offline log directories, with ids.

    `stored`: the image in ZooKeeper; `begun`: the same without the topics being deleted, which
    this broker no longer hosts. Such a replica that was not loaded at the start is deleted, or in a
    log directory that is offline.
    """
    for topic in stored.topics if log_dirs.offline_dirs else ():
        if begun.topics.by_id(topic.id) is not None:
            continue
        for partition_id, state in topic.in_order():
            if node_id in state.replicas and log_dirs.get(topic.name, partition_id) is None:
                yield (topic.name, partition_id), topic.id
