"""A leader and its followers while tiered storage is turned off, and on again.

Method: the bench of copies; the test writes the tiering states, as the controller would. The tests
are named after the rules for what the draft of KIP-950 leaves open.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.remote.environment import LeaderRecords
from ottla.broker.remote.remote_metrics import TieringCounts
from ottla.broker.remote.store_calls import LATE_WRITE_MS
from ottla.broker.remote.tasks.leader_term import copy_ms_max
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.tiered.manifest import follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.object_names import parse_manifest_name
from ottla.tiered.segment_metadata import Fence, SegmentMetadata, SegmentState
from tests.unit.broker.remote.copy_bench import HOUR_S, TOPIC_ID, Bench, BenchBroker
from tests.unit.broker.remote.tasks.held_store import HeldStore
from tests.unit.log.support import content

EPOCH = 6


def retain(epoch: int = 2, state: TieringState = TieringState.DISABLING) -> TopicTiering:
    return TopicTiering(
        topic_id=TOPIC_ID, state=state, tiered_epoch=epoch, policy=DisablePolicy.RETAIN
    )


def delete(epoch: int = 2, state: TieringState = TieringState.DISABLING) -> TopicTiering:
    return TopicTiering(
        topic_id=TOPIC_ID,
        state=state,
        tiered_epoch=epoch,
        policy=DisablePolicy.DELETE,
        remote_floor_epoch=epoch - 1,
        purge_pending=True,
    )


def enabled(epoch: int, floor: int) -> TopicTiering:
    return TopicTiering(
        topic_id=TOPIC_ID, tiered_epoch=epoch, remote_floor_epoch=floor, purge_pending=floor > 0
    )


def tiered(bench: Bench, segments: int = 4, *, local: int = 20) -> BenchBroker:
    """Return a leader whose sealed segments are copied, and locally deleted below an offset."""
    broker = bench.broker(1)
    broker.fill(segments)
    broker.lead(EPOCH)
    bench.run(10)
    assert len(bench.readable()) == segments
    broker.delete_local(local)
    assert (broker.log.log_start_offset, broker.log.local_log_start_offset) == (0, local)
    return broker


def pair(bench: Bench, *, local: int = 20) -> tuple[BenchBroker, BenchBroker]:
    """Return such a leader, and a follower with all records and that local log start."""
    leader = tiered(bench, local=0)
    follower = bench.broker(2, local_retention_bytes=1)
    follower.copy_of(leader)
    leader.delete_local(20)
    follower.delete_local(local)
    follower.follow()
    bench.run(10)
    assert follower.log.log_end_offset == leader.log.log_end_offset
    assert follower.log.highest_remote_offset == 39
    return leader, follower


def limit(broker: BenchBroker, **limits: int) -> None:
    """Change the retention of a topic."""
    broker.log.reconfigure(replace(broker.log.config, **limits))
    broker.do(lambda: broker.life.manager.config_changed(TOPIC_ID))


def is_open(broker: BenchBroker) -> bool:
    """Whether the leader may acknowledge."""
    opened = broker.life.manager.opened(TOPIC_ID, 0)
    assert opened is not None
    return opened.done


def fences(bench: Bench) -> list[tuple[int, int, TieringState, int]]:
    """Return leader epoch, tiered epoch, state and floor of the fences since the first copies."""
    return [
        (each.leader_epoch, each.tiered_epoch, TieringState(each.state), each.floor)
        for each in bench.metadata.records()
        if isinstance(each, Fence) and each.tiered_epoch > 1
    ]


def left_of(bench: Bench, floor: int) -> list[SegmentMetadata]:
    return [each for each in bench.segments() if each.tiered_epoch <= floor]


def is_purged(broker: BenchBroker, floor: int) -> bool:
    purge = broker.life.manager.purge_of(TOPIC_ID, 0, floor)
    assert purge is not None
    return purge.is_purged


# -- copies stop -----------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [retain(), delete()])
def test_rule_8_the_leader_fences_before_it_acknowledges(off: TopicTiering) -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(off)
    assert not is_open(broker)
    while not is_open(broker):
        assert not bench.metadata.replayed().floor or off.policy is DisablePolicy.DELETE
        bench.run(0.005)
    expected = (EPOCH, 2, TieringState.DISABLING, off.remote_floor_epoch)
    assert fences(bench)[0] == expected
    fence = broker.life.reader.logs[0].fence
    assert fence is not None
    assert fence.tiered_epoch == 2


@pytest.mark.parametrize("off", [retain(), delete()])
def test_rule_15_each_new_leader_fences_in_its_own_epoch(off: TopicTiering) -> None:
    bench = Bench()
    first, second = pair(bench)
    first.retier(off)
    bench.run(10)
    second.lead(EPOCH + 1, off)
    bench.run(10)
    assert is_open(second)
    assert {each[0] for each in fences(bench)} == {EPOCH, EPOCH + 1}


def test_rule_15_a_leader_that_was_replaced_is_not_acknowledged() -> None:
    bench = Bench()
    first, second = pair(bench)
    second.lead(EPOCH + 1, retain())
    bench.run(10)
    first.retier(retain())  # It has not heard of the election.
    bench.run(60)
    assert is_open(second)
    assert not is_open(first)


def test_rule_26_the_tail_stays_local() -> None:
    bench = Bench()
    broker = tiered(bench, 2, local=0)
    broker.retier(retain())
    broker.produce(7)
    broker.roll()
    broker.produce(5)
    bench.run(HOUR_S)
    bench.check(broker, [(0, 10), (10, 20)])
    assert broker.life.environment.metrics.partitions[0].copy_lag_segments == 0


@pytest.mark.parametrize("off", [retain(), delete()])
@pytest.mark.parametrize("fault", ["is_down", "hanging", "refused"])
def test_rule_11_the_object_store_is_not_needed(off: TopicTiering, fault: str) -> None:
    """The store fails before the topic is disabled, with a copy in flight, and long after it."""
    bench = Bench()
    broker = tiered(bench, local=20)
    faults = bench.model.faults
    if fault == "is_down":
        faults.is_down = True
    else:
        setattr(faults, fault, 1.0)
    broker.produce(7)
    broker.roll()
    bench.run(5)
    broker.retier(off)
    bench.run(0.5)
    assert is_open(broker)
    broker.retier(replace(off, state=TieringState.DISABLED))
    bench.run(2 * HOUR_S)
    broker.produce(10)
    if off.policy is DisablePolicy.DELETE:
        assert broker.log.log_start_offset == 20
        assert not is_purged(broker, 1)
    else:
        assert len(bench.readable()) == 4
    faults.is_down, faults.hanging, faults.refused = False, 0.0, 0.0
    bench.run(2 * HOUR_S)
    is_kept = off.policy is DisablePolicy.RETAIN
    bench.check(broker, [(0, 10), (10, 20), (20, 30), (30, 40)] if is_kept else [])


# -- retain ----------------------------------------------------------------------------------------


def test_retained_segments_stay_readable_through_restarts() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    broker.start()
    broker.lead(EPOCH + 1, retain(state=TieringState.DISABLED))
    bench.run(HOUR_S)
    bench.check(broker, [(0, 10), (10, 20), (20, 30), (30, 40)])
    assert broker.log.highest_remote_offset == 39
    assert is_open(broker)


def test_rule_23_data_expires_from_the_remote_end_first() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    remote = bench.segments()[:2]
    whole = broker.log.size_bytes + sum(each.size_bytes for each in remote)
    limit(broker, retention_bytes=whole - remote[0].size_bytes)
    assert broker.log.expire_segments(broker.clock.now_ms()) == []
    bench.run(HOUR_S)
    assert broker.log.log_start_offset == 10
    assert broker.log.local_log_start_offset == 20
    bench.check(broker, [(10, 20), (20, 30), (30, 40)])
    # Far below what is local: the remote ones go, and then the local ones as of any other log.
    limit(broker, retention_bytes=1)
    assert broker.log.expire_segments(broker.clock.now_ms()) == []
    bench.run(HOUR_S)
    assert bench.segments() == []
    assert broker.log.log_start_offset >= 40
    assert not broker.log.has_remote_prefix


def test_rule_23_a_dead_store_does_not_keep_local_files() -> None:
    """What is marked as deleted counts as gone."""
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    bench.model.faults.is_down = True
    broker.log.delete_records(20)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(60)
    assert not broker.log.has_remote_prefix
    limit(broker, retention_bytes=1)
    assert broker.log.expire_segments(broker.clock.now_ms()) != []
    bench.model.faults.is_down = False
    bench.run(2 * HOUR_S)
    assert bench.segments() == []
    assert not bench.segment_objects()


def test_rule_24_a_remote_segment_with_late_timestamps_keeps_what_follows() -> None:
    bench = Bench()
    broker = bench.broker(1)
    day_ms = 24 * HOUR_S * 1000
    broker.fill(1, timestamp=broker.clock.now_ms() + day_ms)
    broker.fill(2)
    broker.lead(EPOCH)
    bench.run(10)
    broker.delete_local(broker.log.local_segments()[1].base_offset)
    broker.retier(retain())
    bench.run(2 * HOUR_S)
    limit(broker, retention_ms=HOUR_S * 1000)
    assert broker.log.expire_segments(broker.clock.now_ms()) == []
    bench.run(HOUR_S)
    assert broker.log.log_start_offset == 0
    assert len(bench.readable()) == 3


def test_what_was_retained_is_reported_once_it_is_empty() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    broker.retier(retain(state=TieringState.DISABLED))
    assert not is_purged(broker, 2)
    broker.log.delete_records(40)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    assert bench.segments() == []
    assert is_purged(broker, 2)


def test_what_is_known_to_be_empty_is_as_one_that_was_never_tiered() -> None:
    """The controller has raised the floor to the tiered epoch; then the topic is enabled again."""
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    broker.log.delete_records(40)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(HOUR_S)
    empty = replace(retain(state=TieringState.DISABLED), remote_floor_epoch=2)
    broker.retier(empty)
    bench.run(10)
    assert is_open(broker)
    assert not empty.has_remote_log
    assert fences(bench)[-1] == (EPOCH, 2, TieringState.DISABLED, 2)
    broker.produce(10)
    broker.roll()
    limit(broker, retention_bytes=1)
    assert broker.log.expire_segments(broker.clock.now_ms()) != []
    start = broker.log.log_start_offset
    broker.produce(10)
    broker.roll()
    broker.retier(enabled(3, floor=2))
    limit(broker, retention_bytes=-1)
    bench.run(60)
    assert bench.readable()[0][0] <= start
    assert {each.tiered_epoch for each in bench.segments()} == {3}
    bench.check(broker)


# -- delete ----------------------------------------------------------------------------------------


def test_rule_8_the_log_starts_with_the_local_files_in_the_same_turn() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(delete())
    assert broker.log.log_start_offset == broker.log.local_log_start_offset == 20
    assert broker.log.highest_remote_offset == -1


def test_rule_9_the_purge_ends_by_itself() -> None:
    bench = Bench()
    broker = tiered(bench)
    counts = broker.life.manager.tiering_counts
    broker.retier(delete())
    assert counts() == TieringCounts(disabling=1, purging=1)
    bench.run(10)
    assert counts() == TieringCounts(purging=1)
    assert {each.state for each in bench.segments()} == {SegmentState.DELETE_STARTED}
    assert not is_purged(broker, 1)
    broker.retier(delete(state=TieringState.DISABLED))
    bench.run(HOUR_S)
    assert bench.segments() == []
    assert not bench.segment_objects()
    assert is_purged(broker, 1)
    assert counts() == TieringCounts()
    bench.check(broker, [])


def test_what_is_left_of_a_purge_is_known_apart_from_other_deletions() -> None:
    bench = Bench()
    broker = tiered(bench)

    def left() -> tuple[int, int, bool]:
        status = broker.life.manager.status(TOPIC_ID, 0)
        assert status is not None
        assert status.purge is not None
        assert status.purge.late_writes_ms <= LATE_WRITE_MS
        return status.purge.segments, status.purge.segments_deleted, status.purge.late_writes_ms > 0

    assert left() == (0, 0, False)
    bench.model.faults.is_down = True
    broker.retier(delete())
    bench.run(10)
    count = len(bench.segments())
    assert count
    assert left() == (count, 0, False)
    bench.model.faults.is_down = False
    bench.run(31)
    assert not bench.segment_objects()
    assert left() == (0, count, True)
    bench.run(HOUR_S)
    assert left() == (0, 0, False)


def test_a_purge_does_not_wait_longer_where_the_topic_is_enabled_again() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(delete())
    bench.run(10)
    assert not bench.segment_objects()
    broker.retier(enabled(3, floor=1))
    bench.run(LATE_WRITE_MS // 1000)
    assert left_of(bench, 1) == []
    assert is_purged(broker, 1)


def test_rule_9_the_manifest_s_floor_comes_before_the_first_object_goes() -> None:
    bench = Bench()
    broker = tiered(bench)
    executed = len(bench.model.history)
    broker.retier(delete())
    bench.run(HOUR_S)
    events = bench.model.history[executed:]
    first_deletion = next(
        at
        for at, each in enumerate(events)
        if each.operation == "delete_many" and "/manifest" not in each.names[0]
    )
    written = [at for at, each in enumerate(events) if each.operation == "put_if_absent"]
    assert written[0] < first_deletion
    name = events[written[0]].names[0]
    assert parse_manifest_name(name) is not None
    manifest = decode_manifest(bench.model.objects[name])
    assert (manifest.floor, manifest.tiered_epoch, manifest.is_base) == (1, 2, True)
    state = follow([manifest])
    assert state is not None
    assert state.segments == {}


def test_no_object_goes_before_live_replicas_have_the_log_start() -> None:
    bench = Bench()
    broker = tiered(bench)
    real = broker.life.environment.publish_log_start
    asked: list[int] = []

    def refuse(_log: object, offset: int) -> object:
        asked.append(offset)
        return completed(ApiError(Error.REQUEST_TIMED_OUT, "a replica lags"))

    broker.life.environment.publish_log_start = refuse  # type: ignore[assignment]
    objects = bench.segment_objects()
    broker.retier(delete())
    bench.run(HOUR_S)
    assert is_open(broker)
    assert set(asked) == {20}
    assert bench.segment_objects() == objects
    broker.life.environment.publish_log_start = real
    bench.run(HOUR_S)
    assert not bench.segment_objects()
    assert bench.published[-1] == 20


def test_rule_9_the_purge_goes_on_under_the_next_leader() -> None:
    bench = Bench()
    first, second = pair(bench)
    bench.model.faults.is_down = True
    first.retier(delete())
    bench.run(60)
    first.life.process.alive = False
    bench.model.faults.is_down = False
    second.lead(EPOCH + 1, delete(state=TieringState.DISABLED))
    bench.run(HOUR_S)
    bench.check(second, [])
    assert is_purged(second, 1)


def purge_began(bench: Bench, first: BenchBroker) -> float:
    """Give up the segments; return the time at which the fence was replayed, in seconds."""
    first.retier(delete())
    while not bench.metadata.replayed().floor:
        bench.run(0.01)
    return bench.scheduler.now_ms / 1000


def purged_within(bench: Bench, broker: BenchBroker, floor: int, began_s: float) -> float:
    """Return how long after its fence a purge was over, in seconds."""
    while not is_purged(broker, floor):
        assert bench.scheduler.now_ms / 1000 < began_s + HOUR_S, "the purge does not end"
        bench.run(1)
    return bench.scheduler.now_ms / 1000 - began_s


@pytest.mark.parametrize("after_s", [5, 30, 55, 300])
def test_a_leader_change_does_not_prolong_a_purge(after_s: int) -> None:
    """The next leader has replayed the fence as a follower; late writes end when they would."""
    bench = Bench()
    first, second = pair(bench)
    bench.model.faults.is_down = True
    began_s = purge_began(bench, first)
    bench.run(after_s)
    first.life.process.alive = False
    bench.model.faults.is_down = False
    second.lead(EPOCH + 1, delete(state=TieringState.DISABLED))
    took_s = purged_within(bench, second, 1, began_s)
    assert took_s <= max(LATE_WRITE_MS / 1000, after_s) + 10
    bench.check(second, [])


def test_a_restarted_leader_waits_for_late_writes_only() -> None:
    """It knows that the copies were finished, and not when."""
    bench = Bench()
    broker = tiered(bench)
    purge_began(bench, broker)
    bench.run(30)
    broker.start()
    restarted_s = bench.scheduler.now_ms / 1000
    broker.lead(EPOCH + 1, delete(state=TieringState.DISABLED))
    took_s = purged_within(bench, broker, 1, restarted_s)
    assert LATE_WRITE_MS / 1000 - 1 <= took_s <= LATE_WRITE_MS / 1000 + 10
    bench.check(broker, [])


def test_a_copy_that_the_fence_interrupted_has_its_whole_time_under_the_next_leader() -> None:
    bench = Bench()
    first, second = bench.broker(1), bench.broker(2)
    first.fill(4)
    second.copy_of(first)
    second.follow()
    first.lead(EPOCH)
    while not bench.segments():
        bench.run(0.005)
    [copying] = bench.segments()
    began_s = purge_began(bench, first)
    assert bench.metadata.replayed().get(copying.segment_id) is not None
    assert not bench.metadata.replayed().has_ended(copying)
    bench.run(20)
    first.life.process.alive = False
    second.lead(EPOCH + 1, delete(state=TieringState.DISABLED))
    took_s = purged_within(bench, second, 1, began_s)
    whole_s = (LATE_WRITE_MS + copy_ms_max(copying.size_bytes)) / 1000
    assert whole_s - 1 <= took_s <= whole_s + 10


@pytest.mark.parametrize(
    "next_term",
    [lambda broker: broker.retier(retain()), lambda broker: broker.lead(EPOCH + 1)],
    ids=["other tiering state", "other leader epoch"],
)
def test_a_copy_that_its_term_s_end_cancels_is_awaited_from_then_on(
    next_term: Callable[[BenchBroker], None],
) -> None:
    """Not only its earlier attempts, of which the term knew that they may be executed late."""
    bench = Bench()
    broker = tiered(bench)
    puts = HeldStore(broker.life, "put")
    broker.produce(7)
    broker.roll()
    bench.run(58)
    assert len(puts.names) == 2  # The second attempt at its first object.
    next_term(broker)
    puts.let_pass()
    bench.run(LATE_WRITE_MS / 1000 - 1)
    puts.release()
    bench.run(HOUR_S)
    bench.check(broker)


def test_rule_12_a_leader_that_was_away_begins_with_its_local_files() -> None:
    """Its log start is that of the time before."""
    bench = Bench()
    first, away = pair(bench, local=30)
    first.retier(delete())
    bench.run(HOUR_S)
    away.lead(EPOCH + 1, delete(state=TieringState.DISABLED))
    assert (away.log.log_start_offset, away.log.local_log_start_offset) == (30, 30)


def test_rule_12_a_leader_that_was_away_knows_no_start_before_it_has_read_the_fence() -> None:
    bench = Bench()
    first, away = pair(bench)
    first.retier(delete())
    bench.run(10)
    away.start()
    away.life.reader.ready_at = 10**6  # It reads the metadata.
    away.lead(EPOCH + 1, enabled(3, floor=1))
    assert not away.life.manager.knows_log_start(TOPIC_ID, 0)
    assert away.log.log_start_offset == 0
    away.life.reader.ready_at = 0
    away.life.reader.poll()
    bench.run(10)
    assert away.life.manager.knows_log_start(TOPIC_ID, 0)
    assert away.log.log_start_offset == 20


def reads_from(follower: BenchBroker, leader: BenchBroker) -> None:
    """Let a follower read its leader's records, as far as these are local there."""

    def read(_topic_id: object, _partition: int, offset: int) -> Pending[bytes | ApiError]:
        if offset < leader.log.log_start_offset:
            return completed(ApiError(Error.OFFSET_OUT_OF_RANGE))
        return completed(content(leader.log, offset))

    follower.life.environment.leader_records = LeaderRecords(
        read=read, cancel=lambda *_: None, store_local_start=lambda _log: completed(None)
    )


