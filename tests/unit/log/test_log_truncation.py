"""Truncations that a loss of power cannot undo once anything was appended behind them.

Method: workers that wait for the test, so that a truncation meets flushes and checkpoints that
are not done yet; checkpoints as old as the test wants; a disk that forgets what is unsynced, or
any part of it.
"""

import errno
from random import Random

import pytest

from ottla.base.errors import ApiError, Error
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoint_limits import limits_number, lowest
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import restamp
from ottla.testing.disk import MemoryDisk
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.support import (
    DIRECTORY,
    Environment,
    QueuedWorkers,
    append,
    batch,
    produced,
    values,
)

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100, timestamp_after_max_ms=2**62)


def filled(count: int = 12, disk: MemoryDisk | None = None) -> tuple[Environment, PartitionLog]:
    """Return a log of segments of two records each, flushed."""
    env = Environment(workers=QueuedWorkers())
    if disk is not None:
        env.disk = disk
        disk.mkdir("/data")
        disk.sync_dir("/")
    log = env.open(CONFIG)
    for number in range(count):
        append(log, batch([b"old %d" % number + bytes(55)]))
    log.advance_high_watermark(count)
    log.flush()
    run(env)
    assert log.recovery_point == count
    return env, log


def run(env: Environment, count: int | None = None) -> None:
    assert isinstance(env.workers, QueuedWorkers)
    env.workers.run(count)


def limit_files(env: Environment) -> list[str]:
    return [name for name in env.names() if limits_number(name) is not None]


def copied(offset: int, epoch: int) -> bytes:
    data = batch([b"new %d" % offset + bytes(55)])
    restamp(data, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(data)


# --- what a start finds -----------------------------------------------------------------


@pytest.mark.parametrize("rolls", range(2, 12))
def test_an_older_checkpoint_is_not_believed_after_a_truncation(rolls: int) -> None:
    """The recovery point was 12 when power went, and the log had been cut and had grown since."""
    for seed in range(10):
        disk = SimDisk()
        env, log = filled(disk=disk)
        log.truncate_to(3)
        before = values(log)
        for offset in range(3, 3 + rolls):
            log.append_as_follower(copied(offset, 1), now_ms=0)
        expected = values(log)
        disk.lose_power(Random(seed))
        found = values(env.open(CONFIG, recovery_point=12))
        assert found == expected[: len(found)]
        assert len(found) >= len(before)


def test_a_roll_at_the_cut_does_not_make_the_cut_segment_trusted() -> None:
    for seed in range(30):
        disk = SimDisk()
        env, log = filled(disk=disk)
        log.truncate_to(3)
        checkpoint = log.recovery_point
        log.roll(0)
        disk.lose_power(Random(seed))
        reopened = env.open(CONFIG, recovery_point=checkpoint)
        found = [offset for offset, _ in values(reopened)]
        assert found == list(range(reopened.log_end_offset))
        assert len(found) >= 3


@pytest.mark.parametrize("leads", [False, True])
def test_a_roll_behind_a_gap_at_which_the_log_was_cut_leaves_no_gap_between_segments(
    leads: bool,
) -> None:
    """A follower's log without 1 to 9, which its leader has compacted away, is cut at 6."""
    env = Environment()
    log = env.open(CONFIG)
    for offset in (0, 10):
        log.append_as_follower(copied(offset, 1), now_ms=0)
    log.advance_high_watermark(1)
    log.truncate_to(6)
    assert log.log_end_offset == 6
    log.flush_now()
    for offset in range(6, 9):
        large = batch([bytes(180)])
        if not leads:
            restamp(large, 0, base_offset=offset, leader_epoch=2)
            log.append_as_follower(bytes(large), now_ms=0)
        else:
            append(log, large, epoch=2)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 1, 7, 8]
    log.flush_now()
    reopened = env.open(CONFIG, recovery_point=0)
    assert [segment.base_offset for segment in reopened.segments] == bases
    assert [offset for offset, _ in values(reopened)] == [0, 6, 7, 8]


def test_the_recovery_point_goes_back_to_the_base_of_the_segment_that_is_cut() -> None:
    _, log = filled()
    log.truncate_to(5)
    assert log.segments.active.base_offset == 4
    assert log.recovery_point == 4


def test_nothing_is_appended_before_the_cut_is_durable() -> None:
    """A caller that does not wait for the flush gets one at its next append."""
    env, log = filled()
    log.truncate_to(3)
    assert log.flusher.truncation_unflushed
    append(log, batch([b"new"]), epoch=1)
    assert not log.flusher.truncation_unflushed
    assert log.recovery_point == 3
    env.disk.crash()
    assert [offset for offset, _ in values(env.open(CONFIG))] == [0, 1, 2]


def test_a_follower_that_appends_at_once_flushes_the_cut_too() -> None:
    env, log = filled()
    log.truncate_fully_and_start_at(7)
    log.append_as_follower(copied(7, 1), now_ms=0)
    env.disk.crash()
    assert [name for name in env.names() if name.endswith(".log")] == [f"{7:020d}.log"]


