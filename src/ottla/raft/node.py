"""One member of a metadata quorum, without sockets, disks or clocks: `step(event) -> Ready`.

Every event goes through `step`, which changes the member's state and returns the effects that
the host must run, in order (see `effects`). As in KIP-595: roles are `roles.TABLE`; epochs only
grow and are durable before anything depends on them; a leader begins its epoch with a LeaderChange
record; the high watermark only moves past a record of the leader's own epoch that a majority has,
durably.

Elections. A voter whose fetch timeout ran out first sends pre-votes (KIP-996), so that a voter
which was cut off does not depose a leader that all others follow. With a majority of them it begins
an epoch, votes for itself and sends Vote requests. Its own vote, and every vote that it grants, is
durable before it is sent.

Leader. Group commit: one flush is in progress at a time; batches appended meanwhile are covered by
the next one, so any number of proposals share a flush. Voters read to the end of the log, since
their copies commit records. Their delayed fetches are also answered when the high watermark moves:
a broker in the same process waits for it. Observers read to the high watermark only: they get
records and their commitment at once, and never have to truncate. Kafka does not distinguish them.

Follower. An observer fetches from its start on, from any voter while it knows no leader. A voter
fetches while it is a follower, and sends the next fetch only once its whole log is durable. One
request is in flight at a time; responses to requests of an earlier role are ignored. After a
failure the next request waits for a backoff, which doubles until the log has come closer to the
leader's. After a response the next fetch is sent at once, since the leader delays a fetch for which
it has no new records.

Not done: changes of the set of voters (KIP-853).

Sources: KIP-595, KIP-630, KIP-996; Kafka's KafkaRaftClient, QuorumState and its `…State` classes.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import Error
from ottla.base.ports import Dice
from ottla.raft.check_quorum import CheckQuorum
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
    Ready,
    RespondToEpoch,
    RespondToFetch,
    RespondToFetchSnapshot,
    RespondToVote,
    SendBeginEpoch,
    SendEndEpoch,
    SendFetch,
    SendFetchSnapshot,
    SendVote,
    StoreElection,
    TruncateLog,
    WriteSnapshot,
)
from ottla.raft.election import NOBODY, ElectionState
from ottla.raft.events import (
    ANY_SERIAL,
    NO_WATERMARK,
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
from ottla.raft.log_view import LogView, Valid, Verdict
from ottla.raft.progress import LeaderProgress
from ottla.raft.roles import OBSERVER_ROLES, Cause, Role, next_role
from ottla.raft.timing import NoDice, QuorumTiming
from ottla.raft.values import OffsetAndEpoch, ReplicaKey

PRE_VOTE_RETRY_MS = 100
"""The pause before a pre-vote is sent again to a voter that refused it."""

RETRY_BACKOFF_MS = 20
"""controller.quorum.retry.backoff.ms"""

RETRY_BACKOFF_MAX_MS = 1_000
assert RETRY_BACKOFF_MS <= RETRY_BACKOFF_MAX_MS

CANDIDATE_ROLES = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class CommittedDataLost(Exception):
    """The leader lacks committed records: its disk was lost or replaced."""


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
        self.flushing = Flushing(log)
        # The leader's state.
        self.progress: LeaderProgress | None = None
        self._check_quorum = CheckQuorum(self.others, self.majority, self.timing)
        self._delayed_fetches: dict[int, FetchRequestReceived] = {}
        self._sent_high_watermarks: dict[ReplicaKey, int] = {}
        # The follower's state.
        self._fetching = False
        self._fetch_in_flight = False
        self._fetch_serial = 0
        self._fetch_when_flushed = False
        self._fetch_retry_at_ms: int | None = None
        self._fetch_failures = 0
        self._snapshot: OffsetAndEpoch | None = None
        self._snapshot_position = 0
        self.fetched_high_watermark: int | None = None
        """The high watermark in this epoch's last fetch response; the own one may lag behind it."""
        # The state of a voter in elections.
        self.has_fetched_from_leader = False
        """Whether the leader of this epoch has answered a fetch of this member."""
        self._granted: set[int] = set()
        self._refused: set[int] = set()
        self._vote_retry_at_ms: dict[int, int] = {}
        self._deadline_ms: int | None = None
        self._just_started = False
        """Whether it has neither followed a leader nor been a candidate since its start."""

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
        return self.high_watermark if self.is_leader else self.fetched_high_watermark

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
        return Ready(effects, self._wake_at_ms())

    def _wake_at_ms(self) -> int | None:
        """Return the first deadline: of a delayed fetch, a role's timeout, a retry, …"""
        moments = [fetch.deadline_ms for fetch in self._delayed_fetches.values()]
        moments += self._vote_retry_at_ms.values()
        others = (self._check_quorum.wake_at_ms(), self._fetch_retry_at_ms, self._deadline_ms)
        moments += (at for at in others if at is not None)
        return min(moments, default=None)

    def _tick(self, event: Tick) -> None:
        self._tick_leader(event.now_ms)
        self._tick_follower(event.now_ms)
        self._tick_candidate(event.now_ms)

    def _flush(self) -> None:
        if self.flushing.begin():
            self.effects.append(FlushLog(end_offset=self.log.end_offset, epoch=self.epoch))

    def _flushed(self, event: Flushed) -> None:
        self.flushing.ended(event.end_offset)
        if self.is_leader:
            self._leader_flushed()
        else:
            self._follower_flushed()

    # -- roles -------------------------------------------------------------------------------------

    def _move(self, cause: Cause) -> None:
        """Change the role as the table says; a missing transition is a bug."""
        role = next_role(self.role, cause)
        assert role is not None, f"{cause} in role {self.role}"
        assert self.is_voter or role in OBSERVER_ROLES
        self._become(role)

    def _become(self, role: Role) -> None:
        """Enter a role: its fields, its timeout and its first requests, together."""
        self.role = role
        if not self.elects:
            return
        self._enter_role()
        if role is Role.FOLLOWER:
            self._start_fetching()
        else:
            self._stop_fetching()

    def _start(self, event: Start) -> None:
        if self.log.last_epoch > self.epoch:
            # The file was lost or is older than the log: no vote in the log's epoch is safe. None
            # can be requested either: that epoch had a leader, so it has no candidate.
            self.epoch, self.leader_id, self.voted_id = self.log.last_epoch, NOBODY, NOBODY
        if not self.is_voter:
            if self.leader_id != NOBODY:
                self._move(Cause.LEADER_SEEN)
            self._start_fetching()
            return
        led_before = self.leader_id == self.local.id
        if led_before:
            # It led this epoch and may have lost unflushed records: it must never lead it again.
            self.leader_id, self.voted_id = NOBODY, self.local.id
            self._move(Cause.RESIGN)
        if not self.elects:
            self._stand_for_election(event.wall_ms)
            return
        if self.leader_id in self.others:
            self._move(Cause.LEADER_SEEN)
        elif not led_before:
            if self.leader_id != NOBODY:
                # The leader is not a voter any more. The epoch had its leader: no vote in it.
                self.leader_id, self.voted_id = NOBODY, self.leader_id
            self._enter_role()
        self._started()

    def _stand_for_election(self, wall_ms: int) -> None:
        self._move(Cause.START_OVER)
        self.epoch += 1
        self.leader_id, self.voted_id = NOBODY, self.local.id
        self._store()
        # The only voter has its majority with its own vote.
        assert self.voters == (self.local.id,)
        self._move(Cause.VOTES_WON)
        self.leader_id = self.local.id
        self._store()
        self._begin_epoch(wall_ms, self.voters)
        self.effects.append(LeaderChanged(leader_id=self.leader_id, epoch=self.epoch))

    def _observe_leader(self, leader_id: int, epoch: int, cause: Cause | None = None) -> None:
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
        self._forget_snapshot()
        self.fetched_high_watermark = None
        self.epoch, self.leader_id = epoch, leader_id
        self._store()
        self._end_epoch()
        self.effects.append(LeaderChanged(leader_id=leader_id, epoch=epoch))
        self._move(cause or (Cause.NEW_EPOCH if leader_id == NOBODY else Cause.LEADER_SEEN))

    def _store(self) -> None:
        """Store the epoch, its leader and the own vote; with a leader there is no vote."""
        voted_id = self.voted_id if self.leader_id == NOBODY else NOBODY
        state = ElectionState(
            epoch=self.epoch, leader_id=self.leader_id, voted_id=voted_id, voters=self.voters
        )
        self.effects.append(StoreElection(state=state))

    def _give_up_leadership(self) -> None:
        """Resign in this epoch, and send EndQuorumEpoch."""
        self._send_end_epoch()
        self.leader_id = NOBODY
        self._end_epoch()
        self.effects.append(LeaderChanged(leader_id=NOBODY, epoch=self.epoch))
        self._move(Cause.RESIGN)

    def _resign(self, _event: Resign) -> None:
        if self.is_leader:
            self._give_up_leadership()
        self._stop_fetching()
        self._stop_elections()

    # -- elections: timeouts -----------------------------------------------------------------------

    def _started(self) -> None:
        """Start with shorter timeouts: the leader from before the start may be long gone."""
        self._just_started = True
        first_ms = (
            self.timing.first_election_ms
            if self.role is Role.UNATTACHED
            else self.timing.first_fetch_ms
        )
        self._deadline_ms = self.now_ms + first_ms(self.dice)

    def _enter_role(self) -> None:
        """Set the role's timeout; a candidate sends its Vote requests."""
        role = self.role
        self.has_fetched_from_leader = False
        self._granted, self._refused, self._vote_retry_at_ms = set(), set(), {}
        if role is Role.LEADER:
            self._deadline_ms = None
        elif role is Role.FOLLOWER:
            self._deadline_ms = self.now_ms + self.timing.fetch_ms(self.dice)
        elif role is Role.UNATTACHED and self._just_started:
            self._deadline_ms = self.now_ms + self.timing.first_election_ms(self.dice)
        else:
            self._deadline_ms = self.now_ms + self.timing.election_ms(self.dice)
        self._just_started = self._just_started and role in (Role.UNATTACHED, Role.RESIGNED)
        if role in CANDIDATE_ROLES:
            self._granted.add(self.local.id)
            for voter in self.others:
                self._send_vote(voter)

    def _stop_elections(self) -> None:
        """Take part in no election any more."""
        self._deadline_ms = None
        self._vote_retry_at_ms = {}

    def _leader_responded(self) -> None:
        """Restart the fetch timeout: the leader has answered a fetch."""
        if self.elects:
            self.has_fetched_from_leader = True
            self._deadline_ms = self.now_ms + self.timing.fetch_ms(self.dice)

    def _tick_candidate(self, now_ms: int) -> None:
        """Do what is due."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._timed_out()
            return
        for voter, at_ms in sorted(self._vote_retry_at_ms.items()):
            if at_ms <= now_ms:
                del self._vote_retry_at_ms[voter]
                self._send_vote(voter)

    def _timed_out(self) -> None:
        match self.role:
            case Role.PROSPECTIVE:
                self._end_pre_vote()
            case Role.RESIGNED:
                # It may vote and lead again in a new epoch, but never in the one it led.
                self._observe_leader(NOBODY, self.epoch + 1, Cause.TIMEOUT)
            case _:
                self._move(Cause.TIMEOUT)

    def _end_pre_vote(self) -> None:
        """Follow the old leader again, or become unattached."""
        known = self.leader_id != NOBODY
        self._move(Cause.LEADER_SEEN if known else Cause.NO_MAJORITY)

    # -- elections: requesting votes ---------------------------------------------------------------

    def _send_vote(self, voter: int) -> None:
        self.effects.append(
            SendVote(
                voter_id=voter,
                epoch=self.epoch,
                pre_vote=self.role is Role.PROSPECTIVE,
                log_end=self.log.end,
            )
        )

    def _is_current_election(self, event: VoteResponseReceived | VoteFailed) -> bool:
        expected = Role.PROSPECTIVE if event.pre_vote else Role.CANDIDATE
        return self.role is expected and event.epoch == self.epoch and event.voter_id in self.others

    def _handle_vote_failure(self, event: VoteFailed) -> None:
        """Schedule a retry."""
        if self._is_current_election(event):
            self._vote_retry_at_ms[event.voter_id] = event.now_ms + self.timing.retry_backoff_ms

    def _handle_vote_response(self, event: VoteResponseReceived) -> None:
        """Count a vote; follow a leader or a later epoch that the response names."""
        self._observe(event)
        if not self._is_current_election(event):
            return
        if event.error is not Error.NONE:
            self._vote_retry_at_ms[event.voter_id] = event.now_ms + self.timing.retry_backoff_ms
            return
        if event.granted:
            self._granted.add(event.voter_id)
            self._refused.discard(event.voter_id)
        else:
            self._refused.add(event.voter_id)
            if event.pre_vote:
                # Its own fetch timeout has not run out yet; it may grant the pre-vote soon.
                self._vote_retry_at_ms[event.voter_id] = event.now_ms + PRE_VOTE_RETRY_MS
        if len(self._granted) >= self.majority:
            self._won(event.wall_ms)
        elif len(self._refused) > len(self.voters) - self.majority:
            self._lost()

    def _observe(self, event: VoteResponseReceived | EpochResponseReceived) -> None:
        if event.leader_epoch >= self.epoch:
            self._observe_leader(event.leader_id, event.leader_epoch)

    def _won(self, wall_ms: int) -> None:
        if self.role is Role.PROSPECTIVE:
            self.epoch += 1
            self.leader_id, self.voted_id = NOBODY, self.local.id
            self._store()
            self.effects.append(LeaderChanged(leader_id=NOBODY, epoch=self.epoch))
            self._move(Cause.PRE_VOTES_WON)
            return
        granting = tuple(sorted(self._granted))
        self.leader_id = self.local.id
        self._store()
        self._move(Cause.VOTES_WON)
        self._begin_epoch(wall_ms, granting)
        self.effects.append(LeaderChanged(leader_id=self.leader_id, epoch=self.epoch))

    def _lost(self) -> None:
        if self.role is Role.PROSPECTIVE:
            self._end_pre_vote()
            return
        pause_ms = self.timing.backoff_ms(self.dice)
        assert self._deadline_ms is not None
        self._deadline_ms = min(self._deadline_ms, self.now_ms + pause_ms)
        self._vote_retry_at_ms = {}

    # -- elections: requests for this voter's vote -------------------------------------------------

    def _handle_vote_request(self, event: VoteRequestReceived) -> None:
        """Grant or refuse a vote."""
        error = self._check_vote(event)
        granted = False
        if error is Error.NONE:
            if event.epoch > self.epoch:
                self._observe_leader(NOBODY, event.epoch)
            granted = self.grants(event)
            if granted and not event.pre_vote:
                self._vote_for(event.candidate.id)
        self.effects.append(
            RespondToVote(
                token=event.token,
                error=error,
                granted=granted,
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
            )
        )

    def _check_vote(self, event: VoteRequestReceived) -> Error:
        last_epoch = event.log_end.epoch
        # A candidate's epoch is above its log's last epoch; a pre-vote's may be equal to it.
        ahead = last_epoch > event.epoch if event.pre_vote else last_epoch >= event.epoch
        if event.epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        if ahead or last_epoch < 0 or event.log_end.offset < 0:
            return Error.INVALID_REQUEST
        if not self.elects or event.candidate.id not in self.others:
            return Error.INCONSISTENT_VOTER_SET
        return Error.NONE

    def grants(self, event: VoteRequestReceived) -> bool:
        """Return whether this voter grants the vote or pre-vote."""
        if self.role is Role.LEADER:
            return False
        up_to_date = event.log_end.rank >= self.log.end.rank
        if event.pre_vote:
            return up_to_date and not self.has_fetched_from_leader
        if self.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
            return False
        if self.voted_id != NOBODY:
            return self.voted_id == event.candidate.id
        return self.leader_id == NOBODY and up_to_date

    def _vote_for(self, candidate_id: int) -> None:
        if self.voted_id == candidate_id:
            return
        self.voted_id = candidate_id
        self._store()
        if self.role is Role.PROSPECTIVE:
            self._move(Cause.NO_MAJORITY)
        else:
            self._enter_role()

    # -- elections: epochs of peers ----------------------------------------------------------------

    def _handle_begin_epoch_request(self, event: BeginEpochRequestReceived) -> None:
        """Follow the leader that sent BeginQuorumEpoch."""
        error = self._check_leader(event)
        if error is Error.NONE:
            self._observe_leader(event.leader_id, event.leader_epoch)
            if self.role is Role.PROSPECTIVE and self.leader_id == event.leader_id:
                self._move(Cause.LEADER_SEEN)
        self._respond_to_epoch(event.token, error)

    def _handle_end_epoch_request(self, event: EndEpochRequestReceived) -> None:
        """Stop following the leader; the first preferred successor starts its election first."""
        error = self._check_leader(event)
        if error is Error.NONE:
            self._observe_leader(event.leader_id, event.leader_epoch)
            if self.role is Role.FOLLOWER and self.leader_id == event.leader_id:
                successors = event.successors
                place = successors.index(self.local.id) if self.local.id in successors else -1
                # The leader has resigned, so pre-votes for another one may be granted.
                self.has_fetched_from_leader = False
                self._deadline_ms = self.now_ms + self.timing.successor_ms(place, self.dice)
        self._respond_to_epoch(event.token, error)

    def _check_leader(self, event: BeginEpochRequestReceived | EndEpochRequestReceived) -> Error:
        if event.leader_epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        if not self.elects or event.leader_id not in self.others:
            return Error.INCONSISTENT_VOTER_SET
        if event.leader_epoch == self.epoch and self.leader_id not in (NOBODY, event.leader_id):
            return Error.INVALID_REQUEST  # An epoch has one leader at most.
        return Error.NONE

    def _respond_to_epoch(self, token: int, error: Error) -> None:
        self.effects.append(
            RespondToEpoch(
                token=token, error=error, leader_id=self.leader_id, leader_epoch=self.epoch
            )
        )

    def _handle_epoch_response(self, event: EpochResponseReceived) -> None:
        """Take over a later epoch."""
        self._observe(event)

    # -- leader ------------------------------------------------------------------------------------

    def _begin_epoch(self, wall_ms: int, granting_voters: tuple[int, ...]) -> None:
        """Begin the epoch of the election just won."""
        self._sent_high_watermarks = {}
        base_offset = self.log.end_offset
        self.progress = LeaderProgress(
            local_id=self.local.id, voters=self.voters, epoch_start_offset=base_offset
        )
        self.effects.append(
            AppendLeaderChange(
                base_offset=base_offset,
                epoch=self.epoch,
                leader_id=self.local.id,
                voters=self.voters,
                granting_voters=granting_voters,
                wall_ms=wall_ms,
            )
        )
        self.log.appended(base_offset=base_offset, next_offset=base_offset + 1, epoch=self.epoch)
        self._flush()
        if self.elects:
            self._check_quorum.begin(self.now_ms)
            self._announce_epoch()

    def _end_epoch(self) -> None:
        """Stop leading: delayed fetches are answered NOT_LEADER_OR_FOLLOWER."""
        self.progress = None
        self._check_quorum.end()
        delayed, self._delayed_fetches = self._delayed_fetches, {}
        for fetch in delayed.values():
            self._refuse_fetch(fetch, Error.NOT_LEADER_OR_FOLLOWER)

    def _announce_epoch(self) -> None:
        for voter in self._check_quorum.announce(self.now_ms):
            self.effects.append(SendBeginEpoch(voter_id=voter, epoch=self.epoch))

    def _send_end_epoch(self) -> None:
        """Send EndQuorumEpoch to all voters, successors with the longest log first."""
        assert self.progress is not None
        progress = self.progress.voters
        successors = sorted(self.others, key=lambda voter: (-progress[voter].end_offset, voter))
        for voter in self.others:
            self.effects.append(
                SendEndEpoch(voter_id=voter, epoch=self.epoch, successors=tuple(successors))
            )

    def _propose(self, event: Propose) -> None:
        """Append one batch."""
        assert self.is_leader, "only a leader's state machine proposes"
        assert event.values
        base_offset = self.log.end_offset
        next_offset = base_offset + len(event.values)
        self.effects.append(
            AppendRecords(
                base_offset=base_offset,
                epoch=self.epoch,
                values=event.values,
                wall_ms=event.wall_ms,
            )
        )
        self.log.appended(base_offset=base_offset, next_offset=next_offset, epoch=self.epoch)
        self._flush()
        self._complete_fetches()

    def _leader_flushed(self) -> None:
        """Advance the leader's own end offset, and commit what a majority has."""
        assert self.progress is not None
        self.progress.flushed_to(self.flushing.flushed_to)
        self._commit_majority()
        self._flush()

    def _commit_majority(self) -> None:
        assert self.progress is not None
        offset = self.progress.advance()
        if offset is None:
            return
        assert self.high_watermark is None or offset > self.high_watermark
        self.high_watermark = offset
        self.effects.append(AdvanceHighWatermark(offset=offset))
        self._complete_fetches()

    def _complete_fetches(self) -> None:
        for fetch in list(self._delayed_fetches.values()):
            if self._can_complete(fetch):
                del self._delayed_fetches[fetch.token]
                self._respond_to_fetch(fetch, Valid())

    def _can_complete(self, fetch: FetchRequestReceived) -> bool:
        if self._readable_end(fetch) > fetch.fetch_offset:
            return True
        if fetch.replica.id not in self.voters:
            return False
        return _or_unknown(self.high_watermark) > self._sent_high_watermarks.get(
            fetch.replica, NO_WATERMARK
        )

    # -- leader: responses to replicas -------------------------------------------------------------

    def _handle_fetch_request(self, event: FetchRequestReceived) -> None:
        """Answer a replica's fetch, or delay it until there are new records."""
        error = self._check_leader_epoch(event.leader_epoch)
        if error is not Error.NONE:
            self._refuse_fetch(event, error)
            return
        if event.fetch_offset < 0 or event.last_fetched_epoch > event.leader_epoch:
            self._refuse_fetch(event, Error.INVALID_REQUEST)
            return
        verdict = self.log.validate_offset_and_epoch(event.fetch_offset, event.last_fetched_epoch)
        self._check_quorum.fetched(event.replica.id, self.now_ms)
        if isinstance(verdict, Valid):
            self._note_progress(event)
            if not self._can_complete(event) and event.deadline_ms > event.now_ms:
                self._delayed_fetches[event.token] = event
                return
        self._respond_to_fetch(event, verdict)

    def _note_progress(self, event: FetchRequestReceived) -> None:
        assert self.progress is not None
        self.progress.fetched(
            event.replica,
            offset=event.fetch_offset,
            leader_end=self._readable_end(event),
            wall_ms=event.wall_ms,
        )
        if event.replica.id in self.voters:
            self._commit_majority()

    def _readable_end(self, event: FetchRequestReceived) -> int:
        """Return the end of the records that this replica may read."""
        if event.replica.id in self.voters:
            return self.log.end_offset
        return self.high_watermark or 0

    def _check_leader_epoch(self, leader_epoch: int) -> Error:
        if leader_epoch < self.epoch:
            return Error.FENCED_LEADER_EPOCH
        if leader_epoch > self.epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        return Error.NONE if self.is_leader else Error.NOT_LEADER_OR_FOLLOWER

    def _refuse_fetch(self, fetch: FetchRequestReceived, error: Error) -> None:
        self.effects.append(
            RespondToFetch(
                token=fetch.token,
                error=error,
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                high_watermark=NO_WATERMARK,
            )
        )

    def _respond_to_fetch(self, fetch: FetchRequestReceived, verdict: Verdict) -> None:
        start = fetch.fetch_offset if isinstance(verdict, Valid) else 0
        end = max(start, self._readable_end(fetch)) if isinstance(verdict, Valid) else 0
        if fetch.replica.id in self.voters and isinstance(verdict, Valid):
            self._sent_high_watermarks[fetch.replica] = _or_unknown(self.high_watermark)
        self.effects.append(
            RespondToFetch(
                token=fetch.token,
                error=Error.NONE,
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                high_watermark=_or_unknown(self.high_watermark),
                verdict=verdict,
                start=start,
                end=end,
            )
        )

    def _drop_fetch(self, event: FetchAbandoned) -> None:
        """Drop a delayed fetch; it may have been answered already."""
        self._delayed_fetches.pop(event.token, None)

    def _handle_snapshot_request(self, event: SnapshotRequestReceived) -> None:
        """Answer FetchSnapshot: an error unless this member leads and has the snapshot."""
        error = self._check_leader_epoch(event.leader_epoch)
        if error is Error.NONE:
            # A voter that loads a long snapshot sends no Fetch meanwhile. If this did not count, a
            # leader that has no other follower would resign, and the download would start over.
            self._check_quorum.fetched(event.replica.id, self.now_ms)
            if event.snapshot not in self.log.snapshots:
                error = Error.SNAPSHOT_NOT_FOUND
        self.effects.append(
            RespondToFetchSnapshot(
                token=event.token,
                error=error,
                leader_id=self.leader_id,
                leader_epoch=self.epoch,
                snapshot=event.snapshot,
            )
        )

    def _tick_leader(self, now_ms: int) -> None:
        """Resign without a quorum, or announce the epoch; answer expired delayed fetches."""
        if self._check_quorum.is_lost(now_ms):
            self._give_up_leadership()
        elif self._check_quorum.is_announcement_due(now_ms):
            self._announce_epoch()
        for fetch in list(self._delayed_fetches.values()):
            if fetch.deadline_ms <= now_ms:
                del self._delayed_fetches[fetch.token]
                self._respond_to_fetch(fetch, Valid())

    # -- leader: snapshots -------------------------------------------------------------------------

    def _snapshot_stored(self, event: SnapshotStored) -> None:
        """Add a snapshot that this member has written of its committed state."""
        assert self.high_watermark is not None
        assert event.snapshot.offset <= self.high_watermark, "only what is committed"
        self.log.snapshot_stored(event.snapshot)

    def _clean_up(self, event: CleanUp) -> None:
        """Delete the log before a snapshot, and older snapshots."""
        log = self.log
        if event.snapshot not in log.snapshots or event.snapshot.offset > log.end_offset:
            return
        if event.snapshot.offset <= log.start_offset and log.snapshots[0] == event.snapshot:
            return
        log.prefix_deleted(event.snapshot)
        self.effects.append(DeletePrefix(snapshot=event.snapshot))

    # -- follower ----------------------------------------------------------------------------------

    def _start_fetching(self) -> None:
        """Start to fetch."""
        self._stop_fetching()
        self._fetching = True
        self._fetch_failures = 0
        self._send_fetch()

    def _stop_fetching(self) -> None:
        """Stop fetching; a response that comes later is ignored."""
        self._fetching = self._fetch_in_flight = self._fetch_when_flushed = False
        self._fetch_retry_at_ms = None
        self._fetch_serial += 1
        self._forget_snapshot()

    def _follower_flushed(self) -> None:
        """Send the fetch that waited for the flush."""
        if not self.flushing.is_done:
            if self._fetch_when_flushed:
                self._flush()
        elif self._fetch_when_flushed:
            self._send_fetch()

    def _forget_snapshot(self) -> None:
        """Drop a snapshot that is being fetched: another leader may have other ones."""
        self._snapshot = None

    def _tick_follower(self, now_ms: int) -> None:
        """Retry when the backoff is over."""
        if self._fetch_retry_at_ms is not None and self._fetch_retry_at_ms <= now_ms:
            self._send_fetch()

    def _send_fetch(self) -> None:
        if not self._fetching:
            return
        assert not self._fetch_in_flight
        self._fetch_retry_at_ms = None
        self._fetch_when_flushed = self.elects and not self.flushing.is_done
        if self._fetch_when_flushed:
            self._flush()
            return
        self._fetch_in_flight = True
        self._fetch_serial += 1
        if self._snapshot is not None:
            self.effects.append(
                SendFetchSnapshot(
                    leader_id=self.leader_id,
                    leader_epoch=self.epoch,
                    snapshot=self._snapshot,
                    position=self._snapshot_position,
                    serial=self._fetch_serial,
                )
            )
            return
        self.effects.append(
            SendFetch(
                leader_id=self._fetch_target(),
                leader_epoch=self.epoch,
                fetch_offset=self.log.end_offset,
                last_fetched_epoch=self.log.last_epoch,
                serial=self._fetch_serial,
            )
        )

    def _fetch_target(self) -> int:
        """Return the leader; after a failure an observer tries one voter after another.

        Also where the voters are not known: where to find the leader is not known either.
        """
        if not self.is_voter and len(self.voters) != 1 and self._fetch_failures > 0:
            return NOBODY
        return self.leader_id

    def _is_stale(
        self, event: FetchResponseReceived | SnapshotResponseReceived | FetchFailed
    ) -> bool:
        return not self._fetch_in_flight or event.serial not in (ANY_SERIAL, self._fetch_serial)

    def _retry_fetch_later(self, now_ms: int) -> None:
        delay_ms = min(RETRY_BACKOFF_MS << min(self._fetch_failures, 16), RETRY_BACKOFF_MAX_MS)
        self._fetch_failures += 1
        self._fetch_retry_at_ms = now_ms + delay_ms

    def _handle_fetch_failure(self, event: FetchFailed) -> None:
        """Schedule a retry."""
        if self._is_stale(event):
            return
        self._fetch_in_flight = False
        self._retry_fetch_later(event.now_ms)

    def _is_from_leader(self, event: FetchResponseReceived | SnapshotResponseReceived) -> bool:
        """Take over the response's leader and epoch; return whether to use its content."""
        if self._is_stale(event):
            return False
        self._fetch_in_flight = False
        if event.leader_epoch < self.epoch:
            self._retry_fetch_later(event.now_ms)
            return False
        was = (self.epoch, self.leader_id)
        self._observe_leader(event.leader_id, event.leader_epoch)
        if self.elects and (self.epoch, self.leader_id) != was:
            return False  # A new role has begun and sends its own requests.
        if event.error is Error.NONE and self.role is Role.FOLLOWER:
            self._leader_responded()
            return True
        if (self.epoch, self.leader_id) != was and self.role is Role.FOLLOWER:
            self._fetch_failures = 0  # The response named the leader: fetch from it at once.
            self._send_fetch()
        else:
            self._retry_fetch_later(event.now_ms)
        return False

    def _handle_fetch_response(self, event: FetchResponseReceived) -> None:
        """Bring the log closer to the leader's."""
        if not self._is_from_leader(event):
            return
        if event.diverging is not None:
            self._truncate(event.diverging)
        elif event.snapshot is not None:
            self._snapshot, self._snapshot_position = event.snapshot, 0
        elif self._fits(event):
            self._append_fetched(event)
            self._follow_high_watermark(event.high_watermark)
        else:
            self._retry_fetch_later(event.now_ms)
            return
        if self._snapshot is None:
            # What is fetched of a snapshot may have to be dropped, again and again.
            self._fetch_failures = 0
        self._send_fetch()

    def _truncate(self, leader_end: OffsetAndEpoch) -> None:
        offset = self.log.truncation_point(leader_end)
        if offset < max(self.high_watermark or 0, self.log.start_offset):
            raise CommittedDataLost(
                f"the log of leader {self.leader_id} of epoch {self.epoch} diverges from this "
                f"node's at offset {offset}, below the high watermark {self.high_watermark}"
            )
        self.log.truncated_to(offset)
        self.flushing.truncated_to(offset)
        self.effects.append(TruncateLog(offset=offset))

    def _fits(self, event: FetchResponseReceived) -> bool:
        """Return whether the batches continue the log, with epochs that do not decrease."""
        log = self.log
        offset, epoch = log.end_offset, log.last_epoch
        for span in event.batches:
            if span.base_offset != offset or span.next_offset <= offset:
                return False
            if not epoch <= span.epoch <= self.epoch:
                return False
            offset, epoch = span.next_offset, span.epoch
        return True

    def _append_fetched(self, event: FetchResponseReceived) -> None:
        log = self.log
        for span in event.batches:
            log.appended(
                base_offset=span.base_offset, next_offset=span.next_offset, epoch=span.epoch
            )
        if event.batches:
            self.effects.append(AppendFetched(data=event.data, next_offset=log.end_offset))

    def _follow_high_watermark(self, leaders_high_watermark: int) -> None:
        if leaders_high_watermark >= 0:
            self.fetched_high_watermark = leaders_high_watermark
        offset = min(leaders_high_watermark, self.log.end_offset)
        if offset >= 0 and offset > (-1 if self.high_watermark is None else self.high_watermark):
            self.high_watermark = offset
            self.effects.append(AdvanceHighWatermark(offset=offset))

    def _handle_snapshot_response(self, event: SnapshotResponseReceived) -> None:
        """Write the chunk; after the last one load the snapshot."""
        if not self._is_from_leader(event):
            # It may be deleted or damaged: the next fetch returns the current one.
            if event.error is not Error.NONE:
                self._forget_snapshot()
            return
        expected = (self._snapshot, self._snapshot_position)
        whole = event.position + len(event.data)
        if (event.snapshot, event.position) != expected or whole > event.size or not event.data:
            self._forget_snapshot()
            self._retry_fetch_later(event.now_ms)
            return
        self.effects.append(
            WriteSnapshot(snapshot=event.snapshot, position=event.position, data=event.data)
        )
        self._snapshot_position = whole
        if whole == event.size:
            self._adopt_snapshot(event.snapshot)
        self._send_fetch()

    def _adopt_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        self._snapshot = None
        if snapshot.offset < (self.high_watermark or 0):
            raise CommittedDataLost(
                f"the leader {self.leader_id} of epoch {self.epoch} has a snapshot up to offset "
                f"{snapshot.offset}, below the high watermark {self.high_watermark}"
            )
        self._fetch_failures = 0
        self.log.restarted_at(snapshot)
        self.flushing.restarted_at(snapshot.offset)
        self.effects.append(AdoptSnapshot(snapshot=snapshot))
        if self.high_watermark is None or snapshot.offset > self.high_watermark:
            self.high_watermark = snapshot.offset
            self.effects.append(AdvanceHighWatermark(offset=snapshot.offset))


