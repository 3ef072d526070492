"""`/admin/...`: requests that tools make of the controller by writing a znode.

A marker under `/admin/delete_topics` has no data. The other two hold their requests; the
controller deletes the znode when it has processed them.
Source: ReassignPartitionsZNode, PreferredReplicaElectionZNode, DeleteTopicsTopicZNode, Kafka 3.9.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import Fields, parse, shown, written

MARKER: Final = b""
"""The data of a deletion's marker."""

Partition = tuple[str, int]
"""Topic and partition."""


def decode_reassignment(data: bytes) -> dict[Partition, tuple[int, ...]]:
    """Return the target replicas by partition, the last where a partition comes twice.

    Raises: ZnodeError.
    """
    fields = parse(paths.REASSIGN_PARTITIONS, data)
    return {_partition(each): each.ids("replicas") for each in _entries(fields)}


def encode_reassignment(wanted: Mapping[Partition, tuple[int, ...]]) -> bytes:
    """Return the znode's data."""
    listed = [
        {"topic": topic, "partition": partition_id, "replicas": replicas}
        for (topic, partition_id), replicas in wanted.items()
    ]
    return written({"version": 1, "partitions": listed})


def decode_preferred_election(data: bytes) -> tuple[Partition, ...]:
    """Return the partitions for a preferred election, each once. Raises: ZnodeError."""
    return decode_partitions(paths.PREFERRED_ELECTION, data)


def encode_preferred_election(wanted: Iterable[Partition]) -> bytes:
    """Return the znode's data."""
    return encode_partitions(wanted)


def decode_partitions(path: str, data: bytes) -> tuple[Partition, ...]:
    """Return the partitions that a znode lists, each once, in its order. Raises: ZnodeError."""
    return tuple(dict.fromkeys(_partition(each) for each in _entries(parse(path, data))))


def encode_partitions(listed: Iterable[Partition]) -> bytes:
    """Return the data of a znode that lists partitions."""
    entries = [{"topic": topic, "partition": partition_id} for topic, partition_id in listed]
    return written({"version": 1, "partitions": entries})


def _entries(fields: Fields) -> list[Fields]:
    fields.number("version", 1)
    listed = fields.items("partitions")
    for each in listed:
        if not isinstance(each, dict):
            raise fields.fail(f"{shown(each)} is listed: expected a partition's topic and number")
    return [Fields(fields.path, each) for each in listed]


def _partition(fields: Fields) -> Partition:
    return fields.text("topic"), fields.number("partition")