def test_rule_34_a_follower_has_all_of_its_leader_s_local_log_before_it_counts() -> None:
    bench = Bench()
    leader, follower = pair(bench, local=30)
    reads_from(follower, leader)
    follower.retier(delete())  # It gets the state first.
    bench.run(5)
    assert follower.life.manager.tiering_counts() == TieringCounts(filling=1)
    assert follower.log.has_remote_prefix
    leader.retier(delete())
    bench.run(5)
    assert follower.log.has_remote_prefix  # Its next fetch brings the log start.
    follower.log.delete_records(leader.log.log_start_offset)
    bench.run(5)
    assert not follower.log.has_remote_prefix
    assert not follower.log.retention.prepends
    # The leader dies: nothing of what is not expired is lost.
    leader.life.process.alive = False
    follower.lead(EPOCH + 1, delete())
    assert follower.log.log_start_offset == 20
    assert content(follower.log, 20) == content(leader.log, 20)


def test_rule_34_a_follower_that_was_away_copies_what_is_not_remote_again() -> None:
    bench = Bench()
    leader, follower = pair(bench, local=30)
    leader.retier(delete())
    bench.run(10)
    bench.model.faults.is_down = True
    leader.retier(enabled(3, floor=1))
    follower.start()
    reads_from(follower, leader)
    follower.log.delete_records(leader.log.log_start_offset)
    follower.follow(enabled(3, floor=1))
    bench.run(10)
    assert follower.log.local_log_start_offset == 20
    assert content(follower.log, 20) == content(leader.log, 20)