_HANDLERS: dict[type, Callable[[RaftNode, Any], None]] = {
    Start: RaftNode._start,
    Tick: RaftNode._tick,
    Resign: RaftNode._resign,
    Propose: RaftNode._propose,
    Flushed: RaftNode._flushed,
    FetchRequestReceived: RaftNode._handle_fetch_request,
    FetchAbandoned: RaftNode._drop_fetch,
    SnapshotRequestReceived: RaftNode._handle_snapshot_request,
    SnapshotStored: RaftNode._snapshot_stored,
    CleanUp: RaftNode._clean_up,
    FetchResponseReceived: RaftNode._handle_fetch_response,
    SnapshotResponseReceived: RaftNode._handle_snapshot_response,
    FetchFailed: RaftNode._handle_fetch_failure,
    VoteRequestReceived: RaftNode._handle_vote_request,
    VoteResponseReceived: RaftNode._handle_vote_response,
    VoteFailed: RaftNode._handle_vote_failure,
    BeginEpochRequestReceived: RaftNode._handle_begin_epoch_request,
    EndEpochRequestReceived: RaftNode._handle_end_epoch_request,
    EpochResponseReceived: RaftNode._handle_epoch_response,
}


def _or_unknown(high_watermark: int | None) -> int:
    return NO_WATERMARK if high_watermark is None else high_watermark
