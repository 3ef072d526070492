"""Topics, their partitions, and the replicas and leaders of those.

Source: TopicsImage, TopicImage, PartitionRegistration, Kafka 4.0; KIP-516, KIP-858, KIP-966.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, Uuid
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

DIRECTORY_MIGRATING: Final = Uuid(bytes(16))
"""The log directory is not known: a record of before directories had ids."""
DIRECTORY_UNASSIGNED: Final = Uuid(bytes(15) + b"\x01")
"""The broker chooses the log directory and reports it."""
DIRECTORY_LOST: Final = Uuid(bytes(15) + b"\x02")
"""The log directory is missing or offline."""
UNKNOWN_DIRECTORIES: Final = frozenset({DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED})
"""What the metadata says where it does not know a replica's log directory."""

RECOVERED: Final = 0
RECOVERING: Final = 1
"""Leader recovery states: the second one after an unclean election, until the log is checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition. `directories` has one entry for each replica, in the same order."""

    replicas: tuple[int, ...]
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_recovery_state: int = RECOVERED
    leader_epoch: int = 0
    partition_epoch: int = 0

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, broker_id: int) -> Uuid:
        """Return the log directory of a broker's replica; the broker must have one."""
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic and its partitions."""

    name: str
    id: Uuid
    partitions: Map[int, PartitionImage] = field(default_factory=Map)

    @property
    def last_leader_epoch(self) -> int:
        """The largest leader epoch of the partitions; -1 = none ever had a leader."""
        return max((each.leader_epoch for each in self.partitions.values()), default=NO_EPOCH)

    def in_order(self) -> list[tuple[int, PartitionImage]]:
        """Return the partitions by id; the map itself keeps no order."""
        return sorted(self.partitions.items(), key=_first)

    def with_partition(self, partition_id: int, partition: PartitionImage) -> "TopicImage":
        """Return the topic with one partition set."""
        return TopicImage(
            name=self.name, id=self.id, partitions=self.partitions.set(partition_id, partition)
        )


def _first(item: tuple[int, PartitionImage]) -> int:
    return item[0]


def metric_name(topic: str) -> str:
    """Return a topic's name as metrics write it: two topics of one such name would collide."""
    return topic.replace(".", "_")


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by id and by name."""

    _by_id: Map[Uuid, TopicImage] = field(default_factory=Map)
    _ids: Map[str, Uuid] = field(default_factory=Map)
    _metric_names: Map[str, tuple[str, ...]] = field(default_factory=Map)
    """Only for names with a dot or an underscore in them."""

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        """Return the topic of that id, or None."""
        return self._by_id.get(topic_id)

    def by_name(self, name: str) -> TopicImage | None:
        """Return the topic of that name, or None."""
        topic_id = self._ids.get(name)
        return None if topic_id is None else self._by_id[topic_id]

    def id_of(self, name: str) -> Uuid | None:
        """Return the id of the topic of that name, or None."""
        return self._ids.get(name)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._ids)

    def collisions(self, name: str) -> tuple[str, ...]:
        """Return the topics whose names differ from `name` in dots and underscores only."""
        return tuple(
            other for other in self._metric_names.get(metric_name(name), ()) if other != name
        )

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __iter__(self) -> Iterator[TopicImage]:
        for name in self.names():
            yield self._by_id[self._ids[name]]

    def with_topic(self, topic: TopicImage) -> "TopicsImage":
        """Return the image with a topic added, or replaced by one of the same id and name."""
        if topic.id in self._by_id:
            return TopicsImage(self._by_id.set(topic.id, topic), self._ids, self._metric_names)
        metric_names = self._metric_names
        if "_" in topic.name or "." in topic.name:
            key = metric_name(topic.name)
            alike = sorted((*metric_names.get(key, ()), topic.name))
            metric_names = metric_names.set(key, tuple(alike))
        return TopicsImage(
            self._by_id.set(topic.id, topic), self._ids.set(topic.name, topic.id), metric_names
        )

    def without(self, topic_id: Uuid) -> "TopicsImage":
        """Return the image without a topic; all three indexes forget it."""
        topic = self._by_id[topic_id]
        metric_names = self._metric_names
        key = metric_name(topic.name)
        if key in metric_names:
            left = tuple(name for name in metric_names[key] if name != topic.name)
            metric_names = metric_names.set(key, left) if left else metric_names.delete(key)
        return TopicsImage(self._by_id.delete(topic_id), self._ids.delete(topic.name), metric_names)


def partition_of(record: PartitionRecord) -> PartitionImage:
    """Return the partition that a record describes in full."""
    return PartitionImage(
        replicas=record.replicas,
        directories=record.directories or (DIRECTORY_MIGRATING,) * len(record.replicas),
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        elr=record.eligible_leader_replicas or (),
        last_known_elr=record.last_known_elr or (),
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
    )


def changed_partition(before: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return a partition with a change applied: any change bumps the partition epoch."""
    led_anew = record.leader != LEADER_UNCHANGED
    replicas = _pick(record.replicas, before.replicas)
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        directories=_directories(before, replicas, record.directories),
        isr=_pick(record.isr, before.isr),
        removing_replicas=_pick(record.removing_replicas, before.removing_replicas),
        adding_replicas=_pick(record.adding_replicas, before.adding_replicas),
        elr=_pick(record.eligible_leader_replicas, before.elr),
        last_known_elr=_pick(record.last_known_elr, before.last_known_elr),
        leader=record.leader if led_anew else before.leader,
        leader_recovery_state=before.leader_recovery_state if recovery < 0 else recovery,
        leader_epoch=before.leader_epoch + led_anew,
        partition_epoch=before.partition_epoch + 1,
    )


def _pick(changed: tuple[int, ...] | None, before: tuple[int, ...]) -> tuple[int, ...]:
    return before if changed is None else changed


def _directories(
    before: PartitionImage, replicas: tuple[int, ...], changed: tuple[Uuid, ...] | None
) -> tuple[Uuid, ...]:
    if changed is not None:
        return changed
    if replicas == before.replicas:
        return before.directories
    known = dict(zip(before.replicas, before.directories, strict=True))
    return tuple(known.get(replica, DIRECTORY_MIGRATING) for replica in replicas)


def topic_records(topic: TopicImage) -> Iterator[TopicRecord | PartitionRecord]:
    """Yield the records that lead to `topic`: the topic's first, then its partitions by number."""
    yield TopicRecord(name=topic.name, topic_id=topic.id)
    for partition_id, partition in topic.in_order():
        yield partition_record(topic.id, partition_id, partition)


def partition_record(
    topic_id: Uuid, partition_id: int, partition: PartitionImage
) -> PartitionRecord:
    """Return the record that describes a partition in full."""
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )
