"""The election requests of voters on the wire, both ways: Vote, BeginQuorumEpoch, EndQuorumEpoch.

Translation only; raft decides. As a server, a request becomes an event and raft's answer a
response; as a client, an effect becomes a request and the response an event.

Source: KafkaRaftClient.handle{Vote,BeginQuorumEpoch,EndQuorumEpoch}Request, RaftUtil; KIP-595,
KIP-853, KIP-996.
"""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import METADATA_TOPIC, NO_UUID
from ottla.base.ports import Clock
from ottla.broker.api.base import Answer, Context
from ottla.broker.ports import Sender
from ottla.host.kraft.quorum_peers import REQUEST_TIMEOUT_MS, ChannelPeers
from ottla.raft.effects import (
    RespondToEpoch,
    RespondToFetch,
    RespondToFetchSnapshot,
    RespondToVote,
    SendBeginEpoch,
    SendEndEpoch,
    SendVote,
)
from ottla.raft.events import (
    BeginEpochRequestReceived,
    EndEpochRequestReceived,
    EpochResponseReceived,
    Event,
    VoteFailed,
    VoteRequestReceived,
    VoteResponseReceived,
)
from ottla.raft.values import OffsetAndEpoch, ReplicaKey
from ottla.wire.messages import begin_quorum_epoch as begin_wire
from ottla.wire.messages import end_quorum_epoch as end_wire
from ottla.wire.messages import vote as vote_wire

VOTE_VERSION = 2
EPOCH_VERSION = 1
PARTITION = 0

Answered = RespondToFetch | RespondToFetchSnapshot | RespondToVote | RespondToEpoch
StepRaft = Callable[[Callable[[int], Event]], Answered | None]
"""Steps the member with the event for a token; returns its answer, None where it has stopped."""


# -- server --------------------------------------------------------------------------------------


class ElectionServer:
    """Handles the requests of candidates and leaders for one member."""

    def __init__(self, step: StepRaft, *, local_id: int, cluster_id: str) -> None:
        self._step = step
        self._local_id = local_id
        self._cluster_id = cluster_id

    def _refusal(self, request: Any, voter_id: int) -> Error:
        """Return why the request as a whole is refused, or NONE."""
        if request.cluster_id is not None and request.cluster_id != self._cluster_id:
            return Error.INCONSISTENT_CLUSTER_ID
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return Error.INVALID_REQUEST
        topic = request.topics[0]
        if topic.topic_name != METADATA_TOPIC or topic.partitions[0].partition_index != PARTITION:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if voter_id not in (-1, self._local_id):
            return Error.INVALID_VOTER_KEY
        return Error.NONE

    def vote(self, ctx: Context, request: vote_wire.VoteRequest) -> Answer:
        """Handle Vote."""
        error = self._refusal(request, request.voter_id)
        if error is not Error.NONE:
            return vote_wire.VoteResponse(error_code=error, topics=())
        requested = request.topics[0].partitions[0]
        answer = self._step(
            lambda token: VoteRequestReceived(
                token=token,
                candidate=ReplicaKey(requested.replica_id, requested.replica_directory_id),
                epoch=requested.replica_epoch,
                log_end=OffsetAndEpoch(requested.last_offset, requested.last_offset_epoch),
                pre_vote=requested.pre_vote,
                now_ms=ctx.monotonic_ms,
            )
        )
        if not isinstance(answer, RespondToVote):
            return vote_wire.VoteResponse(error_code=Error.BROKER_NOT_AVAILABLE, topics=())
        partition = vote_wire.ResponsePartitionData(
            partition_index=PARTITION,
            error_code=answer.error,
            leader_id=answer.leader_id,
            leader_epoch=answer.leader_epoch,
            vote_granted=answer.granted,
        )
        topic = vote_wire.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        return vote_wire.VoteResponse(error_code=Error.NONE, topics=(topic,))

    def begin_epoch(self, ctx: Context, request: begin_wire.BeginQuorumEpochRequest) -> Answer:
        """Handle BeginQuorumEpoch."""
        error = self._refusal(request, request.voter_id)
        if error is not Error.NONE:
            return begin_wire.BeginQuorumEpochResponse(error_code=error, topics=())
        requested = request.topics[0].partitions[0]
        answer = self._step(
            lambda token: BeginEpochRequestReceived(
                token=token,
                leader_id=requested.leader_id,
                leader_epoch=requested.leader_epoch,
                now_ms=ctx.monotonic_ms,
            )
        )
        return _epoch_response(begin_wire, begin_wire.BeginQuorumEpochResponse, answer)

    def end_epoch(self, ctx: Context, request: end_wire.EndQuorumEpochRequest) -> Answer:
        """Handle EndQuorumEpoch."""
        error = self._refusal(request, -1)
        if error is not Error.NONE:
            return end_wire.EndQuorumEpochResponse(error_code=error, topics=())
        requested = request.topics[0].partitions[0]
        preferred = tuple(each.candidate_id for each in requested.preferred_candidates)
        answer = self._step(
            lambda token: EndEpochRequestReceived(
                token=token,
                leader_id=requested.leader_id,
                leader_epoch=requested.leader_epoch,
                successors=preferred or requested.preferred_successors,
                now_ms=ctx.monotonic_ms,
            )
        )
        return _epoch_response(end_wire, end_wire.EndQuorumEpochResponse, answer)


