"""A leader serves followers: their state, what they get, and when they get it.

Method: one real broker that leads; the test is its followers, and passes every codec.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.fetch.delayed_fetch import WATERMARK_DELAY_MS
from ottla.broker.fetch.fetch_sessions import FetchSession
from ottla.broker.partition import Partition
from ottla.metadata.records import (
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from ..harness import TOPIC_ID, BrokerHarness, batch

OTHER_ID = Uuid(b"o" * 16)
WAIT_MS = 500


@pytest.fixture
def harness() -> BrokerHarness:
    """Return a broker that leads two partitions of three replicas, all in sync."""
    harness = BrokerHarness()
    for node_id in (1, 2, 3):
        harness.add_broker(node_id)
    harness.broker.epoch = 1
    harness.add_topic(partitions=2, replicas=(1, 2, 3), isr=(1, 2, 3))
    return harness


class Follower:
    """A follower with a fetch session, whose log the test only counts."""

    def __init__(self, harness: BrokerHarness, node: int, *, epoch: int | None = None) -> None:
        self.harness = harness
        self.node = node
        self.broker_epoch = node if epoch is None else epoch
        self.session = (0, 0)

    def begin(
        self, *wanted: FetchPartition, version: int = 17, wait_ms: int = WAIT_MS, **how: Any
    ) -> Any:
        """Fetch; `wanted`: the changed partitions of the session."""
        by_id = version >= 13
        session_id, session_epoch = self.session
        state = ReplicaState(replica_id=self.node, replica_epoch=self.broker_epoch)
        request = FetchRequest(
            **({"replica_state": state} if version >= 15 else {"replica_id": self.node}),
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=(
                FetchTopic(
                    topic="" if by_id else "t",
                    topic_id=TOPIC_ID if by_id else NO_UUID,
                    partitions=wanted,
                ),
            )
            if wanted
            else (),
            **how,
        )
        answer = self.harness.begin(request, version)

        def noted(response: Any) -> None:
            assert response.error_code == 0
            self.session = (response.session_id, session_epoch + 1)

        answer.then(noted)
        return answer

    def open(self, *ends: int) -> None:
        """Open a session, with so many records in each partition, and fetch the changes."""
        epochs = [0 if end else -1 for end in ends]
        self.begin(*map(at, range(len(ends)), ends, epochs), wait_ms=0)


def at(index: int = 0, offset: int = 0, epoch: int = -1, **how: Any) -> FetchPartition:
    return FetchPartition(
        **(
            {
                "partition": index,
                "current_leader_epoch": 0,
                "fetch_offset": offset,
                "last_fetched_epoch": epoch,
                "log_start_offset": 0,
                "partition_max_bytes": 1_000_000,
            }
            | how
        )
    )


def parts(answer: Any) -> list[Any]:
    return [part for topic in answer.value.responses for part in topic.partitions]


def errors(answer: Any) -> list[int]:
    return [part.error_code for part in parts(answer)]


def partition(harness: BrokerHarness, index: int = 0) -> Partition:
    return harness.broker.replicas.partition("t", index)


def follower_session(harness: BrokerHarness, follower: Follower) -> FetchSession:
    return harness.broker.sessions._sessions[follower.session[0]]


def append(harness: BrokerHarness, *values: str, index: int = 0, acks: int = 1) -> Any:
    return harness.broker.replicas.append("t", index, batch(*values), acks=acks)


class TestReading:
    """Followers read uncommitted records, and empty batches, too."""

    @pytest.mark.parametrize("version", range(4, 19))
    def test_every_version_reads_to_the_end(self, harness: BrokerHarness, version: int) -> None:
        append(harness, "a", "b")
        follower = Follower(harness, 2)
        if version < 7:
            follower.session = (0, -1)
        epoch = 0 if version >= 9 else -1
        answer = follower.begin(at(current_leader_epoch=epoch), version=version, wait_ms=0)
        (part,) = parts(answer)
        assert (part.error_code, part.high_watermark) == (0, 0)
        assert len(part.records) == len(batch("a", "b"))

    def test_an_append_wakes_a_follower(self, harness: BrokerHarness) -> None:
        follower = Follower(harness, 2)
        follower.open(0, 0)
        waiting = follower.begin(at(), at(1))
        assert not waiting.done
        append(harness, "a", index=1)
        assert [part.partition_index for part in parts(waiting)] == [1]

    def test_a_produce_request_is_seen_whole(self, harness: BrokerHarness) -> None:
        follower = Follower(harness, 2)
        follower.open(0, 0)
        follower.begin()
        harness.clock.advance(WAIT_MS)
        waiting = follower.begin()
        replicas = harness.broker.replicas
        batches = [(partition(harness, index), batch("a")) for index in (0, 1)]
        replicas.append_all(batches, acks=1, timeout_ms=0)
        assert [part.partition_index for part in parts(waiting)] == [0, 1]

    def test_an_answer_has_the_high_watermark_that_its_own_fetch_moved(
        self, harness: BrokerHarness
    ) -> None:
        append(harness, "a")
        Follower(harness, 3).open(1)
        append(harness, "b")
        (part,) = parts(Follower(harness, 2).begin(at(offset=1, epoch=0)))
        assert part.high_watermark == 1

    def test_bytes_for_followers_are_counted_apart(self, harness: BrokerHarness) -> None:
        append(harness, "a")
        Follower(harness, 2).open(0)
        metrics = partition(harness).metrics
        assert (metrics.replication_bytes_out, metrics.bytes_out) == (len(batch("a")), 0)


class TestWhoMayFetch:
    """Only assigned replicas, in the leader's epoch, with the registered broker epoch."""

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, Error.UNKNOWN_LEADER_EPOCH), (-1, Error.NOT_LEADER_OR_FOLLOWER)]
    )
    def test_a_replica_that_is_not_assigned(
        self, harness: BrokerHarness, epoch: int, error: Error
    ) -> None:
        harness.add_broker(4)
        answer = Follower(harness, 4).begin(at(current_leader_epoch=epoch))
        assert errors(answer) == [error]

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, Error.FENCED_LEADER_EPOCH), (2, Error.UNKNOWN_LEADER_EPOCH)]
    )
    def test_another_epoch(self, harness: BrokerHarness, epoch: int, error: Error) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        assert errors(Follower(harness, 2).begin(at(current_leader_epoch=epoch))) == [error]

    def test_a_broker_that_does_not_lead(self, harness: BrokerHarness) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
        answer = Follower(harness, 3).begin(at(current_leader_epoch=1))
        assert errors(answer) == [Error.NOT_LEADER_OR_FOLLOWER]

    def test_a_fetch_with_an_old_broker_epoch_moves_nothing(self, harness: BrokerHarness) -> None:
        """KIP-903: a follower's fetch before its restart says nothing of what it has now."""
        append(harness, "a")
        Follower(harness, 3).open(1)
        stale = Follower(harness, 2, epoch=1).begin(at(offset=1, epoch=0))
        assert errors(stale) == [Error.NOT_LEADER_OR_FOLLOWER]
        assert partition(harness).high_watermark == 0

    def test_a_fetch_with_an_unknown_newer_broker_epoch_must_be_retried(
        self, harness: BrokerHarness
    ) -> None:
        """With its registration it left the ISR, which this leader's metadata must have."""
        append(harness, "a")
        Follower(harness, 3).open(1)
        early = Follower(harness, 2, epoch=7)
        assert errors(early.begin(at(offset=1, epoch=0))) == [Error.UNKNOWN_LEADER_EPOCH]
        assert partition(harness).high_watermark == 0
        harness.add_broker(2, epoch=7)
        assert errors(early.begin(at(offset=1, epoch=0), wait_ms=0)) == [Error.NONE]
        assert partition(harness).high_watermark == 1

    def test_without_registered_epochs_a_fetch_before_a_restart_moves_nothing(
        self, harness: BrokerHarness
    ) -> None:
        """Over ZooKeeper: the next ISR would have named the broker under its old epoch, and the
        controller would have rejected it."""
        harness.add_broker(2, epoch=-1)
        append(harness, "a")
        restarted = Follower(harness, 2, epoch=7)
        restarted.open(1)
        assert errors(Follower(harness, 2, epoch=5).begin(at(), wait_ms=0)) == [
            Error.NOT_LEADER_OR_FOLLOWER
        ]
        found = partition(harness).followers[2]
        assert (found.log_end_offset, found.broker_epoch) == (1, 7)

    def test_an_added_replica_may_and_a_removed_one_may_not(self, harness: BrokerHarness) -> None:
        harness.add_broker(4)
        harness.commit(
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=(1, 3, 4), isr=(1, 3))
        )
        assert errors(Follower(harness, 4).begin(at(), wait_ms=0)) == [Error.NONE]
        assert errors(Follower(harness, 2).begin(at())) == [Error.UNKNOWN_LEADER_EPOCH]


