"""What the replicas of a cluster hold, as far as a controller's decisions can lose it.

A write that is acknowledged is held by every in-sync replica, in memory only: a broker that
loses power may have lost all of it. So one number a replica says how many acknowledged writes it
holds, in order, and one a partition how many there are.

A leader that was elected from the ISR or the ELR must hold all of them once it serves. After any
other election, marked as RECOVERING, what the leader holds is all there is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ottla.base.ids import NO_LEADER, Uuid
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.topics import RECOVERED, RECOVERING

Key = tuple[Uuid, int]


@dataclass(slots=True)
class Held:
    """One partition's writes."""

    acknowledged: int = 0
    by_broker: dict[int, int] = field(default_factory=dict)

    def of(self, broker_id: int) -> int:
        """Return how many a broker holds."""
        return self.by_broker.get(broker_id, 0)


class WrittenData:
    """All partitions' writes; `down` = brokers that do not run, whatever the image says."""

    def __init__(self) -> None:
        self.down: set[int] = set()
        self._held: dict[Key, Held] = {}

    def held(self, key: Key) -> Held:
        """Return one partition's writes."""
        return self._held.setdefault(key, Held())

    def stop(self, broker_id: int, *, loses_all: bool) -> None:
        """Stop a broker, with or without what it had in memory."""
        self.down.add(broker_id)
        if loses_all:
            for held in self._held.values():
                held.by_broker[broker_id] = 0

    def write(self, key: Key, partition: PartitionImage, min_isr: int) -> None:
        """Acknowledge a write if that can be done now."""
        if partition.leader == NO_LEADER or set(partition.isr) & self.down:
            return
        if len(partition.isr) < min(min_isr, len(partition.replicas)):
            return
        held = self.held(key)
        held.acknowledged += 1
        self.catch_up(key, partition.leader, partition.isr, held.acknowledged)

    def catch_up(
        self, key: Key, leader: int, followers: Iterable[int], end: int | None = None
    ) -> None:
        """Let running followers fetch all that their leader has."""
        held = self.held(key)
        for broker_id in followers:
            if broker_id not in self.down:
                held.by_broker[broker_id] = held.of(leader) if end is None else end

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Let the replicas do what a change of the metadata makes them do."""
        for key, new in partitions(after):
            topic = before.topics.by_id(key[0])
            old = None if topic is None else topic.partitions.get(key[1])
            if old is None or new.leader == NO_LEADER or new.leader_epoch == old.leader_epoch:
                continue
            held = self.held(key)
            if new.leader_recovery_state == RECOVERING and new.isr == (new.leader,):
                held.acknowledged = held.of(new.leader)
            for broker_id in held.by_broker:
                held.by_broker[broker_id] = min(held.of(broker_id), held.acknowledged)

    def check(self, image: ClusterImage) -> None:
        """Fail where a leader that runs lacks what was acknowledged."""
        for key, partition in partitions(image):
            leader = partition.leader
            if leader != NO_LEADER and leader not in self.down:
                held = self.held(key)
                is_sure = partition.leader_recovery_state == RECOVERED
                assert not is_sure or held.of(leader) == held.acknowledged, (partition, held)


def partitions(image: ClusterImage) -> Iterator[tuple[Key, PartitionImage]]:
    """Yield all partitions."""
    for topic in image.topics:
        for number, partition in topic.in_order():
            yield (topic.id, number), partition
