"""OffsetForLeaderEpoch returns the end offset of an epoch."""

import pytest

from ottla.base.errors import Error
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from ..harness import TOPIC_ID, BrokerHarness, batch


def ask(
    harness: BrokerHarness, epoch: int, *, current: int = -1, topic: str = "t", version: int = 4
) -> tuple[int, int, int]:
    """Return (error, epoch, end offset)."""
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        topics=(OffsetForLeaderTopic(topic=topic, partitions=(partition,)),)
    )
    (part,) = harness.ask(request, version).topics[0].partitions
    return part.error_code, part.leader_epoch, part.end_offset


@pytest.fixture
def harness() -> BrokerHarness:
    """Two records of epoch 0, three of epoch 2, and this leader's epoch 3 without any."""
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic()
    replicas = harness.broker.replicas
    replicas.append("t", 0, batch("a", "b"))
    for _ in range(2):
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    replicas.append("t", 0, batch("c", "d", "e"))
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    return harness


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "found"),
    [(0, (0, 2)), (2, (2, 5)), (3, (3, 5)), (9, (-1, -1))],
)
def test_where_an_epoch_ends(
    harness: BrokerHarness, version: int, epoch: int, found: tuple[int, int]
) -> None:
    assert ask(harness, epoch, version=version) == (Error.NONE, *found)


def test_refusals(harness: BrokerHarness) -> None:
    assert ask(harness, 0, current=1) == (Error.FENCED_LEADER_EPOCH, -1, -1)
    assert ask(harness, 0, current=4) == (Error.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert ask(harness, 0, topic="nowhere") == (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