def test_rule_34_a_follower_copies_nothing_that_is_retained() -> None:
    bench = Bench()
    leader, follower = pair(bench, local=30)
    reads_from(follower, leader)
    for each in (leader, follower):
        each.retier(retain())
    bench.run(HOUR_S)
    assert follower.log.local_log_start_offset == 30


def test_rule_19_retain_then_delete() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    bench.run(10)
    broker.retier(retain(state=TieringState.DISABLED))
    bench.run(10)
    assert len(bench.readable()) == 4
    broker.retier(delete(3))
    bench.run(1)
    assert is_open(broker)
    assert bench.readable() == []
    bench.run(HOUR_S)
    bench.check(broker, [])
    assert is_purged(broker, 2)


def test_rule_17_a_partition_that_is_new_is_purged_at_once() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.lead(0, delete(state=TieringState.DISABLED))
    bench.run(10)
    assert is_open(broker)
    assert is_purged(broker, 1)
    assert not bench.model.objects


# -- on again --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone_on", [0, HOUR_S])
def test_rule_20_and_21_copying_resumes_at_what_is_visible_also_while_the_purge_runs(
    gone_on: int,
) -> None:
    bench = Bench()
    broker = tiered(bench)
    old = bench.segment_objects()
    broker.retier(delete())
    bench.run(1 + gone_on)
    assert bool(left_of(bench, 1)) == (not gone_on)
    broker.retier(enabled(3, floor=1))
    bench.run(20)
    copied = [each for each in bench.segments() if each.tiered_epoch == 3]
    assert [(each.start_offset, each.end_offset + 1) for each in copied] == [(20, 30), (30, 40)]
    bench.run(HOUR_S)
    bench.check(broker, [(20, 30), (30, 40)])
    assert not old & bench.segment_objects()
    assert is_purged(broker, 1)
    assert broker.log.highest_remote_offset == 39


