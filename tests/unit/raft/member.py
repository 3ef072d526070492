"""A quorum member with a log of values, whose machine can die between any two effects.

`Member.durable` is what a crash leaves: the stored election, the batches flushed, the snapshots.
A batch is (base offset, epoch, values); a LeaderChange has one value, `LEADER_CHANGE`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ottla.base.ports import Dice
from ottla.raft.effects import (
    AdoptSnapshot,
    AdvanceHighWatermark,
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    DeletePrefix,
    Effect,
    FlushLog,
    LeaderChanged,
    RespondToFetch,
    RespondToFetchSnapshot,
    SendFetch,
    SendFetchSnapshot,
    StoreElection,
    TruncateLog,
    WriteSnapshot,
)
from ottla.raft.election import ElectionState
from ottla.raft.events import Event, Flushed, Start
from ottla.raft.log_view import LogView
from ottla.raft.node import RaftNode
from ottla.raft.values import EpochStart, OffsetAndEpoch, ReplicaKey

LEADER_CHANGE = b"leader change"


@dataclass(frozen=True, slots=True)
class Batch:
    base_offset: int
    epoch: int
    values: tuple[bytes, ...]

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


end_of = attrgetter("next_offset")


@dataclass(slots=True)
class Files:
    """What is on disk."""

    election: ElectionState | None = None
    start_offset: int = 0
    batches: list[Batch] = field(default_factory=list)
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)

    def copy(self) -> "Files":
        return Files(self.election, self.start_offset, list(self.batches), list(self.snapshots))

    def batches_within(self, start: int, end: int) -> list[Batch]:
        """Return the batches that lie in [start, end) as a whole."""
        first = bisect_left(self.batches, start, key=attrgetter("base_offset"))
        return self.batches[first : bisect_right(self.batches, end, key=end_of)]

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start_offset

    def view(self) -> LogView:
        epochs: list[EpochStart] = []
        for batch in self.batches:
            if not epochs or batch.epoch > epochs[-1].epoch:
                epochs.append(EpochStart(batch.epoch, max(batch.base_offset, self.start_offset)))
        return LogView(
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            epochs=epochs,
            snapshots=self.snapshots,
        )

    def records(self) -> dict[int, tuple[int, bytes]]:
        """Return epoch and value by offset."""
        return {
            batch.base_offset + index: (batch.epoch, value)
            for batch in self.batches
            for index, value in enumerate(batch.values)
            if batch.base_offset + index >= self.start_offset
        }


class Crash(Exception):
    """The machine lost power before this effect."""


class Member:
    """One process of a member; after a crash make a new one of what `durable` holds."""

    def __init__(
        self,
        node_id: int,
        voters: tuple[int, ...],
        durable: Files | None = None,
        dice: Dice | None = None,
    ) -> None:
        self.durable = durable or Files()
        self.files = self.durable.copy()
        self.node = RaftNode(
            local=ReplicaKey(node_id),
            voters=voters,
            stored=self.files.election,
            log=self.files.view(),
            dice=dice,
        )
        self.effects: list[Effect] = []
        self.committed = -1
        self.wake_at_ms: int | None = None
        self.flushes: list[FlushLog] = []
        self.asks: list[SendFetch | SendFetchSnapshot] = []
        self.answers: list[RespondToFetch | RespondToFetchSnapshot] = []
        self.pieces: dict[OffsetAndEpoch, bytearray] = {}
        self.crash_after: int | None = None
        self.on_wire: dict[int, Batch] = {}

    def start(self, now_ms: int = 0) -> list[Effect]:
        return self.step(Start(now_ms=now_ms, wall_ms=1_000_000 + now_ms))

    def step(self, event: Event) -> list[Effect]:
        """Run one event; return its effects."""
        ready = self.node.step(event)
        self.wake_at_ms = ready.wake_at_ms
        for effect in ready.effects:
            if self.crash_after is not None:
                if self.crash_after == 0:
                    raise Crash
                self.crash_after -= 1
            self.effects.append(effect)
            self._run(effect)
        return list(ready.effects)

    def flush(self) -> list[Effect]:
        """Let the flush that is under way end."""
        flush = self.flushes.pop(0)
        assert flush.end_offset <= self.files.end_offset
        self.durable.start_offset = self.files.start_offset
        self.durable.batches = [
            batch for batch in self.files.batches if batch.next_offset <= flush.end_offset
        ]
        return self.step(Flushed(end_offset=flush.end_offset, epoch=flush.epoch))

    def _run(self, effect: Effect) -> None:
        files = self.files
        match effect:
            case StoreElection():
                files.election = self.durable.election = effect.state
            case AppendLeaderChange():
                files.batches.append(Batch(effect.base_offset, effect.epoch, (LEADER_CHANGE,)))
            case AppendRecords():
                files.batches.append(Batch(effect.base_offset, effect.epoch, effect.values))
            case AppendFetched():
                files.batches += self._sent(effect)
                assert files.end_offset == effect.next_offset
            case TruncateLog():
                assert effect.offset >= self.committed
                files.batches = [b for b in files.batches if b.next_offset <= effect.offset]
                assert files.end_offset == effect.offset, "only whole batches go"
                self.durable.batches = list(files.batches)
            case FlushLog():
                assert effect.end_offset == files.end_offset
                self.flushes.append(effect)
            case AdvanceHighWatermark():
                assert effect.offset > self.committed
                assert effect.offset <= files.end_offset
                self.committed = effect.offset
            case SendFetch() | SendFetchSnapshot():
                self.asks.append(effect)
            case RespondToFetch() | RespondToFetchSnapshot():
                self.answers.append(effect)
            case WriteSnapshot():
                if effect.position == 0:
                    self.pieces[effect.snapshot] = bytearray()
                assert len(self.pieces[effect.snapshot]) == effect.position
                self.pieces[effect.snapshot] += effect.data
            case AdoptSnapshot():
                files.start_offset, files.batches = effect.snapshot.offset, []
                files.snapshots = [effect.snapshot]
                self.durable = files.copy()
            case DeletePrefix():
                self._delete_prefix(effect.snapshot)
            case LeaderChanged():
                pass

    def _delete_prefix(self, snapshot: OffsetAndEpoch) -> None:
        for files in (self.files, self.durable):
            files.start_offset = snapshot.offset
            files.batches = [b for b in files.batches if b.next_offset > snapshot.offset]
            files.snapshots = [s for s in files.snapshots if s.rank >= snapshot.rank]

    def _sent(self, effect: AppendFetched) -> Sequence[Batch]:
        return [self.on_wire[offset] for offset in map(int, bytes(effect.data).split())]

    def restarted(self, node_id: int | None = None) -> "Member":
        """Return the process after this one lost power."""
        return Member(
            self.node.local.id if node_id is None else node_id,
            self.node.voters,
            self.durable.copy(),
        )


def leader(durable: Files | None = None) -> Member:
    """Return the only voter, elected, its LeaderChange committed."""
    member = Member(1, (1,), durable)
    member.start()
    member.flush()
    return member
