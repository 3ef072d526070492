"""Replicas whose log directory failed on a live broker, in ZooKeeper mode.

The broker reports the failure in its response to LeaderAndIsr (KAFKA_STORAGE_ERROR). It is
recorded in the image of the controller alone, as a lost directory of the replica: a new controller
gets it in the next response, and the broker's next start clears it (`broker_changes`).
Source: KafkaController.{processLeaderAndIsrResponseReceived, onReplicasBecomeOffline}, Kafka 3.9;
KIP-112. In KRaft, `brokers` and `directories` decide.
"""

from collections.abc import Iterable
from dataclasses import replace

from ottla.controller.elections.elections import remove_offline_replicas
from ottla.controller.keys import PartitionKey
from ottla.controller.step import Step
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionRecord, Record
from ottla.metadata.topics import DIRECTORY_LOST, partition_record


def take_replicas_offline(
    image: ClusterImage, config: NodeConfig, broker_id: int, lost: Iterable[PartitionKey]
) -> Step:
    """Mark replicas of a broker as offline, and elect other leaders where they led.

    Replicas that the broker does not hold (any more), or that are offline already, change nothing.
    """
    changes = [
        record
        for key in sorted(set(lost))
        for record in _lost_directory_records(image, broker_id, key)
    ]
    if not changes:
        return Step()
    records: list[Record] = [*changes]
    offset, epoch = image.position
    after = replay(image, records, offset=offset, epoch=epoch).image
    records += remove_offline_replicas(after, config, broker_id, frozenset({DIRECTORY_LOST}))
    return Step(tuple(records), atomic=False)


def _lost_directory_records(
    image: ClusterImage, broker_id: int, key: PartitionKey
) -> list[PartitionRecord]:
    topic = image.topics.by_name(key.topic)
    partition = None if topic is None else topic.partitions.get(key.partition)
    if topic is None or partition is None or broker_id not in partition.replicas:
        return []
    if broker_id not in image.brokers or partition.directory(broker_id) == DIRECTORY_LOST:
        return []
    directories = tuple(
        DIRECTORY_LOST if replica == broker_id else directory
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
    )
    return [partition_record(topic.id, key.partition, replace(partition, directories=directories))]
