"""DeleteRecords moves the log start forward, where it may, and says how far it got."""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

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
