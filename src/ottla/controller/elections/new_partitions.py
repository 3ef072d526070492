"""Assigned partitions that never had a leader get their first one.

Only where others may write assignments, which is ZooKeeper: a topic that a tool wrote, or one
whose controller died between writing the assignment and the states. The live replicas of the
assignment are in sync, and the first of them leads; without one, the
partition stays in state NEW until a broker starts. A restored partition's first leader epoch is the
one that its topic was restored with.
Source: PartitionStateMachine.initializeLeaderAndIsrForPartitions, Kafka 3.9.
"""

from collections.abc import Iterator
from dataclasses import replace

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.elections.elections import Rules, partitions
from ottla.controller.step import Step
from ottla.controller.topics.assignment import first_leader_epoch
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionRecord
from ottla.metadata.topics import DIRECTORY_MIGRATING, partition_record


def is_new(partition: PartitionImage) -> bool:
    """Tell whether a partition never had a leader."""
    return partition.leader_epoch == NO_EPOCH


def bring_online(image: ClusterImage, config: NodeConfig) -> Step:
    """Give every new partition that has a live replica its leader, its ISR and its first epochs."""
    rules = Rules(image, config)
    found = (_online(image, *each, rules) for each in partitions(image) if is_new(each[2]))
    return Step(tuple(record for each in found for record in each), atomic=False)


def _online(
    image: ClusterImage,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionImage,
    rules: Rules,
) -> Iterator[PartitionRecord]:
    context = rules.change_context(topic.name)
    live = tuple(
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if context.is_acceptable(replica, directory)
    )
    if live:
        tiering = image.tiering.get(topic.id)
        restored = None if tiering is None else tiering.restored_partition(partition_id)
        leader_epoch = first_leader_epoch(image, topic.name)
        led = replace(
            partition,
            leader=live[0],
            isr=live,
            leader_epoch=(
                leader_epoch if restored is None else max(leader_epoch, restored.leader_epoch)
            ),
            partition_epoch=0,
        )
        yield partition_record(topic.id, partition_id, led)


def assigned_anew(
    topic_id: Uuid, partition_id: int, partition: PartitionImage, replicas: tuple[int, ...]
) -> PartitionRecord:
    """Return a new partition's record with other replicas; none of them has to catch up."""
    assert is_new(partition)
    moved = replace(
        partition,
        replicas=replicas,
        directories=(DIRECTORY_MIGRATING,) * len(replicas),
        adding_replicas=(),
        removing_replicas=(),
    )
    return partition_record(topic_id, partition_id, moved)
