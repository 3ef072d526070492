"""A restored partition's leader takes over what the manifests list, whenever it dies meanwhile.

Method: a broker copies segments and dies, with its metadata topic and its disk. Another one, whose
log begins where the restore plan says, restores: once without a crash, then with one at each of its
steps, after which it starts again, is elected again, or another one takes over.
"""

from dataclasses import replace

import pytest

from ottla.broker.logs.log_creation import begin_restored
from ottla.broker.remote.dialogue import Task
from ottla.broker.remote.tasks.purge_task import DeletedPartition, PurgeTask
from ottla.metadata.tiering import WHOLE_TOPIC, RestoredPartition, TopicTiering
from ottla.tiered.metadata_records import encode
from ottla.tiered.object_names import manifest_name, parse_manifest_name
from ottla.tiered.restore_plan import RestorePlan, StoredPartition, plan_restore
from ottla.tiered.segment_metadata import Fence, SegmentState
from tests.unit.broker.remote.copy_bench import (
    HOUR_S,
    TOPIC,
    TOPIC_ID,
    Bench,
    BenchBroker,
    MetadataTopic,
)
from tests.unit.log.support import make_complete

SEGMENTS = 4
ALL = [(0, 10), (10, 20), (20, 30), (30, 40)]


def lost_cluster(bench: Bench, *, log_start: int = 0) -> RestorePlan:
    """Copy segments, lose everything but the store; return the plan of the restore."""
    broker = bench.broker(9)
    broker.fill(SEGMENTS)
    broker.lead(5)
    bench.run(60)
    if log_start:
        broker.log.delete_records(log_start)
        broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
        bench.run(HOUR_S)
    bench.check(broker)
    broker.life.process.alive = False
    bench.metadata = MetadataTopic(bench.scheduler, bench.random)
    sizes = {name: len(data) for name, data in bench.model.objects.items()}
    found = StoredPartition(partition=0, state=bench.manifest(), sizes=sizes)
    plan = plan_restore(TOPIC, TOPIC_ID, [found])
    assert plan.faults == ()
    return plan


def restored_of(plan: RestorePlan) -> RestoredPartition:
    [partition] = plan.partitions
    return RestoredPartition(
        partition=0,
        leader_epoch=partition.leader_epoch,
        log_start_offset=partition.log_start_offset,
        end_offset=partition.end_offset,
        epochs=partition.epochs,
    )


def tiering_of(plan: RestorePlan) -> TopicTiering:
    return TopicTiering(
        topic_id=TOPIC_ID, tiered_epoch=plan.tiered_epoch, remote_floor_epoch=plan.floor
    )


def new_broker(bench: Bench, node_id: int) -> BenchBroker:
    broker = bench.broker(node_id)
    assert begin_restored(broker.log, bench.restored)
    if broker.log.has_remote_prefix:
        make_complete(broker.log)
    return broker


def restore(bench: Bench, crash_at: int | None = None) -> tuple[BenchBroker, RestorePlan]:
    plan = lost_cluster(bench)
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    broker.start(crash_at=crash_at)
    broker.lead(bench.restored.leader_epoch, tiering_of(plan))
    bench.run(60)
    return broker, plan


def test_the_segments_are_those_of_the_manifests_and_copying_goes_on() -> None:
    bench = Bench()
    before = None
    broker, plan = restore(bench)
    assert (broker.log.log_start_offset, broker.log.local_log_start_offset) == (0, 40)
    assert (broker.log.log_end_offset, broker.log.high_watermark) == (40, 40)
    bench.check(broker, ALL)
    before = bench.manifest()
    assert before is not None
    assert (before.leader_epoch, before.tiered_epoch) == (6, 2)
    assert {each.leader_epoch for each in bench.segments()} == {5}
    assert broker.log.highest_remote_offset == 39
    *records, fence = bench.metadata.records()[: 2 * SEGMENTS + 1]
    assert not any(isinstance(each, Fence) for each in records)
    assert isinstance(fence, Fence)
    broker.produce(epoch=6)
    broker.roll()
    bench.run(60)
    bench.check(broker, [*ALL, (40, 50)])
    # And nothing is restored again by the next leader, though it expires meanwhile.
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    broker.lead(7, tiering_of(plan))
    bench.run(HOUR_S)
    bench.check(broker, [(20, 30), (30, 40), (40, 50)])


def test_a_log_start_within_a_segment_is_kept() -> None:
    bench = Bench()
    plan = lost_cluster(bench, log_start=15)
    bench.restored = restored_of(plan)
    assert bench.restored.log_start_offset == 15
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    bench.run(60)
    bench.check(broker, ALL[1:])
    assert broker.log.log_start_offset == 15


