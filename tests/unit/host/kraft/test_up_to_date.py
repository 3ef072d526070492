"""A broker's metadata is up to date once it has a record of the leader's own epoch.

Method: three real controllers and an observer. A registration is committed, and its leader dies
before any other replica gets its high watermark. The next leader, which has the record, answers
with the high watermark that it knows: the observer's log ends there, and lacks the record.
"""

from itertools import cycle
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.host.kraft.broker_mode import is_up_to_date
from ottla.host.kraft.metadata_follower import MetadataFollower
from ottla.host.kraft.quorum_log import open_quorum_storage
from tests.unit.host.harness import CLUSTER_ID
from tests.unit.host.kraft.test_quorum_elections import VOTERS, Line, Room, write
from tests.unit.host.quorum_harness import NEVER

OBSERVER = 9


class Near(Line):
    """A channel that fails at once where the other end is gone."""

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        if self.to not in self.room.cut:
            return super().send(request, version, timeout_ms=timeout_ms)
        return completed(ApiError(Error.NETWORK_EXCEPTION, "gone"))


def an_observer(room: Room) -> MetadataFollower:
    harness = room.harness
    harness.disk.mkdir("/broker")
    harness.disk.sync_dir("/")
    anyone = cycle(VOTERS)
    follower = MetadataFollower(
        lambda voter: Near(room, OBSERVER, voter if voter in VOTERS else next(anyone)),
        node_id=OBSERVER,
        cluster_id=CLUSTER_ID,
        voters=VOTERS,
        storage=open_quorum_storage(
            harness.disk,
            "/broker",
            clock=harness.clock,
            timers=harness.timers,
            workers=harness.workers,
        ),
        clock=harness.clock,
        timers=harness.timers,
        workers=harness.workers,
        on_image=lambda delta: None,
        on_failure=room.failures.append,
        snapshot_limits=NEVER,
    )
    follower.start()
    return follower


def test_what_a_new_leader_says_is_committed_may_be_too_little() -> None:
    room = Room()
    first = room.elected()
    write(first, 1)
    room.harness.advance(1_000)
    observer = an_observer(room)
    assert not is_up_to_date(observer.image, observer.raft)
    room.harness.advance(2_000)
    assert is_up_to_date(observer.image, observer.raft)
    observer.stop()

    written = write(first, 2)
    while not written.done:
        room.harness.advance(1)
    assert written.value == "done"
    room.cut = {first.node_id}
    others = [each for each in room.voters.values() if each is not first]
    while not any(each.log.raft.is_leader for each in others):
        room.harness.advance(1)
    second, third = sorted(others, key=lambda each: not each.log.raft.is_leader)
    room.cut = {first.node_id, third.node_id}

    observer = an_observer(room)
    room.harness.advance(1_500)
    assert second.log.raft.is_leader
    assert observer.raft.leader_id == second.node_id
    whole = observer.raft.log.end_offset
    assert 0 < whole <= observer.image.position[0] + 1, "all of the copy is said to be committed"
    assert observer.image.topics.by_name("topic-2") is None
    assert not is_up_to_date(observer.image, observer.raft)

    room.cut = {first.node_id}
    while not is_up_to_date(observer.image, observer.raft):
        assert observer.image.topics.by_name("topic-2") is None
        room.harness.advance(1)
        assert room.harness.clock.elapsed_ms < 600_000
    assert observer.image.topics.by_name("topic-2") is not None
    assert room.failures == []


def test_a_copy_that_is_fetched_in_pieces_is_up_to_date_with_the_last_one() -> None:
    room = Room()
    leader = room.elected()
    for number in range(1, 6):
        write(leader, number)
        room.harness.advance(100)
    observer = an_observer(room)
    while observer.raft.leader_high_watermark is None:
        room.harness.advance(1)
        assert room.harness.clock.elapsed_ms < 600_000
    # As after an answer that its size had cut short.
    observer.raft.fetched_high_watermark = observer.raft.log.end_offset + 1
    assert not is_up_to_date(observer.image, observer.raft)
    room.harness.advance(2_000)
    assert is_up_to_date(observer.image, observer.raft)


def test_a_controller_beside_a_broker_is_up_to_date_once_its_epoch_has_begun() -> None:
    room = Room()
    leader = room.elected()
    room.harness.advance(1_000)
    assert all(
        is_up_to_date(each.runtime.committed_image, each.log.raft) for each in room.voters.values()
    )
    room.cut = {each for each in VOTERS if each != leader.node_id}
    write(leader, 1)
    room.harness.advance(10)
    assert is_up_to_date(leader.runtime.committed_image, leader.log.raft)
