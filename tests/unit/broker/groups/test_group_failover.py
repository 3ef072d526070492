"""Groups move with their partition: what was acknowledged is there at the next coordinator.

Method: one broker commits offsets as the leader; its log's bytes reach a second one, which
follows, as a fetch would bring them; then the second one is elected. Broker 2, the other replica,
is the test.
"""

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages import fetch as wire
from tests.unit.broker.group_harness import (
    OFFSETS_ID,
    GroupHarness,
    beat_request,
    commit_request,
    fetch_all,
    find_request,
    join_request,
)
from tests.unit.broker.replication.test_follower_rules import content

PARTITION = 1
"""Of three, the one that group g hashes to."""


def offsets_log(harness: GroupHarness) -> PartitionLog:
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, PARTITION).log
    assert log is not None
    return log


def written(*offsets: int) -> bytes:
    """Return the log of a coordinator to which these offsets were committed, one by one."""
    harness = GroupHarness()
    harness.add_topic("t")
    harness.add_offsets_topic()
    for offset in offsets:
        assert harness.ask(commit_request({("t", 0): offset}), 8) is not None
    return content(offsets_log(harness))


def follower(min_isr: str = "1") -> GroupHarness:
    """Return a broker 1 that follows broker 2 in all of the offsets topic."""
    harness = GroupHarness()
    harness.add_broker(2)
    harness.add_topic("t")
    harness.add_offsets_topic(leader=2, replicas=(1, 2), isr=(1, 2), min_insync_replicas=min_isr)
    return harness


def replicate(harness: GroupHarness, records: bytes, *, high_watermark: int) -> None:
    """Give broker 1 what the leader has."""
    named = wire.PartitionData(
        partition_index=PARTITION,
        error_code=0,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=memoryview(records),
    )
    topic = wire.FetchableTopicResponse(topic_id=OFFSETS_ID, partitions=(named,))
    harness.peers.to(2).answer(wire.FetchResponse(session_id=5, responses=(topic,)))


def committed(answer: object) -> int:
    (group,) = answer.groups  # type: ignore[attr-defined]
    assert group.error_code == 0
    offset: int = group.topics[0].partitions[0].committed_offset
    return offset


def test_a_commit_above_the_high_watermark_is_there_but_not_read_before_it_is_safe() -> None:
    harness = follower()
    replicate(harness, written(10, 20), high_watermark=1)
    harness.elect(PARTITION, 1)
    assert offsets_log(harness).high_watermark == 1
    asked = harness.begin(fetch_all(), 9)
    assert not asked.done
    harness.elect(PARTITION, 1, isr=(1,))  # Broker 2 has died: broker 1 has all that can be had.
    harness.settle(asked)
    assert committed(harness.ask(fetch_all(), 9)) == 20


def test_a_read_that_waited_is_answered_when_the_other_replica_has_it() -> None:
    harness = follower()
    replicate(harness, written(10, 20), high_watermark=0)
    harness.elect(PARTITION, 1)
    asked = harness.begin(fetch_all(), 9)
    assert not asked.done
    fetched(harness, offset=2, epoch=0)
    assert asked.done
    assert committed(asked.value) == 20


def fetched(harness: GroupHarness, offset: int, epoch: int) -> None:
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
    answer = harness.ask(request, 17)
    assert answer.responses[0].partitions[0].error_code == Error.NONE


def test_a_follower_sends_clients_away() -> None:
    harness = follower()
    (found,) = harness.ask(find_request("g"), 4).coordinators
    assert found.node_id == 2
    assert harness.ask(join_request("g"), 9).error_code == Error.NOT_COORDINATOR
    (group,) = harness.ask(fetch_all(), 9).groups
    assert group.error_code == Error.NOT_COORDINATOR


def test_without_a_leader_there_is_no_coordinator() -> None:
    harness = follower()
    harness.elect(PARTITION, -1)
    (found,) = harness.ask(find_request("g"), 4).coordinators
    assert found.error_code == Error.COORDINATOR_NOT_AVAILABLE


def test_a_leader_that_was_deposed_and_is_elected_again_has_what_came_between() -> None:
    harness = follower()
    replicate(harness, written(10), high_watermark=1)
    harness.elect(PARTITION, 1, isr=(1,))
    assert committed(harness.ask(fetch_all(), 9)) == 10
    harness.elect(PARTITION, 2, isr=(1, 2))
    (group,) = harness.ask(fetch_all(), 9).groups
    assert group.error_code == Error.NOT_COORDINATOR
    harness.peers.to(2).answer(wire.FetchResponse(session_id=5, responses=()))
    more = written(10, 30)[len(content(offsets_log(harness))) :]
    replicate(harness, more, high_watermark=2)
    harness.elect(PARTITION, 1, isr=(1,))
    assert committed(harness.ask(fetch_all(), 9)) == 30


def test_losing_the_partition_answers_who_waits_for_it() -> None:
    """KAFKA-9198, KAFKA-9235: an old coordinator no longer serves, and answers all requests."""
    harness = follower()
    replicate(harness, written(10), high_watermark=1)
    harness.elect(PARTITION, 1, isr=(1,))
    joined = harness.stable()
    harness.elect(PARTITION, 1, isr=(1, 2))
    member = {
        "member_id": joined.member_id,
        "generation_id_or_member_epoch": joined.generation_id,
    }
    commit = harness.begin(commit_request({("t", 0): 40}, **member), 8)
    joining = harness.begin(join_request("g", 3), 3)
    assert not commit.done
    assert not joining.done
    harness.elect(PARTITION, 2)
    assert commit.value.topics[0].partitions[0].error_code == Error.NOT_COORDINATOR
    harness.settle(joining)
    assert joining.value.error_code == Error.NOT_COORDINATOR
    assert harness.ask(beat_request(joined), 4).error_code == Error.NOT_COORDINATOR


def test_a_commit_with_too_few_replicas_left_behind_does_not_block_reads() -> None:
    """Its writer gets an error, as it may be lost; readers must not wait for ever."""
    harness = follower(min_isr="2")
    replicate(harness, written(10), high_watermark=1)
    harness.elect(PARTITION, 1, isr=(1, 2))
    fetched(harness, offset=1, epoch=0)
    commit = harness.begin(commit_request({("t", 0): 40}), 8)
    assert not commit.done
    fetched(harness, offset=2, epoch=1)
    harness.settle(commit)
    asked = harness.begin(fetch_all(), 9)
    harness.settle(asked)
    assert committed(asked.value) == 40