@pytest.mark.parametrize("log_start", [40, 42])
def test_a_partition_of_which_nothing_is_left_is_restored(log_start: int) -> None:
    bench = Bench()
    plan = lost_cluster(bench, log_start=log_start)
    bench.restored = restored_of(plan)
    assert (bench.restored.log_start_offset, bench.restored.end_offset) == (log_start, log_start)
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    broker.fill(2, epoch=6)
    bench.run(60)
    bench.check(broker, [(log_start, log_start + 10), (log_start + 10, log_start + 20)])
    assert broker.log.log_start_offset == log_start


def test_nothing_is_known_of_the_segments_before_all_are() -> None:
    bench = Bench()
    plan = lost_cluster(bench)
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    seen = set()
    for _ in range(4_000):
        bench.run(0.005)
        found = broker.life.environment.metadata.remote_log(TOPIC_ID, 0)
        seen.add(None if found is None else len(found.finished()))
    assert seen == {None, SEGMENTS}


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("take_over", ["restarted", "elected", "another"])
def test_every_step_may_be_the_last(take_over: str) -> None:
    broker, _ = restore(Bench())
    count, names = broker.life.steps.count, broker.life.steps.names
    assert count > 20
    for crash_at in range(1, count + 1):
        bench = Bench()
        first, plan = restore(bench, crash_at)
        assert not first.life.process.alive
        tiering = tiering_of(plan)
        if take_over == "another":
            broker = new_broker(bench, 2)
        else:
            broker = first
            broker.start()
        broker.lead(6 if take_over == "restarted" else 7, tiering)
        bench.run(1.2 * HOUR_S)
        try:
            bench.check(broker, ALL)
        except AssertionError as error:
            step = f"crash at step {crash_at}, {names[crash_at - 1]}"
            raise AssertionError(f"{step}: {error}") from error
        assert broker.log.log_start_offset == 0


def test_a_leader_that_was_replaced_meanwhile_does_no_harm() -> None:
    for metadata_lag_ms in (20, 500):
        bench = Bench(metadata_lag_ms=metadata_lag_ms)
        plan = lost_cluster(bench)
        bench.restored = restored_of(plan)
        first, second = new_broker(bench, 1), new_broker(bench, 2)
        first.lead(6, tiering_of(plan))
        bench.run(0.05)
        second.lead(7, tiering_of(plan))
        bench.run(HOUR_S)
        bench.check(second, ALL)


def test_a_term_is_not_acknowledged_before_the_restore() -> None:
    bench = Bench()
    plan = lost_cluster(bench)
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    bench.model.faults.is_down = True
    broker.lead(6, tiering_of(plan))
    bench.run(1)
    opened = broker.life.manager.opened(TOPIC_ID, 0)
    assert opened is not None
    bench.run(60)
    assert not opened.done
    assert not bench.metadata.records()
    bench.model.faults.is_down = False
    bench.run(HOUR_S)
    assert opened.done
    bench.check(broker, ALL)


def test_metadata_of_an_earlier_life_are_newer_than_the_manifests() -> None:
    bench = Bench()
    earlier = bench.metadata
    plan = lost_cluster(bench)
    bench.metadata = earlier
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    bench.run(HOUR_S)
    bench.check(broker, ALL)


@pytest.mark.parametrize(("tiered_epoch", "floor"), [(3, 0), (3, 2), (2, 2)])
def test_a_fence_of_an_earlier_life_does_not_refuse_the_restored_topic(
    tiered_epoch: int, floor: int
) -> None:
    """Remote storage was turned off, and on again perhaps, after the last manifest."""
    bench = Bench()
    earlier = bench.metadata
    plan = lost_cluster(bench)
    assert plan.tiered_epoch == 2
    bench.metadata = earlier
    last = earlier.replayed().fence
    assert last is not None
    earlier.arrived(encode(replace(last, tiered_epoch=tiered_epoch, floor=floor)))
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    bench.run(60)
    bench.check(broker, ALL)
    broker.produce(epoch=6)
    broker.roll()
    bench.run(60)
    bench.check(broker, [*ALL, (40, 50)])
    assert len(earlier.values) < 40


def purge_and_abandon(bench: Bench) -> None:
    """Purge the deleted topic while the store is down, for as long as the operator waits."""
    purger = bench.broker(8)
    environment = purger.life.environment
    task = PurgeTask(
        environment,
        DeletedPartition(topic=TOPIC, topic_id=TOPIC_ID, partition=0),
        failed=lambda task, error, pause_ms: None,
        purged=lambda: None,
    )
    running = Task(task.run(), environment.timers, environment.clock)
    bench.model.faults.is_down = True
    purger.do(running.start)
    bench.run(60)
    running.cancel()
    bench.model.faults.is_down = False
    assert bench.metadata.replayed().floor == WHOLE_TOPIC


