"""One member of a metadata quorum, without sockets, disks or clocks: `step(event) -> Ready`.

Every event goes through `step`, which changes the member's state and returns the effects that
the host must run, in order (see `effects`). As in KIP-595: roles are `roles.TABLE`; epochs only
grow and are durable before anything depends on them; a leader begins its epoch with a LeaderChange
record; the high watermark only moves past a record of the leader's own epoch that a majority has,
durably.

Not done: changes of the set of voters (KIP-853).

Sources: KIP-595, KIP-630, KIP-996; Kafka's KafkaRaftClient and QuorumState.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.ports import Dice
from ottla.raft.candidate import Candidate
from ottla.raft.effects import Effect, LeaderChanged, Ready, StoreElection
from ottla.raft.election import NOBODY, ElectionState
from ottla.raft.events import (
    BeginEpochRequestReceived,
    CleanUp,
    EndEpochRequestReceived,
    EpochResponseReceived,
    Event,
    FetchAbandoned,
    FetchFailed,
    FetchRequestReceived,
    FetchResponseReceived,
    Flushed,
    Propose,
    Resign,
    SnapshotRequestReceived,
    SnapshotResponseReceived,
    SnapshotStored,
    Start,
    Tick,
    VoteFailed,
    VoteRequestReceived,
    VoteResponseReceived,
)
from ottla.raft.flushing import Flushing
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.log_view import LogView
from ottla.raft.roles import OBSERVER_ROLES, Cause, Role, next_role
from ottla.raft.timing import NoDice, QuorumTiming
from ottla.raft.values import ReplicaKey


class RaftNode:
    """The member. Its attributes are for reading; only `step` changes them.

    Fields: `voters`: the configured voters' ids; empty = unknown, for an observer that only
            has bootstrap servers. `log`: the bounds and epochs of the log, updated by `step`.
            `dice`: needed by a voter of several.
    """

    def __init__(
        self,
        *,
        local: ReplicaKey,
        voters: tuple[int, ...],
        stored: ElectionState | None,
        log: LogView,
        dice: Dice | None = None,
        timing: QuorumTiming | None = None,
    ) -> None:
        self.local = local
        self.voters = tuple(sorted(voters))
        self.others = tuple(voter for voter in self.voters if voter != local.id)
        self.log = log
        self.dice = dice or NoDice()
        self.timing = timing or QuorumTiming()
        self.role = Role.UNATTACHED
        self.epoch = 0 if stored is None else stored.epoch
        self.leader_id = NOBODY if stored is None else stored.leader_id
        self.voted_id = NOBODY if stored is None else stored.voted_id
        self.high_watermark: int | None = None
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.flushing = Flushing(self)
        self.leader = Leader(self)
        self.follower = Follower(self)
        self.candidate = Candidate(self)

    @property
    def is_voter(self) -> bool:
        """Tell whether this member may vote and lead."""
        return self.local.id in self.voters

    @property
    def is_leader(self) -> bool:
        """Tell whether this member leads its epoch."""
        return self.role is Role.LEADER

    @property
    def leader_high_watermark(self) -> int | None:
        """Return the last known high watermark of this epoch's leader; None = none yet."""
        return self.high_watermark if self.is_leader else self.follower.leader_high_watermark

    @property
    def elects(self) -> bool:
        """Tell whether this member is one of several voters."""
        return self.is_voter and len(self.voters) > 1

    @property
    def majority(self) -> int:
        """Return how many voters are a majority."""
        return len(self.voters) // 2 + 1

    def step(self, event: Event) -> Ready:
        """Handle one event; return the effects and when to tick next."""
        assert not self.effects, "one step at a time"
        self.now_ms = max(self.now_ms, getattr(event, "now_ms", 0))
        handler: Callable[[RaftNode, Any], None] = _HANDLERS[type(event)]
        handler(self, event)
        effects, self.effects = tuple(self.effects), []
        parts = (self.leader, self.follower, self.candidate)
        moments = [part.wake_at_ms() for part in parts]
        return Ready(effects, min((at for at in moments if at is not None), default=None))

    # -- roles ---------------------------------------------------------------------------------

    def move(self, cause: Cause) -> None:
        """Change the role as the table says; a missing transition is a bug."""
        role = next_role(self.role, cause)
        assert role is not None, f"{cause} in role {self.role}"
        assert self.is_voter or role in OBSERVER_ROLES
        self.role = role
        if self.elects:
            self.candidate.entered(role)
            if role is Role.FOLLOWER:
                self.follower.begin(self.now_ms)
            else:
                self.follower.stop()

    def _start(self, event: Start) -> None:
        if self.log.last_epoch > self.epoch:
            # The file was lost or is older than the log: no vote in the log's epoch is safe. None
            # can be requested either: that epoch had a leader, so it has no candidate.
            self.epoch, self.leader_id, self.voted_id = self.log.last_epoch, NOBODY, NOBODY
        if not self.is_voter:
            if self.leader_id != NOBODY:
                self.move(Cause.LEADER_SEEN)
            self.follower.begin(event.now_ms)
            return
        led_before = self.leader_id == self.local.id
        if led_before:
            # It led this epoch and may have lost unflushed records: it must never lead it again.
            self.leader_id, self.voted_id = NOBODY, self.local.id
            self.move(Cause.RESIGN)
        if not self.elects:
            self._stand_for_election(event.wall_ms)
            return
        if self.leader_id in self.others:
            self.move(Cause.LEADER_SEEN)
        elif not led_before:
            if self.leader_id != NOBODY:
                # The leader is not a voter any more. The epoch had its leader: no vote in it.
                self.leader_id, self.voted_id = NOBODY, self.leader_id
            self.candidate.entered(self.role)
        self.candidate.started()

    def _stand_for_election(self, wall_ms: int) -> None:
        self.move(Cause.START_OVER)
        self.epoch += 1
        self.leader_id, self.voted_id = NOBODY, self.local.id
        self.store()
        # The only voter has its majority with its own vote.
        assert self.voters == (self.local.id,)
        self.move(Cause.VOTES_WON)
        self.leader_id = self.local.id
        self.store()
        self.leader.begin(wall_ms, self.voters)
        self.effects.append(LeaderChanged(leader_id=self.leader_id, epoch=self.epoch))

    def observe_leader(self, leader_id: int, epoch: int, cause: Cause | None = None) -> None:
        """Take over a peer's leader and epoch if they are new; `epoch` is not older than ours.

        `cause`: why the role changes, if it is not the peer's leader or epoch.
        """
        assert epoch >= self.epoch
        if leader_id == self.local.id:
            leader_id = NOBODY  # This member knows that it does not lead any more.
        if epoch == self.epoch and leader_id in (NOBODY, self.leader_id):
            return
        if epoch == self.epoch:
            assert self.leader_id == NOBODY, f"two leaders in epoch {epoch}"
        else:
            self.voted_id = NOBODY
        self.follower.leader_changed()
        self.epoch, self.leader_id = epoch, leader_id
        self.store()
        self.leader.end()
        self.effects.append(LeaderChanged(leader_id=leader_id, epoch=epoch))
        self.move(cause or (Cause.NEW_EPOCH if leader_id == NOBODY else Cause.LEADER_SEEN))

    def store(self) -> None:
        """Store the epoch, its leader and the own vote; with a leader there is no vote."""
        voted_id = self.voted_id if self.leader_id == NOBODY else NOBODY
        state = ElectionState(
            epoch=self.epoch, leader_id=self.leader_id, voted_id=voted_id, voters=self.voters
        )
        self.effects.append(StoreElection(state=state))

    def give_up_leadership(self) -> None:
        """Resign in this epoch, and send EndQuorumEpoch."""
        assert self.leader.progress is not None
        self.leader.check_quorum.send_end_epoch(self.leader.progress)
        self.leader_id = NOBODY
        self.leader.end()
        self.effects.append(LeaderChanged(leader_id=NOBODY, epoch=self.epoch))
        self.move(Cause.RESIGN)

    def _resign(self, _event: Resign) -> None:
        if self.is_leader:
            self.give_up_leadership()
        self.follower.stop()
        self.candidate.stop()

    def _flushed(self, event: Flushed) -> None:
        self.flushing.ended(event)
        if self.is_leader:
            self.leader.flushed()
        else:
            self.follower.flushed()

    def _tick(self, event: Tick) -> None:
        for part in (self.leader, self.follower, self.candidate):
            part.tick(event.now_ms)