class TestOffsets:
    """Only a log that agrees with the leader's counts as that far."""

    @pytest.mark.parametrize("offset", [2, 5])
    def test_beyond_the_end(self, harness: BrokerHarness, offset: int) -> None:
        append(harness, "a")
        assert errors(Follower(harness, 2).begin(at(offset=offset))) == [Error.OFFSET_OUT_OF_RANGE]
        assert partition(harness).followers[2].log_end_offset == -1

    def test_before_the_start(self, harness: BrokerHarness) -> None:
        append(harness, "a", "b")
        log = partition(harness).leader_log()
        log.advance_high_watermark(2)
        log.delete_records(2)
        assert errors(Follower(harness, 2).begin(at())) == [Error.OFFSET_OUT_OF_RANGE]

    def test_a_diverging_log_gets_the_diverging_epoch(self, harness: BrokerHarness) -> None:
        append(harness, "a")
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        append(harness, "b")
        follower = Follower(harness, 2)
        waiting = follower.begin(at(offset=2, epoch=0, current_leader_epoch=1))
        (part,) = parts(waiting)
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 1)
        assert len(part.records or b"") == 0
        assert partition(harness).followers[2].log_end_offset == -1

    def test_one_that_came_back_with_less_is_noted_so(self, harness: BrokerHarness) -> None:
        append(harness, "a")
        append(harness, "b")
        for node in (2, 3):
            Follower(harness, node).open(2)
        assert partition(harness).high_watermark == 2
        Follower(harness, 2).open(1)
        assert partition(harness).followers[2].log_end_offset == 1
        assert partition(harness).high_watermark == 2