def test_rule_21_after_retain_copying_resumes_behind_what_is_retained() -> None:
    bench = Bench()
    broker = tiered(bench)
    broker.retier(retain())
    broker.produce(7)
    broker.roll()
    bench.run(10)
    broker.retier(enabled(3, floor=0))
    bench.run(60)
    bench.check(broker, [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)])
    assert [each.tiered_epoch for each in bench.segments()] == [1, 1, 1, 1, 3]


@pytest.mark.parametrize("lag", [False, True])
def test_rule_21_a_follower_keeps_what_is_not_copied_again(lag: bool) -> None:
    """By the segments before the fence all of its local records would be in remote storage."""
    bench = Bench()
    leader, follower = pair(bench, local=0)
    if lag:
        follower.life.reader.lag_ms = 10**9
    bench.model.faults.is_down = True  # Nothing is copied again for now.
    leader.retier(delete())
    bench.run(10)
    leader.retier(enabled(3, floor=1))
    follower.retier(enabled(3, floor=1))
    bench.run(100)
    assert follower.log.highest_remote_offset == -1
    assert follower.log.expire_segments(follower.clock.now_ms()) == []
    assert follower.log.local_log_start_offset == 0


def copied_in_part(bench: Bench) -> tuple[BenchBroker, BenchBroker]:
    """Return a leader that was turned off and on again, and has copied 20-29 since; and a follower
    that was away meanwhile, and has only records from 40 on."""
    leader, follower = pair(bench, local=40)
    follower.life.process.alive = False
    for state in (delete(), delete(state=TieringState.DISABLED)):
        leader.retier(state)
        bench.run(5)
    leader.retier(enabled(3, floor=1))
    while bench.readable() != [(20, 30)]:
        bench.run(0.01)
    bench.model.faults.is_down = True
    bench.run(2)
    assert bench.readable() == [(20, 30)]
    return leader, follower


