"""Which partitions are still said to be led by a process that is no more.

A broker that came back as another process must not lead on in the epoch that its former life led:
it may not know how far that one had committed, or may have lost what it had. The election that
puts an end to the epoch is a decision of its own, which waits for its turn and may have to be
taken again. Until it is a fact nobody may hear that the broker leads there, for whatever reason
brokers are told something in the meantime.

Source: KIP-380 has a bounce taken for a death and a start. Kafka's controller decides that in the
very event in which it sees the new epoch, before it tells anybody anything.
"""

from collections.abc import Iterator, Mapping

from ottla.base.ids import Uuid
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage

PreviousEpochs = Mapping[tuple[Uuid, int], int]
"""The leader epochs that are over, by topic id and partition."""


def new_or_bounced_brokers(delta: ClusterDelta) -> frozenset[int]:
    """Return the brokers that are there for the first time, or under another epoch."""
    before, after = delta.before.brokers, delta.image.brokers
    return frozenset(
        each
        for each in delta.changed_brokers
        if each in after and (each not in before or before[each].epoch != after[each].epoch)
    )


def previous_epochs_at_start(
    image: ClusterImage, restarted_replicas: Mapping[tuple[str, int], frozenset[int]]
) -> PreviousEpochs:
    """Return what is over where a controller begins: its broker started after the last election.

    `restarted_replicas`: the leaders and in-sync replicas that started since, by topic and partition.
    """
    found = {}
    for (name, partition_id), restarted in restarted_replicas.items():
        topic = image.topics.by_name(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is not None and partition is not None and partition.leader in restarted:
            found[topic.id, partition_id] = partition.leader_epoch
    return found


def previous_epochs_after(previous_epochs: PreviousEpochs, delta: ClusterDelta) -> PreviousEpochs:
    """Return what is over after a change: less where elections followed, more where brokers came.

    A leader that the very change elected is one that was elected for what it is now.
    """
    started = new_or_bounced_brokers(delta)
    if not previous_epochs and not started:
        return previous_epochs
    image, before = delta.image, delta.before
    kept = {key: epoch for key, epoch in previous_epochs.items() if _epoch(image, *key) == epoch}
    for topic_id, partition_id, partition in _led_by(image, started):
        if _epoch(before, topic_id, partition_id) == partition.leader_epoch:
            kept[topic_id, partition_id] = partition.leader_epoch
    return kept


def _led_by(
    image: ClusterImage, broker_ids: frozenset[int]
) -> Iterator[tuple[Uuid, int, PartitionImage]]:
    for topic in image.topics if broker_ids else ():
        for partition_id, partition in topic.in_order():
            if partition.leader in broker_ids:
                yield topic.id, partition_id, partition


def _epoch(image: ClusterImage, topic_id: Uuid, partition_id: int) -> int | None:
    topic = image.topics.by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(partition_id)
    return None if partition is None else partition.leader_epoch
