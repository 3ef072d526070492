"""What `ottla topics --describe` prints, in kafka-topics.sh's format."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.cli.configs.configs_client import Entry

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition in a response. `elr` None: the brokers do not support it."""

    id: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None
    last_known_elr: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Reassignment:
    """Replicas being added and removed."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic, ready to be printed."""

    name: str
    id: Uuid
    partitions: tuple[Partition, ...]
    configs: Sequence[Entry]
    reassignments: Mapping[int, Reassignment]

    @property
    def min_isr(self) -> int:
        """Return the topic's effective min.insync.replicas."""
        values = {entry.name: entry.value for entry in self.configs}
        return int(values.get(MIN_ISR) or 1)

    def replication_factor(self, partition: Partition) -> int:
        """Return the replication factor without replicas that a reassignment adds."""
        moving = self.reassignments.get(partition.id)
        # The reassignment may have ended between the two responses.
        if moving is None or not set(moving.adding + moving.removing) & set(partition.replicas):
            return len(partition.replicas)
        return len(partition.replicas) - len(moving.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Which partitions to show: all, unless one of the flags is set."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    overridden_topics: bool = False

    @property
    def is_partial(self) -> bool:
        """Tell whether only some partitions are shown."""
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr

    def shows(self, topic: Topic, partition: Partition, live: AbstractSet[int]) -> bool:
        """Tell whether the report includes a partition."""
        if not self.is_partial:
            return True
        missing = topic.replication_factor(partition) > len(partition.isr)
        led = partition.leader >= 0
        return (
            (self.under_replicated and missing)
            or (self.unavailable and partition.leader not in live)
            or (self.under_min_isr and (not led or len(partition.isr) < topic.min_isr))
            or (self.at_min_isr and len(partition.isr) == topic.min_isr)
        )


def describe_lines(topic: Topic, report: Report, live: AbstractSet[int]) -> list[str]:
    """Return the lines for one topic; empty if the report excludes it."""
    lines = []
    overridden = any(not entry.is_default for entry in topic.configs)
    if not report.is_partial and (overridden or not report.overridden_topics):
        lines.append(_topic_line(topic))
    if not report.overridden_topics:
        lines += [
            _partition_line(topic, partition)
            for partition in topic.partitions
            if report.shows(topic, partition, live)
        ]
    return lines


def _topic_line(topic: Topic) -> str:
    fields = [f"Topic: {topic.name}"]
    if topic.id != NO_UUID:
        fields.append(f"TopicId: {uuid_text(topic.id)}")
    factor = topic.replication_factor(topic.partitions[0]) if topic.partitions else 0
    configs = ",".join(
        f"{entry.name}={entry.value}" for entry in topic.configs if not entry.is_default
    )
    fields.append(f"PartitionCount: {len(topic.partitions)}")
    fields.append(f"ReplicationFactor: {factor}")
    fields.append(f"Configs: {configs}")
    return "\t".join(fields)


def _partition_line(topic: Topic, partition: Partition) -> str:
    leader = str(partition.leader) if partition.leader >= 0 else "none"
    fields = [
        "",
        f"Topic: {topic.name}",
        f"Partition: {partition.id}",
        f"Leader: {leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    moving = topic.reassignments.get(partition.id)
    if moving is not None:
        fields.append(f"Adding Replicas: {_ids(moving.adding)}")
        fields.append(f"Removing Replicas: {_ids(moving.removing)}")
    fields.append(f"Elr: {_ids(partition.elr)}")
    fields.append(f"LastKnownElr: {_ids(partition.last_known_elr)}")
    return "\t".join(fields)


def _ids(ids: tuple[int, ...] | None) -> str:
    return "N/A" if ids is None else ",".join(map(str, ids))
