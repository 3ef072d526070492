"""In ZooKeeper mode a broker knows the metadata topic's own partitions before all others.

LeaderAndIsr has only those that it hosts. A record that is hashed by their count would land in a
partition where nobody looks for it.

Method: a broker in ZooKeeper mode with a store that is never called; LeaderAndIsr and
UpdateMetadata by hand; the Produce requests to the leader, another broker.
"""

from typing import Any, cast

import pytest

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.object_store import ObjectStore
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.segment_metadata import Fence
from ottla.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from ottla.wire.messages.produce import ProduceRequest
from tests.unit.broker.api.zk_metadata_harness import ZkMetadataHarness, known, partition_state

COUNT = 4
HOSTED = (0, 2)
METADATA_ID, USER_ID = Uuid(b"m" * 16), Uuid(b"u" * 16)
TIERED = {
    "remote.log.storage.system.enable": "true",
    "ottla.remote.storage.uri": "file:///remote",
}
FENCE = Fence(
    topic="user",
    topic_id=USER_ID,
    partition=next(
        each
        for each in range(100)
        if metadata_partition(USER_ID, each, COUNT) == 3
        and metadata_partition(USER_ID, each, len(HOSTED)) == 1
    ),
    broker_id=1,
    leader_epoch=0,
    tiered_epoch=1,
    state=1,
    floor=0,
    event_timestamp_ms=0,
)
TOPIC: dict[str, Any] = {"topic": REMOTE_LOG_METADATA_TOPIC, "topic_id": METADATA_ID}
LEADER = 2


def made() -> ZkMetadataHarness:
    harness = ZkMetadataHarness(properties=TIERED, store=cast(ObjectStore, object()))
    harness.update_metadata(brokers=(1, 2, 3))
    return harness


def produced(harness: ZkMetadataHarness) -> list[int]:
    """Let time pass, grant producer ids, and return the partitions of Produce requests."""
    for _ in range(20):
        harness.clock.advance(100)
        for request, answer in harness.controller.calls:
            if isinstance(request, AllocateProducerIdsRequest) and not answer.done:
                granted = AllocateProducerIdsResponse(
                    error_code=0, producer_id_start=0, producer_id_len=1_000
                )
                answer.complete(granted)
    sent = [each for sender in harness.peers.senders.values() for each, _, _ in sender.sent]
    return [
        partition.index
        for request in sent
        if isinstance(request, ProduceRequest)
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def lead(harness: ZkMetadataHarness, *numbers: int) -> None:
    states = [partition_state(each, leader=LEADER) for each in numbers]
    harness.lead(*states, **TOPIC)


def update(harness: ZkMetadataHarness) -> None:
    states = [known(each, leader=LEADER) for each in range(COUNT)]
    harness.update_metadata(*states, **TOPIC)


@pytest.mark.parametrize("hosted", [HOSTED, tuple(range(COUNT))], ids=["some", "all"])
def test_records_wait_until_all_partitions_are_known(
    hosted: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Also where UpdateMetadata brings nothing new, since all partitions are hosted here."""
    harness = made()
    lead(harness, *hosted)
    assert harness.broker.remote is not None
    harness.broker.remote.metadata.append(FENCE)
    assert produced(harness) == []
    update(harness)
    assert produced(harness) == [3]
    assert not [each for each in caplog.records if "partitions instead of" in each.getMessage()]
