"""Sealed segments are copied once each, in order, whatever the store does.

Method: real logs, the model of the store with faults, and metadata replayed with a delay
(`copy_bench`).
"""

import logging
from collections import Counter
from typing import Any

import pytest

from ottla.base.object_store import Failure, StoreError
from ottla.broker.remote.environment import RemoteLogManagerConfig
from ottla.broker.remote.tasks.copy_task import UNDELETED_COPIES_MAX
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.log.results import DamagedLog
from ottla.metadata.tiering import TieringState, TopicTiering
from ottla.records.control import build_marker
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.tiered.metadata_records import encode
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import Fence, SegmentMetadata, SegmentState, SegmentUpdate
from tests.unit.broker.remote.copy_bench import (
    ENABLED,
    HOUR_S,
    TOPIC_ID,
    Bench,
    BenchBroker,
    log_config,
)
from tests.unit.log.support import append, batch, produced


def led(bench: Bench, segments: int = 3, **config: Any) -> BenchBroker:
    """Return a broker that leads a log of sealed segments."""
    broker = bench.broker(1, **config)
    broker.fill(segments)
    broker.lead(5)
    return broker


def marker(*, committed: bool) -> bytearray:
    """Return the end of producer 7's transaction."""
    return bytearray(
        build_marker(
            committed=committed,
            producer_id=7,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=1_000_000,
        )
    )


def copies_announced(bench: Bench) -> Counter[int]:
    """Return how often a copy of each start offset was announced."""
    return Counter(
        each.start_offset for each in bench.metadata.records() if isinstance(each, SegmentMetadata)
    )


# -- the plain case --------------------------------------------------------------------------------


def test_the_segment_that_the_log_start_lies_in_is_copied() -> None:
    """DeleteRecords has dropped the leader epochs of its first records, which nobody reads."""
    bench = Bench()
    broker = bench.broker(1)
    broker.fill(2, epoch=3)
    broker.log.delete_records(4)
    broker.lead(5)
    bench.run()
    bench.check(broker, [(0, 10), (10, 20)])
    assert bench.segments()[0].epochs == ((3, 4),)


def test_sealed_segments_are_copied_once_and_in_order() -> None:
    bench = Bench()
    broker = led(bench)
    bench.run(10)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])
    assert broker.log.highest_remote_offset == 29
    broker.produce(7)
    broker.roll()
    bench.run(5)
    bench.check(broker, [(0, 10), (10, 20), (20, 30), (30, 40)])
    assert copies_announced(bench) == {0: 1, 10: 1, 20: 1, 30: 1}


def test_the_fence_comes_first_and_one_copy_ends_before_the_next_begins() -> None:
    bench = Bench()
    led(bench)
    bench.run(10)
    first, *others = bench.metadata.records()
    assert isinstance(first, Fence)
    assert (first.leader_epoch, first.tiered_epoch, first.broker_id) == (5, 1, 1)
    # It comes again before the first manifest, which must be behind what others have written.
    assert sum(isinstance(each, Fence) for each in others) == 1
    states = [each.state for each in others if isinstance(each, SegmentMetadata | SegmentUpdate)]
    assert states == [SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED] * 3


def test_a_segment_s_metadata_say_what_it_has() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.produce(4, epoch=2, timestamp=1_000)
    broker.produce(6, epoch=4, timestamp=2_000)
    broker.roll()
    broker.lead(5)
    bench.run(10)
    [segment] = bench.segments()
    assert (segment.start_offset, segment.end_offset) == (0, 9)
    assert segment.epochs == ((2, 0), (4, 4))
    assert segment.max_timestamp_ms == 2_000
    assert (segment.broker_id, segment.leader_epoch, segment.tiered_epoch) == (1, 5, 1)
    assert segment.size_bytes == broker.log.local_segments()[0].size_bytes
    assert segment.txn_index_empty
    objects = bench.model.objects
    for kind, name in ((ObjectKind.OFFSET_INDEX, "index"), (ObjectKind.TIME_INDEX, "timeindex")):
        path = f"{broker.log.directory}/{0:020d}.{name}"
        assert objects[object_name(segment, kind)] == broker.disk.read_bytes(path)
    snapshot = broker.disk.read_bytes(f"{broker.log.directory}/{10:020d}.snapshot")
    assert objects[object_name(segment, ObjectKind.PRODUCER_SNAPSHOT)] == snapshot
    assert objects[object_name(segment, ObjectKind.LEADER_EPOCHS)] == b"0\n2\n2 0\n4 4\n"


