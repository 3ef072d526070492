"""Brokers replicate a partition whose older records are in remote storage only.

Method: whole brokers in one process (`replicas_harness`), whose replica fetchers build the state of
a log from a store and from remote segments that all of them see. The test is the copier: it puts
the leader's closed segments into the store, and local retention deletes them there. The topic's
configuration says nothing of remote storage, as after it was turned off.
"""

from dataclasses import replace
from typing import Any, cast

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.object_store import Failure, ObjectStore
from ottla.broker.core import Broker
from ottla.broker.remote.aux_state_builder import AuxStateBuilder
from ottla.broker.remote.reads.range_reads import RangeReads
from ottla.broker.remote.remote_metrics import RemoteMetrics
from ottla.log.partition_log import PartitionLog
from ottla.metadata.records import PartitionChangeRecord
from ottla.testing.disk import MemoryDisk
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker import replicas_harness
from tests.unit.broker.harness import LOG_DIR, TOPIC_ID
from tests.unit.broker.remote.harness import HeldStore
from tests.unit.broker.remote.support import RemoteLog
from tests.unit.broker.replicas_harness import Listener, ReplicasHarness
from tests.unit.log.support import content, produced

PRODUCER = 7
SEGMENTS = 4
RECORDS = 3


class Tiered(ReplicasHarness):
    """Three brokers; `remote` and `store`: what the copier has put there."""

    def __init__(self) -> None:
        self.store = HeldStore()
        self.remote = RemoteLog()
        self.is_ready = True
        self.copied = 0
        super().__init__(min_isr=1)

    def build_with(self, broker: Broker) -> None:
        # Producers expire by the times of files.
        cast(MemoryDisk, broker.log_dirs.ports.disk).now_ms = broker.clock.now_ms
        reads = RangeReads(cast(ObjectStore, self.store), broker.clock, broker.timers)
        broker.fetchers.aux_states = AuxStateBuilder(
            reads,
            lambda topic_id, partition: self.remote if self.is_ready else None,
            RemoteMetrics(),
            broker.clock,
            broker.timers,
        ).build

    def log(self, node: int) -> PartitionLog:
        return self.nodes[node].log

    def starts(self, node: int) -> tuple[int, int, int]:
        log = self.log(node)
        return log.log_start_offset, log.local_log_start_offset, log.log_end_offset

    def fill(self, *, segments: int = SEGMENTS) -> None:
        """Produce the records of so many segments, and close them at the leader."""
        for _ in range(segments):
            for _ in range(RECORDS):
                written = self.produce("x" * 20)
                self.run(20)
                assert written.answer is not None
                assert written.answer[0] == Error.NONE
            assert self.leader is not None
            self.leader.log.roll(self.time.now_ms())

    def idempotent(self, sequence: int) -> tuple[int, int]:
        """Send a producer's batch of one record to the leader; return error and offset."""
        data = PartitionProduceData(index=0, records=bytes(produced(PRODUCER, 0, sequence)))
        topic = TopicProduceData(name="t", partition_data=(data,))
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(topic,))
        assert self.leader is not None
        answer = self.leader.handle(request, 9, Listener.CLIENT)
        self.run(20)
        (part,) = answer.value.responses[0].partition_responses
        return part.error_code, part.base_offset

    def tier(self) -> None:
        """Copy the leader's closed segments, and let local retention delete them there."""
        assert self.leader is not None
        log = self.leader.log
        for local in log.local_segments():
            files = log.segment_files(local.base_offset)
            if files is None or files.end_offset > log.high_watermark:
                break
            made = SegmentMetadata(
                topic="t",
                topic_id=TOPIC_ID,
                partition=0,
                segment_id=Uuid(self.copied.to_bytes(16, "big")),
                start_offset=files.base_offset,
                end_offset=files.end_offset - 1,
                max_timestamp_ms=1,
                broker_id=1,
                event_timestamp_ms=1,
                size_bytes=1,
                epochs=tuple((each.epoch, each.start_offset) for each in files.epochs),
                state=SegmentState.COPY_FINISHED,
                leader_epoch=0,
                tiered_epoch=1,
            )
            self.copied += 1
            self.remote.known.append(made)
            objects = self.store.objects
            objects[object_name(made, ObjectKind.LEADER_EPOCHS)] = files.leader_epochs
            objects[object_name(made, ObjectKind.PRODUCER_SNAPSHOT)] = files.rebuild_snapshot()
            log.remote_copied_to(made.end_offset)
        log.reconfigure(replace(log.config, remote_storage=True, local_retention_ms=0))
        log.expire_segments(2**60)
        self.run(10)

    def lose(self, node: int, *, wiped: bool) -> None:
        """Kill a broker, and let its session end; `wiped`: its disk is lost."""
        self.nodes[node].kill()
        self.fence(node)
        self.run(10)
        if wiped:
            self.nodes[node].disk = MemoryDisk()
            self.nodes[node].disk.mkdir(LOG_DIR)

    def check_alike(self, node: int) -> None:
        """Check that a replica is in sync, and has of the partition what its leader has."""
        leader = self.leader
        assert leader is not None
        assert node in self.state.isr
        own, leaders = self.log(node), leader.log
        assert own.log_start_offset == leaders.log_start_offset
        assert own.log_end_offset == leaders.log_end_offset
        assert own.epochs.entries == leaders.epochs.entries
        producers = [(each.producer_id, each.last_sequence) for each in own.producer_states()]
        assert producers == [
            (each.producer_id, each.last_sequence) for each in leaders.producer_states()
        ]
        start = max(own.local_log_start_offset, leaders.local_log_start_offset)
        assert content(own, start) == content(leaders, start)


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Tiered:
    return made(monkeypatch)


