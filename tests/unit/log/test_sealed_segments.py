"""A segment is taken as it is at a start only if it was durable after it had been sealed.

Sealing completes the indexes. Where a flush had ended right before, the recovery point was the
log's end, which is where the sealed segment ends: a start trusted it, with torn indexes.

Method: a disk that forgets any part of what is unsynced; workers that wait for the test.
"""

from random import Random

import pytest

from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.support import Environment, QueuedWorkers, append, batch, found_by

LIMIT = 1 << 20

CONFIG = LogConfig(index_interval_bytes=100, timestamp_after_max_ms=2**62)
LAST_MS = 2_000


def written() -> tuple[Environment, PartitionLog, SimDisk]:
    """Return a log of one segment whose last record has the largest timestamp."""
    env = Environment(workers=QueuedWorkers())
    disk = env.disk = SimDisk()
    disk.mkdir("/data")
    disk.sync_dir("/")
    log = env.open(CONFIG)
    for timestamp in range(1_000, LAST_MS + 1, 100):
        append(log, batch([bytes(55)], timestamp=timestamp))
    return env, log, disk


def run(env: Environment) -> None:
    assert isinstance(env.workers, QueuedWorkers)
    env.workers.run()


def check_reopened(env: Environment, checkpoint: int) -> None:
    log = env.open(CONFIG, recovery_point=checkpoint)
    first = log.segments.first
    assert first.max_timestamp.timestamp == LAST_MS
    found = found_by(first.search_timestamp(LAST_MS, 0, LIMIT))
    assert found is not None
    assert found.offset == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_right_behind_a_flush(seed: int) -> None:
    env, log, disk = written()
    log.flush()
    run(env)
    assert log.recovery_point == log.log_end_offset == 11
    before = log.flusher.checkpointed_recovery_point
    log.roll(0)
    checkpoint = max(before, log.flusher.checkpointed_recovery_point)
    disk.lose_power(Random(seed))
    check_reopened(env, checkpoint)


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_while_a_flush_is_under_way(seed: int) -> None:
    env, log, disk = written()
    job = log.flusher.job()
    log.roll(0)
    job.run()
    job.release(failed=False)
    log.flushed(job)
    disk.lose_power(Random(seed))
    check_reopened(env, log.flusher.checkpointed_recovery_point)


def test_the_flush_of_the_roll_makes_it_trusted() -> None:
    env, log, disk = written()
    log.roll(0)
    assert log.recovery_point == 0
    run(env)
    assert log.recovery_point == log.flusher.checkpointed_recovery_point == 11
    disk.lose_power(Random(1))
    check_reopened(env, 11)


def test_the_checkpointed_recovery_point_is_never_the_end_of_the_active_segment() -> None:
    env, log, _ = written()
    log.flush()
    run(env)
    assert (log.recovery_point, log.flusher.checkpointed_recovery_point) == (11, 10)
    append(log, batch([bytes(55)]))
    assert (log.recovery_point, log.flusher.checkpointed_recovery_point) == (11, 11)
