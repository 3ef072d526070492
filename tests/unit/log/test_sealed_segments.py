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
from tests.unit.log.support import QueuedWorkers, World, append, batch, found_by

LIMIT = 1 << 20

CONFIG = LogConfig(index_interval_bytes=100, timestamp_after_max_ms=2**62)
LAST_MS = 2_000


def written() -> tuple[World, PartitionLog, SimDisk]:
    """Return a log of one segment whose last record has the largest timestamp."""
    world = World(workers=QueuedWorkers())
    disk = world.disk = SimDisk()
    disk.mkdir("/data")
    disk.sync_dir("/")
    log = world.open(CONFIG)
    for timestamp in range(1_000, LAST_MS + 1, 100):
        append(log, batch([bytes(55)], timestamp=timestamp))
    return world, log, disk


def run(world: World) -> None:
    assert isinstance(world.workers, QueuedWorkers)
    world.workers.run()


def check_reopened(world: World, checkpoint: int) -> None:
    log = world.open(CONFIG, recovery_point=checkpoint)
    first = log.segments.first
    assert first.max_timestamp.timestamp == LAST_MS
    found = found_by(first.search_timestamp(LAST_MS, 0, LIMIT))
    assert found is not None
    assert found.offset == 10


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_right_behind_a_flush(seed: int) -> None:
    world, log, disk = written()
    log.flush()
    run(world)
    assert log.recovery_point == log.log_end_offset == 11
    before = log.checkpointed_recovery_point
    log.roll(0)
    checkpoint = max(before, log.checkpointed_recovery_point)
    disk.lose_power(Random(seed))
    check_reopened(world, checkpoint)


@pytest.mark.parametrize("seed", range(20))
def test_a_roll_while_a_flush_is_under_way(seed: int) -> None:
    world, log, disk = written()
    job = log.flush_job()
    log.roll(0)
    job.run()
    job.release(failed=False)
    log.flushed(job)
    disk.lose_power(Random(seed))
    check_reopened(world, log.checkpointed_recovery_point)


def test_the_flush_of_the_roll_makes_it_trusted() -> None:
    world, log, disk = written()
    log.roll(0)
    assert log.recovery_point == 0
    run(world)
    assert log.recovery_point == log.checkpointed_recovery_point == 11
    disk.lose_power(Random(1))
    check_reopened(world, 11)


def test_an_open_segment_is_never_said_to_end() -> None:
    world, log, _ = written()
    log.flush()
    run(world)
    assert (log.recovery_point, log.checkpointed_recovery_point) == (11, 10)
    append(log, batch([bytes(55)]))
    assert (log.recovery_point, log.checkpointed_recovery_point) == (11, 11)