def test_a_kill_within_a_new_beginning_leaves_no_producers_of_the_old_log() -> None:
    """At any write: the next start must not read the snapshots of records that are gone."""
    for writes in range(1, 40):
        env = Environment(workers=QueuedWorkers())
        env.disk = disk = SimDisk()
        disk.mkdir("/data")
        disk.sync_dir("/")
        log = env.open(CONFIG)
        for number in range(12):
            append(log, produced(number, 0, 0, size=55))
        run(env)
        left = writes

        def killed(operation: str, path: str) -> None:
            nonlocal left
            left -= operation in ("append", "truncate", "rename", "remove", "sync_dir")
            if not left:
                raise Killed

        disk.on_operation = killed
        try:
            log.truncate_fully_and_start_at(30)
        except Killed:
            pass
        else:
            return
        disk.on_operation = lambda operation, path: None
        disk.kill()
        log = env.open(CONFIG)
        there = {state.producer_id for state in log.producer_states()}
        assert there <= set(range(log.log_end_offset if log.log_end_offset <= 12 else 0)), writes
    raise AssertionError("it was never done")


class Killed(BaseException):
    """The process is, in the midst of an operation."""


def test_an_append_whose_flush_fails_takes_the_log_offline() -> None:
    env, log = filled()
    log.truncate_to(3)
    env.disk.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        append(log, batch())
    with pytest.raises(ApiError) as caught:
        append(log, batch())
    assert caught.value.error is Error.KAFKA_STORAGE_ERROR


def test_a_log_that_began_below_its_log_start_survives_a_kill() -> None:
    """The checkpoint of the log start is of DeleteRecords, before the leader's log was shorter."""
    env, log = filled()
    log.delete_records(8)
    log.truncate_fully_and_start_at(2)
    log.append_as_follower(copied(2, 1), now_ms=0)
    expected = values(log)
    env.disk.kill()
    reopened = env.open(CONFIG, recovery_point=12, log_start_offset=8)
    assert values(reopened) == expected
    assert (reopened.log_start_offset, reopened.log_end_offset) == (2, 3)


def test_a_truncation_below_the_log_start_survives_a_kill() -> None:
    env, log = filled()
    log.delete_records(8)
    log.truncate_to(7)
    log.append_as_follower(copied(7, 1), now_ms=0)
    expected = values(log)
    env.disk.kill()
    reopened = env.open(CONFIG, recovery_point=12, log_start_offset=8, high_watermark=12)
    assert values(reopened) == expected
    assert reopened.log_end_offset == 8
    assert reopened.high_watermark == 7


def test_records_of_an_older_epoch_survive_behind_deleted_ones() -> None:
    """The epochs of deleted records are forgotten; recovery still sees them in their segment."""
    env, log = filled()
    append(log, batch([b"epoch 5"]), epoch=5)
    log.advance_high_watermark(13)
    log.delete_records(13)
    log.truncate_to(13)
    log.append_as_follower(copied(13, 2), now_ms=0)
    env.disk.kill()
    reopened = env.open(CONFIG, log_start_offset=13)
    assert [offset for offset, _ in values(reopened)] == [13]


# --- flushes under way ------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
def test_a_flush_that_ends_late_does_not_vouch_for_what_came_since(again: bool) -> None:
    env, log = filled()
    late = log.flush()
    if again:
        log.truncate_fully_and_start_at(3)
    else:
        log.truncate_to(3)
    log.flush_now()
    for offset in range(3, 20):
        log.append_as_follower(copied(offset, 1), now_ms=0)
    run(env, 1)
    assert late.value is None
    assert log.recovery_point == 3


def test_flush_messages_waits_for_a_flush_of_its_own_after_a_truncation() -> None:
    config = LogConfig(flush_messages=1, timestamp_after_max_ms=2**62)
    env = Environment(workers=QueuedWorkers())
    log = env.open(config)
    for _ in range(10):
        append(log, batch())
    log.flush()
    log.truncate_to(5)
    info = log.append_as_leader(batch(), leader_epoch=1, now_ms=0)
    assert info.flush_due
    acknowledged = log.flush()
    run(env, 1)
    assert not acknowledged.done
    assert log.recovery_point == 5
    assert log.append_as_leader(batch(), leader_epoch=1, now_ms=0).flush_due
    run(env)
    assert acknowledged.value is None
    assert log.recovery_point == 6, "the last one came after the flush was begun"


# --- limits -----------------------------------------------------------------------------


def test_the_limits_are_durable_before_anything_is_cut() -> None:
    env, log = filled()
    done: list[str] = []
    env.disk.on_operation = lambda operation, path: done.append(operation)
    log.truncate_to(3)
    env.disk.on_operation = None
    first = next(index for index, each in enumerate(done) if each in ("truncate", "rename"))
    assert "write_atomic" in done[:first]
    assert lowest(log.limits.values())[:2] == (2, 0)


def test_a_truncation_that_lowers_no_checkpoint_writes_none() -> None:
    env = Environment(workers=QueuedWorkers())
    log = env.open()
    append(log, batch(3))
    append(log, batch(3))
    log.truncate_to(3)
    assert limit_files(env) == []
    assert log.flusher.truncation_unflushed


