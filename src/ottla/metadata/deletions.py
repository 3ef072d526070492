"""The deletion ledger: topics that are being deleted, and receipts of those that were.

An entry is keyed by the topic's id, so a new topic of the old name is never mistaken for it. It
has, for each broker, the status of its replicas: one row for all partitions of one status.
A finished entry is the receipt; it has the result of every replica and stays until
`ottla.deletion.receipt.retention.ms` has passed.

Policies: CLASSIC, where brokers get requests without topic ids (ZooKeeper): the topic
stays in the image until every replica is deleted. AT_ONCE, fenced by the topic's id (KRaft):
the topic is removed with the entry's first record.

The objects of a tiered topic are deleted by brokers that outlive the topic (`Remote`): they learn
from `DeletionsImage.purges` what is to be deleted, and report its end to the controller. Where the
store is gone for good an operator abandons the purge.

Source: KAFKA-330; TopicDeletionManager.scala, Kafka 3.9, which keeps this in the controller's
memory alone.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import merge
from itertools import chain
from typing import Final, NamedTuple

from immutables import Map

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.metadata.records import (
    DeletionRecord,
    DeletionReplicasRecord,
    ForgetDeletionRecord,
)
from ottla.metadata.uuid_map import UuidMap

NOT_FINISHED: Final = -1
NOT_KNOWN: Final = -1


class Policy(IntEnum):
    """When the topic's name is free again: when all replicas are deleted, or at once."""

    CLASSIC = 0
    AT_ONCE = 1


class HaltReason(IntEnum):
    """Why a deletion is ineligible to begin."""

    NONE = 0
    REASSIGNMENT = 1
    PREFERRED_ELECTION = 2


class Remote(IntEnum):
    """The topic's data in the remote tier."""

    NONE = 0
    """The topic was never tiered."""
    PENDING = 1
    """Objects may be left."""
    PURGED = 2
    """The purgers of all partitions have reported that none is left."""
    ABANDONED = 3
    """An operator gave the purge up: what was left in the store stays there."""


class DeletionState(IntEnum):
    """The state of a replica's deletion; the first three have Kafka's values."""

    STARTED = 4
    SUCCESSFUL = 5
    INELIGIBLE = 6
    ABANDONED = 64
    """There will be no result: see the reason. What is left on that broker's disk is unknown."""


class Reason(IntEnum):
    """Why a replica is ineligible, or abandoned."""

    NONE = 0
    BROKER_DOWN = 1
    FOLDER_FAILED = 2
    REFUSED = 3
    """The broker responded with the error of the status."""
    UNREGISTERED = 4
    """Its broker was unregistered."""
    TOPIC_VANISHED = 5
    """Others removed the topic's metadata, so that its deletion can no longer be ordered."""


class ReplicaStatus(NamedTuple):
    """The state of a replica's deletion, with the reason. `error`: the broker's error code, for
    REFUSED or FOLDER_FAILED, 0 = none.
    """

    state: DeletionState
    reason: Reason = Reason.NONE
    error: int = 0

    @property
    def is_over(self) -> bool:
        """Tell whether the status is final."""
        return self.state in (DeletionState.SUCCESSFUL, DeletionState.ABANDONED)


STARTED: Final = ReplicaStatus(DeletionState.STARTED)
SUCCESSFUL: Final = ReplicaStatus(DeletionState.SUCCESSFUL)
BROKER_DOWN: Final = ReplicaStatus(DeletionState.INELIGIBLE, Reason.BROKER_DOWN)

