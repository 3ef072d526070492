"""The committed offsets of a coordinator's groups, and the pending ones of open transactions.

Only replaying facts changes them, whether the facts were just written or are being loaded, so
a new coordinator always arrives at the state of the old one.

Source: Kafka's OffsetMetadataManager; KIP-447 (pending transactional offsets).
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ottla.base.ids import NO_PRODUCER_ID, NO_UUID, Uuid
from ottla.coordinator.records import NO_TIMESTAMP, OffsetCommitValue, OffsetFact
from ottla.coordinator.values import PartitionKey


class CommittedOffset(NamedTuple):
    """An offset as it was committed; times are wall-clock milliseconds, -1 = none.

    A named tuple: loading builds one for every commit in the log.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int
    record_offset: int
    """Where in the log: of two commits of one partition, the later record wins."""
    topic_id: Uuid = NO_UUID
    """Of the topic that had the name then; zero = not known."""

    def to_value(self) -> OffsetCommitValue:
        """Return the value of the offset's record."""
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.commit_ms,
            expire_timestamp=self.expire_ms,
            topic_id=self.topic_id,
        )


GroupOffsets = dict[str, dict[int, CommittedOffset]]
"""By topic and partition."""


class OffsetStore:
    """Offsets by group, topic and partition."""

    def __init__(self) -> None:
        self._stable: dict[str, GroupOffsets] = {}
        self._groups: dict[str, set[str]] = {}
        """The groups that have a topic in `_stable`, by topic."""
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        self._open_transactions: dict[str, set[int]] = {}
        self.count = 0
        """How many offsets are kept, without those of open transactions."""

    # --- replay -----------------------------------------------------------------------------

    def replay(
        self, fact: OffsetFact, *, record_offset: int, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply a fact; one of a transaction is pending until the transaction ends."""
        group_id, topic, partition, value = fact.group_id, fact.topic, fact.partition, fact.value
        if value is None:
            self._forget(group_id, topic, partition)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            record_offset,
            value.topic_id,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(group_id, topic, partition, committed)
            return
        pending = self._pending.setdefault(producer_id, {})
        pending.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        self._open_transactions.setdefault(group_id, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction's marker: its offsets become visible, or are dropped."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            transactions = self._open_transactions[group_id]
            transactions.discard(producer_id)
            if not transactions:
                del self._open_transactions[group_id]
            if not committed:
                continue
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    stable = self.get(group_id, topic, partition)
                    # A plain commit may have overtaken the transaction's; compaction must not
                    # decide which of the two counts, so the log's order does.
                    if stable is None or stable.record_offset < offset.record_offset:
                        self._put(group_id, topic, partition, offset)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        topics = self._stable.setdefault(group_id, {})
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups.setdefault(topic, set()).add(group_id)
        self.count += partition not in partitions
        partitions[partition] = committed

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._stable.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None:
            self.count -= 1
            if not partitions:
                del topics[topic]
                groups = self._groups[topic]
                groups.remove(group_id)
                if not groups:
                    del self._groups[topic]
            if not topics:
                del self._stable[group_id]
        for producer_id in self._open_transactions.get(group_id, ()):
            self._pending[producer_id][group_id].get(topic, {}).pop(partition, None)

    # --- reading ----------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a committed offset."""
        return self._stable.get(group_id, {}).get(topic, {}).get(partition)

    def topic_ids(self, group_id: str, topic: str, partition: int) -> set[Uuid]:
        """Return the topic's ids as of the commits, zero = none; pending ones included."""
        pending = [self._pending[each] for each in self._open_transactions.get(group_id, ())]
        stores = [self._stable, *pending]
        found = [each.get(group_id, {}).get(topic, {}).get(partition) for each in stores]
        return {each.topic_id for each in found if each is not None}

    def of_group(self, group_id: str) -> GroupOffsets:
        """Return all committed offsets of a group; not to be changed."""
        return self._stable.get(group_id, {})

    def group_ids(self) -> Iterator[str]:
        """Yield the groups that have offsets, pending ones included."""
        yield from self._stable
        yield from (each for each in self._open_transactions if each not in self._stable)

    def groups_of(self, topics: Collection[str] | None) -> set[str]:
        """Return the groups that may have offsets of these topics, or of any (None).

        Open transactions are few: their groups are named whatever they commit.
        """
        if topics is None:
            return set(self.group_ids())
        found = set(self._open_transactions)
        for topic in topics:
            found |= self._groups.get(topic, set())
        return found

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Tell whether an open transaction holds an offset of this partition (KIP-447)."""
        return any(
            partition in self._pending[producer_id][group_id].get(topic, {})
            for producer_id in self._open_transactions.get(group_id, ())
        )

    def has_open_transaction(self, group_id: str) -> bool:
        """Tell whether a transaction with offsets of this group is going on."""
        return group_id in self._open_transactions

    def stable_keys(self, group_id: str) -> list[PartitionKey]:
        """Return topic and partition of all committed offsets of a group, sorted."""
        return sorted(
            (topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        )

    def keys(self, group_id: str) -> list[PartitionKey]:
        """Return the same with those of open transactions."""
        found = set(self.stable_keys(group_id))
        for producer_id in self._open_transactions.get(group_id, ()):
            for topic, partitions in self._pending[producer_id][group_id].items():
                found.update((topic, partition) for partition in partitions)
        return sorted(found)

    def state(self) -> tuple[dict[str, GroupOffsets], dict[int, dict[str, GroupOffsets]]]:
        """Return everything, to compare a replayed store with a live one."""
        return self._stable, self._pending


def has_expiry(offset: CommittedOffset) -> bool:
    """Tell whether the client asked for a retention of its own."""
    return offset.expire_ms != NO_TIMESTAMP
