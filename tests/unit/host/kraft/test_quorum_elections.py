"""Three controllers: elections on the wire, standbys, a leader that is cut off.

Method: real runtimes, drivers, storages and codecs on fake disks and time; a request is answered
at once, or not at all where the link is cut.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import METADATA_TOPIC
from ottla.base.pending import Pending
from ottla.host.kraft.metadata_follower import LocalFollower
from ottla.host.kraft.quorum_driver import QuorumLinks
from ottla.host.kraft.quorum_elections import VoterPeers
from ottla.raft.values import ReplicaKey
from ottla.wire.codec import decode, encode
from ottla.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from tests.unit.host.harness import CLUSTER_ID, Dice, Harness, a_connection
from tests.unit.host.quorum_harness import Controller, a_topic

VOTERS = (1, 2, 3)
HANDLERS: dict[type, tuple[str, type]] = {
    vote.VoteRequest: ("vote", vote.VoteResponse),
    begin_quorum_epoch.BeginQuorumEpochRequest: (
        "begin_epoch",
        begin_quorum_epoch.BeginQuorumEpochResponse,
    ),
    end_quorum_epoch.EndQuorumEpochRequest: ("end_epoch", end_quorum_epoch.EndQuorumEpochResponse),
    fetch.FetchRequest: ("fetch", fetch.FetchResponse),
    fetch_snapshot.FetchSnapshotRequest: ("fetch_snapshot", fetch_snapshot.FetchSnapshotResponse),
}


class Room:
    """The controllers and the links between them."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.cut: set[int] = set()
        self.failures: list[str] = []
        self.voters: dict[int, Controller] = {}
        for node_id in VOTERS:
            self.boot(node_id)

    def boot(self, node_id: int) -> None:
        peers = VoterPeers(
            lambda voter: Line(self, node_id, voter),
            lambda voter: Line(self, node_id, voter),
            cluster_id=CLUSTER_ID,
            replica=ReplicaKey(node_id),
            clock=self.harness.clock,
        )
        self.voters[node_id] = Controller(
            self.harness,
            node_id=node_id,
            voters=VOTERS,
            directory=f"/controller-{node_id}",
            idle_interval_ms=500,
            links=QuorumLinks(peers=peers, dice=Dice(node_id)),
            failures=self.failures,
        )

    def leader(self) -> Controller:
        (found,) = [each for each in self.voters.values() if each.runtime.active]
        return found

    def elected(self) -> Controller:
        self.harness.advance(10_000)
        return self.leader()

    def serve(self, source: int, to: int, request: Any, version: int) -> Any:
        if source in self.cut or to in self.cut or to not in self.voters:
            return Pending[Any]()
        name, response = HANDLERS[type(request)]
        request = decode(type(request), encode(request, version), version)
        ctx = self.harness.context(version=version, connection=a_connection(f"{source}-{to}"))
        answer = getattr(self.voters[to].log.quorum, name)(ctx, request)
        if isinstance(answer, Pending):
            return answer.map(lambda value: decode(response, encode(value, version), version))
        return decode(response, encode(answer, version), version)


class Line:
    """A channel from one controller to another; answers come as tasks of their own."""

    def __init__(self, room: Room, source: int, to: int) -> None:
        self.room, self.source, self.to = room, source, to

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        harness, answer = self.room.harness, Pending[Any]()

        def ask() -> None:
            outcome = self.room.serve(self.source, self.to, request, version)
            if isinstance(outcome, Pending):
                outcome.then(later)
            else:
                later(outcome)

        def later(value: Any) -> None:
            harness.timers.at(harness.clock.monotonic_ms() + 1, lambda: arrive(value))

        def arrive(value: Any) -> None:
            if not self.room.cut & {self.source, self.to}:
                answer.complete(value)

        def give_up() -> None:
            answer.complete(ApiError(Error.REQUEST_TIMED_OUT, "no answer"))

        now_ms = harness.clock.monotonic_ms()
        harness.timers.at(now_ms + 1, ask)
        harness.timers.at(now_ms + timeout_ms, give_up)
        return answer


def write(voter: Controller, number: int) -> Any:
    return voter.write(a_topic(number))


def test_one_of_three_leads_and_all_publish_what_it_commits() -> None:
    room = Room()
    leader = room.elected()
    answer = write(leader, 1)
    assert not answer.done, "nobody else has it yet"
    room.harness.advance(100)
    assert answer.value == "done"
    for voter in room.voters.values():
        assert voter.runtime.committed_image.topics.by_name("topic-1") is not None
        assert voter.log.leader_id == leader.node_id
    assert sum(each.activations for each in room.voters.values()) == 1
    assert room.failures == []


def test_a_standby_rejects_decisions_and_returns_the_leader() -> None:
    room = Room()
    leader = room.elected()
    standby = next(each for each in room.voters.values() if each is not leader)
    refused = write(standby, 1).value
    assert isinstance(refused, ApiError)
    assert refused.error is Error.NOT_CONTROLLER
    assert standby.log.leader_id == leader.node_id


