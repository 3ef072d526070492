"""Nothing of a deleted topic's partition is left in the store, whatever fails in between.

Method: the bench of copies. A leader copies segments; then the topic is deleted, and another broker
purges. A run without a crash counts the steps; one run for each step ends the purger there, and
another one goes on. Beside the topic's objects there are those of a new topic of its name, and of a
partition whose number begins alike: these stay.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.object_store import (
    NAMES_PER_DELETE_MAX,
    Failure,
    Pool,
    SettableCall,
    StoreError,
)
from ottla.broker.remote.dialogue import Task
from ottla.broker.remote.store_calls import LATE_WRITE_MS, RETRIES
from ottla.broker.remote.tasks.leader_term import copy_ms_max
from ottla.broker.remote.tasks.purge_task import (
    QUIET_MS,
    SEGMENTS_PER_DELETE_MAX,
    DeletedPartition,
    PurgeTask,
)
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.testing.sim.object_store import ModelStore
from ottla.tiered.metadata_records import encode
from ottla.tiered.object_names import manifest_name, object_names, partition_prefix
from ottla.tiered.segment_metadata import (
    Fence,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)
from tests.unit.broker.remote.copy_bench import HOUR_S, TOPIC, TOPIC_ID, Bench, BenchBroker, Life

EPOCH = 6
NEW_ID = Uuid(bytes(range(1, 17)))
PREFIX = partition_prefix(TOPIC, TOPIC_ID, 0) + "/"
OTHERS = {
    manifest_name(TOPIC, NEW_ID, 0, 0): b"new",
    f"{partition_prefix(TOPIC, NEW_ID, 0)}/00000000000000000000-x.log": b"new",
    f"{partition_prefix(TOPIC, TOPIC_ID, 1)}/00000000000000000000-x.log": b"partition 1",
    f"{partition_prefix(TOPIC, TOPIC_ID, 10)}/00000000000000000000-x.log": b"partition 10",
}


class Purge:
    """A purge in one process of a broker. `failures`: those that were reported."""

    def __init__(self, broker: BenchBroker, life: Life, *, replicas_are_over: bool = True) -> None:
        self.broker = broker
        self.failures: list[object] = []
        environment = life.environment
        self.task = PurgeTask(
            environment,
            DeletedPartition(topic=TOPIC, topic_id=TOPIC_ID, partition=0),
            failed=lambda task, error, pause_ms: self.failures.append(error),
            purged=lambda: None,
        )
        self.task.replicas_are_over = replicas_are_over
        life.reader.changed = lambda partition: self.task.wakeup.notify()
        self.running = Task(self.task.run(), environment.timers, environment.clock)
        broker.do(self.running.start)

    def replicas_end(self) -> None:
        self.task.replicas_are_over = True
        self.task.wakeup.notify()


def left(bench: Bench) -> list[str]:
    """Return the topic's objects; what is of others must be there."""
    for name, data in OTHERS.items():
        assert bench.model.objects[name] == data, name
    return [name for name in bench.model.objects if name.startswith(PREFIX)]


def copied(bench: Bench, segments: int = 2) -> BenchBroker:
    """Return a broker that has copied segments of the topic."""
    for name, data in OTHERS.items():
        bench.model.put(name, data, replace=True)
    broker = bench.broker(1)
    broker.fill(segments)
    broker.lead(EPOCH)
    bench.run(10)
    assert len(bench.readable()) == segments
    assert left(bench)
    return broker


def stop(broker: BenchBroker) -> None:
    """Have a broker delete its replica."""
    broker.do(lambda: broker.life.manager.stop(TOPIC_ID, 0))


def check(bench: Bench, purge: Purge) -> None:
    assert purge.task.is_purged
    assert left(bench) == []
    assert bench.segments() == []
    fence = bench.metadata.replayed().fence
    assert fence is not None
    assert fence.floor == WHOLE_TOPIC


