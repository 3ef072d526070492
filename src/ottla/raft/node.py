"""One member of a metadata quorum, without sockets, disks or clocks: `step(event) -> Ready`.

Every event goes through `step`, which changes the member's state and returns the effects that
the host must run, in order (see `effects`). The member keeps the shape of KIP-595: roles are
`roles.TABLE`, epochs only grow and are durable before anything rests on them, a leader opens its
epoch with a LeaderChange record, and the high watermark moves only over a durable record of the
leader's own epoch.

Not done: quorums of several voters (elections need nobody's vote yet, Vote, BeginQuorumEpoch and
EndQuorumEpoch are not spoken). Observers, as brokers are, follow any leader.

Sources: KIP-595, KIP-630; Kafka's KafkaRaftClient and QuorumState.
"""

from collections.abc import Callable
from typing import Any

from ottla.raft.effects import Effect, LeaderChanged, Ready, StoreElection
from ottla.raft.election import NOBODY, ElectionState
from ottla.raft.events import (
    AskFailed,
    CleanUp,
    Event,
    FetchAbandoned,
    FetchAnswered,
    FetchAsked,
    Flushed,
    Propose,
    Resign,
    SnapshotAnswered,
    SnapshotAsked,
    SnapshotStored,
    Start,
    Tick,
)
from ottla.raft.following import Following
from ottla.raft.leading import Leading
from ottla.raft.log_view import LogView
from ottla.raft.roles import OBSERVER_ROLES, Cause, Role, next_role
from ottla.raft.values import ReplicaKey


class UnsupportedQuorum(Exception):
    """The configuration asks for a quorum that this version cannot run."""


class RaftNode:
    """The member. Its attributes are for reading; only `step` changes them.

    Fields: `voters`: the configured voters' ids; empty = unknown, for an observer that only
            has bootstrap servers. `log`: what raft knows of the log, kept current by `step`.
    Raises: UnsupportedQuorum for more than one voter.
    """

    def __init__(
        self,
        *,
        local: ReplicaKey,
        voters: tuple[int, ...],
        stored: ElectionState | None,
        log: LogView,
    ) -> None:
        if len(voters) > 1:
            names = ", ".join(map(str, voters))
            raise UnsupportedQuorum(
                f"quorums of several voters are not supported yet: the voters are {names}"
            )
        self.local = local
        self.voters = tuple(sorted(voters))
        self.log = log
        self.role = Role.UNATTACHED
        self.epoch = 0 if stored is None else stored.epoch
        self.leader_id = NOBODY if stored is None else stored.leader_id
        self.high_watermark: int | None = None
        self.effects: list[Effect] = []
        self.leading = Leading(self)
        self.following = Following(self)

    @property
    def is_voter(self) -> bool:
        """Tell whether this member may vote and lead."""
        return self.local.id in self.voters

    @property
    def is_leader(self) -> bool:
        """Tell whether this member leads its epoch."""
        return self.role is Role.LEADER

    def step(self, event: Event) -> Ready:
        """Take one event; return what is to be done and when to tick next."""
        assert not self.effects, "one step at a time"
        handler: Callable[[RaftNode, Any], None] = _HANDLERS[type(event)]
        handler(self, event)
        effects, self.effects = tuple(self.effects), []
        moments = (self.leading.wake_at_ms(), self.following.wake_at_ms())
        return Ready(effects, min((at for at in moments if at is not None), default=None))

    # -- roles ---------------------------------------------------------------------------------

    def move(self, cause: Cause) -> None:
        """Change the role as the table says; a move that it lacks is our own mistake."""
        role = next_role(self.role, cause)
        assert role is not None, f"{cause} in role {self.role}"
        assert self.is_voter or role in OBSERVER_ROLES
        self.role = role

    def _start(self, event: Start) -> None:
        if self.log.last_epoch > self.epoch:
            # The file was lost or is older than the log: no vote in the log's epoch is safe.
            self.epoch, self.leader_id = self.log.last_epoch, NOBODY
        if not self.is_voter:
            if self.leader_id != NOBODY:
                self.move(Cause.LEADER_SEEN)
            self.following.begin(event.now_ms)
            return
        if self.leader_id == self.local.id:
            # It led this epoch and cannot know how far: it must never lead it again.
            self.move(Cause.RESIGN)
        self._stand_for_election(event.wall_ms)

    def _stand_for_election(self, wall_ms: int) -> None:
        self.move(Cause.START_OVER)
        self.epoch += 1
        self.leader_id = NOBODY
        self.store(voted_id=self.local.id)
        # The only voter has its majority with its own vote.
        assert self.voters == (self.local.id,)
        self.move(Cause.VOTES_WON)
        self.leader_id = self.local.id
        self.store()
        self.leading.begin(wall_ms)
        self.effects.append(LeaderChanged(leader_id=self.leader_id, epoch=self.epoch))

    def observe_leader(self, leader_id: int, epoch: int) -> None:
        """Take over what a peer says of the epoch, where that is news; `epoch` is not older."""
        assert epoch >= self.epoch
        if epoch == self.epoch and (leader_id == NOBODY or leader_id == self.leader_id):
            return
        if epoch == self.epoch:
            assert self.leader_id == NOBODY, f"two leaders in epoch {epoch}"
        self.leading.end()
        self.following.forget_snapshot()
        self.epoch, self.leader_id = epoch, leader_id
        self.move(Cause.NEW_EPOCH if leader_id == NOBODY else Cause.LEADER_SEEN)
        self.store()
        self.effects.append(LeaderChanged(leader_id=leader_id, epoch=epoch))

    def store(self, *, voted_id: int = NOBODY) -> None:
        """Have the epoch, its leader and the own vote written down."""
        state = ElectionState(
            epoch=self.epoch, leader_id=self.leader_id, voted_id=voted_id, voters=self.voters
        )
        self.effects.append(StoreElection(state=state))

    def _resign(self, _event: Resign) -> None:
        if self.is_leader:
            self.move(Cause.RESIGN)
            self.leader_id = NOBODY
            self.leading.end()
            self.effects.append(LeaderChanged(leader_id=NOBODY, epoch=self.epoch))
        self.following.stop()

    def _tick(self, event: Tick) -> None:
        self.leading.tick(event.now_ms)
        self.following.tick(event.now_ms)


_HANDLERS: dict[type, Callable[[RaftNode, Any], None]] = {
    Start: RaftNode._start,
    Tick: RaftNode._tick,
    Resign: RaftNode._resign,
    Propose: lambda node, event: node.leading.propose(event),
    Flushed: lambda node, event: node.leading.flushed(event),
    FetchAsked: lambda node, event: node.leading.fetch_asked(event),
    FetchAbandoned: lambda node, event: node.leading.fetch_abandoned(event),
    SnapshotAsked: lambda node, event: node.leading.snapshot_asked(event),
    SnapshotStored: lambda node, event: node.leading.snapshot_stored(event),
    CleanUp: lambda node, event: node.leading.clean_up(event),
    FetchAnswered: lambda node, event: node.following.fetch_answered(event),
    SnapshotAnswered: lambda node, event: node.following.snapshot_answered(event),
    AskFailed: lambda node, event: node.following.ask_failed(event),
}
