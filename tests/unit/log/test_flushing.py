"""Flushes: what is durable when, which promises complete, what a failure costs.

Method: workers that wait for the test to let them run, and a disk that forgets what is unsynced.
"""

import errno
import gc

import pytest

from ottla.base.ports import is_shortage
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.flushing import RETRY_MS, FlushJob
from ottla.log.opening import open_log
from ottla.log.partition_log import PartitionLog
from tests.unit.log.support import (
    DIRECTORY,
    TOPIC_ID,
    Environment,
    QueuedWorkers,
    append,
    batch,
    values,
)


def queued() -> tuple[Environment, QueuedWorkers]:
    workers = QueuedWorkers()
    return Environment(workers=workers), workers


def test_a_flush_makes_what_was_appended_durable() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch(3))
    flushed = log.flush()
    append(log, batch(2))
    assert not flushed.done
    assert log.recovery_point == 0
    workers.run()
    assert flushed.value is None
    assert log.recovery_point == 3
    env.disk.crash()
    reopened = env.open()
    assert reopened.log_end_offset >= 3
    assert reopened.epochs.entries == ((0, 0),)


def test_requests_during_a_flush_share_the_next_one() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch())
    first = log.flush()
    append(log, batch())
    others = [log.flush() for _ in range(5)]
    assert len(workers.queue) == 1
    workers.run(1)
    assert first.value is None
    assert log.recovery_point == 1
    assert len(workers.queue) == 1
    workers.run()
    assert [other.value for other in others] == [None] * 5
    assert log.recovery_point == 2


def test_a_roll_flushes_what_it_seals() -> None:
    env, workers = queued()
    log = env.open(LogConfig(segment_bytes=140))
    for _ in range(3):
        append(log, batch(size=60))
    workers.run()
    assert log.recovery_point == 2
    env.disk.crash()
    assert env.open(LogConfig(segment_bytes=140), recovery_point=2).log_end_offset == 2


def test_a_new_logs_directory_and_topic_id_are_durable_with_the_first_flush() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch())
    log.flush()
    workers.run()
    env.disk.crash()
    assert "partition.metadata" in env.names()
    assert env.disk.read_bytes(f"{DIRECTORY}/partition.metadata").startswith(b"version: 0")


def test_the_leader_epochs_are_durable_under_their_name_and_synced_by_a_worker() -> None:
    """KAFKA-16541."""
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=3)
    workers.run()
    acts: list[str] = []
    env.disk.on_operation = lambda act, path: acts.append(act)
    log.flush()
    assert "sync" not in acts
    workers.run()
    assert acts.index("sync") < acts.index("rename") < acts.index("sync_dir")
    env.disk.crash()
    assert env.disk.read_bytes(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n1\n3 0\n"


def test_a_failed_fsync_takes_the_log_offline() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch())
    env.disk.fail("sync", errno.EIO)
    first, second = log.flush(), log.flush()
    workers.run()
    assert isinstance(first.value, OSError)
    assert isinstance(second.value, OSError)
    assert log.failed
    assert [failed for failed, _ in env.failures] == [log]
    assert log.recovery_point == 0
    assert env.disk.open_files == 0


def test_a_failure_to_prepare_is_a_failure_too() -> None:
    env, _ = queued()
    log = env.open()
    append(log, batch())
    env.disk.fail("open", path="leader-epoch")
    assert isinstance(log.flush().value, OSError)
    assert log.failed
    assert env.disk.open_files == 0


def test_a_flush_survives_a_rename_of_the_directory() -> None:
    """KAFKA-15391, KAFKA-13403, KAFKA-5099: nothing is written into a new directory's files."""
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=3)
    flushed = log.flush()
    env.disk.rename(DIRECTORY, "/data/gone-delete")
    log.moved("/data/gone-delete")
    successor = env.open()
    workers.run()
    assert flushed.value is None
    assert not log.failed
    assert "leader-epoch-checkpoint" not in env.names()
    assert successor.epochs.entries == ()


def test_a_flush_survives_a_deletion_of_the_directory() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch())
    flushed = log.flush()
    env.disk.rmtree(DIRECTORY)
    workers.run()
    assert flushed.value is None


def test_flush_messages_and_flush_ms() -> None:
    env, workers = queued()
    log = env.open(LogConfig(flush_messages=3, flush_ms=100))
    infos = [log.append_as_leader(batch(), leader_epoch=0, now_ms=env.clock.ms) for _ in range(4)]
    assert [info.flush_due for info in infos] == [False, False, True, True]
    assert not log.needs_flush(env.clock.ms + 99)
    assert log.needs_flush(env.clock.ms + 100)
    log.flush()
    workers.run()
    assert not log.needs_flush(env.clock.ms + 1_000)
    assert not log.append_as_leader(batch(), leader_epoch=0, now_ms=0).flush_due