def test_a_leader_that_is_cut_off_resigns_and_what_it_wrote_alone_is_gone() -> None:
    room = Room()
    old = room.elected()
    kept = write(old, 1)
    room.harness.advance(100)
    assert kept.value == "done"
    room.cut = {old.node_id}
    alone = write(old, 2)
    room.harness.advance(10_000)
    refused = alone.value
    assert isinstance(refused, ApiError)
    assert refused.error is Error.NOT_CONTROLLER
    assert not old.runtime.active
    assert old.runtime.image.topics.by_name("topic-2") is None, "the committed image counts"
    new = room.leader()
    assert new is not old
    after = write(new, 3)
    room.harness.advance(100)
    assert after.value == "done"
    room.cut = set()
    room.harness.advance(10_000)
    for voter in room.voters.values():
        assert sorted(voter.runtime.committed_image.topics.names()) == ["topic-1", "topic-3"]
    assert room.failures == []


def test_a_voter_that_loads_a_long_snapshot_is_majority_enough_for_its_leader() -> None:
    """One of three is down, and one lost its disk: eight pieces of half a second each are 4 s."""
    room = Room()
    leader, harness = room.elected(), room.harness
    epoch = leader.log.epoch
    leader.log._snapshotter.take()
    harness.workers.run()
    (snapshot,) = leader.storage.snapshots
    down, empty = (each for each in VOTERS if each != leader.node_id)
    for node_id in (down, empty):
        room.voters.pop(node_id).log.stop()
    harness.disk.rmtree(f"/controller-{empty}")
    serve, positions = room.serve, []

    def slow(source: int, to: int, request: Any, version: int) -> Any:
        if not isinstance(request, fetch_snapshot.FetchSnapshotRequest):
            return serve(source, to, request, version)
        positions.append(request.topics[0].partitions[0].position)
        piece = replace(request, max_bytes=snapshot.size_bytes // 8 + 1)
        outcome, answer = serve(source, to, piece, version), Pending[Any]()
        at_ms = harness.clock.monotonic_ms() + 500
        harness.timers.at(at_ms, lambda: answer.complete(outcome) and None)
        return answer

    room.serve = slow  # type: ignore[method-assign]
    room.boot(empty)
    harness.advance(10_000)
    assert leader.runtime.active
    assert leader.log.epoch == epoch
    assert positions == sorted(set(positions))
    assert len(positions) == 8
    answer = write(leader, 1)
    harness.advance(100)
    assert answer.value == "done"
    assert room.failures == []


def test_the_broker_beside_a_voter_follows_the_log_whoever_leads() -> None:
    room = Room()
    leader = room.elected()
    standby = next(each for each in room.voters.values() if each is not leader)
    leaders: list[int] = []
    followers = []
    for voter in (leader, standby):
        voter.log.on_leader(lambda leader_id, _epoch: leaders.append(leader_id))
        followers.append(
            LocalFollower(
                voter.runtime,
                voter.log,
                on_image=lambda delta: None,
                clock=room.harness.clock,
                timers=room.harness.timers,
            )
        )
        followers[-1].start()
    write(leader, 1)
    room.harness.advance(50)
    leader.log.stop()
    room.cut = {leader.node_id}
    room.harness.advance(5_000)
    write(room.leader(), 2)
    room.harness.advance(50)
    assert [sorted(each.image.topics.names()) for each in followers] == [
        ["topic-1"],
        ["topic-1", "topic-2"],
    ]
    assert leaders[:2] == [leader.node_id] * 2
    assert leaders[-1] == room.leader().node_id


def test_a_restarted_quorum_leads_a_later_epoch_and_has_kept_everything() -> None:
    room = Room()
    leader = room.elected()
    write(leader, 1)
    room.harness.advance(100)
    epoch = leader.log.epoch
    room.harness.crash()
    room.voters = {}
    for node_id in VOTERS:
        room.boot(node_id)
    again = room.elected()
    assert again.log.epoch > epoch
    assert again.runtime.committed_image.topics.by_name("topic-1") is not None


# -- requests that make no sense ---------------------------------------------------------------


def a_vote(**changes: Any) -> vote.VoteRequest:
    partition = vote.RequestPartitionData(
        partition_index=changes.get("partition", 0),
        replica_epoch=99,
        replica_id=2,
        last_offset_epoch=98,
        last_offset=1_000,
    )
    topic = vote.RequestTopicData(
        topic_name=changes.get("topic", METADATA_TOPIC), partitions=(partition,)
    )
    return vote.VoteRequest(
        cluster_id=changes.get("cluster_id", CLUSTER_ID),
        voter_id=changes.get("voter_id", 1),
        topics=changes.get("topics", (topic,)),
    )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "another"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"topics": ()}, Error.INVALID_REQUEST),
        ({"topic": "foo"}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"voter_id": 3}, Error.INVALID_VOTER_KEY),
        ({}, Error.NONE),
    ],
)
def test_a_vote_is_about_this_cluster_this_log_and_this_voter(
    changes: dict[str, Any], error: Error
) -> None:
    room = Room()
    response = room.serve(2, 1, a_vote(**changes), 2)
    assert response.error_code == error
    if error is Error.NONE:
        assert response.topics[0].partitions[0].vote_granted


def test_a_stopped_voter_votes_no_more() -> None:
    room = Room()
    room.voters[1].log.stop()
    assert room.serve(2, 1, a_vote(), 2).error_code == Error.BROKER_NOT_AVAILABLE
