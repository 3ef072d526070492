"""Retention and truncation of a log, with what they do to its files.

Method: small logs on a disk in memory; the folder's names before and after the delay.
"""

import contextlib

import pytest

from ottla.base.errors import ApiError
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import Reason
from ottla.records.batch import restamp
from ottla.records.control import build_marker
from tests.unit.log.support import (
    DIRECTORY,
    QueuedWorkers,
    World,
    append,
    batch,
    produced,
    retain,
    values,
)

CONFIG = LogConfig(
    segment_bytes=300,
    retention_ms=1_000,
    file_delete_delay_ms=50,
    timestamp_after_max_ms=2**62,
    index_interval_bytes=100,
)


def filled(world: World, count: int = 12, config: LogConfig = CONFIG) -> PartitionLog:
    log = world.open(config)
    for number in range(count):
        append(log, batch(1, size=60, timestamp=world.clock.ms + 100 * number))
    log.advance_high_watermark(count)
    return log


def stamped(data: bytes, offset: int, epoch: int = 0) -> bytes:
    copy = bytearray(data)
    restamp(copy, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(copy)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def files(world: World, base: int) -> list[str]:
    return [name.partition(".")[2] for name in world.names() if name.startswith(f"{base:020d}")]


def test_old_segments_go_and_their_files_a_little_later() -> None:
    world = World()
    log = filled(world)
    assert bases(log) == [0, 2, 4, 6, 8, 10]
    assert retain(log, world.clock.ms + 1_100) == []
    deleted = retain(log, world.clock.ms + 1_101)
    assert [(gone.base_offset, gone.reason) for gone in deleted] == [(0, Reason.TIME)]
    assert log.log_start_offset == 2
    assert bases(log) == [2, 4, 6, 8, 10]
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert files(world, 0) == ["index.deleted", "log.deleted", "timeindex.deleted"]
    world.pass_ms(49)
    assert files(world, 0)
    world.pass_ms(1)
    assert files(world, 0) == []
    assert files(world, 2) == ["index", "log", "snapshot", "timeindex"]


def test_snapshots_below_the_first_segment_go() -> None:
    world = World()
    log = filled(world)
    retain(log, world.clock.ms + 1_501)
    snapshots = [name for name in world.names() if name.endswith(".snapshot")]
    assert [int(name[:20]) for name in snapshots] == bases(log) == log.snapshots


def test_a_log_all_of_which_is_old_rolls_first() -> None:
    world = World()
    log = filled(world)
    assert len(retain(log, world.clock.ms + 99_999)) == 6
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (12, 12, 0)
    assert bases(log) == [12]
    assert retain(log, world.clock.ms + 999_999) == []
    assert append(log, batch()) == 12


def test_nothing_above_the_high_watermark_goes() -> None:
    world = World()
    log = world.open(CONFIG)
    for _ in range(6):
        append(log, batch(1, size=60))
    log.advance_high_watermark(3)
    retain(log, world.clock.ms + 99_999)
    assert bases(log) == [2, 4]


def test_records_without_timestamps_age_with_their_files() -> None:
    world = World()
    log = world.open(CONFIG)
    for _ in range(4):
        append(log, batch(1, size=60, timestamp=-1))
    log.advance_high_watermark(4)
    assert retain(log, world.clock.ms + 1_000) == []
    assert len(retain(log, world.clock.ms + 1_001)) == 2


def test_deleted_records_go_with_their_segments() -> None:
    world = World()
    log = filled(world)
    log.delete_records(5)
    assert [gone.reason for gone in retain(log, world.clock.ms)] == [Reason.LOG_START] * 2
    assert log.log_start_offset == 5
    assert bases(log)[0] == 4
    assert values(log)[0][0] == 5


def test_a_compacted_log_keeps_old_segments() -> None:
    world = World()
    config = LogConfig(segment_bytes=300, retention_ms=0, deletes=False, compacts=True)
    log = filled(world, config=config)
    assert retain(log, world.clock.ms + 99_999) == []


def test_a_deleted_file_that_cannot_be_removed_is_reported() -> None:
    workers = QueuedWorkers()
    world = World(workers=workers)
    log = filled(world)
    workers.run()
    retain(log, world.clock.ms + 99_999)
    workers.run()
    world.disk.fail("remove")
    world.pass_ms(50)
    workers.run()
    assert [failed for failed, _ in world.failures] == [log]


def test_files_of_a_deleted_segment_that_are_gone_already() -> None:
    world = World()
    log = filled(world)
    world.disk.remove(f"{DIRECTORY}/{0:020d}.timeindex")
    retain(log, world.clock.ms + 99_999)
    world.pass_ms(50)
    assert world.failures == []
    assert files(world, 0) == []


@pytest.mark.parametrize("offset", range(14))
def test_truncation_to_every_offset(offset: int) -> None:
    world = World()
    log = filled(world)
    before = values(log)
    assert log.truncate_to(offset) == (offset < 12)
    end = min(offset, 12)
    assert log.log_end_offset == end
    assert log.high_watermark == end
    assert values(log) == before[:end]
    assert max(log.snapshots, default=0) <= end
    assert append(log, batch([b"new"]), epoch=3) == end
    assert values(log) == [*before[:end], (end, b"new")]
    log.flush()
    world.disk.crash()
    assert values(world.open(CONFIG, recovery_point=log.recovery_point)) == [
        *before[:end],
        (end, b"new"),
    ]


def test_truncation_within_a_batch_ends_before_it() -> None:
    log = World().open()
    append(log, batch(3))
    append(log, batch(3))
    log.truncate_to(4)
    assert log.log_end_offset == 3
    assert len(values(log)) == 3


def test_truncation_within_a_gap_ends_where_it_was_asked_to() -> None:
    log = World().open()
    log.append_as_follower(stamped(batch(3), 0) + stamped(batch(3), 10), now_ms=0)
    log.truncate_to(7)
    assert log.log_end_offset == 7
    assert len(values(log)) == 3


def test_truncation_forgets_epochs_producers_and_transactions() -> None:
    world = World()
    log = world.open(CONFIG)
    append(log, produced(1, 0, 0, transactional=True), epoch=1)
    append(log, produced(2, 0, 0), epoch=2)
    append(log, produced(1, 0, 1, transactional=True), epoch=2)
    marker = build_marker(
        committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=0
    )
    append(log, bytearray(marker), epoch=3, origin="coordinator")
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    log.truncate_to(3)
    assert log.epochs.entries == ((1, 0), (2, 1))
    assert log.aborted_transactions(0, 9) == []
    assert log.last_stable_offset == 0
    log.truncate_to(1)
    assert [state.producer_id for state in log.producer_states()] == [1]
    assert log.producers.entries[1].last_sequence == 0


def test_truncation_below_the_first_segment_begins_anew_there() -> None:
    world = World()
    log = filled(world)
    retain(log, world.clock.ms + 1_501)
    start = log.log_start_offset
    log.truncate_to(start - 2)
    assert (log.log_start_offset, log.log_end_offset) == (start - 2, start - 2)
    assert bases(log) == [start - 2]


def test_beginning_anew_at_an_offset() -> None:
    world = World()
    log = filled(world)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert (log.size_bytes, log.epochs.entries, log.snapshots) == (0, (), [])
    assert append(log, batch([b"x"]), epoch=9) == 100
    log.flush()
    world.pass_ms(50)
    assert [name for name in world.names() if name.endswith(".log")] == [f"{100:020d}.log"]
    world.disk.crash()
    log = world.open(CONFIG, recovery_point=101, log_start_offset=100)
    assert values(log) == [(100, b"x")]


def test_what_was_before_a_new_beginning_does_not_come_back_beside_it() -> None:
    """A power loss may keep the new segment's name and undo the renames of the old ones.

    The metadata log of a broker came back so, with an old segment before a snapshot's offset and
    nothing up to it.
    """
    workers = QueuedWorkers()
    world = World(workers=workers)
    log = filled(world)
    log.flush()
    workers.run()
    log.truncate_fully_and_start_at(100)
    world.disk.crash()
    assert [name for name in world.names() if name.endswith(".log")] == []


def test_beginning_anew_where_a_segment_was() -> None:
    world = World()
    log = filled(world)
    log.truncate_fully_and_start_at(4)
    assert append(log, batch([b"x"])) == 4
    world.pass_ms(50)
    assert values(log) == [(4, b"x")]


def test_a_shortened_log_asks_for_its_checkpoint() -> None:
    world = World()
    ports = world.ports()
    truncated: list[PartitionLog] = []
    log = filled(world)
    log.ports = ports
    ports.on_truncated = truncated.append
    log.flush()
    log.truncate_to(11)
    assert truncated == [log]
    assert log.recovery_point == 11
    log.truncate_to(11)
    assert truncated == [log]


def test_a_crash_during_truncation_leaves_no_hole() -> None:
    """Whatever operation fails, the log that is found has no gap between its segments."""
    for count in range(60):
        world = World()
        log = filled(world)
        log.flush()
        world.disk.fail(skip=count)
        with contextlib.suppress(OSError, ApiError):
            log.truncate_to(3)
        world.disk.crash()
        found = [offset for offset, _ in values(world.open(CONFIG))]
        assert found == list(range(len(found)))
        assert len(found) >= 3


def test_reads_pinned_before_a_truncation_do_not_grow_wrong() -> None:
    world = World()
    log = filled(world)
    found = log.read(11, max_bytes=1_000, upper_bound=12, at_least_one=True)
    log.truncate_to(10)
    assert len(found.slices[0].read()) < found.size
    found.slices[0].release()