_HANDLERS: dict[type, Callable[[RaftNode, Any], None]] = {
    Start: RaftNode._start,
    Tick: RaftNode._tick,
    Resign: RaftNode._resign,
    Propose: lambda node, event: node.leader.propose(event),
    Flushed: RaftNode._flushed,
    FetchRequestReceived: lambda node, event: node.leader.handle_fetch_request(event),
    FetchAbandoned: lambda node, event: node.leader.fetch_abandoned(event),
    SnapshotRequestReceived: lambda node, event: node.leader.handle_snapshot_request(event),
    SnapshotStored: lambda node, event: node.leader.snapshot_stored(event),
    CleanUp: lambda node, event: node.leader.clean_up(event),
    FetchResponseReceived: lambda node, event: node.follower.handle_fetch_response(event),
    SnapshotResponseReceived: lambda node, event: node.follower.handle_snapshot_response(event),
    FetchFailed: lambda node, event: node.follower.handle_fetch_failure(event),
    VoteRequestReceived: lambda node, event: node.candidate.handle_vote_request(event),
    VoteResponseReceived: lambda node, event: node.candidate.handle_vote_response(event),
    VoteFailed: lambda node, event: node.candidate.handle_vote_failure(event),
    BeginEpochRequestReceived: lambda node, event: node.candidate.handle_begin_epoch_request(event),
    EndEpochRequestReceived: lambda node, event: node.candidate.handle_end_epoch_request(event),
    EpochResponseReceived: lambda node, event: node.candidate.handle_epoch_response(event),
}