def _epoch_response(wire: Any, response: Any, answer: Answered | None) -> Answer:
    """Return a Begin- or EndQuorumEpoch response; their fields have the same names."""
    if not isinstance(answer, RespondToEpoch):
        return response(error_code=Error.BROKER_NOT_AVAILABLE, topics=())
    partition = wire.ResponsePartitionData(
        partition_index=PARTITION,
        error_code=answer.error,
        leader_id=answer.leader_id,
        leader_epoch=answer.leader_epoch,
    )
    topic = wire.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return response(error_code=Error.NONE, topics=(topic,))


# -- client --------------------------------------------------------------------------------------


class VoterPeers(ChannelPeers):
    """A voter's requests to the others. See `ottla.host.kraft.quorum_driver.Peers`.

    `elections`: returns a voter's channel with a connection of its own: a fetch waits in the
    leader's purgatory, and a request behind it on the same connection would wait for it.
    """

    def __init__(
        self,
        fetching: Callable[[int], Sender],
        elections: Callable[[int], Sender],
        *,
        cluster_id: str,
        replica: ReplicaKey,
        clock: Clock,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        super().__init__(fetching, cluster_id=cluster_id, replica=replica, clock=clock)
        self._elections = elections
        self.unanswered = 0
        """Begin- and EndQuorumEpoch requests without a response yet."""
        self._timeout_ms = request_timeout_ms

    def send_vote(self, effect: SendVote, on_event: Callable[[Event], None]) -> None:
        """Send Vote."""
        partition = vote_wire.RequestPartitionData(
            partition_index=PARTITION,
            replica_epoch=effect.epoch,
            replica_id=self._replica.id,
            replica_directory_id=self._replica.directory_id,
            voter_directory_id=NO_UUID,
            last_offset_epoch=effect.log_end.epoch,
            last_offset=effect.log_end.offset,
            pre_vote=effect.pre_vote,
        )
        topic = vote_wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = vote_wire.VoteRequest(
            cluster_id=self._cluster_id, voter_id=effect.voter_id, topics=(topic,)
        )
        sent = self._elections(effect.voter_id).send(
            request, VOTE_VERSION, timeout_ms=self._timeout_ms
        )
        sent.then(lambda response: on_event(self._vote_event(effect, response)))

    def _vote_event(self, effect: SendVote, response: vote_wire.VoteResponse | ApiError) -> Event:
        partition = _only_partition(response)
        error = None if partition is None else _error(partition.error_code)
        if partition is None or error is None:
            return VoteFailed(
                voter_id=effect.voter_id,
                epoch=effect.epoch,
                pre_vote=effect.pre_vote,
                now_ms=self._clock.monotonic_ms(),
            )
        return VoteResponseReceived(
            voter_id=effect.voter_id,
            epoch=effect.epoch,
            pre_vote=effect.pre_vote,
            error=error,
            granted=partition.vote_granted,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.now_ms(),
        )

    def send_begin_epoch(self, effect: SendBeginEpoch, on_event: Callable[[Event], None]) -> None:
        """Send BeginQuorumEpoch."""
        partition = begin_wire.RequestPartitionData(
            partition_index=PARTITION, leader_id=self._replica.id, leader_epoch=effect.epoch
        )
        topic = begin_wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = begin_wire.BeginQuorumEpochRequest(
            cluster_id=self._cluster_id, voter_id=effect.voter_id, topics=(topic,)
        )
        self._send_epoch_request(effect.voter_id, request, on_event)

    def send_end_epoch(self, effect: SendEndEpoch, on_event: Callable[[Event], None]) -> None:
        """Send EndQuorumEpoch."""
        partition = end_wire.RequestPartitionData(
            partition_index=PARTITION,
            leader_id=self._replica.id,
            leader_epoch=effect.epoch,
            preferred_candidates=tuple(
                end_wire.ReplicaInfo(candidate_id=voter, candidate_directory_id=NO_UUID)
                for voter in effect.successors
            ),
        )
        topic = end_wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = end_wire.EndQuorumEpochRequest(cluster_id=self._cluster_id, topics=(topic,))
        self._send_epoch_request(effect.voter_id, request, on_event)

    def _send_epoch_request(
        self, voter_id: int, request: object, on_event: Callable[[Event], None]
    ) -> None:
        def answered(response: Any) -> None:
            self.unanswered -= 1
            partition = _only_partition(response)
            error = None if partition is None else _error(partition.error_code)
            if partition is not None and error is not None:
                on_event(
                    EpochResponseReceived(
                        error=error,
                        leader_id=partition.leader_id,
                        leader_epoch=partition.leader_epoch,
                        now_ms=self._clock.monotonic_ms(),
                    )
                )

        self.unanswered += 1
        sent = self._elections(voter_id).send(request, EPOCH_VERSION, timeout_ms=self._timeout_ms)
        sent.then(answered)


def _only_partition(response: Any) -> Any:
    """Return the metadata partition of a response; None where it has none."""
    if isinstance(response, ApiError) or response.error_code:
        return None
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        return None
    return response.topics[0].partitions[0]


def _error(code: int) -> Error | None:
    try:
        return Error(code)
    except ValueError:
        return None
