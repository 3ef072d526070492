"""A topic with 10,000 remote segments is given up, while a leader elsewhere fails over.

Method: the topic's segments are records in `__remote_log_metadata`, without objects. Another topic
is led by a broker that has no replica of the first one. That broker dies, with and without the
disablement beside it; until a client gets an answer of the next leader it takes the same time.
"""

import pytest

from ottla.base.errors import ApiError
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.metadata.tiering import DisablePolicy
from ottla.records.builder import encode_batch
from ottla.tiered.metadata_partition import metadata_partition
from ottla.tiered.metadata_records import encode
from ottla.tiered.segment_metadata import (
    MetadataRecord,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import produce as produce_wire
from tests.sim import test_tiered_deletions as deletions
from tests.sim.test_tiering_off_lifecycle import made

pytestmark = [pytest.mark.timeout(900), pytest.mark.forms(1)]

SEGMENTS = 10_000
SEGMENTS_PER_BATCH = 1_000
FIRST = 1_000_000
"""Behind the log: nobody reads them, and all are of the tiered epoch that is given up."""
TOLERANCE_MS = 1_000
"""Heartbeats and retries fall otherwise."""


class Cluster:
    """A tiered topic t with brokers 4, 3 and 1, and a topic u that broker 2 leads."""

    def __init__(self, *, zookeeper: bool) -> None:
        self.off = made(11, zookeeper=zookeeper)
        self.sim = self.off.sim
        placed = create_wire.CreatableReplicaAssignment(partition_index=0, broker_ids=(2, 3))
        topic = create_wire.CreatableTopic(
            name="u",
            num_partitions=-1,
            replication_factor=-1,
            assignments=(placed,),
            configs=(),
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
        assert self.off.ask(4, request, 5).topics[0].error_code == 0
        self.off.until(lambda: self.leads_u(2))
        self.fill()

    def fill(self) -> None:
        """Write the segments' records, as their leader would have."""
        known = self.off.remote().segments()[0]
        topic = self.sim.image.topics.by_name(REMOTE_LOG_METADATA_TOPIC)
        assert topic is not None
        number = metadata_partition(self.off.topic_id, 0, len(topic.partitions))
        before = self.off.remote().count
        for first in range(0, SEGMENTS, SEGMENTS_PER_BATCH):
            values = [
                encode(record)
                for each in range(first, first + SEGMENTS_PER_BATCH)
                for record in records(known, each)
            ]
            batch = encode_batch([(None, value, (), self.sim.clock.now_ms()) for value in values])
            data = produce_wire.PartitionProduceData(index=number, records=batch)
            named = produce_wire.TopicProduceData(
                name=REMOTE_LOG_METADATA_TOPIC, partition_data=(data,)
            )
            request = produce_wire.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(named,))
            [answer] = self.off.ask(topic.partitions[number].leader, request, 9).responses
            assert answer.partition_responses[0].error_code == 0
        self.off.until(lambda: self.off.remote().count == before + SEGMENTS)

    def leads_u(self, node: int) -> bool:
        """Tell whether a broker answers as the leader of u."""
        part = offsets_wire.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = offsets_wire.ListOffsetsTopic(name="u", partitions=(part,))
        request = offsets_wire.ListOffsetsRequest(replica_id=-1, topics=(topic,))
        answer = self.off.port.send(node, request, 7, 1_000)
        self.sim.run(100)
        found = answer.value if answer.done else None
        if found is None or isinstance(found, ApiError):
            return False
        return bool(found.topics[0].partitions[0].error_code == 0)

    def failover_ms(self) -> int:
        """Kill broker 2; return how long u is without a leader."""
        began = self.sim.clock.monotonic_ms()
        self.sim.nodes[2].crash()
        while not self.leads_u(3):
            assert self.sim.clock.monotonic_ms() < began + 120_000
        return int(self.sim.clock.monotonic_ms() - began)


def records(known: SegmentMetadata, number: int) -> list[MetadataRecord]:
    """Return the records of a copied segment, alike to one that is known."""
    segment_id = Uuid(number.to_bytes(16, "big"))
    start = FIRST + 10 * number
    started = SegmentMetadata(
        topic=known.topic, topic_id=known.topic_id, partition=0, segment_id=segment_id,
        start_offset=start, end_offset=start + 9, max_timestamp_ms=known.max_timestamp_ms,
        broker_id=known.broker_id, event_timestamp_ms=known.event_timestamp_ms, size_bytes=1_000,
        epochs=((known.leader_epoch, start),), state=SegmentState.COPY_STARTED,
        leader_epoch=known.leader_epoch, tiered_epoch=known.tiered_epoch,
    )  # fmt: skip
    finished = SegmentUpdate(
        topic=known.topic, topic_id=known.topic_id, partition=0, segment_id=segment_id,
        state=SegmentState.COPY_FINISHED, broker_id=known.broker_id,
        event_timestamp_ms=known.event_timestamp_ms, leader_epoch=known.leader_epoch,
        tiered_epoch=known.tiered_epoch,
    )  # fmt: skip
    return [started, finished]


@deletions.MODES
def test_a_failover_elsewhere_takes_no_longer(zookeeper: bool) -> None:
    plain_ms = Cluster(zookeeper=zookeeper).failover_ms()
    cluster = Cluster(zookeeper=zookeeper)
    cluster.off.disable(DisablePolicy.DELETE)
    assert cluster.failover_ms() <= plain_ms + TOLERANCE_MS
    left = sum(each.tiered_epoch == 1 for each in cluster.off.remote().segments())
    assert left > SEGMENTS // 2  # The purge is far from its end.
    cluster.off.acknowledged()
