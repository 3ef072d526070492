"""Every followed partition has one fetcher, of its leader, and no other partition has any.

Method: broker 1 hears of metadata; what it would send is looked at, not answered.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages import fetch as wire
from tests.unit.broker.harness import TOPIC_ID, batch
from tests.unit.broker.replication.test_follower_rules import lead, stamped
from tests.unit.broker.replication.test_replica_fetcher import Following, answer, data, positions
from tests.unit.log.support import append


def sent(harness: Following) -> dict[tuple[int, int], list[int]]:
    """Return the fetched partitions, by broker and lane."""
    return {
        place: sorted(positions(sender.sent[0][0]))
        for place, sender in harness.peers.senders.items()
        if sender.sent and isinstance(sender.sent[0][0], wire.FetchRequest)
    }


def test_partitions_are_spread_over_the_fetchers_of_a_leader() -> None:
    harness = Following(partitions=6, num_replica_fetchers="3")
    found = sent(harness)
    assert sorted(found) == [(2, 0), (2, 1), (2, 2)]
    assert sorted(index for indexes in found.values() for index in indexes) == list(range(6))
    assert {len(indexes) for indexes in found.values()} == {2}


def test_many_partitions_of_one_change_go_in_one_request() -> None:
    harness = Following(partitions=500)
    assert len(harness.leader.sent) == 1
    assert len(positions(harness.leader.sent[0][0])) == 500


def test_a_change_that_leaves_the_leader_alone_disturbs_nothing() -> None:
    harness = Following()
    harness.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, isr=(2, 3)))
    assert len(harness.broker.fetchers) == 1
    harness.leader.answer(answer())
    assert harness.leader.sent[0][0].topics == ()  # Still the same question as before.


def test_a_partition_moves_to_its_new_leader() -> None:
    harness = Following()
    harness.change(leader=3, epoch=1)
    assert sorted(positions(harness.peers.to(3).sent[0][0])) == [0]
    assert harness.broker.fetchers.leader_count() == 1


def test_how_far_behind_and_what_fails_can_be_seen() -> None:
    harness = Following(partitions=2)
    fetchers = harness.broker.fetchers
    behind = data(stamped(batch("a"), 0, 0), high=5)
    harness.leader.answer(answer(behind, data(index=1, error=Error.NOT_LEADER_OR_FOLLOWER)))
    assert (fetchers.max_lag, fetchers.failed_count) == (4, 1)
    harness.leader.answer(answer(data(stamped(batch("b", "c", "d", "e"), 1, 0), high=5)))
    assert fetchers.max_lag == 0


def test_what_this_broker_leads_or_does_not_host_is_not_followed() -> None:
    harness = Following()
    harness.add_topic("mine", Uuid(b"m" * 16), replicas=(1, 2), isr=(1, 2), leader=1)
    harness.add_topic("theirs", Uuid(b"x" * 16), replicas=(2, 3), isr=(2, 3), leader=2)
    assert len(harness.broker.fetchers) == 1


def test_a_replica_that_was_moved_away_is_followed_no_more() -> None:
    harness = Following()
    harness.commit(
        PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, replicas=(2, 3), isr=(2, 3))
    )
    assert len(harness.broker.fetchers) == 0


def test_a_leader_that_begins_to_follow_keeps_what_it_has() -> None:
    """It is truncated only by the new leader's response."""
    harness = Following()
    harness.change(leader=1, epoch=1)
    append(harness.log(), bytearray(batch("a")), epoch=1)
    harness.change(leader=3, epoch=2)
    assert harness.log().log_end_offset == 1
    assert positions(harness.peers.to(3).sent[0][0]) == {0: (1, 1)}


def test_a_log_without_epochs_is_truncated_before_it_follows() -> None:
    harness = Following()
    lead(harness.log(), 0, 1, 1)
    harness.log().advance_high_watermark(1)
    harness.log().epochs.clear()
    harness.change(leader=3, epoch=1)
    assert positions(harness.peers.to(3).sent[0][0])[0][0] == 1


def test_old_segments_go_once_the_leaders_start_has_passed_them() -> None:
    """Retention of a follower: what the leader gave up goes here, too, at the next pass."""
    harness = Following(
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="1000",
        log_retention_ms="-1",
    )
    log = harness.log()
    lead(log, 0, 2)
    log.roll(harness.clock.now_ms())
    lead(log, 0, 2)
    harness.change(leader=3, epoch=1)
    harness.broker.start_serving()
    partition_data = wire.PartitionData(
        partition_index=0, error_code=0, high_watermark=4, log_start_offset=3, records=None
    )
    harness.peers.to(3).answer(answer(partition_data))
    assert log.log_start_offset == 3
    harness.clock.advance(1_000)
    assert [segment.base_offset for segment in log.segments] == [2]


def test_retention_leaves_what_is_not_known_to_be_committed() -> None:
    harness = Following(
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="1000",
        log_retention_ms="1",
    )
    log = harness.log()
    lead(log, 0, 2)
    log.roll(harness.clock.now_ms())
    lead(log, 0, 2)
    log.advance_high_watermark(2)
    harness.broker.start_serving()
    harness.clock.advance(10_000)
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