def test_a_transaction_index_is_copied_where_there_is_one() -> None:
    bench = Bench()
    broker = bench.broker(1)
    append(broker.log, produced(7, 0, 0, transactional=True))
    append(broker.log, marker(committed=False), origin="coordinator")
    broker.produce(3)
    broker.roll()
    broker.lead(5)
    bench.run(10)
    bench.check(broker, [(0, 5)])
    [segment] = bench.segments()
    assert not segment.txn_index_empty
    assert bench.model.objects[object_name(segment, ObjectKind.TXN_INDEX)]


def test_a_missing_producer_snapshot_is_rebuilt() -> None:
    bench = Bench()
    broker = bench.broker(1)
    append(broker.log, produced(7, 0, 0))
    broker.produce(3)
    broker.roll()
    path = f"{broker.log.directory}/{4:020d}.snapshot"
    before = broker.disk.read_bytes(path)
    broker.disk.remove(path)
    broker.log.producer_manager.snapshots.remove(4)
    broker.lead(5)
    bench.run(10)
    [segment] = bench.segments()
    rebuilt = bench.model.objects[object_name(segment, ObjectKind.PRODUCER_SNAPSHOT)]
    assert len(rebuilt) == len(before) > 0


# -- damage on the local disk ----------------------------------------------------------------------


def damage_of(broker: BenchBroker) -> list[DamagedLog]:
    """Return the list of what the broker will report."""
    found: list[DamagedLog] = []
    broker.life.environment.log_damaged = lambda log, epoch, damage: found.append(damage)
    return found


