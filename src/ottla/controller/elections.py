"""Who leads a partition when brokers come and go, in records.

The rules of clean elections: a leader is an active broker of the ISR, the present one if it can
stay, else the first of the replicas' order. The last member of an ISR stays in it without
leading: only it surely has every acknowledged record.
Source: PartitionChangeBuilder, ReplicationControlManager.generateLeaderAndIsrUpdates, 4.0.
"""

from collections.abc import Callable, Iterator

from ottla.base.ids import NO_LEADER, Uuid
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import LEADER_UNCHANGED, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

IsOnline = Callable[[int, Uuid], bool]
"""Tells whether a broker is active with that folder of its own online."""

UNKNOWN_DIRECTORIES = frozenset({DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED})


def online_in(
    image: ClusterImage, *, without: int | None = None, plus: int | None = None
) -> IsOnline:
    """Return the test as the image says it, with a broker taken as gone or as unfenced."""

    def is_online(broker_id: int, directory: Uuid) -> bool:
        broker = image.brokers.get(broker_id)
        if broker is None or broker_id == without:
            return False
        if not (broker.active or broker_id == plus):
            return False
        return (
            not broker.log_dirs or directory in broker.log_dirs or directory in UNKNOWN_DIRECTORIES
        )

    return is_online


def elect(partition: PartitionImage, isr: tuple[int, ...], is_online: IsOnline) -> int:
    """Return the leader out of `isr`, or NO_LEADER."""
    fit = [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if replica in isr and is_online(replica, directory)
    ]
    if partition.leader in fit:
        return partition.leader
    return fit[0] if fit else NO_LEADER


def leave(image: ClusterImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Yield what changes when a broker must lead nothing and be in no ISR but as its last."""
    is_online = online_in(image, without=broker_id)
    yield from _changes(image, broker_id, is_online, lambda partition: True)


def leave_directories(
    image: ClusterImage, broker_id: int, directories: frozenset[Uuid]
) -> Iterator[PartitionChangeRecord]:
    """Yield the same for those of a broker's replicas whose folders went offline."""
    is_online = online_in(image, without=broker_id)

    def is_concerned(partition: PartitionImage) -> bool:
        return broker_id in partition.replicas and partition.directory(broker_id) in directories

    yield from _changes(image, broker_id, is_online, is_concerned)


def _changes(
    image: ClusterImage,
    broker_id: int,
    is_online: IsOnline,
    is_concerned: Callable[[PartitionImage], bool],
) -> Iterator[PartitionChangeRecord]:
    for topic, number, partition in _partitions(image):
        if broker_id not in partition.isr or not is_concerned(partition):
            continue
        isr = tuple(each for each in partition.isr if each != broker_id) or partition.isr
        leader = elect(partition, isr, is_online)
        if isr == partition.isr and leader == partition.leader:
            continue
        yield PartitionChangeRecord(
            partition_id=number,
            topic_id=topic.id,
            isr=None if isr == partition.isr else isr,
            leader=LEADER_UNCHANGED if leader == partition.leader else leader,
        )


def come_back(image: ClusterImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Yield the leaders that leaderless partitions get now that a broker is unfenced."""
    is_online = online_in(image, plus=broker_id)
    for topic, number, partition in _partitions(image):
        if partition.leader != NO_LEADER:
            continue
        leader = elect(partition, partition.isr, is_online)
        if leader != NO_LEADER:
            yield PartitionChangeRecord(partition_id=number, topic_id=topic.id, leader=leader)


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    """Tell whether a broker leads a partition."""
    return any(partition.leader == broker_id for _, _, partition in _partitions(image))


def _partitions(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in image.topics:
        for number, partition in topic.in_order():
            yield topic, number, partition
