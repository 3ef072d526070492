"""Sequential znodes by which brokers and tools notify of changes; the reader deletes them.

Changed configurations: version 2 has the entity's path (`topics/T`, `users/U/clients/C`),
version 1 (before 0.9) its type and name. Changed in-sync replicas are notified by leaders of an
inter-broker protocol before 2.7. A failed log directory is notified by its broker.
Source: ConfigEntityChangeNotificationSequenceZNode, IsrChangeNotificationSequenceZNode,
LogDirEventNotificationSequenceZNode, ZkConfigManager, Kafka 3.9.
"""

from collections.abc import Iterable
from typing import Final

from ottla.metadata.configs import Resource, ResourceType
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import Partition, decode_partitions, encode_partitions
from ottla.metadata.znodes.fields import parse, written

LOG_DIR_FAILURE: Final = 1


def decode_config_change(path: str, data: bytes) -> str:
    """Return the changed entity's path below `/config`. Raises: ZnodeError."""
    fields = parse(path, data)
    version = fields.number("version")
    if version == 1:
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    if version != 2:
        raise fields.fail(f"version is {version}: expected 1 or 2")
    return fields.text("entity_path")


def changed_resource(entity_path: str) -> Resource | None:
    """Return the changed resource; None = one that Ottla does not read."""
    type_name, _, name = entity_path.partition("/")
    return paths.resource(type_name, name) if name and "/" not in name else None


def encode_config_change(resource: Resource) -> bytes:
    """Return the data of the notification that a resource's configuration has changed."""
    type_name = paths.CONFIG_TYPES[ResourceType(resource[0])]
    return written({"version": 2, "entity_path": f"{type_name}/{paths.entity(resource)}"})


def decode_isr_change(path: str, data: bytes) -> tuple[Partition, ...]:
    """Return the partitions whose in-sync replicas have changed. Raises: ZnodeError."""
    return decode_partitions(path, data)


def encode_isr_change(partitions: Iterable[Partition]) -> bytes:
    """Return the notification's data."""
    return encode_partitions(partitions)


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Return the broker with a failed log directory. Raises: ZnodeError."""
    fields = parse(path, data)
    return fields.number("broker")


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return the notification's data."""
    return written({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})