def test_flushing_on_the_callers_thread() -> None:
    env, _ = queued()
    log = env.open()
    append(log, batch(4))
    log.flush_now()
    assert log.recovery_point == 4
    env.disk.crash()
    assert len(values(env.open())) == 4


def test_files_are_closed_again_after_a_flush() -> None:
    env, workers = queued()
    env.open_files_max = 1
    log = env.open(LogConfig(segment_bytes=140))
    for _ in range(5):
        append(log, batch(size=60))
        log.flush()
        workers.run()
    log.close()
    assert env.disk.open_files == 0


def test_a_flush_beside_one_under_way_covers_what_that_one_has() -> None:
    """Else a clean shutdown could vouch for what a slow worker has not synced yet."""
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=2)
    slow = log.flush()
    job = log.prepare_close()
    job.run()
    job.release(failed=False)
    log.flushed(job)
    env.disk.crash()
    reopened = env.open(clean=True)
    assert reopened.log_end_offset == 1
    assert reopened.epochs.entries == ((2, 0),)
    workers.run()
    assert slow.done
    log.close()
    assert "partition.metadata" in env.names()


def test_no_flush_begins_beside_the_last_one() -> None:
    """It would leave out what the last one covers, and let the recovery point pass that."""
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=2)
    before = log.flush()
    append(log, batch(), epoch=2)
    waits = log.flush()
    job = log.prepare_close()
    later = log.flush()
    workers.run()
    assert before.value is None
    assert log.recovery_point == 0, "the leader epochs are left to the last flush"
    assert not waits.done
    job.run()
    job.release(failed=False)
    log.flushed(job)
    assert log.recovery_point == 2
    log.close_flushed()
    assert isinstance(waits.value, OSError)
    assert isinstance(later.value, OSError)
    assert not workers.queue


@pytest.mark.parametrize("second", ["ends first", "ends last", "does not end"])
@pytest.mark.parametrize("at", ["sync", "rename", "sync_dir"])
def test_flushes_beside_each_other_do_not_share_the_file_of_leader_epochs(
    at: str, second: str
) -> None:
    """What was renamed into place has been synced, and older epochs do not replace newer ones."""
    env, workers = queued()
    log = env.open()
    append(log, batch())
    log.flush()
    workers.run()
    append(log, batch(), epoch=2)
    log.flush()
    jobs: list[FlushJob] = []

    def begin_second(operation: str, _path: str) -> None:
        if operation == at and not jobs:
            log.epochs.assign(5, log.log_end_offset)
            jobs.append(log.prepare_close())
            if second == "ends first":
                jobs[0].run()

    env.disk.on_operation = begin_second
    workers.run()
    if second == "ends last":
        jobs[0].run()
    stored = env.disk.read_bytes(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    env.disk.crash()
    assert env.disk.read_bytes(f"{DIRECTORY}/{names.LEADER_EPOCHS}") == stored
    if second != "does not end":
        assert stored == b"0\n3\n0 0\n2 1\n5 2\n"
        assert not any(name.endswith(names.TEMPORARY) for name in env.names())


def test_a_log_that_is_let_go_is_freed_without_a_search_for_cycles() -> None:
    """Thousands of deleted logs would hold up the loop for a tenth of a second and more."""
    env, workers = queued()
    gc.collect()
    gc.disable()
    try:
        before = logs_alive()
        log = env.open()
        append(log, batch(3))
        flushed = log.flush()
        workers.run()
        assert flushed.done
        log.close()
        assert logs_alive() == before + 1
        del log, flushed
        assert logs_alive() == before
    finally:
        gc.enable()


def logs_alive() -> int:
    return sum(isinstance(each, PartitionLog) for each in gc.get_objects())


def logs_of(env: Environment, count: int) -> list[PartitionLog]:
    """Return logs that share the bound on open files, with a record each."""
    ports = env.ports()
    logs = []
    for number in range(count):
        directory = f"/data/topic-{number}"
        logs.append(
            open_log(
                ports,
                directory,
                topic="topic",
                partition=number,
                topic_id=TOPIC_ID,
                config=LogConfig(timestamp_after_max_ms=2**62),
            )
        )
        append(logs[-1], batch())
    return logs


def test_the_flushes_of_many_logs_take_turns() -> None:
    env, workers = queued()
    env.open_files_max = 80
    logs = logs_of(env, 100)
    flushes = [log.flush() for log in logs]
    assert 1 < len(workers.queue) < 20 / 3
    assert env.disk.open_files <= 80
    append(logs[-1], batch())
    workers.run()
    assert [flushed.value for flushed in flushes] == [None] * 100
    assert logs[-1].recovery_point == 2, "its job was prepared when its turn came"
    assert env.disk.open_files_max <= 80 + 1, "the creation of a log opens one beside the cache"


def test_a_log_that_is_closed_before_its_turn_leaves_the_queue() -> None:
    env, workers = queued()
    env.open_files_max = 1
    first, second, third = logs_of(env, 3)
    begun, waits, last = first.flush(), second.flush(), third.flush()
    second.close()
    workers.run()
    assert (begun.value, last.value) == (None, None)
    assert isinstance(waits.value, OSError)


def test_a_flush_of_many_segments_has_several_jobs() -> None:
    """As after an unclean shutdown that a damaged checkpoint made long."""
    env, workers = queued()
    env.open_files_max = 20
    log = env.open(LogConfig(segment_bytes=140))
    for _ in range(30):
        append(log, batch(size=60))
    workers.run()
    log.close()
    log = env.open(LogConfig(segment_bytes=140))
    assert len(log.segments) > 10
    env.disk.open_files_max = 0
    middle = log.flush(include_active=False)
    everything = log.flush()
    points = []
    while workers.run(1):
        points.append(log.recovery_point)
        assert middle.done == (log.recovery_point >= log.segments.active.base_offset)
    assert len(points) > 5
    assert points == sorted(points)
    assert (middle.value, everything.value) == (None, None)
    assert log.recovery_point == 30
    assert env.disk.open_files_max <= 20
    env.disk.crash()
    assert len(values(env.open())) == 30


def test_a_flush_on_the_callers_thread_and_the_last_one_have_all_segments() -> None:
    env, workers = queued()
    env.open_files_max = 20
    log = env.open(LogConfig(segment_bytes=140))
    for _ in range(30):
        append(log, batch(size=60))
    log.flush_now()
    assert log.recovery_point == 30
    workers.run()
    env.disk.crash()
    assert len(values(env.open())) == 30


def test_a_flush_without_descriptors_is_tried_again() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=2)
    log.segments.active.close()
    env.disk.descriptors = 0
    flushed = log.flush()
    env.pass_ms(RETRY_MS)
    assert not workers.queue
    env.disk.descriptors = None
    append(log, batch(), epoch=2)
    env.pass_ms(RETRY_MS)
    workers.run()
    assert flushed.value is None
    assert (log.recovery_point, log.failed, env.failures) == (2, False, [])
    env.disk.crash()
    assert env.open().epochs.entries == ((2, 0),)


