"""Partitions and replicas by their topics' names: the requests of old versions know no ids."""

from typing import NamedTuple


class PartitionKey(NamedTuple):
    """A partition. In order: by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaKey(NamedTuple):
    """One copy of a partition. In order: by broker, then by partition."""

    broker_id: int
    topic: str
    partition: int