def made(monkeypatch: pytest.MonkeyPatch) -> Tiered:
    harness = Tiered.__new__(Tiered)

    class TieredBroker(Broker):
        def __init__(self, **parts: Any) -> None:
            super().__init__(**parts)
            harness.build_with(self)

    monkeypatch.setattr(replicas_harness, "Broker", TieredBroker)
    harness.__init__()  # type: ignore[misc]
    return harness


def copied_before(harness: Tiered, *, wiped: bool) -> int:
    """Lose broker 3, whose records are then in remote storage only; return the local start."""
    assert harness.idempotent(0) == (Error.NONE, 0)
    harness.fill(segments=1)
    harness.lose(3, wiped=wiped)
    harness.prefer(2)  # A second leader epoch.
    harness.run(100)
    harness.fill()
    harness.tier()
    assert harness.leader is not None
    start, local, end = harness.starts(harness.leader.id)
    assert (start, local) == (0, end)
    assert local > 4
    harness.produce("local")
    harness.run(20)
    return local


@pytest.mark.parametrize("wiped", [True, False])
def test_a_replica_begins_behind_what_is_remote(harness: Tiered, wiped: bool) -> None:
    local = copied_before(harness, wiped=wiped)
    harness.nodes[3].start()
    harness.run(3_000)
    assert harness.starts(3) == (0, local, local + 1)
    harness.check_alike(3)
    harness.prefer(3)
    harness.run(100)
    assert harness.leader is harness.nodes[3]
    assert harness.idempotent(0) == (Error.NONE, 0), "the retry of a record that is remote"
    assert harness.idempotent(1) == (Error.NONE, local + 1)
    harness.run(1_000)
    harness.check_alike(1)
    harness.check_alike(2)


def test_metadata_and_store_are_waited_for(harness: Tiered) -> None:
    local = copied_before(harness, wiped=True)
    harness.is_ready = False
    harness.nodes[3].start()
    harness.run(5_000)
    assert harness.starts(3) == (0, 0, 0)
    harness.is_ready, harness.store.failure = True, Failure.UNAVAILABLE
    harness.run(5_000)
    assert harness.starts(3) == (0, 0, 0)
    harness.store.failure = None
    harness.run(5_000)
    assert harness.starts(3)[:2] == (0, local)
    harness.check_alike(3)


def test_the_replica_is_killed_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[tuple[int, int]] = set()
    for ms in range(1, 16):
        harness = made(monkeypatch)
        local = copied_before(harness, wiped=True)
        harness.nodes[3].start()
        harness.run(ms)
        harness.nodes[3].kill()
        harness.fence(3)
        harness.run(10)
        harness.nodes[3].start()
        found.add(harness.starts(3)[:2])
        harness.run(3_000)
        assert harness.starts(3) == (0, local, local + 1), ms
        harness.check_alike(3)
    assert found == {(0, 0), (0, local)}


def test_another_leader_is_elected_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 1 has everything on local disk: a replica that follows it needs nothing remote."""
    found: set[int] = set()
    for ms in range(1, 16):
        harness = made(monkeypatch)
        local = copied_before(harness, wiped=True)
        assert harness.starts(1)[:2] == (0, 0)
        harness.nodes[3].start()
        harness.run(ms)
        harness.prefer(1)
        harness.run(4_000)
        harness.produce("of the new epoch")
        harness.run(20)
        assert harness.starts(3) in ((0, 0, local + 2), (0, local, local + 2)), ms
        harness.check_alike(3)
        found.add(harness.starts(3)[1])
    assert found == {0, local}


@pytest.mark.parametrize("is_tiered", [False, True])
def test_an_unclean_leader_ends_within_the_remote_prefix(harness: Tiered, is_tiered: bool) -> None:
    """Broker 1 lacks the last records that broker 3 has in remote storage only."""
    assert harness.idempotent(0) == (Error.NONE, 0)
    harness.fill(segments=1)
    if is_tiered:
        harness.tier()
    harness.lose(1, wiped=False)
    harness.lose(3, wiped=True)
    harness.fill()
    assert harness.idempotent(1)[0] == Error.NONE
    harness.fill(segments=1)
    harness.tier()
    harness.nodes[3].start()
    harness.run(3_000)
    start, local, _ = harness.starts(3)
    assert (start, local) == (0, harness.log(3).log_end_offset)
    assert harness.log(1).log_end_offset < local
    harness.lose(2, wiped=False)
    harness.nodes[3].kill()
    harness.fence(3)
    harness.nodes[1].start()
    harness.run(10)
    harness.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=1, isr=(1,)))
    harness.run(100)
    harness.produce("another history")
    harness.run(20)
    harness.nodes[3].start()
    harness.run(3_000)
    harness.check_alike(3)
    assert harness.idempotent(1)[0] == Error.NONE, "the former one is lost"
    harness.run(1_000)
    harness.check_alike(3)
