"""Elections: a voter's timeouts, its pre-votes and votes, and the requests for its own vote.

A voter whose fetch timeout ran out first sends pre-votes (KIP-996), so that a voter which was cut
off does not depose a leader that all others follow. With a majority of them it begins an epoch,
votes for itself and sends Vote requests. Its own vote, and every vote that it grants, is durable
before it is sent.

Source: KIP-595, KIP-996; KafkaRaftClient.handleVoteRequest, the `…State` classes of Kafka 4.
"""

from typing import TYPE_CHECKING

from ottla.base.errors import Error
from ottla.raft.effects import LeaderChanged, RespondToEpoch, RespondToVote, SendVote
from ottla.raft.election import NOBODY
from ottla.raft.events import (
    BeginEpochRequestReceived,
    EndEpochRequestReceived,
    EpochResponseReceived,
    VoteFailed,
    VoteRequestReceived,
    VoteResponseReceived,
)
from ottla.raft.roles import Cause, Role

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode

PRE_VOTE_RETRY_MS = 100
"""The pause before a pre-vote is sent again to a voter that refused it."""

CANDIDATE_ROLES = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class Candidate:
    """A voter's part in elections. Without effect in a member that cannot vote."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self.has_fetched_from_leader = False
        """Whether the leader of this epoch has answered a fetch of this member."""
        self.granted: set[int] = set()
        self._refused: set[int] = set()
        self._retry_at_ms: dict[int, int] = {}
        self._deadline_ms: int | None = None
        self._just_started = False
        """Whether it has neither followed a leader nor been a candidate since its start."""

    # -- time ----------------------------------------------------------------------------------

    def started(self) -> None:
        """Start with shorter timeouts: the leader from before the start may be long gone."""
        node = self._node
        self._just_started = True
        first_ms = (
            node.timing.first_election_ms
            if node.role is Role.UNATTACHED
            else node.timing.first_fetch_ms
        )
        self._deadline_ms = node.now_ms + first_ms(node.dice)

    def entered(self, role: Role) -> None:
        """Set the new role's timeout; a candidate sends its Vote requests."""
        node = self._node
        self.has_fetched_from_leader = False
        self.granted, self._refused, self._retry_at_ms = set(), set(), {}
        if role is Role.LEADER:
            self._deadline_ms = None
        elif role is Role.FOLLOWER:
            self._deadline_ms = node.now_ms + node.timing.fetch_ms(node.dice)
        elif role is Role.UNATTACHED and self._just_started:
            self._deadline_ms = node.now_ms + node.timing.first_election_ms(node.dice)
        else:
            self._deadline_ms = node.now_ms + node.timing.election_ms(node.dice)
        self._just_started = self._just_started and role in (Role.UNATTACHED, Role.RESIGNED)
        if role in CANDIDATE_ROLES:
            self.granted.add(node.local.id)
            for voter in node.others:
                self._send_vote(voter)

    def stop(self) -> None:
        """Take part in no election any more."""
        self._deadline_ms = None
        self._retry_at_ms = {}

    def leader_responded(self) -> None:
        """Restart the fetch timeout: the leader has answered a fetch."""
        node = self._node
        if node.elects:
            self.has_fetched_from_leader = True
            self._deadline_ms = node.now_ms + node.timing.fetch_ms(node.dice)

    def wake_at_ms(self) -> int | None:
        """Return the time of the role's timeout or of the next retry, whichever is first."""
        moments = list(self._retry_at_ms.values())
        if self._deadline_ms is not None:
            moments.append(self._deadline_ms)
        return min(moments, default=None)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            self._timed_out()
            return
        for voter, at_ms in sorted(self._retry_at_ms.items()):
            if at_ms <= now_ms:
                del self._retry_at_ms[voter]
                self._send_vote(voter)

    def _timed_out(self) -> None:
        node = self._node
        match node.role:
            case Role.PROSPECTIVE:
                self._end_pre_vote()
            case Role.RESIGNED:
                # It may vote and lead again in a new epoch, but never in the one it led.
                node.observe_leader(NOBODY, node.epoch + 1, Cause.TIMEOUT)
            case _:
                node.move(Cause.TIMEOUT)

    def _end_pre_vote(self) -> None:
        """Follow the old leader again, or become unattached."""
        known = self._node.leader_id != NOBODY
        self._node.move(Cause.LEADER_SEEN if known else Cause.NO_MAJORITY)

    # -- requesting votes ----------------------------------------------------------------------

    def _send_vote(self, voter: int) -> None:
        node = self._node
        node.effects.append(
            SendVote(
                voter_id=voter,
                epoch=node.epoch,
                pre_vote=node.role is Role.PROSPECTIVE,
                log_end=node.log.end,
            )
        )

    def _is_current_election(self, event: VoteResponseReceived | VoteFailed) -> bool:
        node = self._node
        expected = Role.PROSPECTIVE if event.pre_vote else Role.CANDIDATE
        return node.role is expected and event.epoch == node.epoch and event.voter_id in node.others

    def handle_vote_failure(self, event: VoteFailed) -> None:
        """Schedule a retry."""
        if self._is_current_election(event):
            self._retry_at_ms[event.voter_id] = event.now_ms + self._node.timing.retry_backoff_ms

    def handle_vote_response(self, event: VoteResponseReceived) -> None:
        """Count a vote; follow a leader or a later epoch that the response names."""
        node = self._node
        self._observe(event)
        if not self._is_current_election(event):
            return
        if event.error is not Error.NONE:
            self._retry_at_ms[event.voter_id] = event.now_ms + node.timing.retry_backoff_ms
            return
        if event.granted:
            self.granted.add(event.voter_id)
            self._refused.discard(event.voter_id)
        else:
            self._refused.add(event.voter_id)
            if event.pre_vote:
                # Its own fetch timeout has not run out yet; it may grant the pre-vote soon.
                self._retry_at_ms[event.voter_id] = event.now_ms + PRE_VOTE_RETRY_MS
        if len(self.granted) >= node.majority:
            self._won(event.wall_ms)
        elif len(self._refused) > len(node.voters) - node.majority:
            self._lost()

    def _observe(self, event: VoteResponseReceived | EpochResponseReceived) -> None:
        if event.leader_epoch >= self._node.epoch:
            self._node.observe_leader(event.leader_id, event.leader_epoch)

    def _won(self, wall_ms: int) -> None:
        node = self._node
        if node.role is Role.PROSPECTIVE:
            node.epoch += 1
            node.leader_id, node.voted_id = NOBODY, node.local.id
            node.store()
            node.effects.append(LeaderChanged(leader_id=NOBODY, epoch=node.epoch))
            node.move(Cause.PRE_VOTES_WON)
            return
        granting = tuple(sorted(self.granted))
        node.leader_id = node.local.id
        node.store()
        node.move(Cause.VOTES_WON)
        node.leader.begin(wall_ms, granting)
        node.effects.append(LeaderChanged(leader_id=node.leader_id, epoch=node.epoch))

    def _lost(self) -> None:
        node = self._node
        if node.role is Role.PROSPECTIVE:
            self._end_pre_vote()
            return
        pause_ms = node.timing.backoff_ms(node.dice)
        assert self._deadline_ms is not None
        self._deadline_ms = min(self._deadline_ms, node.now_ms + pause_ms)
        self._retry_at_ms = {}

    # -- requests for this voter's vote --------------------------------------------------------

    def handle_vote_request(self, event: VoteRequestReceived) -> None:
        """Grant or refuse a vote."""
        node = self._node
        error = self._check_vote(event)
        granted = False
        if error is Error.NONE:
            if event.epoch > node.epoch:
                node.observe_leader(NOBODY, event.epoch)
            granted = self.grants(event)
            if granted and not event.pre_vote:
                self._vote_for(event.candidate.id)
        node.effects.append(
            RespondToVote(
                token=event.token,
                error=error,
                granted=granted,
                leader_id=node.leader_id,
                leader_epoch=node.epoch,
            )
        )

    def _check_vote(self, event: VoteRequestReceived) -> Error:
        node = self._node
        last_epoch = event.log_end.epoch
        # A candidate's epoch is above its log's last epoch; a pre-vote's may be equal to it.
        ahead = last_epoch > event.epoch if event.pre_vote else last_epoch >= event.epoch
        if event.epoch < node.epoch:
            return Error.FENCED_LEADER_EPOCH
        if ahead or last_epoch < 0 or event.log_end.offset < 0:
            return Error.INVALID_REQUEST
        if not node.elects or event.candidate.id not in node.others:
            return Error.INCONSISTENT_VOTER_SET
        return Error.NONE

    def grants(self, event: VoteRequestReceived) -> bool:
        """Return whether this voter grants the vote or pre-vote."""
        node = self._node
        if node.role is Role.LEADER:
            return False
        up_to_date = event.log_end.rank >= node.log.end.rank
        if event.pre_vote:
            return up_to_date and not self.has_fetched_from_leader
        if node.role not in (Role.UNATTACHED, Role.PROSPECTIVE):
            return False
        if node.voted_id != NOBODY:
            return node.voted_id == event.candidate.id
        return node.leader_id == NOBODY and up_to_date

    def _vote_for(self, candidate_id: int) -> None:
        node = self._node
        if node.voted_id == candidate_id:
            return
        node.voted_id = candidate_id
        node.store()
        if node.role is Role.PROSPECTIVE:
            node.move(Cause.NO_MAJORITY)
        else:
            self.entered(node.role)

    # -- epochs --------------------------------------------------------------------------------

    def handle_begin_epoch_request(self, event: BeginEpochRequestReceived) -> None:
        """Follow the leader that sent BeginQuorumEpoch."""
        node = self._node
        error = self._check_leader(event)
        if error is Error.NONE:
            node.observe_leader(event.leader_id, event.leader_epoch)
            if node.role is Role.PROSPECTIVE and node.leader_id == event.leader_id:
                node.move(Cause.LEADER_SEEN)
        self._respond_to_epoch(event.token, error)

    def handle_end_epoch_request(self, event: EndEpochRequestReceived) -> None:
        """Stop following the leader; the first preferred successor starts its election first."""
        node = self._node
        error = self._check_leader(event)
        if error is Error.NONE:
            node.observe_leader(event.leader_id, event.leader_epoch)
            if node.role is Role.FOLLOWER and node.leader_id == event.leader_id:
                successors = event.successors
                place = successors.index(node.local.id) if node.local.id in successors else -1
                # The leader has resigned, so pre-votes for another one may be granted.
                self.has_fetched_from_leader = False
                self._deadline_ms = node.now_ms + node.timing.successor_ms(place, node.dice)
        self._respond_to_epoch(event.token, error)

    def _check_leader(self, event: BeginEpochRequestReceived | EndEpochRequestReceived) -> Error:
        node = self._node
        if event.leader_epoch < node.epoch:
            return Error.FENCED_LEADER_EPOCH
        if not node.elects or event.leader_id not in node.others:
            return Error.INCONSISTENT_VOTER_SET
        if event.leader_epoch == node.epoch and node.leader_id not in (NOBODY, event.leader_id):
            return Error.INVALID_REQUEST  # An epoch has one leader at most.
        return Error.NONE

    def _respond_to_epoch(self, token: int, error: Error) -> None:
        node = self._node
        node.effects.append(
            RespondToEpoch(
                token=token, error=error, leader_id=node.leader_id, leader_epoch=node.epoch
            )
        )

    def handle_epoch_response(self, event: EpochResponseReceived) -> None:
        """Take over a later epoch."""
        self._observe(event)