def test_a_flush_on_the_loop_that_finds_no_descriptor_in_its_middle_fails() -> None:
    env, _ = queued()
    log = env.open()
    append(log, batch(), epoch=2)
    env.disk.fail("sync_dir", errno.EMFILE)
    with pytest.raises(OSError, match="sync_dir") as caught:
        log.flush_now()
    assert not is_shortage(caught.value)
    assert log.failed


def test_a_flush_that_finds_no_descriptor_in_its_middle_runs_again() -> None:
    env, workers = queued()
    log = env.open()
    append(log, batch(), epoch=2)
    env.disk.fail("sync_dir", errno.EMFILE)
    flushed = log.flush()
    workers.run()
    assert (log.recovery_point, log.failed) == (0, False)
    env.pass_ms(RETRY_MS)
    workers.run()
    assert flushed.value is None
    assert (log.recovery_point, log.failed, env.failures) == (1, False, [])
    env.disk.crash()
    assert env.open().epochs.entries == ((2, 0),)
    log.close()
    assert env.disk.open_files == 0


def test_a_truncation_waits_for_the_last_of_several_jobs() -> None:
    """It ends at the recovery point, up to where a job without the last segment is durable, too."""
    env, workers = queued()
    env.open_files_max = 32
    log = env.open(LogConfig(segment_bytes=140, timestamp_after_max_ms=2**62))
    for _ in range(5):
        append(log, batch([bytes(52)]))
    log.flush()
    workers.run()
    log.ports.files.flushes.take(100)  # Others' flushes, so that those of rolls wait.
    for _ in range(10):
        append(log, batch([bytes(52)]))
    truncated = log.truncate_in_background(log.segments[2].base_offset, lambda: True)
    workers.run()
    assert log.log_end_offset == log.recovery_point == 2
    log.ports.files.flushes.leave(100)
    workers.run(1)
    assert (truncated.done, log.flusher.truncation_unflushed) == (False, True)
    workers.run()
    assert (truncated.value, log.flusher.truncation_unflushed) == (None, False)