def test_rule_21_the_log_starts_behind_what_a_new_leader_lacks() -> None:
    """The follower is elected before it has copied 30-39: nobody could read them."""
    bench = Bench()
    leader, follower = copied_in_part(bench)
    leader.life.process.alive = False
    bench.model.faults.is_down = False
    follower.start()
    follower.log.advance_log_start(20)
    follower.follow(enabled(3, floor=1))
    bench.run(1)
    follower.lead(EPOCH + 1, enabled(3, floor=1))
    follower.produce(7)
    follower.roll()
    bench.run(HOUR_S)
    assert follower.log.log_start_offset == 40
    bench.check(follower, [(40, 50)])


def with_a_gap(bench: Bench) -> BenchBroker:
    """Return a replica with the records from 20 on, of which 30-39 are remote nowhere: a leader
    that lacked them has copied what is behind them."""
    leader, follower = copied_in_part(bench)
    leader.life.process.alive = False
    bench.model.faults.is_down = False
    follower.start()
    follower.log.advance_log_start(40)
    follower.lead(EPOCH + 1, enabled(3, floor=1))
    bench.run(0.5)
    follower.produce(7)
    follower.roll()
    while (40, 50) not in bench.readable():
        bench.run(0.01)
    follower.life.process.alive = False
    leader.start()
    return leader


