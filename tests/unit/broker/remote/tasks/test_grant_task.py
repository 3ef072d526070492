"""Copies that a leader grants end finished and in order, or as failed copies; it goes on itself.

Method: real logs, the model of the store, metadata replayed with a delay (`copy_bench`), and a
client that copies by grants, in any order, late or never (`granted_copies`).
"""

from itertools import permutations
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.remote.tasks.copy_task import UNDELETED_COPIES_MAX
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.records.control import build_marker
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState, SegmentUpdate
from tests.unit.broker.remote.copy_bench import (
    ENABLED,
    HOUR_S,
    TOPIC_ID,
    Bench,
    BenchBroker,
)
from tests.unit.broker.remote.granted_copies import LEASE_MS, Copier
from tests.unit.log.support import append, produced

ALL = [(0, 10), (10, 20), (20, 30)]
LATER_S = LEASE_MS // 1_000 + 10


def held_back(segments: int = 3, seed: int = 1, **config: Any) -> tuple[Bench, BenchBroker]:
    """Return a leader that has begun, and whose segments are sealed since; it copies none yet."""
    bench = Bench(seed)
    broker = bench.broker(1, **config)
    broker.lead(5)
    bench.run(5)
    broker.life.environment.copier_slots.free = 0  # Its own copies wait for a slot.
    broker.fill(segments, epoch=5)
    return bench, broker


def go_on(broker: BenchBroker) -> None:
    """Let the leader copy itself again."""
    slots = broker.life.environment.copier_slots
    broker.do(lambda: [slots.release() for _ in range(10)])


def granted(segments: int = 3, **options: Any) -> tuple[Bench, BenchBroker, Copier]:
    """Return a leader that has granted all its segments, and their holder."""
    bench, broker = held_back(segments)
    copier = Copier(bench, broker)
    assert copier.grant(segments, **options) == [10 * each for each in range(segments)]
    go_on(broker)
    return bench, broker, copier


# -- grants ----------------------------------------------------------------------------------------


def test_a_grant_says_what_the_batches_do_not() -> None:
    bench, broker, copier = granted(1)
    [segment] = bench.segments()
    assert segment.state is SegmentState.COPY_STARTED
    mine = copier.held[0]
    assert mine.segment == segment
    assert mine.lease_ms in range(1, LEASE_MS + 1)
    assert mine.leader_epochs == b"0\n1\n5 0\n"
    snapshot = broker.disk.read_bytes(f"{broker.log.directory}/{10:020d}.snapshot")
    assert mine.producer_snapshot == snapshot
    assert mine.transaction_index is None


