"""Retention and truncation of a log, with what they do to its files.

Method: small logs on a disk in memory; the directory's names before and after the delay.
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
    Environment,
    QueuedWorkers,
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


def filled(env: Environment, count: int = 12, config: LogConfig = CONFIG) -> PartitionLog:
    log = env.open(config)
    for number in range(count):
        append(log, batch(1, size=60, timestamp=env.clock.ms + 100 * number))
    log.advance_high_watermark(count)
    return log


def stamped(data: bytes, offset: int, epoch: int = 0) -> bytes:
    copy = bytearray(data)
    restamp(copy, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(copy)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def files(env: Environment, base: int) -> list[str]:
    return [name.partition(".")[2] for name in env.names() if name.startswith(f"{base:020d}")]


def test_old_segments_go_and_their_files_a_little_later() -> None:
    env = Environment()
    log = filled(env)
    assert bases(log) == [0, 2, 4, 6, 8, 10]
    assert retain(log, env.clock.ms + 1_100) == []
    deleted = retain(log, env.clock.ms + 1_101)
    assert [(gone.base_offset, gone.reason) for gone in deleted] == [(0, Reason.TIME)]
    assert log.log_start_offset == 2
    assert bases(log) == [2, 4, 6, 8, 10]
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    assert files(env, 0) == ["index.deleted", "log.deleted", "timeindex.deleted"]
    env.pass_ms(49)
    assert files(env, 0)
    env.pass_ms(1)
    assert files(env, 0) == []
    assert files(env, 2) == ["index", "log", "snapshot", "timeindex"]


def test_snapshots_below_the_first_segment_go() -> None:
    env = Environment()
    log = filled(env)
    retain(log, env.clock.ms + 1_501)
    snapshots = [name for name in env.names() if name.endswith(".snapshot")]
    assert [int(name[:20]) for name in snapshots] == bases(log) == log.producer_manager.snapshots


def test_a_log_all_of_which_is_old_rolls_first() -> None:
    env = Environment()
    log = filled(env)
    assert len(retain(log, env.clock.ms + 99_999)) == 6
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (12, 12, 0)
    assert bases(log) == [12]
    assert retain(log, env.clock.ms + 999_999) == []
    assert append(log, batch()) == 12


def test_nothing_above_the_high_watermark_goes() -> None:
    env = Environment()
    log = env.open(CONFIG)
    for _ in range(6):
        append(log, batch(1, size=60))
    log.advance_high_watermark(3)
    retain(log, env.clock.ms + 99_999)
    assert bases(log) == [2, 4]


def test_records_without_timestamps_age_with_their_files() -> None:
    env = Environment()
    log = env.open(CONFIG)
    for _ in range(4):
        append(log, batch(1, size=60, timestamp=-1))
    log.advance_high_watermark(4)
    assert retain(log, env.clock.ms + 1_000) == []
    assert len(retain(log, env.clock.ms + 1_001)) == 2


def test_deleted_records_go_with_their_segments() -> None:
    env = Environment()
    log = filled(env)
    log.delete_records(5)
    assert [gone.reason for gone in retain(log, env.clock.ms)] == [Reason.LOG_START] * 2
    assert log.log_start_offset == 5
    assert bases(log)[0] == 4
    assert values(log)[0][0] == 5


def test_a_compacted_log_keeps_old_segments() -> None:
    env = Environment()
    config = LogConfig(segment_bytes=300, retention_ms=0, deletes=False, compacts=True)
    log = filled(env, config=config)
    assert retain(log, env.clock.ms + 99_999) == []


def test_a_deleted_file_that_cannot_be_removed_is_reported() -> None:
    workers = QueuedWorkers()
    env = Environment(workers=workers)
    log = filled(env)
    workers.run()
    retain(log, env.clock.ms + 99_999)
    workers.run()
    env.disk.fail("remove")
    env.pass_ms(50)
    workers.run()
    assert [failed for failed, _ in env.failures] == [log]


def test_files_of_a_deleted_segment_that_are_gone_already() -> None:
    env = Environment()
    log = filled(env)
    env.disk.remove(f"{DIRECTORY}/{0:020d}.timeindex")
    retain(log, env.clock.ms + 99_999)
    env.pass_ms(50)
    assert env.failures == []
    assert files(env, 0) == []


@pytest.mark.parametrize("offset", range(14))
def test_truncation_to_every_offset(offset: int) -> None:
    env = Environment()
    log = filled(env)
    before = values(log)
    assert log.truncate_to(offset) == (offset < 12)
    end = min(offset, 12)
    assert log.log_end_offset == end
    assert log.high_watermark == end
    assert values(log) == before[:end]
    assert max(log.producer_manager.snapshots, default=0) <= end
    assert append(log, batch([b"new"]), epoch=3) == end
    assert values(log) == [*before[:end], (end, b"new")]
    log.flush()
    env.disk.crash()
    assert values(env.open(CONFIG, recovery_point=log.recovery_point)) == [
        *before[:end],
        (end, b"new"),
    ]


def test_truncation_within_a_batch_ends_before_it() -> None:
    log = Environment().open()
    append(log, batch(3))
    append(log, batch(3))
    log.truncate_to(4)
    assert log.log_end_offset == 3
    assert len(values(log)) == 3


def test_truncation_within_a_gap_ends_at_the_requested_offset() -> None:
    log = Environment().open()
    log.append_as_follower(stamped(batch(3), 0) + stamped(batch(3), 10), now_ms=0)
    log.truncate_to(7)
    assert log.log_end_offset == 7
    assert len(values(log)) == 3


def test_truncation_forgets_epochs_producers_and_transactions() -> None:
    env = Environment()
    log = env.open(CONFIG)
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


def test_truncation_below_the_first_segment_starts_an_empty_log_there() -> None:
    env = Environment()
    log = filled(env)
    retain(log, env.clock.ms + 1_501)
    start = log.log_start_offset
    log.truncate_to(start - 2)
    assert (log.log_start_offset, log.log_end_offset) == (start - 2, start - 2)
    assert bases(log) == [start - 2]


def test_truncate_fully_and_start_at() -> None:
    env = Environment()
    log = filled(env)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert (log.size_bytes, log.epochs.entries, log.producer_manager.snapshots) == (0, (), [])
    assert append(log, batch([b"x"]), epoch=9) == 100
    log.flush()
    env.pass_ms(50)
    assert [name for name in env.names() if name.endswith(".log")] == [f"{100:020d}.log"]
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=101, log_start_offset=100)
    assert values(log) == [(100, b"x")]


def test_old_segments_do_not_come_back_after_truncate_fully() -> None:
    """A power loss may keep the new segment's name and undo the renames of the old ones.

    The metadata log of a broker came back so, with an old segment before a snapshot's offset and
    nothing up to it.
    """
    workers = QueuedWorkers()
    env = Environment(workers=workers)
    log = filled(env)
    log.flush()
    workers.run()
    log.truncate_fully_and_start_at(100)
    env.disk.crash()
    assert [name for name in env.names() if name.endswith(".log")] == []


def test_truncate_fully_and_start_at_an_old_base_offset() -> None:
    env = Environment()
    log = filled(env)
    log.truncate_fully_and_start_at(4)
    assert append(log, batch([b"x"])) == 4
    env.pass_ms(50)
    assert values(log) == [(4, b"x")]


def test_a_truncation_requests_new_checkpoints() -> None:
    env = Environment()
    ports = env.ports()
    truncated: list[PartitionLog] = []
    log = filled(env)
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
        env = Environment()
        log = filled(env)
        log.flush()
        env.disk.fail(skip=count)
        with contextlib.suppress(OSError, ApiError):
            log.truncate_to(3)
        env.disk.crash()
        found = [offset for offset, _ in values(env.open(CONFIG))]
        assert found == list(range(len(found)))
        assert len(found) >= 3


def test_reads_pinned_before_a_truncation_do_not_grow_wrong() -> None:
    env = Environment()
    log = filled(env)
    found = log.read(11, max_bytes=1_000, upper_bound=12, at_least_one=True)
    log.truncate_to(10)
    assert len(found.slices[0].read()) < found.size
    found.slices[0].release()
