"""Remote segments are deleted for a reason, after the log start has moved, and entirely.

Method: as in `test_copy_task`; the history of the store and the metadata say what came first.
"""

from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.remote.store_calls import LATE_WRITE_MS
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.metadata_records import encode
from ottla.tiered.object_names import ObjectKind, parse_object_name
from ottla.tiered.segment_metadata import SegmentState, SegmentUpdate
from tests.unit.broker.remote.copy_bench import (
    HOUR_S,
    START_MS,
    TOPIC_ID,
    Bench,
    BenchBroker,
    log_config,
)
from tests.unit.broker.remote.tasks.held_store import HeldStore

ALL = [(0, 10), (10, 20), (20, 30), (30, 40)]


def copied(bench: Bench, *, timestamps: list[int] | None = None) -> BenchBroker:
    """Return a broker that leads a log with four copied segments."""
    broker = bench.broker(1)
    for number in range(4):
        broker.produce(timestamp=START_MS if timestamps is None else timestamps[number])
        broker.roll()
    broker.produce(3)
    broker.lead(5)
    bench.run(20)
    bench.check(broker, ALL)
    return broker


def configure(broker: BenchBroker, **config: Any) -> None:
    broker.log.reconfigure(log_config(**config))
    broker.do(lambda: broker.life.manager.config_changed(TOPIC_ID))


def segment_bytes(broker: BenchBroker) -> int:
    return broker.log.local_segments()[0].size_bytes


def test_by_time() -> None:
    bench = Bench()
    old = START_MS - 10_000_000
    broker = copied(bench, timestamps=[old, old, START_MS, old])
    configure(broker, retention_ms=5_000_000)
    bench.run(2 * LATE_WRITE_MS / 1000)
    # The third one is kept, and so is what is behind it.
    bench.check(broker, ALL[2:])
    assert broker.log.log_start_offset == 20
    assert bench.manifest().log_start_offset == 20  # type: ignore[union-attr]


def test_by_size() -> None:
    bench = Bench()
    broker = copied(bench)
    active = broker.log.local_segments()[-1].size_bytes
    configure(broker, retention_bytes=2 * segment_bytes(broker) + active)
    bench.run(2 * LATE_WRITE_MS / 1000)
    bench.check(broker, ALL[2:])
    assert broker.log.log_start_offset == 20


def test_by_delete_records() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.log.delete_records(25)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(2)
    assert bench.readable() == ALL[2:]
    bench.run(2 * LATE_WRITE_MS / 1000)
    bench.check(broker, ALL[2:])
    assert broker.log.log_start_offset == 25


def test_everything() -> None:
    bench = Bench()
    broker = copied(bench, timestamps=[START_MS - 10**9] * 4)
    configure(broker, retention_ms=5_000_000)
    bench.run(2 * LATE_WRITE_MS / 1000)
    bench.check(broker, [])
    assert broker.log.log_start_offset == 40
    broker.produce(7)
    broker.roll()
    bench.run(5)
    bench.check(broker, [(40, 50)])


def test_a_compacted_policy_deletes_nothing_by_time_or_size() -> None:
    bench = Bench()
    broker = copied(bench, timestamps=[START_MS - 10**9] * 4)
    configure(broker, retention_ms=1, retention_bytes=1, deletes=False)
    bench.run(HOUR_S)
    bench.check(broker, ALL)


def test_the_order_of_a_deletion() -> None:
    bench = Bench()
    broker = copied(bench)
    appended, executed = len(bench.metadata.values), len(bench.model.history)
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    while not bench.published:
        assert len(bench.metadata.values) == appended
        assert len(bench.model.history) == executed
        bench.run(0.001)
    assert bench.published == [20]
    bench.run(1)
    new = bench.metadata.records()[appended:]
    states = [each.state for each in new if isinstance(each, SegmentUpdate)]
    assert states == [SegmentState.DELETE_STARTED] * 2 + [SegmentState.DELETE_FINISHED] * 2
    written, deleted = bench.model.history[executed:]
    assert (written.operation, deleted.operation) == ("put_if_absent", "delete_many")
    manifest = decode_manifest(bench.model.objects[written.names[0]])
    assert len(manifest.removed) == 2
    bench.check(broker, ALL[2:])