def test_a_transaction_index_is_sent() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.lead(5)
    bench.run(5)
    broker.life.environment.copier_slots.free = 0
    append(broker.log, produced(7, 0, 0, transactional=True))
    marker = build_marker(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    append(broker.log, bytearray(marker), origin="coordinator")
    broker.produce(3, epoch=5)
    broker.roll()
    copier = Copier(bench, broker)
    assert copier.grant() == [0]
    path = f"{broker.log.directory}/{0:020d}.txnindex"
    assert copier.held[0].transaction_index == broker.disk.read_bytes(path) != b""
    assert copier.copy_and_commit(0) == [True]
    go_on(broker)
    bench.run(5)
    bench.check(broker, [(0, 5)])


def test_a_request_for_no_segments_tells_what_is_left() -> None:
    bench, broker = held_back()
    copier = Copier(bench, broker)
    assert copier.grant(0) == []
    assert copier.grants is not None
    grants = copier.grants
    assert (grants.segments_left, grants.end_offset) == (3, 29)
    sizes = [each.size_bytes for each in broker.log.local_segments() if not each.is_active]
    assert grants.bytes_left == sum(sizes)
    assert (grants.leader_epoch, grants.tiered_epoch) == (5, 1)
    assert bench.segments() == []
    copier.grant(0, until_offset=19)
    assert (copier.grants.segments_left, copier.grants.end_offset) == (2, 19)
    go_on(broker)
    bench.run(30)
    copier.grant(0)
    assert (copier.grants.segments_left, copier.grants.end_offset) == (0, 29)


def test_two_holders_have_different_segments_and_a_repeated_request_the_same() -> None:
    bench, broker = held_back()
    first, second = Copier(bench, broker, 1), Copier(bench, broker, 2)
    assert first.grant(2, until_offset=19) == [0, 10]
    assert second.grant(2) == [20]
    assert second.grants is not None
    assert second.grants.segments_left == 3
    assert Copier(bench, broker, 3).grant() == []
    ids = {each.segment.segment_id for each in first.held.values()}
    assert first.grant(2) == [0, 10]
    assert {each.segment.segment_id for each in first.held.values()} == ids
    assert len(bench.segments()) == 3


def test_the_leader_copies_nothing_while_a_grant_lives_and_goes_on_after_it() -> None:
    bench, broker, copier = granted(2)
    broker.produce(7, epoch=5)
    broker.roll()
    bench.run(20)
    assert bench.readable() == []
    assert copier.copy_and_commit(0, 10) == [True, True]
    bench.run(5)
    bench.check(broker, [(0, 10), (10, 20), (20, 30)])
    status = broker.life.manager.status(TOPIC_ID, 0)
    assert status is not None
    assert (status.last_error, status.copy_lag_segments) == (None, 0)


def test_what_is_being_copied_by_the_leader_is_not_granted() -> None:
    bench, broker = held_back()
    bench.model.faults = ObjectStoreFaults(hanging=1.0)
    go_on(broker)
    bench.run(2)
    copier = Copier(bench, broker)
    assert copier.grant(5) == [10, 20]
    bench.model.faults = ObjectStoreFaults()
    assert copier.copy_and_commit(10, 20) == [False, False]  # Kept: the first one is not copied.
    bench.run(HOUR_S)
    bench.check(broker, ALL)


def test_a_segment_that_begins_below_the_log_start_is_not_granted() -> None:
    bench, broker = held_back()
    broker.log.delete_records(4)
    copier = Copier(bench, broker)
    assert copier.grant(5) == []
    go_on(broker)
    bench.run(10)
    assert bench.readable() == ALL


@pytest.mark.parametrize("state", [TieringState.DISABLING, TieringState.DISABLED])
def test_nothing_is_granted_while_tiering_is_off(state: TieringState) -> None:
    bench, broker = held_back()
    broker.retier(TopicTiering(topic_id=TOPIC_ID, state=state, tiered_epoch=2))
    bench.run(5)
    refusal = {
        TieringState.DISABLING: Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
        TieringState.DISABLED: Error.INVALID_REQUEST,
    }
    assert Copier(bench, broker).refused() is refusal[state]


def test_a_follower_grants_nothing() -> None:
    bench, broker = held_back()
    broker.follow()
    copier = Copier(bench, broker)
    assert copier.refused() is Error.NOT_LEADER_OR_FOLLOWER


def test_nothing_is_granted_before_the_metadata_are_ready() -> None:
    bench, broker = held_back()
    life = broker.start()
    life.reader.ready_at = 10**6
    broker.lead(6)
    assert Copier(bench, broker).refused() is Error.REPLICA_NOT_AVAILABLE


def test_requests_that_wait_are_refused_when_the_term_ends() -> None:
    bench, broker = held_back()
    bench.metadata.is_down = True
    copier = Copier(bench, broker)
    waiting, another = copier.ask(), Copier(bench, broker, 2).ask()
    bench.run(0.2)
    assert not waiting.done
    broker.follow()
    for each in (waiting, another):
        assert each.done
        assert getattr(each.value, "error", None) is Error.NOT_LEADER_OR_FOLLOWER
    bench.metadata.is_down = False


def test_a_store_whose_deletions_fail_ends_the_grants() -> None:
    bench, broker = held_back(UNDELETED_COPIES_MAX + 2)
    copier = Copier(bench, broker)
    for _ in range(UNDELETED_COPIES_MAX):
        [start] = copier.grant()
        copier.copy(start)
        bench.model.faults = ObjectStoreFaults(is_down=True)
        assert copier.commit(start, failure="no disk left") == [Error.INVALID_REQUEST]
        bench.run(5)
    assert copier.refused() is Error.INVALID_REQUEST
    bench.model.faults = ObjectStoreFaults()
    go_on(broker)
    bench.run(HOUR_S)
    bench.check(broker)
    assert len(bench.readable()) == UNDELETED_COPIES_MAX + 2


# -- commits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations((0, 10, 20))))
def test_commits_in_any_order_are_finished_in_the_order_of_offsets(order: tuple[int, ...]) -> None:
    bench, broker, copier = granted()
    done: set[int] = set()
    for start in order:
        done.add(start)
        prefix = [
            each for each in (0, 10, 20) if all(one in done for one in range(0, each + 1, 10))
        ]
        assert copier.copy_and_commit(start) == [start in prefix]
        assert [each for each, _ in bench.readable()] == prefix
    # The holder's lease is over; nothing else happens to what was finished or kept.
    bench.run(HOUR_S)
    bench.check(broker, ALL)
    finished = [
        each
        for each in bench.metadata.records()
        if isinstance(each, SegmentUpdate) and each.state is SegmentState.COPY_FINISHED
    ]
    starts = {each.segment.segment_id: start for start, each in copier.held.items()}
    assert [starts[each.segment_id] for each in finished] == [0, 10, 20]
    assert broker.log.highest_remote_offset == 29


def test_the_lag_follows_while_the_leader_waits_for_its_quota() -> None:
    bench, broker = held_back()
    copier = Copier(bench, broker)
    assert copier.grant(3) == [0, 10, 20]
    lags = []
    for start in (0, 10, 20):
        copier.copy_and_commit(start)
        status = broker.life.manager.status(TOPIC_ID, 0)
        assert status is not None
        lags.append(status.copy_lag_segments)
    assert lags == [2, 1, 0]


def test_a_repeated_commit_is_answered_alike() -> None:
    bench, broker, copier = granted()
    assert copier.copy_and_commit(10) == [False]
    assert copier.commit(10) == [False]
    assert copier.copy_and_commit(0) == [True]
    assert copier.commit(0, 10) == [True, True]
    assert copier.copy_and_commit(20) == [True]
    bench.run(5)
    bench.check(broker, ALL)


@pytest.mark.parametrize("missing", list(ObjectKind))
def test_objects_that_are_missing_refuse_a_commit(missing: ObjectKind) -> None:
    bench, broker, copier = granted(2)
    copier.copy(0, without=missing)
    expected = True if missing is ObjectKind.TXN_INDEX else Error.RESOURCE_NOT_FOUND
    assert copier.commit(0) == [expected]
    bench.run(LATER_S + HOUR_S)
    bench.check(broker, ALL[:2])


@pytest.mark.parametrize("kind", [each for each in ObjectKind if each is not ObjectKind.TXN_INDEX])
def test_objects_of_another_size_refuse_a_commit(kind: ObjectKind) -> None:
    bench, broker, copier = granted(1)
    copier.copy(0)
    name = object_name(copier.held[0].segment, kind)
    bench.model.put(name, bench.model.objects[name] + b"123456789012", replace=True)
    assert copier.commit(0) == [Error.RESOURCE_NOT_FOUND]
    bench.run(HOUR_S)
    bench.check(broker, ALL[:1])


def test_a_store_that_does_not_answer_leaves_the_grant() -> None:
    bench, broker, copier = granted(1, lease_ms=120_000)
    copier.copy(0)
    bench.model.faults = ObjectStoreFaults(is_down=True)
    request = copier.commits(0)
    answer = broker.life.manager.commit_copies(TOPIC_ID, 0, request)
    bench.run(70)
    [result] = answer.value  # type: ignore[misc]
    assert result.error.error is Error.REQUEST_TIMED_OUT
    bench.model.faults = ObjectStoreFaults()
    assert copier.commit(0) == [True]
    bench.run(HOUR_S)  # The manifest is tried again after a backoff.
    bench.check(broker, ALL[:1])


def test_a_copy_that_its_holder_gives_up_is_made_by_the_leader_and_the_kept_ones_are_finished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, broker, copier = granted()
    copier.copy(10)
    copier.copy(20)
    assert copier.commit(10, 20) == [False, False]
    assert copier.commit(0, failure="the disk is full") == [Error.INVALID_REQUEST]
    assert "granted copy of segment 0-9 failed: the disk is full" in caplog.text
    bench.run(HOUR_S)
    bench.check(broker, ALL)
    ids = {each.segment_id for each in bench.segments()}
    assert {copier.held[each].segment.segment_id for each in (10, 20)} < ids


def test_a_hole_is_the_first_to_be_granted() -> None:
    bench, broker = held_back()
    first, second = Copier(bench, broker, 1), Copier(bench, broker, 2)
    assert first.grant() == [0]
    assert second.grant(2) == [10, 20]
    assert second.copy_and_commit(10) == [False]
    assert first.commit(0, failure="lost") == [Error.INVALID_REQUEST]
    third = Copier(bench, broker, 3)
    assert third.grant(5) == [0]
    assert third.copy_and_commit(0) == [True]
    assert bench.readable() == ALL[:2]
    assert second.copy_and_commit(20) == [True]
    go_on(broker)
    bench.run(HOUR_S)
    bench.check(broker, ALL)


def test_local_files_that_have_changed_refuse_a_copy() -> None:
    bench, broker, copier = granted(1)
    copier.copy(0)
    task = next(iter(broker.life.manager._partitions.values())).grants  # type: ignore[union-attr]
    [known] = task._granted.items()
    files = known[1].files
    object.__setattr__(files, "is_intact", lambda: False)
    assert copier.commit(0) == [Error.INVALID_REQUEST]
    bench.run(HOUR_S)
    bench.check(broker, ALL[:1])
    assert bench.segments()[0].segment_id != copier.held[0].segment.segment_id


# -- leases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", range(4))
def test_a_lease_that_ends_leaves_the_segments_to_the_leader_and_no_object(written: int) -> None:
    """The holder died after it had written `written` copies; those are committed late."""
    bench, broker, copier = granted()
    for each in (0, 10, 20)[:written]:
        copier.copy(each)
    bench.run(LATER_S)
    if written:
        starts = (0, 10, 20)[:written]
        assert copier.commit(*starts) == [Error.INVALID_REQUEST] * written
    bench.run(HOUR_S)
    bench.check(broker, ALL)
    own = {each.segment_id for each in bench.segments()}
    assert not own & {each.segment.segment_id for each in copier.held.values()}


@pytest.mark.parametrize("is_lease", [True, False])
def test_failed_copies_are_deleted_while_the_leader_waits_for_its_quota(is_lease: bool) -> None:
    """Its own copy task may wait for long, and must not hold the grants back."""
    bench, broker = held_back(UNDELETED_COPIES_MAX + 2)
    for _ in range(2):
        for number in range(UNDELETED_COPIES_MAX):
            copier = Copier(bench, broker, number + 1)
            [start] = copier.grant()
            copier.copy(start)
            if is_lease:
                bench.run(LATER_S)
            else:
                assert copier.commit(start, failure="no") == [Error.INVALID_REQUEST]
        bench.run(5)
    bench.run(HOUR_S)
    assert (bench.segments(), bench.segment_objects()) == ([], set())
    go_on(broker)
    bench.run(HOUR_S)
    bench.check(broker)
    assert len(bench.readable()) == UNDELETED_COPIES_MAX + 2


def test_a_commit_that_comes_in_time_counts_however_late_it_is_handled() -> None:
    bench, broker = held_back(2)
    copiers = [Copier(bench, broker, 1), Copier(bench, broker, 2)]
    for copier in copiers:
        assert len(copier.grant(lease_ms=20_000)) == 1
        copier.copy(*copier.held)
    bench.model.faults = ObjectStoreFaults(hanging=1.0)
    manager = broker.life.manager
    answers = [
        manager.commit_copies(TOPIC_ID, 0, copier.commits(*copier.held)) for copier in copiers
    ]
    bench.run(25)
    assert not any(each.done for each in answers)
    bench.model.faults = ObjectStoreFaults()
    bench.run(60)
    for each in answers:
        (result,) = each.value  # type: ignore[misc]
        assert (result.error, result.is_finished) == (None, True)
    bench.run(HOUR_S)
    bench.check(broker, ALL[:2])


def test_what_is_written_after_its_lease_is_deleted_too() -> None:
    """A process that was paused goes on when its lease is over, as long as a copy may take."""
    bench, broker, copier = granted(1)
    bench.run(LATER_S + 60)
    assert bench.readable() == [(0, 10)]
    copier.copy(0)
    assert len(bench.segment_objects()) > 5
    bench.run(HOUR_S)
    bench.check(broker, ALL[:1])


def test_a_renewed_lease_lives_on_but_not_longer_than_a_copy_may_take() -> None:
    bench, broker, copier = granted(1)
    lives_s = 0
    while copier.grant(1) == [0]:
        bench.run(15)
        lives_s += 20
        assert lives_s < HOUR_S
    assert lives_s > 100
    bench.run(HOUR_S)
    bench.check(broker, ALL[:1])


def test_a_kept_copy_outlives_its_lease() -> None:
    bench, broker = held_back(2)
    first, second = Copier(bench, broker, 1), Copier(bench, broker, 2)
    assert first.grant(lease_ms=100_000) == [0]
    assert second.grant() == [10]
    go_on(broker)
    assert second.copy_and_commit(10) == [False]
    bench.run(LATER_S)
    assert first.copy_and_commit(0) == [True]
    bench.run(5)
    bench.check(broker, ALL[:2])
    [_, later] = bench.segments()
    assert later.segment_id == second.held[10].segment.segment_id


# -- the end of a term -----------------------------------------------------------------------------


def another_leader(bench: Bench, broker: BenchBroker, epoch: int = 6) -> BenchBroker:
    other = bench.broker(2)
    other.copy_of(broker)
    other.lead(epoch)
    return other


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_new_leader_ends_the_grants_of_the_one_before(is_alive: bool) -> None:
    bench, broker, copier = granted()
    copier.copy(10)
    assert copier.copy_and_commit(0) == [True]
    assert copier.commit(10) == [True]
    copier.copy(20)
    request = copier.commits(20)
    if not is_alive:
        broker.life.process.alive = False
    other = another_leader(bench, broker)
    bench.run(5)
    assert copier.send(request, to=other) is Error.FENCED_LEADER_EPOCH
    if is_alive:
        # It does not know yet that it leads no more, and finds the fence.
        assert copier.send(request) is Error.NOT_LEADER_OR_FOLLOWER
    bench.run(HOUR_S)
    bench.check(other, ALL)
    assert [each.broker_id for each in bench.segments()] == [1, 1, 2]


def test_a_restarted_leader_ends_the_grants_of_its_earlier_process() -> None:
    bench, broker, copier = granted()
    for each in (0, 10, 20):
        copier.copy(each)
    request = copier.commits(0, 10, 20)
    broker.start()
    broker.lead(6)
    bench.run(1)
    assert copier.send(request) is Error.FENCED_LEADER_EPOCH
    bench.run(HOUR_S)
    bench.check(broker, ALL)


def test_a_commit_in_a_newer_leader_epoch_is_unknown() -> None:
    _, _, copier = granted(1)
    request = copier.commits(0)
    newer = type(request)(leader_epoch=6, tiered_epoch=1, copies=request.copies)
    assert copier.send(newer) is Error.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("policy", [DisablePolicy.RETAIN, DisablePolicy.DELETE])
@pytest.mark.parametrize("committed", range(3))
def test_a_disablement_ends_the_grants(committed: int, policy: DisablePolicy) -> None:
    bench, broker, copier = granted()
    for each in (0, 10, 20):
        copier.copy(each)
    for each in (0, 10, 20)[:committed]:
        assert copier.commit(each) == [True]
    late = copier.commits(20)
    is_delete = policy is DisablePolicy.DELETE
    off = TopicTiering(
        topic_id=TOPIC_ID,
        state=TieringState.DISABLING,
        tiered_epoch=2,
        policy=policy,
        remote_floor_epoch=1 if is_delete else 0,
        purge_pending=is_delete,
    )
    broker.retier(off)
    assert copier.send(late) in (
        Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
        Error.FENCED_STATE_EPOCH,
    )
    bench.run(HOUR_S)
    kept = [] if is_delete else ALL[:committed]
    bench.check(broker, kept)
    broker.retier(
        TopicTiering(topic_id=TOPIC_ID, tiered_epoch=3, remote_floor_epoch=int(is_delete))
    )
    bench.run(60)
    assert copier.send(late) is Error.FENCED_STATE_EPOCH
    bench.check(broker, ALL)


@pytest.mark.forms(10)
@pytest.mark.parametrize("step", range(1, 60, 2))
def test_a_leader_that_dies_at_any_step_leaves_nothing_behind(step: int) -> None:
    bench = Bench(step)
    broker = bench.broker(1)
    broker.lead(5)
    bench.run(5)
    broker.life.environment.copier_slots.free = 0
    broker.fill(3, epoch=5)
    broker.life.steps.crash_at = broker.life.steps.count + step
    first, second = Copier(bench, broker, 1), Copier(bench, broker, 2)
    requests = []
    for copier in (first, second):
        answer = copier.ask(2 if copier is first else 1)
        bench.run(5)
        if answer.done and not hasattr(answer.value, "error"):
            copier.held = {each.segment.start_offset: each for each in answer.value.granted}  # type: ignore[union-attr]
            for start in copier.held:
                copier.copy(start)
            requests += [copier.commits(start) for start in copier.held]
    for each in reversed(requests):
        if broker.life.process.alive:
            broker.do(lambda each=each: broker.life.manager.commit_copies(TOPIC_ID, 0, each))  # type: ignore[misc]
            bench.run(5)
    other = another_leader(bench, broker)
    bench.run(HOUR_S)
    bench.check(other, ALL)


# -- what others do meanwhile ----------------------------------------------------------------------


def test_retention_deletes_no_local_file_of_a_granted_segment() -> None:
    bench, broker = held_back(local_retention_bytes=1)
    copier = Copier(bench, broker)
    assert copier.grant(3) == [0, 10, 20]
    broker.log.expire_segments(broker.clock.now_ms())
    assert broker.log.local_log_start_offset == 0
    assert copier.copy_and_commit(0) == [True]
    broker.log.expire_segments(broker.clock.now_ms())
    assert broker.log.local_log_start_offset == 10


def test_expiration_does_not_touch_granted_copies() -> None:
    """The log start has moved behind a granted segment: it is deleted once its copy has ended."""
    bench, broker, copier = granted()
    broker.log.delete_records(15)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(5)
    states = {each.start_offset: each.state for each in bench.segments()}
    assert set(states.values()) == {SegmentState.COPY_STARTED}
    assert copier.copy_and_commit(0, 10, 20) == [True, True, True]
    bench.run(HOUR_S)
    bench.check(broker, ALL[1:])


def test_lost_answers_of_the_metadata_topic_lose_nothing() -> None:
    for seed in range(10):
        bench = Bench(seed)
        broker = bench.broker(1)
        broker.lead(5)
        bench.run(5)
        broker.life.environment.copier_slots.free = 0
        broker.fill(3, epoch=5)
        bench.metadata.lost_answers = 0.4
        copier = Copier(bench, broker)
        for _ in range(30):
            answer = copier.ask(3)
            bench.run(20)
            found = getattr(answer.value, "granted", ()) if answer.done else ()
            copier.held = {each.segment.start_offset: each for each in found}
            for start in sorted(copier.held):
                copier.copy(start)
                broker.life.manager.commit_copies(TOPIC_ID, 0, copier.commits(start))
                bench.run(20)
        bench.metadata.lost_answers = 0.0
        go_on(broker)
        bench.run(HOUR_S)
        bench.check(broker, ALL)


def test_records_of_grants_are_those_of_copies() -> None:
    bench, broker, copier = granted(1)
    copier.copy_and_commit(0)
    bench.run(5)
    [segment] = [each for each in bench.metadata.records() if isinstance(each, SegmentMetadata)]
    assert (segment.broker_id, segment.leader_epoch, segment.tiered_epoch) == (1, 5, 1)
    assert broker.life.environment.metrics.of_topic("topic").copied_bytes == segment.size_bytes
    assert ENABLED.copies