@pytest.mark.parametrize("checkpoint", ["high_watermark", "clean_offset"])
def test_every_checkpoint_is_limited_to_what_the_cut_leaves(checkpoint: str) -> None:
    """Also where the recovery point is below the cut already, as after an unclean start."""
    env, log = filled()
    log.flusher.recovery_point = log.offsets.high_watermark = log.offsets.clean_offset = 0
    setattr(log.offsets, checkpoint, 8)
    log.truncate_to(3)
    assert len(limit_files(env)) == 1
    assert getattr(lowest(log.limits.values()), checkpoint) <= 3


def test_limits_go_with_the_checkpoints_that_were_written_since() -> None:
    env, log = filled()
    log.truncate_to(3)
    numbers = tuple(log.limits)
    log.truncation.checkpointed(numbers, log.truncation_count)
    assert (limit_files(env), log.limits) == ([], {})


def test_limits_stay_after_another_truncation() -> None:
    """The checkpoints that are durable now may say more than the second truncation leaves."""
    env, log = filled()
    log.truncate_to(5)
    numbers, truncation_count = tuple(log.limits), log.truncation_count
    log.truncate_to(4)
    assert limit_files(env) == [f".ottla_truncation-{numbers[0]}"]
    log.truncation.checkpointed(numbers, truncation_count)
    assert limit_files(env) == [f".ottla_truncation-{numbers[0]}"]


def test_limits_that_cannot_be_read_let_everything_be_read() -> None:
    env, log = filled()
    log.truncate_to(5)
    (name,) = limit_files(env)
    env.disk.corrupt(f"{DIRECTORY}/{name}", 0, b"????")
    reopened = env.open(CONFIG, recovery_point=12)
    assert reopened.recovery_point == 0
    assert reopened.log_end_offset == 5


def test_a_log_without_checkpoints_has_no_limits() -> None:
    env, log = filled()
    log.ports.has_checkpoints = False
    log.truncate_to(3)
    assert limit_files(env) == []


@pytest.mark.parametrize("has_checkpoints", [False, True])
def test_a_new_beginning_deletes_the_newest_segment_last_where_there_are_checkpoints(
    has_checkpoints: bool,
) -> None:
    env, log = filled()
    log.ports.has_checkpoints = has_checkpoints
    renamed: list[str] = []
    env.disk.on_operation = lambda operation, path: (
        renamed.append(path) if operation == "rename" and path.endswith(names.LOG) else None
    )
    log.truncate_fully_and_start_at(12)
    env.disk.on_operation = None
    assert len(renamed) == 6
    assert renamed == sorted(renamed, reverse=not has_checkpoints)


# --- in the background ------------------------------------------------------------------

SYNCS = frozenset({"sync", "sync_dir", "write_atomic"})


def test_in_the_background_no_sync_is_on_the_loop() -> None:
    env, log = filled()
    assert isinstance(env.workers, QueuedWorkers)
    workers, on_loop, in_worker = env.workers, [True], []

    def seen(operation: str, path: str) -> None:
        if operation in SYNCS:
            assert not on_loop[0], f"{operation} of {path}"
            in_worker.append(operation)

    env.disk.on_operation = seen
    truncated = log.truncate_in_background(3, lambda: True)
    assert log.log_end_offset == 12
    while workers.queue:
        work, done = workers.queue.popleft()
        on_loop[0] = False
        result = work()
        on_loop[0] = True
        assert done is not None
        done(result)
    assert truncated.value is None
    assert log.log_end_offset == 3
    assert not log.flusher.truncation_unflushed
    append(log, batch(), epoch=1)
    assert in_worker[0] == "write_atomic"
    assert "sync" in in_worker


def test_what_is_not_wanted_any_more_is_not_cut() -> None:
    env, log = filled()
    asked: list[PartitionLog] = []
    log.ports.on_truncated = asked.append
    truncated = log.truncate_in_background(3, lambda: False)
    run(env)
    assert truncated.value is None
    assert log.log_end_offset == 12
    assert asked == [log], "the limits are there for nothing, and are to go"


def test_truncate_fully_in_background() -> None:
    env, log = filled()
    begun = log.truncate_fully_in_background(50, lambda: True)
    run(env)
    assert begun.value is None
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (50, 50, 50)


def test_a_disk_that_fails_below_a_truncation_takes_the_log_offline() -> None:
    env, log = filled()
    env.disk.fail("write_atomic", errno.EIO)
    truncated = log.truncate_in_background(3, lambda: True)
    run(env)
    assert isinstance(truncated.value, OSError)
    assert log.failed
    assert [failed for failed, _ in env.failures] == [log]


def test_a_log_that_is_deleted_meanwhile_is_left_alone() -> None:
    env, log = filled()
    truncated = log.truncate_in_background(3, lambda: True)
    env.disk.rename(DIRECTORY, "/data/gone-delete")
    log.moved("/data/gone-delete")
    log.close()
    run(env)
    assert truncated.done
    assert env.failures == []