def restore_after_abandoned_purge(
    bench: Bench, crash_at: int | None = None, *, seconds: float = 60
) -> tuple[BenchBroker, RestorePlan]:
    earlier = bench.metadata
    plan = lost_cluster(bench)
    bench.metadata = earlier
    purge_and_abandon(bench)
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    broker.start(crash_at=crash_at)
    broker.lead(bench.restored.leader_epoch, tiering_of(plan))
    bench.run(seconds)
    return broker, plan


def test_a_purge_that_was_abandoned_does_not_count_for_the_restored_topic() -> None:
    bench = Bench()
    broker, _ = restore_after_abandoned_purge(bench)
    bench.check(broker, ALL)
    broker.produce(epoch=6)
    broker.roll()
    bench.run(60)
    bench.check(broker, [*ALL, (40, 50)])


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(1)
@pytest.mark.parametrize("take_over", ["restarted", "another"])
def test_every_step_after_an_abandoned_purge_may_be_the_last(take_over: str) -> None:
    broker, _ = restore_after_abandoned_purge(Bench())
    count, names = broker.life.steps.count, broker.life.steps.names
    for crash_at in range(1, count + 1):
        bench = Bench()
        broker, plan = restore_after_abandoned_purge(bench, crash_at)
        assert not broker.life.process.alive
        if take_over == "another":
            broker = new_broker(bench, 2)
        else:
            broker.start()
        broker.lead(7, tiering_of(plan))
        bench.run(1.2 * HOUR_S)
        try:
            bench.check(broker, ALL)
        except AssertionError as error:
            step = f"crash at step {crash_at}, {names[crash_at - 1]}"
            raise AssertionError(f"{step}: {error}") from error


def test_a_replaced_leader_lifts_no_fence_of_the_restored_topic() -> None:
    for metadata_lag_ms in (20, 500):
        bench = Bench(metadata_lag_ms=metadata_lag_ms)
        _, plan = restore_after_abandoned_purge(bench, seconds=0.01)
        second = new_broker(bench, 2)
        second.lead(7, tiering_of(plan))
        bench.run(HOUR_S)
        bench.check(second, ALL)
        fence = bench.metadata.replayed().fence
        assert fence is not None
        assert (fence.leader_epoch, fence.floor) == (7, 0)


def test_a_damaged_manifest_is_reported_and_nothing_is_lost() -> None:
    bench = Bench()
    plan = lost_cluster(bench)
    bench.restored = restored_of(plan)
    numbers = [parse_manifest_name(name) for name in bench.model.objects]
    last = max(each for each in numbers if each is not None)
    name = manifest_name(TOPIC, TOPIC_ID, 0, last)
    good = bench.model.objects[name]
    bench.model.put(name, b"damaged", replace=True)
    broker = new_broker(bench, 1)
    broker.lead(6, tiering_of(plan))
    bench.run(60)
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert name in str(status.last_error)
    assert not status.is_ready
    bench.model.put(name, good, replace=True)
    bench.run(HOUR_S)
    bench.check(broker, ALL)


@pytest.mark.parametrize("log_start", [20, 40, 45])
def test_records_that_are_deleted_before_the_restore_is_over_stay_deleted(log_start: int) -> None:
    bench = Bench()
    plan = lost_cluster(bench)
    bench.restored = restored_of(plan)
    broker = new_broker(bench, 1)
    bench.model.faults.is_down = True
    broker.lead(6, tiering_of(plan))
    broker.produce(epoch=6)
    broker.log.delete_records(log_start)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(60)
    bench.model.faults.is_down = False
    bench.run(HOUR_S)
    assert broker.log.log_start_offset == log_start
    bench.check(broker, [each for each in ALL if each[1] > log_start])


def test_a_partition_that_had_nothing_in_the_store() -> None:
    bench = Bench()
    bench.restored = RestoredPartition(
        partition=0, leader_epoch=0, log_start_offset=0, end_offset=0
    )
    broker = bench.broker(1)
    assert not begin_restored(broker.log, bench.restored)
    assert not begin_restored(broker.log, None)
    broker.fill(2)
    broker.lead(0, TopicTiering(topic_id=TOPIC_ID, tiered_epoch=2))
    bench.run(60)
    bench.check(broker, [(0, 10), (10, 20)])
    assert {each.state for each in bench.segments()} == {SegmentState.COPY_FINISHED}
