"""Partitions whose leader, as the metadata says it, is a previous process of its broker.

A broker that restarted must not lead on in the leader epoch of its previous process:
it may not know how far that one had committed, or may have lost records. The election that
ends the epoch is a decision of its own, which waits for its turn and may have to be repeated.
Until it is committed, no request may name the broker as the leader, for whatever reason
the request is sent.

Source: KIP-380 treats a bounce as a failure and a start. Kafka's controller decides that in the
same event in which it sees the new epoch, before it sends any request.
"""

from collections.abc import Iterator, Mapping

from ottla.base.ids import Uuid
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage
from ottla.metadata.topics import PartitionImage

PreviousEpochs = Mapping[tuple[Uuid, int], int]
"""The leader epochs whose leader has restarted, by topic id and partition."""


def new_or_bounced_brokers(delta: ClusterDelta) -> frozenset[int]:
    """Return the brokers that are new, or registered under another epoch."""
    before, after = delta.before.brokers, delta.image.brokers
    return frozenset(
        each
        for each in delta.changed_brokers
        if each in after and (each not in before or before[each].epoch != after[each].epoch)
    )


def previous_epochs_at_start(
    image: ClusterImage, restarted_replicas: Mapping[tuple[str, int], frozenset[int]]
) -> PreviousEpochs:
    """Return the stale epochs at a controller's start: the leader restarted after its election.

    `restarted_replicas`: leaders and in-sync replicas that restarted since, by topic and partition.
    """
    found = {}
    for (name, partition_id), restarted in restarted_replicas.items():
        topic = image.topics.by_name(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is not None and partition is not None and partition.leader in restarted:
            found[topic.id, partition_id] = partition.leader_epoch
    return found


def previous_epochs_after(previous_epochs: PreviousEpochs, delta: ClusterDelta) -> PreviousEpochs:
    """Return the stale epochs after a change: fewer after elections, more after restarts.

    A leader that the same change elected was elected as its present process.
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