Rows = Map[ReplicaStatus, frozenset[int]]
"""The partitions of one broker's replicas, by status; no set is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionImage:
    """The deletion of one topic. Times are epoch milliseconds."""

    topic_id: Uuid
    name: str
    policy: Policy
    asked_ms: int
    halted: HaltReason = HaltReason.NONE
    remote: Remote = Remote.NONE
    finished_ms: int = NOT_FINISHED
    leader_epoch: int = NO_EPOCH
    """The largest that a partition of the topic had; see `DeletionsImage.last_leader_epoch`."""
    segments_left: int = NOT_KNOWN
    """Of an abandoned purge, as last reported: what may be in the store."""
    bytes_left: int = NOT_KNOWN
    replicas: Map[int, Rows] = field(default_factory=Map)
    """By broker."""

    @property
    def is_finished(self) -> bool:
        """Tell whether this is a receipt."""
        return self.finished_ms != NOT_FINISHED

    @property
    def has_begun(self) -> bool:
        """Tell whether any replica has a status: was ordered, or could not be ordered."""
        return bool(self.replicas)

    @property
    def replicas_are_over(self) -> bool:
        """Tell whether no listed replica is left to be deleted."""
        return all(standing.is_over for rows in self.replicas.values() for standing in rows)

    @property
    def is_purging(self) -> bool:
        """Tell whether the topic's objects are to be deleted now: it can no longer be cancelled."""
        return self.remote is Remote.PENDING and self.has_begun and not self.is_finished

    def partitions(self) -> frozenset[int]:
        """Return the partitions that have a listed replica: all, once the deletion has begun."""
        return frozenset().union(
            *(partitions for rows in self.replicas.values() for partitions in rows.values())
        )

    def rows(self) -> Iterator[tuple[int, ReplicaStatus, tuple[int, ...]]]:
        """Yield (broker, status, partitions), in order."""
        for broker_id in sorted(self.replicas):
            rows = self.replicas[broker_id]
            for standing in sorted(rows):
                yield broker_id, standing, tuple(sorted(rows[standing]))

    def partitions_at(self, broker_id: int, standing: ReplicaStatus) -> frozenset[int]:
        """Return the partitions of a broker's replicas with a status."""
        return self.replicas.get(broker_id, _NO_ROWS).get(standing, frozenset())

    def status(self, broker_id: int, partition: int) -> ReplicaStatus | None:
        """Return a replica's status; None = it is not listed."""
        for standing, partitions in self.replicas.get(broker_id, _NO_ROWS).items():
            if partition in partitions:
                return standing
        return None

    def count(self, *states: DeletionState) -> int:
        """Return how many replicas are in some states."""
        return sum(
            len(partitions)
            for rows in self.replicas.values()
            for standing, partitions in rows.items()
            if standing.state in states
        )

    def with_status(
        self, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]
    ) -> "DeletionImage":
        """Return the deletion with a status set for some replicas of a broker."""
        moved = frozenset(partitions)
        rows: dict[ReplicaStatus, frozenset[int]] = {}
        for each, partitions_there in self.replicas.get(broker_id, _NO_ROWS).items():
            if remaining := partitions_there - moved:
                rows[each] = remaining
        if moved:
            rows[standing] = rows.get(standing, frozenset()) | moved
        if not rows:
            return self
        return replace(self, replicas=self.replicas.set(broker_id, Map(rows)))


_NO_ROWS: Final[Rows] = Map()


_MINUTE_MS: Final = 60_000
_NO_IDS: Final[UuidMap[Uuid]] = UuidMap()
_NO_EPOCHS: Final[Map[Uuid, int]] = Map()