@pytest.mark.parametrize("limit", [{"retention_ms": 5_000_000}, {"retention_bytes": 0}])
def test_retention_moves_and_publishes_the_log_start_before_it_deletes(
    limit: dict[str, int],
) -> None:
    """KAFKA-15352."""
    bench = Bench()
    broker = copied(bench, timestamps=[START_MS - 10_000_000] * 4)
    appended, executed = len(bench.metadata.values), len(bench.model.history)
    configure(broker, **limit)
    while not bench.published:
        assert len(bench.metadata.values) == appended
        assert len(bench.model.history) == executed
        bench.run(0.001)
    assert bench.published == [broker.log.log_start_offset] == [40]
    bench.run(2 * LATE_WRITE_MS / 1000)
    bench.check(broker, [])


@pytest.mark.parametrize("metadata_lag_ms", [20, 5_000])
def test_a_new_leader_counts_each_segment_once(metadata_lag_ms: int) -> None:
    """KAFKA-20732: what is copied and still local is one segment, also before that is known."""
    bench = Bench()
    former = copied(bench)
    bench.metadata_lag_ms = metadata_lag_ms
    total = sum(each.size_bytes for each in former.log.local_segments())
    broker = bench.broker(2)
    broker.copy_of(former)
    former.follow()
    configure(broker, retention_bytes=total)
    assert broker.log.highest_remote_offset == -1
    broker.lead(6)
    bench.run(HOUR_S)
    bench.check(broker, ALL)
    assert broker.log.log_start_offset == 0
    configure(broker, retention_bytes=total - segment_bytes(broker))
    bench.run(2 * HOUR_S)
    bench.check(broker, ALL[1:])


def test_what_another_process_copied_is_deleted_once_more_after_a_while() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.start()
    broker.lead(6)
    bench.run(10)
    broker.log.delete_records(10)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(LATE_WRITE_MS / 2000)
    assert bench.segments()[0].state is SegmentState.DELETE_STARTED
    deletions = [each for each in bench.model.history if each.operation == "delete_many"]
    assert len(deletions) == 1
    bench.run(LATE_WRITE_MS / 1000)
    deletions = [each for each in bench.model.history if each.operation == "delete_many"]
    assert len(deletions) == 2
    bench.check(broker, ALL[1:])


def test_a_log_start_that_is_not_published_deletes_nothing() -> None:
    bench = Bench()
    broker = copied(bench)
    real = broker.life.environment.publish_log_start
    broker.life.environment.publish_log_start = lambda log, offset: completed(
        ApiError(Error.REQUEST_TIMED_OUT)
    )
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    bench.check(broker, ALL)
    broker.life.environment.publish_log_start = real
    bench.run(300)
    bench.check(broker, ALL[2:])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["partial_deletes", "refused", "hanging", "lost_answers", "slow"])
def test_failed_deletions_are_repeated(fault: str, seed: int) -> None:
    bench = Bench(seed)
    broker = copied(bench)
    setattr(bench.model.faults, fault, 0.5)
    broker.log.delete_records(40)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    bench.model.faults = ObjectStoreFaults()
    bench.run(HOUR_S)
    bench.check(broker, [])


def test_a_store_that_is_down_keeps_the_objects_and_nothing_reads_them() -> None:
    bench = Bench()
    broker = copied(bench)
    bench.model.faults.is_down = True
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    assert bench.readable() == ALL[2:]
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert status.deleting_segments == 2
    assert (status.remote_start_offset, status.remote_end_offset) == (20, 40)
    metrics = broker.life.environment.metrics.partitions[0]
    assert metrics.delete_lag_segments == 2
    bench.model.faults.is_down = False
    bench.run(HOUR_S)
    bench.check(broker, ALL[2:])
    assert broker.life.environment.metrics.partitions[0].delete_lag_segments == 0


