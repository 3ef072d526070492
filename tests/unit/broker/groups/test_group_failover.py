"""Groups move with their partition: what was acknowledged is there at the next coordinator.

Method: one broker commits offsets as the leader; its log's bytes reach a second one, which
follows, as a fetch would bring them; then the second one is elected. Broker 2, the other replica,
is the test.
"""

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages import fetch as wire
from tests.unit.broker.group_world import (
    OFFSETS_ID,
    GroupWorld,
    beat_request,
    commit_request,
    fetch_all,
    find_request,
    join_request,
)
from tests.unit.broker.replication.test_follower_rules import content

PARTITION = 1
"""Of three, the one that group g hashes to."""


def offsets_log(world: GroupWorld) -> PartitionLog:
    log = world.broker.replicas.partition(OFFSETS_TOPIC, PARTITION).log
    assert log is not None
    return log


def written(*offsets: int) -> bytes:
    """Return the log of a coordinator to which these offsets were committed, one by one."""
    world = GroupWorld()
    world.add_topic("t")
    world.add_offsets_topic()
    for offset in offsets:
        assert world.ask(commit_request({("t", 0): offset}), 8) is not None
    return content(offsets_log(world))


def follower(min_isr: str = "1") -> GroupWorld:
    """Return a broker 1 that follows broker 2 in all of the offsets topic."""
    world = GroupWorld()
    world.add_broker(2)
    world.add_topic("t")
    world.add_offsets_topic(leader=2, replicas=(1, 2), isr=(1, 2), min_insync_replicas=min_isr)
    return world


def replicate(world: GroupWorld, records: bytes, *, high_watermark: int) -> None:
    """Give broker 1 what the leader has."""
    named = wire.PartitionData(
        partition_index=PARTITION,
        error_code=0,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=memoryview(records),
    )
    topic = wire.FetchableTopicResponse(topic_id=OFFSETS_ID, partitions=(named,))
    world.peers.to(2).answer(wire.FetchResponse(session_id=5, responses=(topic,)))


def committed(answer: object) -> int:
    (group,) = answer.groups  # type: ignore[attr-defined]
    assert group.error_code == 0
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


def test_a_commit_above_the_high_watermark_is_there_but_not_read_before_it_is_safe() -> None:
    world = follower()
    replicate(world, written(10, 20), high_watermark=1)
    world.elect(PARTITION, 1)
    assert offsets_log(world).high_watermark == 1
    asked = world.begin(fetch_all(), 9)
    assert not asked.done
    world.elect(PARTITION, 1, isr=(1,))  # Broker 2 has died: broker 1 has all that can be had.
    world.settle(asked)
    assert committed(world.ask(fetch_all(), 9)) == 20


def test_a_read_that_waited_is_answered_when_the_other_replica_has_it() -> None:
    world = follower()
    replicate(world, written(10, 20), high_watermark=0)
    world.elect(PARTITION, 1)
    asked = world.begin(fetch_all(), 9)
    assert not asked.done
    fetched(world, offset=2, epoch=0)
    assert asked.done
    assert committed(asked.value) == 20


def fetched(world: GroupWorld, offset: int, epoch: int) -> None:
    """Let broker 2 fetch from that offset, which says that it has all before it."""
    partition = wire.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=1,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=1 << 20,
    )
    request = wire.FetchRequest(
        replica_state=wire.ReplicaState(replica_id=2, replica_epoch=2),
        max_wait_ms=0,
        min_bytes=0,
        topics=(wire.FetchTopic(topic_id=OFFSETS_ID, partitions=(partition,)),),
    )
    answer = world.ask(request, 17)
    assert answer.responses[0].partitions[0].error_code == Error.NONE


def test_a_follower_sends_clients_away() -> None:
    world = follower()
    (found,) = world.ask(find_request("g"), 4).coordinators
    assert found.node_id == 2
    assert world.ask(join_request("g"), 9).error_code == Error.NOT_COORDINATOR
    (group,) = world.ask(fetch_all(), 9).groups
    assert group.error_code == Error.NOT_COORDINATOR


def test_without_a_leader_there_is_no_coordinator() -> None:
    world = follower()
    world.elect(PARTITION, -1)
    (found,) = world.ask(find_request("g"), 4).coordinators
    assert found.error_code == Error.COORDINATOR_NOT_AVAILABLE


def test_a_leader_that_was_deposed_and_is_elected_again_has_what_came_between() -> None:
    world = follower()
    replicate(world, written(10), high_watermark=1)
    world.elect(PARTITION, 1, isr=(1,))
    assert committed(world.ask(fetch_all(), 9)) == 10
    world.elect(PARTITION, 2, isr=(1, 2))
    (group,) = world.ask(fetch_all(), 9).groups
    assert group.error_code == Error.NOT_COORDINATOR
    world.peers.to(2).answer(wire.FetchResponse(session_id=5, responses=()))
    more = written(10, 30)[len(content(offsets_log(world))) :]
    replicate(world, more, high_watermark=2)
    world.elect(PARTITION, 1, isr=(1,))
    assert committed(world.ask(fetch_all(), 9)) == 30


def test_losing_the_partition_answers_who_waits_for_it() -> None:
    """KAFKA-9198, KAFKA-9235: an old coordinator no longer serves, and answers all requests."""
    world = follower()
    replicate(world, written(10), high_watermark=1)
    world.elect(PARTITION, 1, isr=(1,))
    joined = world.stable()
    world.elect(PARTITION, 1, isr=(1, 2))
    member = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    commit = world.begin(commit_request({("t", 0): 40}, **member), 8)
    joining = world.begin(join_request("g", 3), 3)
    assert not commit.done
    assert not joining.done
    world.elect(PARTITION, 2)
    assert commit.value.topics[0].partitions[0].error_code == Error.NOT_COORDINATOR
    world.settle(joining)
    assert joining.value.error_code == Error.NOT_COORDINATOR
    assert world.ask(beat_request(joined), 4).error_code == Error.NOT_COORDINATOR


def test_a_commit_with_too_few_replicas_left_behind_does_not_block_reads() -> None:
    """Its writer gets an error, as it may be lost; readers must not wait for ever."""
    world = follower(min_isr="2")
    replicate(world, written(10), high_watermark=1)
    world.elect(PARTITION, 1, isr=(1, 2))
    fetched(world, offset=1, epoch=0)
    commit = world.begin(commit_request({("t", 0): 40}), 8)
    assert not commit.done
    fetched(world, offset=2, epoch=1)
    world.settle(commit)
    asked = world.begin(fetch_all(), 9)
    world.settle(asked)
    assert committed(asked.value) == 40