@dataclass(frozen=True, slots=True)
class DeletionsImage:
    """All entries of the ledger."""

    _pending: UuidMap[DeletionImage] = field(default_factory=UuidMap)
    _finished: UuidMap[DeletionImage] = field(default_factory=UuidMap)
    _ages: Map[int, UuidMap[Uuid]] = field(default_factory=Map)
    """The ids of what is finished, by the minute of that; no minute is empty."""
    _epochs: Map[str, Map[Uuid, int]] = field(default_factory=Map)
    """The leader epochs that are known, by name and id; no name is empty."""

    def of(self, topic_id: Uuid) -> DeletionImage | None:
        """Return the entry of a topic, finished or not, or None."""
        return self._pending.get(topic_id) or self._finished.get(topic_id)

    def is_queued(self, topic_id: Uuid) -> bool:
        """Tell whether an existing topic is queued for deletion: it must not be changed."""
        deletion = self._pending.get(topic_id)
        return deletion is not None and deletion.policy is Policy.CLASSIC

    def is_being_deleted(self, topic_id: Uuid) -> bool:
        """Tell whether replicas of an existing topic are being deleted: it is not served."""
        deletion = self._pending.get(topic_id)
        return deletion is not None and self.is_queued(topic_id) and deletion.has_begun

    def last_leader_epoch(self, name: str) -> int:
        """Return the largest leader epoch of the topics that had a name, -1 = none is known.

        The next topic of the name begins above it: clients that ran during the deletion keep
        the epochs that they know, and treat smaller ones as stale (KAFKA-12257).
        """
        return max(self._epochs.get(name, _NO_EPOCHS).values(), default=NO_EPOCH)

    def pending(self) -> list[DeletionImage]:
        """Return what is not finished, by name and id."""
        return sorted(self._pending, key=_by_name)

    def receipts(self) -> list[DeletionImage]:
        """Return what is finished, by name and id."""
        return sorted(self._finished, key=_by_name)

    def receipts_until(self, finished_ms: int) -> Iterator[DeletionImage]:
        """Yield receipts up to that time, in whole minutes, the oldest first.

        So no younger receipts are scanned, however many finished at once.
        """
        end = (finished_ms + 1) // _MINUTE_MS
        for minute in sorted(each for each in self._ages if each < end):
            for topic_id in self._ages[minute].after():
                receipt = self._finished.get(topic_id)
                assert receipt is not None
                yield receipt

    def after(self, topic_id: Uuid, *, receipts: bool = True) -> Iterator[DeletionImage]:
        """Yield the entries of larger ids, in the order of these, to page through them.

        `receipts`: those that are finished, too.
        """
        if not receipts:
            return self._pending.after(topic_id)
        return merge(self._pending.after(topic_id), self._finished.after(topic_id), key=_by_id)

    def purges(self) -> list[DeletionImage]:
        """Return the deletions whose topics' objects are to be deleted now, by name and id."""
        return sorted((each for each in self._pending if each.is_purging), key=_by_name)

    def pending_count(self) -> int:
        """Return how many deletions are not finished."""
        return len(self._pending)

    def ids(self) -> frozenset[Uuid]:
        """Return the ids of all entries."""
        return frozenset(chain(self._pending.keys(), self._finished.keys()))

    def __len__(self) -> int:
        return len(self._pending) + len(self._finished)

    def __iter__(self) -> Iterator[DeletionImage]:
        return iter(sorted(chain(self._pending, self._finished), key=_by_name))

    def with_deletion(self, deletion: DeletionImage) -> "DeletionsImage":
        """Return the ledger with an entry added, or replaced."""
        topic_id, before = deletion.topic_id, self.of(deletion.topic_id)
        moves = before is not None and _place(before) != _place(deletion)
        rest = self.without(topic_id) if moves else self
        if deletion.leader_epoch != NO_EPOCH and (moves or before is None):
            known = rest._epochs.get(deletion.name, _NO_EPOCHS)
            known = known.set(topic_id, deletion.leader_epoch)
            rest = replace(rest, _epochs=rest._epochs.set(deletion.name, known))
        if not deletion.is_finished:
            return replace(rest, _pending=rest._pending.set(topic_id, deletion))
        minute = deletion.finished_ms // _MINUTE_MS
        ages = rest._ages
        if topic_id not in rest._finished:
            ages = ages.set(minute, ages.get(minute, _NO_IDS).set(topic_id, topic_id))
        return replace(rest, _finished=rest._finished.set(topic_id, deletion), _ages=ages)

    def without(self, topic_id: Uuid) -> "DeletionsImage":
        """Return the ledger without an entry."""
        entry = self.of(topic_id)
        if entry is None:
            return self
        rest = replace(self, _epochs=self._epochs_without(entry))
        if topic_id in self._pending:
            return replace(rest, _pending=self._pending.delete(topic_id))
        minute = entry.finished_ms // _MINUTE_MS
        remaining = self._ages[minute].delete(topic_id)
        ages = self._ages.set(minute, remaining) if remaining else self._ages.delete(minute)
        return replace(rest, _finished=self._finished.delete(topic_id), _ages=ages)

    def _epochs_without(self, entry: DeletionImage) -> Map[str, Map[Uuid, int]]:
        known = self._epochs.get(entry.name, _NO_EPOCHS)
        if entry.topic_id not in known:
            return self._epochs
        remaining = known.delete(entry.topic_id)
        return (
            self._epochs.set(entry.name, remaining)
            if remaining
            else self._epochs.delete(entry.name)
        )