class TestCommitting:
    """The fetches of followers move the high watermark, and wake who waits for it."""

    def test_the_last_of_the_in_sync_replicas_answers_the_producer(
        self, harness: BrokerHarness
    ) -> None:
        written = append(harness, "a", acks=-1)
        for node, done in ((2, False), (3, True)):
            Follower(harness, node).open(1)
            assert written.done is done
        assert written.value.error is Error.NONE

    def test_consumers_are_woken(self, harness: BrokerHarness) -> None:
        wanted = FetchTopic(
            topic_id=TOPIC_ID,
            partitions=(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000),),
        )
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=(wanted,), session_epoch=-1)
        consumer = harness.begin(request, 17)
        append(harness, "a")
        Follower(harness, 2).open(1)
        assert not consumer.done
        Follower(harness, 3).open(1)
        assert len(parts(consumer)[0].records) == len(batch("a"))

    def test_a_followers_delayed_fetch_returns_soon(self, harness: BrokerHarness) -> None:
        append(harness, "a")
        follower = Follower(harness, 2)
        follower.open(1, 0)
        harness.clock.advance(100)
        waiting = follower.begin()
        Follower(harness, 3).open(1, 0)
        assert not waiting.done
        harness.clock.advance(WATERMARK_DELAY_MS)
        (part,) = parts(waiting)
        assert (part.partition_index, part.high_watermark) == (0, 1)

    def test_the_high_watermark_comes_with_records_where_these_are_sooner(
        self, harness: BrokerHarness
    ) -> None:
        append(harness, "a")
        follower = Follower(harness, 2)
        follower.open(1)
        waiting = follower.begin()
        Follower(harness, 3).open(1)
        append(harness, "b")
        (part,) = parts(waiting)
        assert (part.high_watermark, len(part.records)) == (1, len(batch("b")))

    def test_a_fetch_is_noted_once(self, harness: BrokerHarness) -> None:
        """A delayed fetch that is retried was noted when it came."""
        append(harness, "a")
        follower = Follower(harness, 2)
        follower.open(1)
        follower.begin()
        harness.clock.advance(100)
        noted_ms = partition(harness).followers[2].last_fetch_ms
        append(harness, "b")
        assert partition(harness).followers[2].last_fetch_ms == noted_ms