def test_rule_21_a_follower_keeps_records_that_are_remote_nowhere() -> None:
    bench = Bench()
    broker = with_a_gap(bench)
    limit(broker, local_retention_bytes=1)
    broker.follow(enabled(3, floor=1))
    bench.run(5)
    broker.log.expire_segments(broker.clock.now_ms())
    assert broker.log.local_log_start_offset <= 30


def test_rule_21_a_leader_copies_what_is_remote_nowhere() -> None:
    bench = Bench()
    broker = with_a_gap(bench)
    broker.produce(7)
    broker.lead(EPOCH + 2, enabled(3, floor=1))
    broker.roll()
    bench.run(HOUR_S)
    assert set(bench.readable()) >= {(30, 40), (40, 50)}
    count = len(bench.metadata.values)
    bench.run(HOUR_S)
    assert len(bench.metadata.values) == count
    assert broker.log.highest_remote_offset == broker.log.log_end_offset - 1


def test_rule_21_a_follower_that_knows_the_fence_alone_keeps_its_records() -> None:
    bench = Bench()
    leader, follower = pair(bench, local=0)
    leader.retier(delete())
    bench.run(10)
    assert follower.log.highest_remote_offset == -1
    assert follower.log.expire_segments(follower.clock.now_ms()) == []


def test_ten_rounds_leave_no_gap_and_no_orphan() -> None:
    bench = Bench()
    broker = tiered(bench, 2, local=0)
    epoch = 1
    for number in range(10):
        off: Callable[[int], TopicTiering] = delete if number % 2 else retain
        floor = epoch if number % 2 else max(0, epoch - 2)
        broker.retier(off(epoch + 1))
        bench.run(5)
        assert is_open(broker)
        epoch += 2
        broker.retier(enabled(epoch, floor=floor))
        broker.produce(7)
        broker.roll()
        bench.run(20)
        readable = bench.readable()
        assert readable[-1][1] == broker.log.segments.active.base_offset
        assert readable[0][0] <= broker.log.local_log_start_offset
        broker.delete_local(broker.log.segments[len(broker.log.segments) - 2].base_offset)
        bench.run(600)
        for before, after in pairwise(readable):
            assert before[1] == after[0]
        bench.check(broker)
    bench.run(HOUR_S)
    bench.check(broker)
