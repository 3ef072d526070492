"""The leader's side: appending, group commit, the high watermark and answers to replicas.

Group commit: one flush is under way at a time; what is appended meanwhile waits for the next,
so that any number of proposals share one.

Replicas that may vote read to the end of the log, for their copies make records committed, and
their parked fetches are answered when the high watermark moves, too: the broker beside such a
voter waits for it. Observers read to the high watermark only: they learn of a record and of its
commitment at once, and never have to truncate. Kafka serves both alike.

Source: KIP-595, KIP-630; KafkaRaftClient's handling of Fetch and FetchSnapshot.
"""

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.raft.check_quorum import CheckQuorum
from ottla.raft.effects import (
    AdvanceHighWatermark,
    AppendLeaderChange,
    AppendRecords,
    DeletePrefix,
    RespondToFetch,
    RespondToFetchSnapshot,
)
from ottla.raft.events import (
    NO_WATERMARK,
    CleanUp,
    FetchAbandoned,
    FetchRequestReceived,
    Propose,
    SnapshotRequestReceived,
    SnapshotStored,
)
from ottla.raft.log_view import Valid, Verdict
from ottla.raft.progress import LeaderProgress
from ottla.raft.values import ReplicaKey

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode


class Leader:
    """What a member does while it leads, and its refusals while it does not."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self.progress: LeaderProgress | None = None
        self.check_quorum = CheckQuorum(node)
        self._parked: dict[int, FetchRequestReceived] = {}
        self._told: dict[ReplicaKey, int] = {}

    def begin(self, wall_ms: int, granting_voters: tuple[int, ...]) -> None:
        """Open the epoch that was just won."""
        node = self._node
        self._told = {}
        base_offset = node.log.end_offset
        self.progress = LeaderProgress(
            local_id=node.local.id, voters=node.voters, epoch_start_offset=base_offset
        )
        node.effects.append(
            AppendLeaderChange(
                base_offset=base_offset,
                epoch=node.epoch,
                leader_id=node.local.id,
                voters=node.voters,
                granting_voters=granting_voters,
                wall_ms=wall_ms,
            )
        )
        node.log.appended(base_offset=base_offset, next_offset=base_offset + 1, epoch=node.epoch)
        node.flushing.begin()
        self.check_quorum.begin()

    def end(self) -> None:
        """Lead no more: whoever waits is sent to look for the next leader."""
        self.progress = None
        self.check_quorum.end()
        parked, self._parked = self._parked, {}
        for asked in parked.values():
            self._refuse(asked, Error.NOT_LEADER_OR_FOLLOWER)

    def propose(self, event: Propose) -> None:
        """Append one batch."""
        node = self._node
        assert node.is_leader, "only a leader's state machine proposes"
        assert event.values
        base_offset = node.log.end_offset
        next_offset = base_offset + len(event.values)
        node.effects.append(
            AppendRecords(
                base_offset=base_offset,
                epoch=node.epoch,
                values=event.values,
                wall_ms=event.wall_ms,
            )
        )
        node.log.appended(base_offset=base_offset, next_offset=next_offset, epoch=node.epoch)
        node.flushing.begin()
        self._wake()

    def flushed(self) -> None:
        """Count the leader's own copy, and commit what a majority now has."""
        assert self.progress is not None
        self.progress.flushed_to(self._node.flushing.flushed_to)
        self._commit()
        self._node.flushing.begin()

    def _commit(self) -> None:
        assert self.progress is not None
        offset = self.progress.advance()
        if offset is None:
            return
        node = self._node
        assert node.high_watermark is None or offset > node.high_watermark
        node.high_watermark = offset
        node.effects.append(AdvanceHighWatermark(offset=offset))
        self._wake()

    def _wake(self) -> None:
        for asked in list(self._parked.values()):
            if self._has_news_for(asked):
                del self._parked[asked.token]
                self._answer(asked, Valid())

    def _has_news_for(self, asked: FetchRequestReceived) -> bool:
        if self._end_for(asked) > asked.fetch_offset:
            return True
        if asked.replica.id not in self._node.voters:
            return False
        return _or_unknown(self._node.high_watermark) > self._told.get(asked.replica, NO_WATERMARK)

    # -- answers -------------------------------------------------------------------------------

    def handle_fetch_request(self, event: FetchRequestReceived) -> None:
        """Answer a replica's fetch, or park it until there is something to say."""
        error = self._check_epoch(event.leader_epoch)
        if error is not Error.NONE:
            self._refuse(event, error)
            return
        if event.fetch_offset < 0 or event.last_fetched_epoch > event.leader_epoch:
            self._refuse(event, Error.INVALID_REQUEST)
            return
        verdict = self._node.log.validate_offset_and_epoch(
            event.fetch_offset, event.last_fetched_epoch
        )
        self.check_quorum.fetched(event.replica.id)
        if isinstance(verdict, Valid):
            self._note_progress(event)
            if not self._has_news_for(event) and event.deadline_ms > event.now_ms:
                self._parked[event.token] = event
                return
        self._answer(event, verdict)

    def _note_progress(self, event: FetchRequestReceived) -> None:
        assert self.progress is not None
        self.progress.fetched(
            event.replica,
            offset=event.fetch_offset,
            leader_end=self._end_for(event),
            wall_ms=event.wall_ms,
        )
        if event.replica.id in self._node.voters:
            self._commit()

    def _end_for(self, event: FetchRequestReceived) -> int:
        """Return where the records end that this replica may read."""
        if event.replica.id in self._node.voters:
            return self._node.log.end_offset
        return self._node.high_watermark or 0

    def _check_epoch(self, leader_epoch: int) -> Error:
        node = self._node
        if leader_epoch < node.epoch:
            return Error.FENCED_LEADER_EPOCH
        if leader_epoch > node.epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        return Error.NONE if node.is_leader else Error.NOT_LEADER_OR_FOLLOWER

    def _refuse(self, asked: FetchRequestReceived, error: Error) -> None:
        self._node.effects.append(
            RespondToFetch(
                token=asked.token,
                error=error,
                leader_id=self._node.leader_id,
                leader_epoch=self._node.epoch,
                high_watermark=NO_WATERMARK,
            )
        )

    def _answer(self, asked: FetchRequestReceived, verdict: Verdict) -> None:
        node = self._node
        start = asked.fetch_offset if isinstance(verdict, Valid) else 0
        end = max(start, self._end_for(asked)) if isinstance(verdict, Valid) else 0
        if asked.replica.id in node.voters and isinstance(verdict, Valid):
            self._told[asked.replica] = _or_unknown(node.high_watermark)
        node.effects.append(
            RespondToFetch(
                token=asked.token,
                error=Error.NONE,
                leader_id=node.leader_id,
                leader_epoch=node.epoch,
                high_watermark=_or_unknown(node.high_watermark),
                verdict=verdict,
                start=start,
                end=end,
            )
        )

    def fetch_abandoned(self, event: FetchAbandoned) -> None:
        """Forget a parked fetch; it may have been answered already."""
        self._parked.pop(event.token, None)

    def handle_snapshot_request(self, event: SnapshotRequestReceived) -> None:
        """Let a replica read a snapshot, if this is the leader and has it."""
        node = self._node
        error = self._check_epoch(event.leader_epoch)
        if error is Error.NONE and event.snapshot not in node.log.snapshots:
            error = Error.SNAPSHOT_NOT_FOUND
        node.effects.append(
            RespondToFetchSnapshot(
                token=event.token,
                error=error,
                leader_id=node.leader_id,
                leader_epoch=node.epoch,
                snapshot=event.snapshot,
            )
        )

    # -- time ----------------------------------------------------------------------------------

    def wake_at_ms(self) -> int | None:
        """Return the first deadline of a parked fetch, or when the office wants something."""
        moments = [asked.deadline_ms for asked in self._parked.values()]
        due_ms = self.check_quorum.wake_at_ms()
        return min(moments if due_ms is None else [*moments, due_ms], default=None)

    def tick(self, now_ms: int) -> None:
        """Answer the parked fetches whose time is over with nothing."""
        self.check_quorum.tick(now_ms)
        for asked in list(self._parked.values()):
            if asked.deadline_ms <= now_ms:
                del self._parked[asked.token]
                self._answer(asked, Valid())

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot_stored(self, event: SnapshotStored) -> None:
        """Know a snapshot that this member has taken of its committed state."""
        node = self._node
        assert node.high_watermark is not None
        assert event.snapshot.offset <= node.high_watermark, "only what is committed"
        node.log.snapshot_stored(event.snapshot)

    def clean_up(self, event: CleanUp) -> None:
        """Drop what a snapshot has made superfluous."""
        log = self._node.log
        if event.snapshot not in log.snapshots or event.snapshot.offset > log.end_offset:
            return
        if event.snapshot.offset <= log.start_offset and log.snapshots[0] == event.snapshot:
            return
        log.prefix_deleted(event.snapshot)
        self._node.effects.append(DeletePrefix(snapshot=event.snapshot))


def _or_unknown(high_watermark: int | None) -> int:
    return NO_WATERMARK if high_watermark is None else high_watermark
