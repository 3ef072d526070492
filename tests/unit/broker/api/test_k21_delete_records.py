"""DeleteRecords advances the log start, and returns the low watermark."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.turns import Steps, at_once
from ottla.broker.api import k21_delete_records
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from ..harness import TOPIC_ID, BrokerHarness, batch

OTHER_ID = Uuid(b"o" * 16)


def delete(
    harness: BrokerHarness, offset: int, topic: str = "t", version: int = 2
) -> tuple[int, int]:
    """Return (error, low watermark)."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(partition,)),), timeout_ms=100
    )
    (part,) = harness.ask(request, version).topics[0].partitions
    return part.error_code, part.low_watermark


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic()
    harness.broker.replicas.append("t", 0, batch("a", "b", "c"))
    return harness


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_deletes(harness: BrokerHarness, version: int) -> None:
    assert delete(harness, 2, version=version) == (Error.NONE, 2)
    assert harness.broker.replicas.partition("t", 0).leader_log().log_start_offset == 2


def test_minus_one_means_all_that_is_committed(harness: BrokerHarness) -> None:
    assert delete(harness, -1) == (Error.NONE, 3)


def test_the_start_never_goes_back(harness: BrokerHarness) -> None:
    delete(harness, 2)
    assert delete(harness, 1) == (Error.NONE, 2)


@pytest.mark.parametrize("offset", [4, -2])
def test_other_offsets_are_out_of_range(harness: BrokerHarness, offset: int) -> None:
    assert delete(harness, offset) == (Error.OFFSET_OUT_OF_RANGE, -1)


def test_topics_that_may_not_lose_records_refuse(harness: BrokerHarness) -> None:
    harness.add_topic("compacted", OTHER_ID, cleanup_policy="compact")
    assert delete(harness, 0, "compacted") == (Error.POLICY_VIOLATION, -1)
    harness.add_topic("__consumer_offsets", Uuid(b"c" * 16))
    assert delete(harness, 0, "__consumer_offsets") == (Error.INVALID_TOPIC_EXCEPTION, -1)


def test_only_leaders_delete(harness: BrokerHarness) -> None:
    assert delete(harness, 0, "nowhere") == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    assert delete(harness, 0) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


class TestFollowers:
    """The answer waits until every live replica has deleted, too."""

    @pytest.fixture
    def harness(self) -> BrokerHarness:
        harness = BrokerHarness()
        for node_id in (1, 2, 3):
            harness.add_broker(node_id)
        harness.add_topic(replicas=(1, 2, 3), isr=(1, 2, 3))
        harness.broker.replicas.append("t", 0, batch("a", "b", "c"), acks=1)
        for node in (2, 3):
            follow(harness, node, 0)
        return harness

    def begin(self, harness: BrokerHarness, offset: int = 2) -> Any:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=100
        )
        return harness.begin(request, 2).map(_result)

    def test_it_returns_the_smallest_log_start(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        follow(harness, 2, 2)
        assert not waiting.done
        follow(harness, 3, 3)
        assert waiting.value == (Error.NONE, 2)

    def test_dead_replicas_are_not_waited_for(self, harness: BrokerHarness) -> None:
        harness.add_broker(3, fenced=True)
        waiting = self.begin(harness)
        follow(harness, 2, 2)
        assert waiting.value == (Error.NONE, 2)

    def test_replicas_in_an_offline_log_directory_are_waited_for(
        self, harness: BrokerHarness
    ) -> None:
        """As in Kafka, where the broker alone counts."""
        harness.commit(
            PartitionChangeRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                isr=(1, 2),
                directories=(DIRECTORY_MIGRATING, DIRECTORY_MIGRATING, DIRECTORY_LOST),
            )
        )
        waiting = self.begin(harness)
        follow(harness, 2, 2)
        assert not waiting.done

    def test_replicas_that_die_meanwhile_are_waited_for_no_longer(
        self, harness: BrokerHarness
    ) -> None:
        waiting = self.begin(harness)
        follow(harness, 2, 2)
        harness.add_broker(3, fenced=True)
        assert waiting.done
        assert waiting.value == (Error.NONE, 2)

    def test_the_records_are_gone_when_the_time_is_up(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        follow(harness, 2, 2)
        harness.clock.advance(100)
        assert waiting.value == (Error.REQUEST_TIMED_OUT, 0)
        assert harness.broker.replicas.partition("t", 0).leader_log().log_start_offset == 2
        assert harness.broker.replicas.delete_records_purgatory.count == 0

    def test_the_request_is_dropped_when_the_connection_closes(
        self, harness: BrokerHarness
    ) -> None:
        """The timeout is the client's choice: weeks, for each connection that was opened."""
        waiting = self.begin(harness)
        assert harness.broker.replicas.delete_records_purgatory.count == 1
        harness.connection.closed.complete(None)
        assert harness.broker.replicas.delete_records_purgatory.count == 0
        assert not waiting.done

    def test_another_leader_ends_the_wait(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
        assert waiting.value == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_a_replica_that_moves_away_ends_the_wait(self, harness: BrokerHarness) -> None:
        """The topic is there still: its records are to be deleted elsewhere."""
        waiting = self.begin(harness)
        harness.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, leader=2, isr=(2, 3), replicas=(2, 3)
            )
        )
        assert waiting.value == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_deletion_of_the_topic_ends_the_wait(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert waiting.value == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)

    def begin_in_steps(self, harness: BrokerHarness) -> Steps[Any]:
        """Delete in t-0, whose followers are behind, and in a topic that needs no wait."""
        harness.add_topic("done", OTHER_ID)
        partition = DeleteRecordsPartition(partition_index=0, offset=2)
        topics = (
            DeleteRecordsTopic(name="t", partitions=(partition,)),
            DeleteRecordsTopic(name="done", partitions=(replace(partition, offset=0),)),
        )
        request = DeleteRecordsRequest(topics=topics, timeout_ms=100)
        steps = k21_delete_records.handle.steps(harness.context(21, 2), request)
        next(steps)
        return steps

    def test_followers_that_delete_before_the_last_step(self, harness: BrokerHarness) -> None:
        steps = self.begin_in_steps(harness)
        follow(harness, 2, 2)
        follow(harness, 3, 2)
        response = at_once(steps)
        assert not isinstance(response, Pending)
        assert [_result_of(topic) for topic in response.topics] == [(Error.NONE, 2), (0, 0)]

    def test_another_leader_before_the_last_step(self, harness: BrokerHarness) -> None:
        """Nothing would wake the request any more, before its timeout."""
        steps = self.begin_in_steps(harness)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
        response = at_once(steps)
        assert not isinstance(response, Pending)
        assert _result_of(response.topics[0]) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


def follow(harness: BrokerHarness, node: int, log_start: int) -> None:
    """Let a follower fetch that has everything from `log_start` on."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=3,
        last_fetched_epoch=0,
        log_start_offset=log_start,
        partition_max_bytes=1_000,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=node, replica_epoch=node),
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=(FetchTopic(topic_id=TOPIC_ID, partitions=(partition,)),),
    )
    assert harness.ask(request, 17).responses[0].partitions[0].error_code == 0


def _result(answer: Any) -> tuple[int, int]:
    return _result_of(answer.topics[0])


def _result_of(topic: Any) -> tuple[int, int]:
    (part,) = topic.partitions
    return part.error_code, part.low_watermark