def test_a_damaged_segment_is_not_copied_and_nothing_is_written_about_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was copied, and then all replicas deleted their intact files."""
    bench = Bench()
    broker = bench.broker(1)
    broker.fill(3)
    path = f"{broker.log.directory}/{10:020d}.log"
    sound = broker.disk.read_bytes(path)[-1:]
    broker.disk.corrupt(path, len(broker.disk.read_bytes(path)) - 1, bytes([sound[0] ^ 1]))
    found = damage_of(broker)
    broker.lead(5)
    bench.run(HOUR_S)
    bench.check(broker, [(0, 10)])
    assert copies_announced(bench) == {0: 1}
    assert broker.log.highest_remote_offset == 9
    assert {(each.path, each.good_end) for each in found} == {(path, 19)}
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert status.last_error is not None
    assert f"CORRUPT_MESSAGE: position 1071 of {path}: " in status.last_error
    assert broker.life.environment.metrics.of_topic("topic").copy_errors == len(found) > 10
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
    assert broker.life.environment.copier_slots.free == 10


def test_another_leader_copies_its_own_file() -> None:
    bench = Bench()
    broker, other = bench.broker(1), bench.broker(2)
    broker.fill(3)
    other.copy_of(broker)
    broker.disk.corrupt(f"{broker.log.directory}/{10:020d}.log", 100, b"\xff")
    broker.lead(5)
    bench.run(60)
    assert bench.readable() == [(0, 10)]
    broker.follow()
    other.lead(6)
    bench.run(60)
    bench.check(other, [(0, 10), (10, 20), (20, 30)])


def test_copies_go_on_behind_a_damaged_segment_whose_records_are_deleted() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.fill(3)
    broker.disk.corrupt(f"{broker.log.directory}/{10:020d}.log", 100, b"\xff")
    broker.lead(5)
    bench.run(60)
    broker.log.delete_records(20)
    bench.run(60)
    assert (20, 30) in bench.readable()


def test_a_segment_whose_transaction_index_is_damaged_is_not_copied() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.fill(2)
    path = f"{broker.log.directory}/{0:020d}.txnindex"
    broker.disk.write_atomic(path, b"0123456789")
    found = damage_of(broker)
    broker.lead(5)
    bench.run(60)
    assert not bench.segment_objects()
    assert {(each.path, each.good_end) for each in found} == {(path, 0)}


# -- what is not copied yet ------------------------------------------------------------------------


def test_the_active_segment_is_never_copied() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.produce(10)
    broker.lead(5)
    bench.run(HOUR_S)
    assert not bench.metadata.values
    assert not bench.model.objects


def test_a_segment_waits_for_the_high_watermark() -> None:
    bench = Bench()
    broker = bench.broker(1)
    append(broker.log, batch(10))
    broker.roll()
    broker.lead(5)
    bench.run(5)
    assert not bench.model.objects
    broker.log.advance_high_watermark(9)
    broker.do(lambda: broker.life.manager.offsets_advanced(TOPIC_ID, 0))
    bench.run(2)
    assert not bench.model.objects
    broker.log.advance_high_watermark(10)
    broker.do(lambda: broker.life.manager.offsets_advanced(TOPIC_ID, 0))
    bench.run(2)
    bench.check(broker, [(0, 10)])


def test_an_open_transaction_holds_its_segment_back() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.produce(10)
    broker.roll()
    broker.begin_transaction()
    broker.produce(9)
    broker.roll()
    broker.lead(5)
    bench.run(60)
    bench.check(broker, [(0, 10)])
    append(broker.log, marker(committed=True), origin="coordinator")
    broker.produce(1)
    broker.do(lambda: broker.life.manager.offsets_advanced(TOPIC_ID, 0))
    bench.run(2)
    bench.check(broker, [(0, 10), (10, 20)])


def test_nothing_is_copied_before_the_metadata_are_ready() -> None:
    bench = Bench()
    broker = led(bench)
    bench.run(10)
    life = broker.start()
    life.reader.ready_at = 10**6
    broker.produce(7)
    broker.roll()
    broker.lead(6)
    bench.run(HOUR_S)
    assert bench.readable() == [(0, 10), (10, 20), (20, 30)]
    life.reader.ready_at = 0
    life.reader.poll()
    bench.run(2)
    bench.check(broker, [(0, 10), (10, 20), (20, 30), (30, 40)])
    assert copies_announced(bench) == {0: 1, 10: 1, 20: 1, 30: 1}


@pytest.mark.parametrize("state", [TieringState.DISABLING, TieringState.DISABLED])
def test_copies_stop_while_tiering_is_off(state: TieringState) -> None:
    bench = Bench()
    broker = led(bench, 1)
    bench.run(10)
    off = TopicTiering(topic_id=TOPIC_ID, state=state, tiered_epoch=2)
    broker.do(lambda: broker.life.manager.tiering_changed(off))
    broker.produce(7)
    broker.roll()
    bench.run(100)
    bench.check(broker, [(0, 10)])
    assert broker.log.highest_remote_offset == 9
    on = TopicTiering(topic_id=TOPIC_ID, tiered_epoch=3)
    broker.do(lambda: broker.life.manager.tiering_changed(on))
    bench.run(10)
    bench.check(broker, [(0, 10), (10, 20)])
    assert [each.tiered_epoch for each in bench.segments()] == [1, 3]


# -- a store with faults ---------------------------------------------------------------------------


@pytest.mark.forms(10)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("fault", ["slow", "refused", "hanging", "lost_answers", "lies"])
def test_faults_of_the_store_lose_and_leave_nothing(fault: str, seed: int) -> None:
    bench = Bench(seed, faults=ObjectStoreFaults(list_lag_ms=5_000))
    setattr(bench.model.faults, fault, 0.3)
    broker = led(bench)
    bench.run(2 * HOUR_S)
    bench.model.faults = ObjectStoreFaults()
    bench.run(4 * HOUR_S)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])
    faults = Counter(each.fault for each in bench.model.history)
    slots = broker.life.environment.copier_slots
    assert slots.free == 10
    assert fault in ("slow", "refused") or sum(faults.values()) > faults[""]


def test_a_store_that_is_down_fills_neither_the_metadata_nor_the_store() -> None:
    bench = Bench(faults=ObjectStoreFaults(is_down=True))
    broker = led(bench)
    bench.run(48 * HOUR_S)
    assert len(bench.segments()) <= UNDELETED_COPIES_MAX + 1
    assert broker.log.highest_remote_offset == -1
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert status.last_error is not None
    assert "503" in status.last_error
    assert status.copy_lag_segments == 3
    bench.model.faults = ObjectStoreFaults()
    bench.run(2 * HOUR_S)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert status.last_error is None


def test_a_store_that_is_busy_with_other_operations_is_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(faults=ObjectStoreFaults(is_down=True))
    broker = led(bench, 1)
    term = LeaderTerm(broker.life.environment, broker.log, 1, TopicTiering(topic_id=TOPIC_ID))
    caplog.set_level(logging.DEBUG)
    for failure in (Failure.BUSY, Failure.BUSY, Failure.UNAVAILABLE):
        term.failed("expiration", "deletion", StoreError(failure, "503"), 100)
    levels = {each.getMessage(): each.levelname for each in caplog.records}
    assert levels == {
        "topic-0: deletion failed: busy: 503; retrying in 100 ms": "DEBUG",
        "topic-0: deletion failed: unavailable: 503; retrying in 100 ms": "WARNING",
    }
    assert term.last_error == "deletion failed: unavailable: 503"


def test_copying_goes_on_where_only_deletions_fail() -> None:
    bench = Bench(faults=ObjectStoreFaults(lies=1.0, partial_deletes=1.0))
    broker = led(bench)
    bench.run(20)
    bench.model.faults = ObjectStoreFaults(partial_deletes=1.0)
    bench.run(120)
    assert bench.readable() == [(0, 10), (10, 20), (20, 30)]
    bench.run(HOUR_S)
    bench.check(broker)


def test_a_store_that_lies_is_found_out() -> None:
    bench = Bench(faults=ObjectStoreFaults(lies=1.0))
    broker = led(bench, 1)
    bench.run(600)
    assert bench.readable() == []
    assert broker.life.environment.metrics.of_topic("topic").copy_errors > 1
    bench.model.faults = ObjectStoreFaults()
    bench.run(HOUR_S)
    bench.check(broker, [(0, 10)])


def test_a_hanging_store_does_not_hold_a_slot_for_ever() -> None:
    bench = Bench(faults=ObjectStoreFaults(hanging=1.0))
    broker = led(bench, 1)
    bench.run(1)
    slots = broker.life.environment.copier_slots
    assert slots.free == 9
    free = set()
    for _ in range(HOUR_S // 10):
        bench.run(10)
        free.add(slots.free)
    assert free == {9, 10}


@pytest.mark.parametrize("seed", range(5))
def test_lost_answers_of_the_metadata_topic(seed: int) -> None:
    bench = Bench(seed)
    bench.metadata.lost_answers = 0.4
    broker = led(bench)
    bench.run(HOUR_S)
    bench.metadata.lost_answers = 0.0
    bench.run(2 * HOUR_S)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])


def test_a_metadata_topic_that_is_down_holds_no_slot() -> None:
    bench = Bench()
    bench.metadata.is_down = True
    broker = led(bench)
    free = []
    for _ in range(500):
        bench.run(1)
        free.append(broker.life.environment.copier_slots.free)
    assert free.count(10) > 400
    bench.metadata.is_down = False
    bench.run(60)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])


def test_what_was_sealed_during_an_outage_is_copied_without_an_event() -> None:
    """Nothing stays local until a restart, whatever failed, and however often."""
    bench = Bench()
    broker = led(bench, local_retention_bytes=0)
    bench.run(10)
    for fault in ("is_down", "hanging", "lost_answers", "refused"):
        bench.model.faults = ObjectStoreFaults()
        setattr(bench.model.faults, fault, True if fault == "is_down" else 1.0)
        broker.produce(7)
        broker.roll()
        broker.produce(3)
        bench.run(3 * HOUR_S)
        assert broker.log.local_log_start_offset <= broker.log.highest_remote_offset + 1
    bench.model.faults = ObjectStoreFaults()
    bench.run(3 * HOUR_S)
    bench.check(broker, [(start, start + 10) for start in range(0, 70, 10)])
    broker.log.expire_segments(broker.clock.now_ms())
    assert broker.log.local_log_start_offset == 70


# -- limits ----------------------------------------------------------------------------------------


def test_at_most_so_many_segments_are_copied_at_once() -> None:
    bench = Bench()
    broker = bench.broker(1)
    life = broker.start(config=RemoteLogManagerConfig(copier_slots=2))
    for partition in range(1, 7):
        log = broker.open_log(partition, log_config())
        append(log, batch(10))
        log.advance_high_watermark(10)
        log.roll(0)
        life.manager.become_leader(log, leader_epoch=0, tiering=ENABLED)
    bench.run(60)
    started: set[bytes] = set()
    most = 0
    for record in bench.metadata.records():
        if isinstance(record, SegmentMetadata):
            started.add(record.segment_id)
        elif isinstance(record, SegmentUpdate):
            started.discard(record.segment_id)
        most = max(most, len(started))
    # A slot is free again once the objects are there; COPY_FINISHED follows.
    assert 2 <= most <= 4
    assert len(bench.segment_objects()) == 6 * 5
    assert life.environment.copier_slots.free == 2


def test_the_copy_quota_bounds_the_rate() -> None:
    bench = Bench()
    broker = bench.broker(1)
    for _ in range(20):
        broker.produce(10, size=1_000)
        broker.roll()
    quota = RemoteLogManagerConfig(copy_bytes_per_second=1_000, copy_window_seconds=11)
    broker.start(config=quota)
    broker.lead(5)
    bench.run(60)
    copied = broker.life.environment.metrics.of_topic("topic").copied_bytes
    # What the window allows at first, and one segment beyond.
    assert 60_000 < copied < 60_000 + 11_000 + 2 * 11_000
    bench.run(300)
    bench.check(broker)
    assert len(bench.readable()) == 20


# -- leaders that change ---------------------------------------------------------------------------


def test_a_resigned_leader_stops_and_frees_its_slot() -> None:
    bench = Bench(faults=ObjectStoreFaults(slow=1.0))
    broker = led(bench)
    bench.run(3)
    slots = broker.life.environment.copier_slots
    assert slots.free == 9
    appended = len(bench.metadata.values)
    broker.follow()
    assert slots.free == 10
    bench.run(HOUR_S)
    assert len(bench.metadata.values) == appended
    assert broker.life.environment.metrics.partitions == []


def test_the_next_leader_cleans_up_and_goes_on() -> None:
    bench = Bench(faults=ObjectStoreFaults(slow=1.0))
    first = led(bench)
    second = bench.broker(2)
    second.copy_of(first)
    second.follow()
    bench.run(30)
    first.follow()
    second.lead(6)
    bench.run(HOUR_S)
    bench.model.faults = ObjectStoreFaults()
    bench.run(2 * HOUR_S)
    bench.check(second, [(0, 10), (10, 20), (20, 30)])
    assert first.log.highest_remote_offset == 29


@pytest.mark.parametrize("seed", range(10))
def test_two_leaders_at_once_are_decided_by_the_fence(seed: int) -> None:
    bench = Bench(seed, faults=ObjectStoreFaults(slow=0.1), metadata_lag_ms=200)
    first = led(bench, 6)
    second = bench.broker(2)
    second.copy_of(first)
    bench.run(seed * 0.7)
    second.lead(6)  # The first one has not learned of it, and goes on.
    bench.run(2 * HOUR_S)
    bench.check(second, [(start, start + 10) for start in range(0, 60, 10)])
    status = first.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert first.life.environment.copier_slots.free == 10
    refused = bench.metadata.replayed().refused
    fence = bench.metadata.replayed().fence
    assert fence is not None
    assert fence.leader_epoch == 6
    assert refused <= 4


def test_leaders_that_roll_at_other_offsets_leave_no_gap() -> None:
    bench = Bench()
    first = led(bench, 2)
    bench.run(10)
    second = bench.broker(2)
    second.copy_of(first)
    first.follow()
    second.produce(2, epoch=6)
    second.roll()
    second.produce(2, epoch=6)
    second.lead(6)
    bench.run(10)
    assert bench.readable() == [(0, 10), (10, 20), (20, 25)]


def test_the_log_start_of_a_new_leader_is_that_of_the_remote_tier() -> None:
    bench = Bench()
    first = led(bench, 4)
    bench.run(10)
    first.log.advance_log_start(20)
    first.life.manager.log_start_moved(TOPIC_ID, 0)
    bench.run(HOUR_S)
    bench.check(first, [(20, 30), (30, 40)])
    second = bench.broker(2)
    second.copy_of(first)
    second.log.offsets.local_log_start_offset = 30
    second.log.offsets.log_start_offset = 0
    second.lead(6)
    bench.run(10)
    assert second.log.log_start_offset == 20


@pytest.mark.parametrize("deleted", [1, 2, 4])
def test_a_former_leader_s_deletion_comes_after_the_new_term_has_begun(deleted: int) -> None:
    """The new leader had the log start in memory alone, and was killed; the record was waiting."""
    bench = Bench()
    first = led(bench, 4)
    bench.run(10)
    second = bench.broker(2)
    second.copy_of(first)
    second.delete_local(25)
    first.life.process.alive = False
    second.lead(6)
    bench.run(5)
    assert second.log.log_start_offset == 0
    for each in bench.segments()[:deleted]:
        bench.metadata.arrived(
            encode(
                SegmentUpdate(
                    topic=each.topic,
                    topic_id=each.topic_id,
                    partition=each.partition,
                    segment_id=each.segment_id,
                    state=SegmentState.DELETE_STARTED,
                    broker_id=1,
                    event_timestamp_ms=first.clock.now_ms(),
                    leader_epoch=5,
                    tiered_epoch=1,
                )
            )
        )
    bench.run(2 * HOUR_S)
    start = min(10 * deleted, 25)
    assert second.log.log_start_offset == start
    manifest = bench.manifest()
    assert manifest is not None
    assert manifest.log_start_offset == start
    bench.check(second)
    assert bench.readable()[-1][1] == 40  # What is left locally of deleted segments, too.
    fences = [each.leader_epoch for each in bench.metadata.records() if isinstance(each, Fence)]
    assert fences[-1] == 6  # Not before earlier leaders can copy no more.


def test_a_log_that_replaces_another_is_known_to_be_copied() -> None:
    """KAFKA-16711: as the copy in another log directory does, in the same leader epoch."""
    bench = Bench()
    broker = led(bench, local_retention_bytes=0)
    bench.run(10)
    former = broker.log
    broker.log = broker.open_log(0, former.config)
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    assert broker.log.highest_remote_offset == -1
    broker.lead(5)
    bench.run(10)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])
    broker.log.flush_now()
    broker.log.expire_segments(broker.clock.now_ms())
    assert broker.log.local_log_start_offset == 30


# -- followers -------------------------------------------------------------------------------------


def test_a_follower_learns_what_is_copied() -> None:
    bench = Bench()
    leader = led(bench)
    follower = bench.broker(2)
    follower.copy_of(leader)
    follower.follow()
    bench.run(10)
    assert follower.log.highest_remote_offset == 29
    status = follower.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert not status.is_leader
    assert (status.copy_lag_bytes, status.copy_lag_segments) == (0, 0)
    assert (status.remote_start_offset, status.remote_end_offset) == (0, 30)


def test_a_follower_learns_it_on_the_interval_where_no_event_says_so() -> None:
    bench = Bench()
    leader = led(bench)
    follower = bench.broker(2)
    follower.life.reader.changed = lambda partition: None
    follower.copy_of(leader)
    follower.follow()
    bench.run(10)
    assert follower.log.highest_remote_offset == -1
    bench.run(25)
    assert follower.log.highest_remote_offset == 29