def test_the_next_leader_ends_what_has_begun() -> None:
    bench = Bench()
    first = copied(bench)
    second = bench.broker(2)
    second.copy_of(first)
    second.follow()
    bench.model.faults.is_down = True
    first.log.delete_records(20)
    second.log.advance_log_start(20)
    first.do(lambda: first.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(60)
    first.follow()
    bench.model.faults.is_down = False
    second.lead(6)
    bench.run(2 * HOUR_S)
    bench.check(second, ALL[2:])


def test_expiration_runs_while_the_topic_is_not_copied_any_more() -> None:
    bench = Bench()
    broker = copied(bench)
    retained = TopicTiering(
        topic_id=TOPIC_ID,
        state=TieringState.DISABLED,
        tiered_epoch=2,
        policy=DisablePolicy.RETAIN,
    )
    broker.do(lambda: broker.life.manager.tiering_changed(retained))
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(300)
    bench.check(broker, ALL[2:])


def test_deletions_are_bounded_in_rate() -> None:
    bench = Bench()
    broker = bench.broker(1)
    life = broker.start()
    life.environment.delete_quota.change_rate(1)
    for _ in range(30):
        broker.produce(1)
        broker.roll()
    broker.lead(5)
    bench.run(100)
    assert len(bench.readable()) == 30
    life.environment.delete_quota.spend(100)
    broker.log.delete_records(-1)
    broker.do(lambda: life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(60)
    assert len(bench.segment_objects()) == 150
    bench.run(60)
    assert not bench.segment_objects()


def test_only_objects_of_deleted_segments_are_deleted() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(200)
    deleted = {
        name
        for event in bench.model.history
        if event.operation == "delete_many"
        for name in event.names
    }
    offsets = {parse_object_name(name).start_offset for name in deleted}  # type: ignore[union-attr]
    assert offsets == {0, 10}


def test_a_copy_that_its_former_leader_finishes_at_the_last_moment_is_kept() -> None:
    """1. The new leader finds a copy of the former one that is not finished.
    2. The former leader finishes it: it is readable, and local files of it may be deleted.
    3. The new leader, which has not fenced the former one off yet, deletes it as given up.
    """
    for seed in range(10):
        bench = Bench(seed)
        former = bench.broker(1)
        former.fill(1)
        former.lead(5)
        bench.run(20)
        former.life.process.alive = False
        finished = bench.metadata.values.pop()
        broker = bench.broker(2)
        broker.copy_of(former)
        bench.run(1)
        broker.lead(6)
        bench.metadata.arrived(finished)
        bench.run(HOUR_S)
        bench.check(broker, [(0, 10)])
        states = [each.state for each in bench.metadata.records() if hasattr(each, "segment_id")]
        assert SegmentState.DELETE_STARTED not in states


# -- deletions of a leader that is held where it removes old manifests -------------------------


def held_removal(bench: Bench) -> tuple[BenchBroker, BenchBroker, HeldStore]:
    """Return a leader of nine copied segments that waits for the listing of old manifests, another
    broker that may replace it, and what holds the listing. Records below 10 are deleted."""
    leader, next_leader = bench.broker(1), bench.broker(2)
    leader.fill(9)
    leader.lead(5)
    bench.run(30)
    next_leader.copy_of(leader)
    next_leader.follow()
    bench.run(1)
    held = HeldStore(leader.life, "list_page")
    for start in (5, 10):
        delete_records(leader, start)
        bench.run(3)
    next_leader.log.advance_log_start(10)
    state = bench.manifest()
    assert state is not None
    assert (state.sequence, len(state.segments), len(held.names)) == (10, 8, 1)
    return leader, next_leader, held


def delete_records(broker: BenchBroker, offset: int) -> None:
    broker.log.delete_records(offset)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))


def deleted_while_listed(bench: Bench) -> list[int]:
    """Return a list that gets the start offset of each segment whose log is deleted from now on
    while the last manifest lists it."""
    found: list[int] = []

    def changed(name: str, before: bytes | None, after: bytes | None) -> None:
        parsed, state = parse_object_name(name), bench.manifest()
        if after is None and parsed is not None and parsed.kind is ObjectKind.LOG:
            assert state is not None
            if parsed.segment_id in state.segments:
                found.append(parsed.start_offset)

    bench.model.on_change = changed
    return found


