"""`/brokers/topics/T`: the replicas of each partition.

Versions: 3 is written; 1 (no reassignment, before 2.4) and 2 (no topic id, before 2.8) are read,
and so is a newer one, which keeps its version and its unknown fields when it is written again.
Kafka accepts an assignment with missing partitions or without replicas; nothing sensible can be
done with one, so it is refused here, and the znode is not touched.
Source: TopicZNode, Kafka 3.9; KIP-455, KIP-516.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.metadata.topics import PartitionImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, Fields, decimal, integers, parse, written

VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class Assignment:
    """The replicas of one partition; those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def assignment_of(partition: PartitionImage) -> Assignment:
    """Return a partition's assignment as the znode has it."""
    return Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicZnode:
    """The content of the znode. `partitions` are in order, from 0 without a gap."""

    partitions: Mapping[int, Assignment]
    topic_id: Uuid | None = None
    version: int = VERSION
    extra: Extra = NO_EXTRA


def decode_topic(name: str, data: bytes) -> TopicZnode:
    """Return a topic's assignment. Raises: ZnodeError."""
    fields = parse(paths.topic(name), data)
    version = fields.number("version", 1)
    if version < 1:
        raise fields.fail(f"version is {version}: expected 1 or more")
    if not fields.has("partitions"):
        raise fields.fail("partitions is missing: expected an object of lists of broker ids")
    replicas = _lists(fields, "partitions")
    adding, removing = _lists(fields, "adding_replicas"), _lists(fields, "removing_replicas")
    if sorted(replicas) != list(range(len(replicas))) or not replicas:
        raise fields.fail(
            f"partitions are {sorted(replicas)[:20]}: expected ids from 0 without a gap"
        )
    for partition_id, listed in replicas.items():
        if not listed or min(listed) < 0 or len(set(listed)) < len(listed):
            raise fields.fail(
                f"partition {partition_id} has the replicas {list(listed)}: expected different"
                " broker ids"
            )
    return TopicZnode(
        partitions={
            partition_id: Assignment(
                replicas[partition_id], adding.get(partition_id, ()), removing.get(partition_id, ())
            )
            for partition_id in range(len(replicas))
        },
        topic_id=_topic_id(fields),
        version=version,
        extra=fields.rest(),
    )


def _lists(fields: Fields, name: str) -> dict[int, tuple[int, ...]]:
    path = fields.path
    return {
        decimal(path, partition_id, f"a partition in {name}"): integers(
            path, listed, f"partition {partition_id} in {name}"
        )
        for partition_id, listed in fields.object(name).values.items()
    }


def _topic_id(fields: Fields) -> Uuid | None:
    if not fields.has("topic_id"):
        return None
    try:
        topic_id = parse_uuid(fields.text("topic_id"))
    except ValueError as error:
        raise fields.fail(f"topic_id: {error}") from None
    return None if topic_id == NO_UUID else topic_id


def encode_topic(
    assignments: Iterable[tuple[int, Assignment]],
    topic_id: Uuid | None,
    *,
    version: int = VERSION,
    extra: Extra = NO_EXTRA,
) -> bytes:
    """Return the znode's data; `assignments` by partition, in order."""
    partitions: dict[str, tuple[int, ...]] = {}
    adding: dict[str, tuple[int, ...]] = {}
    removing: dict[str, tuple[int, ...]] = {}
    for partition_id, assignment in assignments:
        text = str(partition_id)
        partitions[text] = assignment.replicas
        if assignment.adding:
            adding[text] = assignment.adding
        if assignment.removing:
            removing[text] = assignment.removing
    values: dict[str, object] = {
        "version": max(version, VERSION),
        "partitions": partitions,
        "adding_replicas": adding,
        "removing_replicas": removing,
    }
    if topic_id is not None:
        values["topic_id"] = uuid_text(topic_id)
    return written(values, extra)
