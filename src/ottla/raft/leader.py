"""The leader's side: appends, group commit, the high watermark and responses to replicas.

Group commit: one flush is in progress at a time; batches appended meanwhile are covered by the next
one, so any number of proposals share a flush.

Voters read to the end of the log, since their copies commit records. Their delayed fetches are also
answered when the high watermark moves: a broker in the same process waits for it. Observers read to
the high watermark only: they get records and their commitment at once, and never have to truncate.
Kafka does not distinguish them.

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
    """Serves requests to the leader, and refuses them while this member is not the leader."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self.progress: LeaderProgress | None = None
        self.check_quorum = CheckQuorum(node)
        self._delayed_fetches: dict[int, FetchRequestReceived] = {}
        self._sent_high_watermarks: dict[ReplicaKey, int] = {}

    def begin(self, wall_ms: int, granting_voters: tuple[int, ...]) -> None:
        """Begin the epoch of the election just won."""
        node = self._node
        self._sent_high_watermarks = {}
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
        """Stop leading: delayed fetches are answered NOT_LEADER_OR_FOLLOWER."""
        self.progress = None
        self.check_quorum.end()
        delayed, self._delayed_fetches = self._delayed_fetches, {}
        for fetch in delayed.values():
            self._respond_with_error(fetch, Error.NOT_LEADER_OR_FOLLOWER)

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
        self._complete_fetches()

    def flushed(self) -> None:
        """Advance the leader's own end offset, and commit what a majority has."""
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
        self._complete_fetches()

    def _complete_fetches(self) -> None:
        for fetch in list(self._delayed_fetches.values()):
            if self._can_complete(fetch):
                del self._delayed_fetches[fetch.token]
                self._respond(fetch, Valid())

    def _can_complete(self, fetch: FetchRequestReceived) -> bool:
        if self._readable_end(fetch) > fetch.fetch_offset:
            return True
        if fetch.replica.id not in self._node.voters:
            return False
        return _or_unknown(self._node.high_watermark) > self._sent_high_watermarks.get(
            fetch.replica, NO_WATERMARK
        )

    # -- responses -----------------------------------------------------------------------------

    def handle_fetch_request(self, event: FetchRequestReceived) -> None:
        """Answer a replica's fetch, or delay it until there are new records."""
        error = self._check_epoch(event.leader_epoch)
        if error is not Error.NONE:
            self._respond_with_error(event, error)
            return
        if event.fetch_offset < 0 or event.last_fetched_epoch > event.leader_epoch:
            self._respond_with_error(event, Error.INVALID_REQUEST)
            return
        verdict = self._node.log.validate_offset_and_epoch(
            event.fetch_offset, event.last_fetched_epoch
        )
        self.check_quorum.fetched(event.replica.id)
        if isinstance(verdict, Valid):
            self._note_progress(event)
            if not self._can_complete(event) and event.deadline_ms > event.now_ms:
                self._delayed_fetches[event.token] = event
                return
        self._respond(event, verdict)

    def _note_progress(self, event: FetchRequestReceived) -> None:
        assert self.progress is not None
        self.progress.fetched(
            event.replica,
            offset=event.fetch_offset,
            leader_end=self._readable_end(event),
            wall_ms=event.wall_ms,
        )
        if event.replica.id in self._node.voters:
            self._commit()

    def _readable_end(self, event: FetchRequestReceived) -> int:
        """Return the end of the records that this replica may read."""
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

    def _respond_with_error(self, fetch: FetchRequestReceived, error: Error) -> None:
        self._node.effects.append(
            RespondToFetch(
                token=fetch.token,
                error=error,
                leader_id=self._node.leader_id,
                leader_epoch=self._node.epoch,
                high_watermark=NO_WATERMARK,
            )
        )

    def _respond(self, fetch: FetchRequestReceived, verdict: Verdict) -> None:
        node = self._node
        start = fetch.fetch_offset if isinstance(verdict, Valid) else 0
        end = max(start, self._readable_end(fetch)) if isinstance(verdict, Valid) else 0
        if fetch.replica.id in node.voters and isinstance(verdict, Valid):
            self._sent_high_watermarks[fetch.replica] = _or_unknown(node.high_watermark)
        node.effects.append(
            RespondToFetch(
                token=fetch.token,
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
        """Drop a delayed fetch; it may have been answered already."""
        self._delayed_fetches.pop(event.token, None)

    def handle_snapshot_request(self, event: SnapshotRequestReceived) -> None:
        """Answer FetchSnapshot: an error unless this member leads and has the snapshot."""
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
        """Return the first deadline of a delayed fetch or of `check_quorum`."""
        moments = [fetch.deadline_ms for fetch in self._delayed_fetches.values()]
        due_ms = self.check_quorum.wake_at_ms()
        return min(moments if due_ms is None else [*moments, due_ms], default=None)

    def tick(self, now_ms: int) -> None:
        """Answer expired delayed fetches without records."""
        self.check_quorum.tick(now_ms)
        for fetch in list(self._delayed_fetches.values()):
            if fetch.deadline_ms <= now_ms:
                del self._delayed_fetches[fetch.token]
                self._respond(fetch, Valid())

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot_stored(self, event: SnapshotStored) -> None:
        """Add a snapshot that this member has written of its committed state."""
        node = self._node
        assert node.high_watermark is not None
        assert event.snapshot.offset <= node.high_watermark, "only what is committed"
        node.log.snapshot_stored(event.snapshot)

    def clean_up(self, event: CleanUp) -> None:
        """Delete the log before a snapshot, and older snapshots."""
        log = self._node.log
        if event.snapshot not in log.snapshots or event.snapshot.offset > log.end_offset:
            return
        if event.snapshot.offset <= log.start_offset and log.snapshots[0] == event.snapshot:
            return
        log.prefix_deleted(event.snapshot)
        self._node.effects.append(DeletePrefix(snapshot=event.snapshot))


def _or_unknown(high_watermark: int | None) -> int:
    return NO_WATERMARK if high_watermark is None else high_watermark