@pytest.mark.usefixtures("few")
def test_a_replaced_leader_does_not_delete_what_the_next_one_has_marked() -> None:
    """1. Broker 1 has written a base, and removes old manifests.
    2. Broker 2 is elected, fences, writes its base, and marks segments that the base lists.
    3. Broker 1 replays that; its cluster metadata lag. The removal ends.
    """
    bench = Bench()
    _, second, held = held_removal(bench)
    wrong = deleted_while_listed(bench)
    second.lead(6)
    bench.run(3)
    manifests = HeldStore(second.life, "put_if_absent")
    delete_records(second, 40)
    bench.run(1)
    assert len(manifests.names) == 1
    assert len(bench.readable()) == 5
    held.release()
    bench.run(HOUR_S)
    assert not wrong
    assert len(bench.segment_objects()) == 8 * 5
    manifests.release()
    bench.run(2 * HOUR_S)
    assert not wrong
    bench.check(second, [(start, start + 10) for start in range(40, 90, 10)])


@pytest.mark.usefixtures("few")
def test_a_replaced_leader_does_not_delete_what_the_next_one_s_fence_gives_up() -> None:
    """The log start behind it is not published yet, and no manifest has the floor."""
    bench = Bench()
    _, second, held = held_removal(bench)
    wrong = deleted_while_listed(bench)
    second.life.environment.publish_log_start = lambda log, offset: Pending()
    second.lead(
        6,
        TopicTiering(
            topic_id=TOPIC_ID,
            state=TieringState.DISABLING,
            tiered_epoch=2,
            policy=DisablePolicy.DELETE,
            remote_floor_epoch=1,
            purge_pending=True,
        ),
    )
    bench.run(2)
    assert {each.state for each in bench.segments()} == {SegmentState.DELETE_STARTED}
    held.release()
    bench.run(HOUR_S)
    assert not wrong
    assert len(bench.segment_objects()) == 8 * 5


@pytest.mark.usefixtures("few")
def test_a_mark_of_an_earlier_leader_that_comes_late_waits_for_its_manifest() -> None:
    bench = Bench()
    leader, _, held = held_removal(bench)
    wrong = deleted_while_listed(bench)
    leader.log.advance_log_start(20)
    late = bench.segments()[0]
    assert late.start_offset == 10
    mark = SegmentUpdate(
        topic=late.topic,
        topic_id=TOPIC_ID,
        partition=0,
        segment_id=late.segment_id,
        state=SegmentState.DELETE_STARTED,
        broker_id=7,
        event_timestamp_ms=late.event_timestamp_ms,
        leader_epoch=4,
        tiered_epoch=1,
    )
    bench.metadata.arrived(encode(mark))
    bench.run(1)
    assert bench.readable()[0] == (20, 30)
    held.release()
    bench.run(HOUR_S)
    assert not wrong
    bench.check(leader, [(start, start + 10) for start in range(20, 90, 10)])


@pytest.mark.usefixtures("few")
def test_a_replaced_leader_does_not_forget_a_copy_that_the_fence_has_cancelled() -> None:
    """A put of it may still be executed: the next leader deletes its objects once more."""
    bench = Bench()
    first, _, held = held_removal(bench)
    held.let_pass()
    puts = HeldStore(first.life, "put")
    first.produce()
    first.roll()
    bench.run(3)
    assert len(puts.names) == 1
    second = bench.broker(3)
    second.copy_of(first)
    second.log.advance_log_start(10)
    second.lead(6)
    bench.run(3)
    held.release()
    bench.run(5)
    puts.release()
    bench.run(2 * HOUR_S)
    bench.check(second)


def test_a_replaced_leader_deletes_nothing_once_it_has_replayed_the_fence() -> None:
    bench = Bench()
    first = copied(bench)
    second = bench.broker(2)
    second.copy_of(first)
    second.follow()
    first.life.environment.delete_quota.change_rate(1)
    first.life.environment.delete_quota.spend(100)
    delete_records(first, 20)
    second.log.advance_log_start(20)
    bench.run(1)
    assert bench.readable() == ALL[2:]
    assert len(bench.segment_objects()) == 4 * 5
    second.lead(6)
    bench.run(HOUR_S)
    bench.check(second, ALL[2:])
    deletions = [each for each in bench.model.history if each.operation == "delete_many"]
    assert {each.client for each in deletions} == {"broker-2"}
