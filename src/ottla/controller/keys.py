"""Partitions and replicas by topic name: requests of old versions have no topic ids."""

from typing import NamedTuple


class PartitionKey(NamedTuple):
    """A partition (Kafka's TopicPartition). Order: by topic, then by partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaKey(NamedTuple):
    """A replica. Order: by broker, then by partition."""

    broker_id: int
    topic: str
    partition: int
