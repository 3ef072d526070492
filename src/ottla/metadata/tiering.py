"""A topic's tiering state: whether its segments are copied to remote storage, and which of them
are alive there.

It is one fact, changed together with the topic's configuration. The tiered epoch grows with each
transition into ENABLED and into DISABLING, so that of two states the newer one is known
(`TopicTiering.age`). A topic that never had remote storage has no such state.
Source: KIP-950, whose draft has the states and the epoch.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.records import TopicTieringRecord
from ottla.wire.messages.topic_tiering import RestoredEpochData, RestoredPartitionData


class TieringState(IntEnum):
    """Whether a topic's segments are copied; wire values."""

    ENABLED = 1
    DISABLING = 2
    DISABLED = 3


class DisablePolicy(IntEnum):
    """What becomes of the remote segments when tiering is disabled; wire values."""

    NONE = 0
    RETAIN = 1
    DELETE = 2


FIRST_EPOCH: Final = 1
NO_FLOOR: Final = 0
WHOLE_TOPIC: Final = (1 << 31) - 1
"""The floor of a deleted topic: segments of all tiered epochs are dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """Where a partition began that was restored from remote storage.

    Fields: `leader_epoch`: its first one here, above all epochs of its remote segments.
            `log_start_offset`, `end_offset`: half-open, what the remote segments have. New logs
            begin at the end, with a remote prefix. `epochs`: (leader epoch, start offset) of it.
    """

    partition: int
    leader_epoch: int
    log_start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTiering:
    """The tiering state of one topic.

    Fields: `tiered_epoch`: from 1 up. `policy`: of the last disablement, NONE while ENABLED.
            `remote_floor_epoch`: remote segments of this tiered epoch and below are dead; 0 = none
            are. `purge_pending`: dead segments may still be in the object store. `restored`: of a
            topic that was restored, in order of the partitions; a broker of ZooKeeper mode may have
            only those that it was sent.
    """

    topic_id: Uuid
    state: TieringState = TieringState.ENABLED
    tiered_epoch: int = FIRST_EPOCH
    policy: DisablePolicy = DisablePolicy.NONE
    remote_floor_epoch: int = NO_FLOOR
    purge_pending: bool = False
    restored: tuple[RestoredPartition, ...] = ()

    def restored_partition(self, partition: int) -> RestoredPartition | None:
        """Return where a restored partition began; None = it began here, at offset 0."""
        at = bisect_left(self.restored, partition, key=lambda each: each.partition)
        found = self.restored[at : at + 1]
        return found[0] if found and found[0].partition == partition else None

    @property
    def copies(self) -> bool:
        """Whether leaders copy segments."""
        return self.state is TieringState.ENABLED

    @property
    def has_remote_log(self) -> bool:
        """Whether remote segments may be read: also those that a disablement has retained."""
        return self.policy is not DisablePolicy.DELETE and not self.is_remote_empty

    @property
    def is_remote_empty(self) -> bool:
        """Whether it is known that no remote segment is left that could be read.

        A floor of the present epoch: nothing can be above it before the next one begins.
        """
        return self.remote_floor_epoch >= self.tiered_epoch

    @property
    def is_retained(self) -> bool:
        """Whether it is DISABLED, and its remote segments were left to expire."""
        return self.state is TieringState.DISABLED and self.policy is DisablePolicy.RETAIN

    @property
    def awaited_floor(self) -> int | None:
        """Up to which tiered epoch leaders report their remote segments as purged; None = none.

        The controller takes a larger one, up to the tiered epoch, as well.
        """
        if self.purge_pending:
            return self.remote_floor_epoch
        return self.tiered_epoch if self.is_retained and not self.is_remote_empty else None

    @property
    def age(self) -> tuple[int, int, int, bool]:
        """Return what grows with each change of a topic's state."""
        return self.tiered_epoch, int(self.state), self.remote_floor_epoch, not self.purge_pending


def purged(tiering: TopicTiering) -> TopicTiering:
    """Return the state of a topic whose dead segments are all purged."""
    return replace(tiering, purge_pending=False)


def emptied(tiering: TopicTiering) -> TopicTiering:
    """Return the state of a DISABLED topic without a remote segment: as if it never had one."""
    assert tiering.state is TieringState.DISABLED
    return replace(tiering, remote_floor_epoch=tiering.tiered_epoch)


def tiering_of(record: TopicTieringRecord) -> TopicTiering:
    """Return the state that a record describes."""
    return TopicTiering(
        topic_id=record.topic_id,
        state=TieringState(record.state),
        tiered_epoch=record.tiered_epoch,
        policy=DisablePolicy(record.policy),
        remote_floor_epoch=record.remote_floor_epoch,
        purge_pending=record.purge_pending,
        restored=restored_of(record.restored),
    )


def tiering_record(tiering: TopicTiering) -> TopicTieringRecord:
    """Return the record that leads to a state."""
    return TopicTieringRecord(
        topic_id=tiering.topic_id,
        state=int(tiering.state),
        tiered_epoch=tiering.tiered_epoch,
        policy=int(tiering.policy),
        remote_floor_epoch=tiering.remote_floor_epoch,
        purge_pending=tiering.purge_pending,
        restored=restored_data(tiering.restored),
    )


def restored_of(found: Iterable[RestoredPartitionData]) -> tuple[RestoredPartition, ...]:
    """Return where partitions began, as records and requests have it."""
    return tuple(
        RestoredPartition(
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            log_start_offset=each.log_start_offset,
            end_offset=each.end_offset,
            epochs=tuple((epoch.epoch, epoch.start_offset) for epoch in each.epochs),
        )
        for each in found
    )


def restored_data(partitions: Iterable[RestoredPartition]) -> tuple[RestoredPartitionData, ...]:
    """Return what records and requests have of where partitions began."""
    return tuple(
        RestoredPartitionData(
            partition=each.partition,
            leader_epoch=each.leader_epoch,
            log_start_offset=each.log_start_offset,
            end_offset=each.end_offset,
            epochs=tuple(
                RestoredEpochData(epoch=epoch, start_offset=start) for epoch, start in each.epochs
            ),
        )
        for each in partitions
    )