def _place(deletion: DeletionImage) -> tuple[int, str, int]:
    """Return what an entry's place in the ledger depends on."""
    return deletion.finished_ms, deletion.name, deletion.leader_epoch


def _by_name(deletion: DeletionImage) -> tuple[str, Uuid]:
    return deletion.name, deletion.topic_id


def _by_id(deletion: DeletionImage) -> Uuid:
    return deletion.topic_id


# -- records -----------------------------------------------------------------------------------


def deletion_of(record: DeletionRecord, before: DeletionImage | None) -> DeletionImage:
    """Return the deletion that a record describes; its replicas are unchanged.

    But for a deletion that begins where there is a receipt, since the topic was put back under
    its old id: the receipt's replicas are those of the former topic.
    """
    is_another = before is not None and before.is_finished and record.finished_ms == NOT_FINISHED
    return DeletionImage(
        topic_id=record.topic_id,
        name=record.name,
        policy=Policy(record.policy),
        asked_ms=record.asked_ms,
        halted=HaltReason(record.halted),
        remote=Remote(record.remote),
        finished_ms=record.finished_ms,
        leader_epoch=record.leader_epoch,
        segments_left=record.segments_left,
        bytes_left=record.bytes_left,
        replicas=Map() if before is None or is_another else before.replicas,
    )


def status_of(record: DeletionReplicasRecord) -> ReplicaStatus:
    """Return the status that a record has."""
    return ReplicaStatus(DeletionState(record.state), Reason(record.reason), record.error)


def header_record(deletion: DeletionImage) -> DeletionRecord:
    """Return the record that describes a deletion without its replicas."""
    return DeletionRecord(
        topic_id=deletion.topic_id,
        name=deletion.name,
        policy=deletion.policy,
        asked_ms=deletion.asked_ms,
        halted=deletion.halted,
        remote=deletion.remote,
        finished_ms=deletion.finished_ms,
        leader_epoch=deletion.leader_epoch,
        segments_left=deletion.segments_left,
        bytes_left=deletion.bytes_left,
    )


def replicas_record(
    topic_id: Uuid, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]
) -> DeletionReplicasRecord:
    """Return the record of the status of some replicas of a broker."""
    return DeletionReplicasRecord(
        topic_id=topic_id,
        broker_id=broker_id,
        state=standing.state,
        reason=standing.reason,
        error=standing.error,
        partitions=tuple(sorted(partitions)),
    )


def deletion_records(deletion: DeletionImage) -> Iterator[DeletionRecord | DeletionReplicasRecord]:
    """Yield the records that lead to `deletion`."""
    yield header_record(deletion)
    for broker_id, standing, partitions in deletion.rows():
        yield replicas_record(deletion.topic_id, broker_id, standing, partitions)


__all__ = [
    "BROKER_DOWN",
    "NOT_FINISHED",
    "NOT_KNOWN",
    "STARTED",
    "SUCCESSFUL",
    "DeletionImage",
    "DeletionRecord",
    "DeletionReplicasRecord",
    "DeletionState",
    "DeletionsImage",
    "ForgetDeletionRecord",
    "HaltReason",
    "Policy",
    "Reason",
    "Remote",
    "ReplicaStatus",
    "deletion_of",
    "deletion_records",
    "header_record",
    "replicas_record",
    "status_of",
]