class TestResting:
    """Partitions without news cost a fetch nothing, and lose nothing by it."""

    @pytest.fixture
    def follower(self, harness: BrokerHarness) -> Follower:
        follower = Follower(harness, 2)
        follower.open(0, 0)
        follower.begin()
        return follower

    def active(self, harness: BrokerHarness) -> int:
        (session,) = harness.broker.sessions._sessions.values()
        assert session.active is not None
        return len(session.active)

    def fetch(self, follower: Follower) -> Any:
        follower.harness.clock.advance(WAIT_MS)
        return follower.begin()

    def test_a_partition_without_changes_becomes_idle(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        assert self.active(harness) == 0

    def test_an_append_makes_it_active(self, harness: BrokerHarness, follower: Follower) -> None:
        waiting = self.fetch(follower)
        append(harness, "a", index=1)
        assert [part.partition_index for part in parts(waiting)] == [1]
        assert self.active(harness) == 1

    def test_an_append_between_two_fetches_is_not_missed(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        harness.clock.advance(WAIT_MS)
        append(harness, "a", index=1)
        assert [part.partition_index for part in parts(follower.begin())] == [1]

    def test_followers_with_idle_partitions_stay_caught_up(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        for _ in range(100):
            self.fetch(follower)
        append(harness, "a")
        harness.broker.replicas.recheck(shrink=True)
        found = partition(harness)
        assert found.followers[2].last_caught_up_ms == harness.clock.monotonic_ms()
        assert found.pending is not None  # The other follower never fetched.
        assert [node for node, _ in found.pending.isr] == [1, 2]

    def test_another_change_in_between_does_not_make_them_lag(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        for _ in range(100):
            self.fetch(follower)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 2)))
        append(harness, "a")
        harness.broker.replicas.recheck(shrink=True)
        assert partition(harness).pending is None

    def test_a_follower_that_died_with_an_idle_partition_lags_from_its_last_fetch_on(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        self.fetch(follower)
        died_ms = harness.clock.monotonic_ms()
        harness.clock.advance(60_000)
        append(harness, "a")
        assert partition(harness).followers[2].last_caught_up_ms == died_ms

    def test_a_new_log_start_is_returned(self, harness: BrokerHarness, follower: Follower) -> None:
        append(harness, "a")
        for node in (2, 3):
            other = follower if node == 2 else Follower(harness, 3)
            other.begin(at(offset=1, epoch=0), wait_ms=0)
        waiting = self.fetch(follower)
        partition(harness).leader_log().delete_records(1)
        harness.broker.replicas.fetch_reader.hasten_follower_fetches(partition(harness))
        harness.clock.advance(WATERMARK_DELAY_MS)
        assert parts(waiting)[0].log_start_offset == 1

    def test_a_new_epoch_is_returned(self, harness: BrokerHarness, follower: Follower) -> None:
        waiting = self.fetch(follower)
        harness.commit(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=1))
        assert [(part.partition_index, part.error_code) for part in parts(waiting)] == [
            (1, Error.FENCED_LEADER_EPOCH)
        ]

    def test_a_deletion_is_returned(self, harness: BrokerHarness, follower: Follower) -> None:
        waiting = self.fetch(follower)
        harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert Error.UNKNOWN_TOPIC_ID in errors(waiting)

    def test_a_partition_of_an_out_of_sync_follower_stays_active(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=(1, 3)))
        self.fetch(follower)
        assert self.active(harness) == 1

    def test_a_new_broker_epoch_in_the_same_session_activates_all_partitions(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        harness.add_broker(2, epoch=7)
        follower.broker_epoch = 7
        self.fetch(follower)
        assert [partition(harness, index).followers[2].broker_epoch for index in (0, 1)] == [7, 7]

    def test_a_late_fetch_outside_the_session_is_corrected_by_the_next_in_it(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        """The follower seemed to lag for as long as nothing was appended, and left the ISR."""
        append(harness, "a")
        for node in (2, 3):
            other = follower if node == 2 else Follower(harness, 3)
            other.begin(at(offset=1, epoch=0), wait_ms=0)
        for _ in range(2):
            self.fetch(follower)
        assert follower_session(harness, follower).active == {}
        assert partition(harness).followers[2].log_end_offset == 1
        late = Follower(harness, 2)
        late.session = (0, -1)
        late.begin(at(), wait_ms=0)
        assert partition(harness).followers[2].log_end_offset == 0
        self.fetch(follower)
        assert partition(harness).followers[2].log_end_offset == 1

    def test_a_late_fetch_outside_the_session_leaves_other_followers_idle(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        other = Follower(harness, 3)
        other.open(0, 0)
        other.begin()
        self.fetch(follower)
        late = Follower(harness, 3)
        late.session = (0, -1)
        late.begin(at(), wait_ms=0)
        assert follower_session(harness, follower).active == {}
        assert len(follower_session(harness, other).active or ()) == 1

    def test_a_late_fetch_of_a_former_process_does_not_hide_a_lag(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        """In its session the partition is idle, so that the late fetch does not read it."""
        harness.add_broker(2, epoch=7)
        restarted = Follower(harness, 2, epoch=7)
        restarted.open(0, 0)
        restarted.begin()
        died_ms = harness.clock.monotonic_ms()
        harness.clock.advance(60_000)
        follower.begin()
        append(harness, "a")
        assert partition(harness).followers[2].last_caught_up_ms == died_ms

    def test_sessions_that_are_gone_are_forgotten(
        self, harness: BrokerHarness, follower: Follower
    ) -> None:
        for _ in range(5):
            again = Follower(harness, 2)
            again.session = (follower.session[0], 0)
            again.open(0, 0)
            again.begin()
            follower = again
        assert len(partition(harness).watchers) == 1