# -- in order ------------------------------------------------------------------------------------


def test_the_order_of_a_purge() -> None:
    bench = Bench()
    stop(copied(bench))
    appended, executed = len(bench.metadata.values), len(bench.model.history)
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(HOUR_S)
    check(bench, purge)
    assert not purge.failures
    fence, *updates = bench.metadata.records()[appended:]
    assert isinstance(fence, Fence)
    states = [each.state for each in updates if isinstance(each, SegmentUpdate)]
    assert states == [SegmentState.DELETE_FINISHED] * 2
    events = bench.model.history[executed:]
    what = [(each.operation, "/manifest" in each.names[0]) for each in events]
    assert what == [
        ("list_page", True), ("delete_many", True),
        ("delete_many", False),  # At once.
        ("delete_many", False),  # After the quiet time.
        ("list_page", False), ("list_page", False),
    ]  # fmt: skip
    assert events[3].at_ms - events[2].at_ms >= LATE_WRITE_MS - 1_000
    assert events[5].at_ms - events[0].at_ms >= QUIET_MS - 1_000


def test_unfinished_uploads_are_removed_once_nobody_writes_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No listing shows them. What cannot be removed yet holds up the end."""
    results = [None, StoreError(Failure.UNAVAILABLE, "down")]
    removed: list[tuple[int, str]] = []

    def remove_unfinished(
        store: ModelStore, prefix: str, *, pool: Pool, deadline_ms: int
    ) -> SettableCall[None]:
        removed.append((bench.scheduler.now_ms, prefix))
        call: SettableCall[None] = SettableCall()
        call.result.complete(results.pop())
        return call

    monkeypatch.setattr(ModelStore, "remove_unfinished", remove_unfinished)
    bench = Bench()
    stop(copied(bench))
    began_ms, purger = bench.scheduler.now_ms, bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(HOUR_S)
    check(bench, purge)
    assert len(purge.failures) == 1
    assert [prefix + "/" for _, prefix in removed] == [PREFIX] * 2
    assert removed[0][0] - began_ms >= QUIET_MS


def test_a_partition_without_anything_is_purged() -> None:
    bench = Bench()
    for name, data in OTHERS.items():
        bench.model.put(name, data, replace=True)
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(2 * QUIET_MS / 1000)
    check(bench, purge)


def test_the_end_waits_for_the_replicas() -> None:
    bench = Bench()
    stop(copied(bench))
    purger = bench.broker(2)
    purge = Purge(purger, purger.life, replicas_are_over=False)
    bench.run(HOUR_S)
    assert left(bench) == []
    assert not purge.task.is_purged
    executed = len(bench.model.history)
    bench.run(10 * HOUR_S)
    assert len(bench.model.history) == executed  # It does not poll the store meanwhile.
    bench.model.put(manifest_name(TOPIC, TOPIC_ID, 0, 99), b"late", replace=True)
    purge.replicas_end()
    bench.run(QUIET_MS / 1000 - 5)
    assert not purge.task.is_purged
    bench.run(20)
    check(bench, purge)


def test_a_leader_that_still_restores_the_deleted_topic_does_not_end_its_purge() -> None:
    """1. The topic was restored, its leader has just begun, and it is deleted again.
    2. The purge's fence is replayed. The leader does not know of the deletion: it takes the fence
       for one of the topic's earlier life, lifts it, and takes over segments.
    3. The leader hears of the deletion.
    """
    for seconds in (0, 1, 40, 200):
        bench = Bench()
        stop(copied(bench))
        segment = bench.segments()[0]
        purger = bench.broker(2)
        purge = Purge(purger, purger.life, replicas_are_over=False)
        purger.life.reader.changed = lambda partition: None  # Only that it became ready wakes it.
        bench.run(seconds)
        started = RestoreStarted(
            topic=TOPIC, topic_id=TOPIC_ID, partition=0, broker_id=1, leader_epoch=EPOCH + 1,
            event_timestamp_ms=0,
        )  # fmt: skip
        bench.metadata.arrived(encode(started))
        names = add_segments(bench, segment, 3)
        purge.replicas_end()
        bench.run(HOUR_S)
        check(bench, purge)
        assert not set(names) & set(bench.model.objects)


def test_more_segments_than_one_request_may_name() -> None:
    bench = Bench()
    stop(copied(bench))
    segment = bench.segments()[0]
    count = 2 * SEGMENTS_PER_DELETE_MAX + 5
    names = add_segments(bench, segment, count)
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(HOUR_S)
    check(bench, purge)
    deleted = [each for each in bench.model.history if each.operation == "delete_many"]
    assert max(len(each.names) for each in deleted) <= NAMES_PER_DELETE_MAX
    assert set(names) <= {name for each in deleted for name in each.names}


def add_segments(bench: Bench, like: SegmentMetadata, count: int) -> list[str]:
    """Record more segments, with their objects; return the names of these."""
    names: list[str] = []
    for number in range(count):
        segment = replace(
            like,
            segment_id=Uuid(b"more" + number.to_bytes(12, "big")),
            state=SegmentState.COPY_STARTED,
        )
        for name in object_names(segment):
            bench.model.put(name, b"x", replace=True)
            names.append(name)
        bench.metadata.arrived(encode(segment))
        finished = SegmentUpdate(
            topic=TOPIC, topic_id=TOPIC_ID, partition=0, segment_id=segment.segment_id,
            state=SegmentState.COPY_FINISHED, broker_id=1, event_timestamp_ms=0,
            leader_epoch=EPOCH, tiered_epoch=1,
        )  # fmt: skip
        bench.metadata.arrived(encode(finished))
    bench.run(1)
    return names


# -- crashes -------------------------------------------------------------------------------------


def same(bench: Bench, purger: BenchBroker) -> BenchBroker:
    purger.start()
    return purger


def another(bench: Bench, purger: BenchBroker) -> BenchBroker:
    return bench.broker(3)


def purged(crash_at: int | None, take_over: Callable[[Bench, BenchBroker], BenchBroker]) -> Life:
    bench = Bench(metadata_lag_ms=30)
    stop(copied(bench))
    bench.model.put(f"{PREFIX}00000000000000000000-lost.log", b"of a lost upload", replace=True)
    purger = bench.broker(2)
    life = purger.start(crash_at=crash_at)
    purge = Purge(purger, life)
    bench.run(HOUR_S)
    if crash_at is not None:
        assert not life.process.alive
        purger = take_over(bench, purger)
        purge = Purge(purger, purger.life)
        bench.run(HOUR_S)
    check(bench, purge)
    return life


@pytest.mark.parametrize("take_over", [same, another])
def test_every_step_may_be_the_last(
    take_over: Callable[[Bench, BenchBroker], BenchBroker],
) -> None:
    steps = purged(None, take_over).steps
    assert steps.count > 20
    for crash_at in range(1, steps.count + 1):
        try:
            purged(crash_at, take_over)
        except AssertionError as error:
            step = f"crash at step {crash_at}, {steps.names[crash_at - 1]}"
            raise AssertionError(f"{step}: {error}") from error


def test_two_purgers_at_once() -> None:
    bench = Bench()
    stop(copied(bench))
    purges = [Purge(each, each.life) for each in (bench.broker(2), bench.broker(3))]
    bench.run(HOUR_S)
    for purge in purges:
        check(bench, purge)


# -- the leader that copies ------------------------------------------------------------------------


def test_a_leader_that_has_not_heard_of_the_deletion_brings_nothing_back() -> None:
    """It goes on to copy, at each point of its work, until its replica is deleted."""
    seen: set[SegmentState] = set()
    for tenths in range(25):
        bench = Bench(tenths)
        for name, data in OTHERS.items():
            bench.model.put(name, data, replace=True)
        leader = bench.broker(1)
        leader.fill(4)
        leader.lead(EPOCH)
        bench.run(tenths / 20)
        seen |= {each.state for each in bench.segments()}
        purger = bench.broker(2)
        purge = Purge(purger, purger.life, replicas_are_over=False)
        bench.run(60)
        leader.fill(2)
        bench.run(HOUR_S)
        assert bench.readable() == []
        stop(leader)
        purge.replicas_end()
        bench.run(HOUR_S)
        check(bench, purge)
    assert SegmentState.COPY_STARTED in seen


def test_uploads_are_executed_after_the_fence() -> None:
    """Their broker died, and the store executes what it was sent a while later."""
    late = 0
    for seed in range(12):
        bench = Bench(seed)
        for name, data in OTHERS.items():
            bench.model.put(name, data, replace=True)
        leader = bench.broker(1)
        leader.fill(3)
        bench.model.faults.slow = 1.0
        leader.lead(EPOCH)
        bench.run(0.3 + seed)
        leader.life.process.alive = False
        bench.model.faults.slow = 0.0
        purger = bench.broker(2)
        purge = Purge(purger, purger.life)
        bench.run(0.5)
        assert bench.metadata.replayed().floor == WHOLE_TOPIC
        executed = len(bench.model.history)
        bench.run(HOUR_S)
        check(bench, purge)
        late += any(each.operation == "put" for each in bench.model.history[executed:])
    assert late


def test_a_late_upload_of_a_forgotten_segment_is_swept() -> None:
    """It comes at the last moment that an upload may, after the first deletion of its segment."""
    bench = Bench()
    leader = copied(bench)
    segment = bench.segments()[0]
    stop(leader)
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(5)
    assert left(bench) == []
    for name in object_names(segment):
        bench.model.put(name, b"late", replace=True)
    bench.model.put(manifest_name(TOPIC, TOPIC_ID, 0, 5), b"late", replace=True)
    bench.run(QUIET_MS / 1000 - 7)
    assert not purge.task.is_purged
    bench.model.put(manifest_name(TOPIC, TOPIC_ID, 0, 6), b"late", replace=True)
    bench.run(60)
    check(bench, purge)


def test_an_interrupted_copy_has_its_whole_time() -> None:
    bench = Bench()
    for name, data in OTHERS.items():
        bench.model.put(name, data, replace=True)
    leader = bench.broker(1)
    leader.fill(1)
    leader.lead(EPOCH)
    while not bench.segments():
        bench.run(0.01)
    leader.life.process.alive = False
    size = bench.segments()[0].size_bytes
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run((LATE_WRITE_MS + copy_ms_max(size)) / 1000 - 5)
    assert len(bench.segments()) == 1
    bench.run(HOUR_S)
    check(bench, purge)


# -- a store that fails ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_store_that_fails_in_part(seed: int) -> None:
    bench = Bench(seed)
    stop(copied(bench))
    add_segments(bench, bench.segments()[0], SEGMENTS_PER_DELETE_MAX)
    faults = bench.model.faults
    faults.partial_deletes, faults.lost_answers, faults.refused = 0.7, 0.2, 0.2
    faults.slow, faults.hanging, faults.list_lag_ms = 0.1, 0.1, 5_000
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(2 * HOUR_S)
    assert purge.failures
    faults.list_lag_ms = 0
    check(bench, purge)


def test_only_the_objects_that_failed_are_deleted_again() -> None:
    bench = Bench()
    stop(copied(bench))
    add_segments(bench, bench.segments()[0], SEGMENTS_PER_DELETE_MAX - 2)
    bench.model.faults.partial_deletes = 1.0
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    while not purge.failures:
        bench.run(0.01)
    before = len(bench.model.history)
    while len(bench.model.history) == before:
        bench.run(0.01)
    bench.model.faults.partial_deletes = 0.0
    bench.run(HOUR_S)
    check(bench, purge)
    sizes = [len(e.names) for e in bench.model.history if e.operation == "delete_many"]
    big = sizes.index(SEGMENTS_PER_DELETE_MAX * 6)
    assert 0 < sizes[big + 1] < sizes[big] / 2


def test_leftovers_that_cannot_be_deleted_are_a_failure() -> None:
    bench = Bench()
    stop(copied(bench))
    for number in range(30):
        bench.model.put(f"{PREFIX}manifest/{number:020}", b"", replace=True)
    bench.model.faults.partial_deletes = 1.0
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    while not purge.failures:
        bench.run(0.01)
    # The segments go when no manifest lists them any more.
    assert len(bench.segment_objects()) == len(bench.segments()) * 5
    bench.model.faults.partial_deletes = 0.0
    bench.run(HOUR_S)
    check(bench, purge)


def test_it_ends_with_an_empty_listing() -> None:
    """While the last leftover is deleted another one shows up."""
    bench = Bench()
    for name, data in OTHERS.items():
        bench.model.put(name, data, replace=True)
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(QUIET_MS / 1000 - 1)
    bench.model.put(f"{PREFIX}one", b"", replace=True)
    executed = len(bench.model.history)
    while len(bench.model.history) == executed:
        bench.run(0.001)
    bench.model.put(f"{PREFIX}two", b"", replace=True)
    bench.run(HOUR_S)
    check(bench, purge)


def test_a_store_that_is_down_for_days() -> None:
    bench = Bench()
    stop(copied(bench))
    bench.model.faults.is_down = True
    purger = bench.broker(2)
    life = purger.start()
    purge = Purge(purger, life)
    bench.run(48 * HOUR_S)
    assert not purge.task.is_purged
    assert purge.task.last_error == "unavailable: 503 Slow Down"
    assert purge.task.segments_left == 2
    tries = sum(name.startswith("before") for name in life.steps.names)
    assert tries < 48 * HOUR_S * 1000 / RETRIES.max_ms * 2  # No busy loop.
    assert tries > 48 * HOUR_S * 1000 / RETRIES.max_ms / 2
    bench.model.faults.is_down = False
    bench.run(HOUR_S)
    check(bench, purge)
    assert purge.task.last_error is None


def test_a_metadata_topic_that_is_down() -> None:
    bench = Bench()
    stop(copied(bench))
    bench.metadata.is_down = True
    purger = bench.broker(2)
    purge = Purge(purger, purger.life)
    bench.run(HOUR_S)
    assert left(bench)  # Nothing is deleted before the fence.
    assert isinstance(purge.failures[0], ApiError)
    assert purge.failures[0].error is Error.REQUEST_TIMED_OUT
    bench.metadata.is_down = False
    bench.run(HOUR_S)
    check(bench, purge)


# -- metrics ---------------------------------------------------------------------------------------


def test_what_is_left_is_counted() -> None:
    bench = Bench()
    stop(copied(bench))
    size = sum(each.size_bytes for each in bench.segments())
    purger = bench.broker(2)
    metrics = purger.life.environment.metrics
    purge = Purge(purger, purger.life)
    bench.run(5)
    gauges = metrics.partitions[0]
    assert (gauges.topic, gauges.partition) == (TOPIC, 0)
    assert (gauges.delete_lag_segments, gauges.delete_lag_bytes) == (2, size)
    assert (purge.task.segments_left, purge.task.bytes_left) == (2, size)
    assert metrics.purges == 1
    new = metrics.add_partition(TOPIC, 0)  # A new topic of the name.
    new.delete_lag_segments, new.metadata_count = 3, 4
    both = metrics.partitions[0]
    assert (both.delete_lag_segments, both.metadata_count) == (5, 4)
    bench.run(HOUR_S)
    check(bench, purge)
    assert metrics.purges == 0
    assert metrics.partitions == [new]
    assert metrics.of_topic(TOPIC).delete_requests == 4
