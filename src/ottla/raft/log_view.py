"""Raft's view of the log: its bounds, the start offset of each epoch, the snapshots.

It holds no records; every change of the log on disk is noted here. The rules are those of Kafka's
LeaderEpochFileCache, KafkaMetadataLog and ReplicatedLog.validateOffsetAndEpoch (KIP-595, KIP-630).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.raft.values import EMPTY_LOG, EpochStart, OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Valid:
    """The reader's log is a prefix of this one."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """The reader has records that this log lacks; `end`: the last point that both may share."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """The reader must load this snapshot: the records it needs are deleted from the log."""

    snapshot: OffsetAndEpoch


Verdict = Valid | Diverging | NeedsSnapshot


class LogView:
    """Bounds, epochs and snapshots of one log. Offsets are half-open: [start, end)."""

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[EpochStart] = (),
        snapshots: Iterable[OffsetAndEpoch] = (),
    ) -> None:
        assert 0 <= start_offset <= end_offset
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = [EpochStart(*entry) for entry in epochs]
        self.snapshots = sorted((OffsetAndEpoch(*entry) for entry in snapshots), key=_rank)
        assert self.epochs == sorted(set(self.epochs)), "epochs and their offsets must grow"

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the last record, or of the snapshot if the log has no records."""
        if self.epochs:
            return self.epochs[-1].epoch
        if self.snapshots:
            assert self.snapshots[-1].offset == self.end_offset, "records without an epoch"
            return self.snapshots[-1].epoch
        assert self.end_offset == 0, "records without an epoch"
        return 0

    @property
    def end(self) -> OffsetAndEpoch:
        """Return the end offset with the last epoch."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        """Return the id of the newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    def appended(self, *, base_offset: int, next_offset: int, epoch: int) -> None:
        """Note records at the end of the log."""
        assert base_offset == self.end_offset < next_offset
        assert not self.epochs or epoch >= self.epochs[-1].epoch
        if not self.epochs or epoch > self.epochs[-1].epoch:
            self.epochs.append(EpochStart(epoch, base_offset))
        self.end_offset = next_offset

    def truncated_to(self, offset: int) -> None:
        """Note that the records from `offset` on are gone."""
        assert self.start_offset <= offset
        self.end_offset = min(self.end_offset, offset)
        while self.epochs and self.epochs[-1].start_offset >= offset:
            self.epochs.pop()

    def restarted_at(self, snapshot: OffsetAndEpoch) -> None:
        """Note that a snapshot has replaced every record and all older snapshots."""
        self.start_offset = self.end_offset = snapshot.offset
        self.epochs.clear()
        self.snapshots = [snapshot]

    def snapshot_stored(self, snapshot: OffsetAndEpoch) -> None:
        """Note a further snapshot, at or above the log's start."""
        assert snapshot.offset >= self.start_offset, "it would be taken for the oldest"
        if snapshot not in self.snapshots:
            self.snapshots = sorted((*self.snapshots, snapshot), key=_rank)

    def prefix_deleted(self, snapshot: OffsetAndEpoch) -> None:
        """Note that records before `snapshot`, and snapshots older than it, are gone."""
        assert snapshot in self.snapshots
        assert self.start_offset <= snapshot.offset <= self.end_offset
        self.start_offset = snapshot.offset
        self.snapshots = [kept for kept in self.snapshots if kept.rank >= snapshot.rank]
        before = [entry for entry in self.epochs if entry.start_offset <= snapshot.offset]
        after = [entry for entry in self.epochs if entry.start_offset > snapshot.offset]
        # The epoch that the first kept record belongs to now begins with that record.
        first = [EpochStart(before[-1].epoch, snapshot.offset)] if before else []
        if self.start_offset == self.end_offset:
            first = []
        self.epochs = first + after

    def end_offset_of(self, epoch: int) -> OffsetAndEpoch:
        """Return the last epoch up to `epoch` that this log has, and where it ends."""
        found = self._end_in_epochs(epoch)
        if found is None:
            return self.end
        if self.snapshots and found == (self.snapshots[0].offset, epoch):
            # The epoch is before the log: the oldest snapshot is what both surely share.
            return self.snapshots[0]
        return found

    def _end_in_epochs(self, epoch: int) -> OffsetAndEpoch | None:
        if not self.epochs or epoch > self.epochs[-1].epoch:
            return None
        if epoch == self.epochs[-1].epoch:
            return OffsetAndEpoch(self.end_offset, epoch)
        floor = epoch
        for entry in self.epochs:
            if entry.epoch > epoch:
                return OffsetAndEpoch(entry.start_offset, floor)
            floor = entry.epoch
        raise AssertionError("a larger epoch is there")

    def validate_offset_and_epoch(self, offset: int, epoch: int) -> Verdict:
        """Return how a reader whose log ends at `offset`, with `epoch`, must go on."""
        latest = self.latest_snapshot
        if offset == 0 and latest is not None and latest != EMPTY_LOG:
            # An empty log always starts from the snapshot.
            return NeedsSnapshot(latest)
        if self.start_offset == 0 and offset == 0 and epoch == 0:
            return Valid()
        if latest is not None and self._is_before(self.snapshots[0], offset, epoch):
            return NeedsSnapshot(latest)
        end = self.end_offset_of(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Diverging(end)
        return Valid()

    def _is_before(self, earliest: OffsetAndEpoch, offset: int, epoch: int) -> bool:
        return (
            offset < self.start_offset
            or (offset == self.start_offset and epoch != earliest.epoch)
            or epoch < earliest.epoch
        )

    def truncation_point(self, leader_end: OffsetAndEpoch) -> int:
        """Return where to truncate this log, for a leader's diverging epoch `leader_end`."""
        if leader_end.epoch == 0:
            return min(leader_end.offset, self.end_offset)
        local = self.end_offset_of(leader_end.epoch)
        if local.epoch == leader_end.epoch:
            return min(local.offset, leader_end.offset)
        return local.offset


def _rank(value: OffsetAndEpoch) -> tuple[int, int]:
    return value.rank
