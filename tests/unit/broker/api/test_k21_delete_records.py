"""DeleteRecords advances the log start, and returns the low watermark."""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from ..world import TOPIC_ID, World, batch

OTHER_ID = Uuid(b"o" * 16)


def delete(world: World, offset: int, topic: str = "t", version: int = 2) -> tuple[int, int]:
    """Return (error, low watermark)."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=(partition,)),), timeout_ms=100
    )
    (part,) = world.ask(request, version).topics[0].partitions
    return part.error_code, part.low_watermark


@pytest.fixture
def world() -> World:
    world = World()
    world.add_broker()
    world.add_topic()
    world.broker.replicas.append("t", 0, batch("a", "b", "c"))
    return world


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_deletes(world: World, version: int) -> None:
    assert delete(world, 2, version=version) == (Error.NONE, 2)
    assert world.broker.replicas.partition("t", 0).leader_log().log_start_offset == 2


def test_minus_one_means_all_that_is_committed(world: World) -> None:
    assert delete(world, -1) == (Error.NONE, 3)


def test_the_start_never_goes_back(world: World) -> None:
    delete(world, 2)
    assert delete(world, 1) == (Error.NONE, 2)


@pytest.mark.parametrize("offset", [4, -2])
def test_other_offsets_are_out_of_range(world: World, offset: int) -> None:
    assert delete(world, offset) == (Error.OFFSET_OUT_OF_RANGE, -1)


def test_topics_that_may_not_lose_records_refuse(world: World) -> None:
    world.add_topic("compacted", OTHER_ID, cleanup_policy="compact")
    assert delete(world, 0, "compacted") == (Error.POLICY_VIOLATION, -1)
    world.add_topic("__consumer_offsets", Uuid(b"c" * 16))
    assert delete(world, 0, "__consumer_offsets") == (Error.INVALID_TOPIC_EXCEPTION, -1)


def test_only_leaders_delete(world: World) -> None:
    assert delete(world, 0, "nowhere") == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    assert delete(world, 0) == (Error.NOT_LEADER_OR_FOLLOWER, -1)


class TestFollowers:
    """The answer waits until every live replica has deleted, too."""

    @pytest.fixture
    def world(self) -> World:
        world = World()
        for node_id in (1, 2, 3):
            world.add_broker(node_id)
        world.add_topic(replicas=(1, 2, 3), isr=(1, 2, 3))
        world.broker.replicas.append("t", 0, batch("a", "b", "c"), acks=1)
        for node in (2, 3):
            follow(world, node, 0)
        return world

    def begin(self, world: World, offset: int = 2) -> Any:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name="t", partitions=(partition,)),), timeout_ms=100
        )
        return world.begin(request, 2).map(_result)

    def test_it_returns_the_smallest_log_start(self, world: World) -> None:
        waiting = self.begin(world)
        follow(world, 2, 2)
        assert not waiting.done
        follow(world, 3, 3)
        assert waiting.value == (Error.NONE, 2)

    def test_dead_replicas_are_not_waited_for(self, world: World) -> None:
        world.add_broker(3, fenced=True)
        waiting = self.begin(world)
        follow(world, 2, 2)
        assert waiting.value == (Error.NONE, 2)

    def test_replicas_that_die_meanwhile_are_waited_for_no_longer(self, world: World) -> None:
        waiting = self.begin(world)
        follow(world, 2, 2)
        world.add_broker(3, fenced=True)
        assert waiting.done
        assert waiting.value == (Error.NONE, 2)

    def test_the_records_are_gone_when_the_time_is_up(self, world: World) -> None:
        waiting = self.begin(world)
        follow(world, 2, 2)
        world.clock.advance(100)
        assert waiting.value == (Error.REQUEST_TIMED_OUT, 0)
        assert world.broker.replicas.partition("t", 0).leader_log().log_start_offset == 2
        assert world.broker.replicas.delete_records_purgatory.count == 0

    def test_the_request_is_dropped_when_the_connection_closes(self, world: World) -> None:
        """The timeout is the client's choice: weeks, for each connection that was opened."""
        waiting = self.begin(world)
        assert world.broker.replicas.delete_records_purgatory.count == 1
        world.connection.closed.complete(None)
        assert world.broker.replicas.delete_records_purgatory.count == 0
        assert not waiting.done

    def test_another_leader_ends_the_wait(self, world: World) -> None:
        waiting = self.begin(world)
        world.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2))
        assert waiting.value == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_a_replica_that_moves_away_ends_the_wait(self, world: World) -> None:
        """The topic is there still: its records are to be deleted elsewhere."""
        waiting = self.begin(world)
        world.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, leader=2, isr=(2, 3), replicas=(2, 3)
            )
        )
        assert waiting.value == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_deletion_of_the_topic_ends_the_wait(self, world: World) -> None:
        waiting = self.begin(world)
        world.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert waiting.value == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)


def follow(world: World, node: int, log_start: int) -> None:
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
    assert world.ask(request, 17).responses[0].partitions[0].error_code == 0


def _result(answer: Any) -> tuple[int, int]:
    (part,) = answer.topics[0].partitions
    return part.error_code, part.low_watermark
