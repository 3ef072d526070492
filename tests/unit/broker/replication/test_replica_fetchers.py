"""Every followed partition has one fetcher, of its leader, and no other partition has any.

Method: broker 1 hears of metadata; what it would send is looked at, not answered.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages import fetch as wire
from tests.unit.broker.replication.test_follower_rules import lead, stamped
from tests.unit.broker.replication.test_replica_fetcher import Following, answer, data, positions
from tests.unit.broker.world import TOPIC_ID, batch
from tests.unit.log.support import append


def sent(world: Following) -> dict[tuple[int, int], list[int]]:
    """Return the fetched partitions, by broker and lane."""
    return {
        place: sorted(positions(sender.sent[0][0]))
        for place, sender in world.peers.senders.items()
        if sender.sent and isinstance(sender.sent[0][0], wire.FetchRequest)
    }


def test_partitions_are_spread_over_the_fetchers_of_a_leader() -> None:
    world = Following(partitions=6, num_replica_fetchers="3")
    found = sent(world)
    assert sorted(found) == [(2, 0), (2, 1), (2, 2)]
    assert sorted(index for indexes in found.values() for index in indexes) == list(range(6))
    assert {len(indexes) for indexes in found.values()} == {2}


def test_many_partitions_of_one_change_go_in_one_request() -> None:
    world = Following(partitions=500)
    assert len(world.leader.sent) == 1
    assert len(positions(world.leader.sent[0][0])) == 500


def test_a_change_that_leaves_the_leader_alone_disturbs_nothing() -> None:
    world = Following()
    world.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=(2, 3)))
    assert len(world.broker.fetchers) == 1
    world.leader.answer(answer())
    assert world.leader.sent[0][0].topics == ()  # Still the same question as before.


def test_a_partition_moves_to_its_new_leader() -> None:
    world = Following()
    world.change(leader=3, epoch=1)
    assert sorted(positions(world.peers.to(3).sent[0][0])) == [0]
    assert world.broker.fetchers.leader_count() == 1


def test_how_far_behind_and_what_fails_can_be_seen() -> None:
    world = Following(partitions=2)
    fetchers = world.broker.fetchers
    behind = data(stamped(batch("a"), 0, 0), high=5)
    world.leader.answer(answer(behind, data(index=1, error=Error.NOT_LEADER_OR_FOLLOWER)))
    assert (fetchers.max_lag, fetchers.failed_count) == (4, 1)
    world.leader.answer(answer(data(stamped(batch("b", "c", "d", "e"), 1, 0), high=5)))
    assert fetchers.max_lag == 0


def test_what_this_broker_leads_or_does_not_host_is_not_followed() -> None:
    world = Following()
    world.add_topic("mine", Uuid(b"m" * 16), replicas=(1, 2), isr=(1, 2), leader=1)
    world.add_topic("theirs", Uuid(b"x" * 16), replicas=(2, 3), isr=(2, 3), leader=2)
    assert len(world.broker.fetchers) == 1


def test_a_replica_that_was_moved_away_is_followed_no_more() -> None:
    world = Following()
    world.commit(
        PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, replicas=(2, 3), isr=(2, 3))
    )
    assert len(world.broker.fetchers) == 0


def test_a_leader_that_begins_to_follow_keeps_what_it_has() -> None:
    """It is truncated only by the new leader's response."""
    world = Following()
    world.change(leader=1, epoch=1)
    append(world.log(), bytearray(batch("a")), epoch=1)
    world.change(leader=3, epoch=2)
    assert world.log().log_end_offset == 1
    assert positions(world.peers.to(3).sent[0][0]) == {0: (1, 1)}


def test_a_log_without_epochs_is_truncated_before_it_follows() -> None:
    world = Following()
    lead(world.log(), 0, 1, 1)
    world.log().advance_high_watermark(1)
    world.log().epochs.clear()
    world.change(leader=3, epoch=1)
    assert positions(world.peers.to(3).sent[0][0])[0][0] == 1


def test_old_segments_go_once_the_leaders_start_has_passed_them() -> None:
    """Retention of a follower: what the leader gave up goes here, too, at the next pass."""
    world = Following(
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="1000",
        log_retention_ms="-1",
    )
    log = world.log()
    lead(log, 0, 2)
    log.roll(world.clock.now_ms())
    lead(log, 0, 2)
    world.change(leader=3, epoch=1)
    world.broker.start_serving()
    partition_data = wire.PartitionData(
        partition_index=0, error_code=0, high_watermark=4, log_start_offset=3, records=None
    )
    world.peers.to(3).answer(answer(partition_data))
    assert log.log_start_offset == 3
    world.clock.advance(1_000)
    assert [segment.base_offset for segment in log.segments] == [2]


def test_retention_leaves_what_is_not_known_to_be_committed() -> None:
    world = Following(
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="1000",
        log_retention_ms="1",
    )
    log = world.log()
    lead(log, 0, 2)
    log.roll(world.clock.now_ms())
    lead(log, 0, 2)
    log.advance_high_watermark(2)
    world.broker.start_serving()
    world.clock.advance(10_000)
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
