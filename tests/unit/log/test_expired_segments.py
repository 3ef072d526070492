"""Segments below the log start are deleted so that no loss of power leaves a gap.

Method: a log of ten segments whose checkpointed recovery point is 0, as it is up to a minute after
a start; names that were not synced come back one by one, in all the ways that 200 seeds draw.
"""

import errno
from random import Random

import pytest

from ottla.base.limits import LOGS_PER_STEP_MAX
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.dirs.checkpoints import read_offsets
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.partition_log import PartitionLog
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.node import Node, create
from tests.unit.log.support import (
    DIRECTORY,
    Environment,
    QueuedWorkers,
    append,
    batch,
    produced,
    values,
)

CONFIG = LogConfig(
    segment_bytes=300, retention_ms=-1, timestamp_after_max_ms=2**62, index_interval_bytes=100
)
RECORDS = 20


def filled(log: PartitionLog) -> PartitionLog:
    for number in range(RECORDS):
        append(log, batch([b"%060d" % number]))
    log.advance_high_watermark(RECORDS)
    assert len(log.segments) == RECORDS // 2
    return log


@pytest.mark.parametrize("seed", range(200))
def test_a_loss_of_power_leaves_no_gap(seed: int) -> None:
    env = Environment()
    env.disk = disk = SimDisk(now_ms=env.clock.now_ms)
    disk.mkdir("/data")
    disk.sync_dir("/")
    log = filled(env.open(CONFIG))
    log.flush_now()
    log.delete_records(13)
    assert log.delete_expired_segments(13) == 6
    disk.lose_power(Random(seed))
    log = env.open(CONFIG, recovery_point=0, log_start_offset=13)
    assert (log.log_start_offset, log.log_end_offset) == (13, RECORDS)
    assert [segment.base_offset for segment in log.segments] == [12, 14, 16, 18]
    assert [offset for offset, _ in values(log)] == list(range(13, RECORDS))
    assert not [name for name in env.names() if name.endswith(names.DELETED)]


@pytest.mark.parametrize("seed", range(100))
def test_a_loss_of_power_after_the_checkpoint_leaves_the_producers(seed: int) -> None:
    """The log start can be durable before the flush that follows the roll at it.

    What stays of the log is lost with the power again, before the next one.
    """
    env = Environment(workers=QueuedWorkers())
    env.disk = disk = SimDisk(now_ms=env.clock.now_ms)
    disk.mkdir("/data")
    disk.sync_dir("/")
    log = env.open(CONFIG)
    for sequence in range(4):
        append(log, produced(7, 0, sequence, size=60))
    log.flush_now()
    append(log, produced(7, 0, 4, size=60))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    log.advance_high_watermark(5)
    log.delete_records(4)
    for number in range(2):
        disk.lose_power(Random(2 * seed + number))
        log = env.open(CONFIG, recovery_point=0, log_start_offset=4)
        assert log.log_start_offset == 4
        assert log.log_end_offset in (4, 5)
        assert log.producers.entries[7].last_sequence == log.log_end_offset - 1


def test_the_active_segment_stays() -> None:
    env = Environment()
    log = filled(env.open(CONFIG))
    log.delete_records(RECORDS)
    assert log.has_expired_segments
    assert log.delete_expired_segments(RECORDS) == RECORDS // 2 - 1
    assert not log.has_expired_segments
    log.flush_now()
    log = env.open(CONFIG, recovery_point=0, log_start_offset=RECORDS)
    assert (log.log_start_offset, log.log_end_offset) == (RECORDS, RECORDS)
    assert env.disk.exists(f"{DIRECTORY}/{RECORDS - 2:020d}.log")


# -- all logs of a broker ----------------------------------------------------------------------


class Broker:
    """A log with expired segments, and what its broker does to the disk for them."""

    def __init__(self, partitions: int = 1) -> None:
        self.workers = QueuedWorkers()
        self.node = Node(self.workers)
        self.dirs: LogDirs = self.node.start()[0]
        self.logs = [create(self.dirs, partition=each) for each in range(partitions)]
        for log in self.logs:
            log.reconfigure(CONFIG)
            filled(log)
        self.workers.run()
        self.acts: list[tuple[str, str]] = []
        self.node.disk.on_operation = lambda act, path: self.acts.append((act, path))

    def expire(self, start: int = 10) -> None:
        for log in self.logs:
            log.delete_records(start)
        self.dirs.delete_expired_segments()

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.logs[0].segments]


def test_the_log_start_is_durable_first() -> None:
    broker = Broker()
    broker.expire()
    assert broker.bases()[0] == 0, "nothing of it is deleted yet"
    broker.workers.run()
    assert broker.bases()[0] == 10
    assert read_offsets(broker.node.disk, f"/d1/{names.LOG_STARTS}") == {("t", 0): 10}
    first = [
        ("write_atomic", f"/d1/{names.LOG_STARTS}"),
        ("sync_dir", "/d1/t-0"),
        ("rename", f"/d1/t-0/{0:020d}.log"),
    ]
    places = [broker.acts.index(each) for each in first]
    assert places == sorted(places)


def test_what_comes_before_the_first_segment_that_stays_is_durable_first() -> None:
    """The snapshot of the producers there is synced by the flush that follows a roll."""
    broker = Broker()
    [log], jobs = broker.logs, broker.workers.queue
    append(log, batch([b"%060d" % RECORDS]))
    log.advance_high_watermark(RECORDS + 1)
    late = jobs.copy()
    jobs.clear()
    assert late, "the roll is to be flushed"
    broker.expire(RECORDS)
    broker.workers.run()
    assert broker.bases()[0] == 0
    jobs.extend(late)
    broker.workers.run()
    assert broker.bases()[0] == RECORDS
    snapshot = f"/d1/t-0/{RECORDS:020d}.snapshot"
    renamed = broker.acts.index(("rename", f"/d1/t-0/{0:020d}.log"))
    assert broker.acts.index(("sync", snapshot)) < renamed


def test_a_log_that_is_truncated_meanwhile_is_left_for_the_next_time() -> None:
    broker = Broker()
    broker.expire()
    broker.logs[0].truncate_to(15)
    broker.workers.run(1)
    assert broker.logs[0].limits
    broker.workers.run()
    assert broker.bases()[0] == 0
    broker.node.pass_ms(1)
    assert not broker.logs[0].limits
    broker.dirs.delete_expired_segments()
    broker.workers.run()
    assert broker.bases()[0] == 10


def test_a_log_whose_limits_are_in_write_is_left_for_the_next_time() -> None:
    """They hold the log start of before, and a loss of power would leave a gap behind it."""
    broker = Broker()
    [log], jobs = broker.logs, broker.workers.queue
    log.truncate_in_background(15, lambda: False)
    write_limits, limited = jobs.popleft()
    write_limits()
    broker.expire()
    broker.workers.run()
    assert broker.bases()[0] == 0
    assert limited is not None
    limited(None)
    broker.workers.run()
    broker.node.pass_ms(1)
    broker.dirs.delete_expired_segments()
    broker.workers.run()
    assert broker.bases()[0] == 10


def test_a_log_whose_limits_came_and_went_meanwhile_is_left_for_the_next_time() -> None:
    """Their removal may not be durable."""
    broker = Broker()
    [log], jobs = broker.logs, broker.workers.queue
    broker.expire()
    broker.workers.run(1)
    [(sync_names, synced)] = jobs
    jobs.clear()
    sync_names()
    log.truncate_in_background(15, lambda: False)
    broker.workers.run(1)
    assert log.limits
    broker.node.pass_ms(1)
    assert not log.limits
    assert synced is not None
    synced(None)
    assert broker.bases()[0] == 0


def test_a_log_that_is_deleted_meanwhile_is_left_alone() -> None:
    broker = Broker()
    broker.expire()
    broker.dirs.delete("t", 0)
    broker.workers.run()
    again = create(broker.dirs)
    broker.workers.run()
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)
    assert not broker.node.env.failures


def test_many_logs_are_done_in_steps() -> None:
    broker = Broker(partitions=150)
    for log in broker.logs:
        log.flusher.recovery_point = 0  # As after an unclean shutdown.
    broker.expire()
    assert 0 < len(broker.workers.queue) <= LOGS_PER_STEP_MAX * len(broker.dirs.dirs)
    for _ in range(10):
        broker.workers.run()
        broker.node.pass_ms(1)
    assert {log.segments.first.base_offset for log in broker.logs} == {10}


def test_a_checkpoint_that_cannot_be_written_takes_the_directory_offline() -> None:
    broker = Broker()
    broker.node.disk.fail("write_atomic", errno.EIO, path=names.LOG_STARTS)
    broker.expire()
    broker.workers.run()
    assert [each.path for each in broker.dirs.offline_dirs] == ["/d1"]
    assert broker.node.disk.exists(f"/d1/t-0/{0:020d}.log")
