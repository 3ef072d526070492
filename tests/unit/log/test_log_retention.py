"""Goal: a log's starts move as retention and DeleteRecords say, and only then do files go.

Method: a log with several segments on a disk in memory. `test_retention` has what expires,
`test_maintenance` and `test_remote_prefix` the whole log, `test_expired_segments` the order on
the disk.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import Reason
from tests.unit.log.support import Environment, append, batch

CONFIG = LogConfig(segment_bytes=250, retention_bytes=300, timestamp_after_max_ms=2**62)


def filled(config: LogConfig = CONFIG) -> PartitionLog:
    log = Environment().open(config)
    for _ in range(8):
        append(log, batch())
    log.advance_high_watermark(8)
    return log


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_the_start_moves_before_the_files_go() -> None:
    log = filled()
    before = bases(log)
    gone = log.expire_segments(1_000_000)
    assert {each.reason for each in gone} == {Reason.SIZE}
    assert bases(log) == before
    assert log.log_start_offset == before[len(gone)]
    assert log.has_expired_segments
    assert log.delete_expired_segments(log.log_start_offset) == len(gone)
    assert bases(log) == before[len(gone) :]
    assert not log.has_expired_segments


def test_only_what_is_below_the_durable_start_goes() -> None:
    log = filled()
    before = bases(log)
    log.delete_records(-1)
    assert log.delete_expired_segments(before[1]) == 1
    assert bases(log) == before[1:]
    assert log.delete_expired_segments(before[1]) == 0


@pytest.mark.parametrize("offset", [-2, 9])
def test_a_start_outside_of_what_is_committed_is_refused(offset: int) -> None:
    log = filled()
    with pytest.raises(ApiError) as refused:
        log.delete_records(offset)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def test_a_log_that_expires_as_a_whole_is_rolled_first() -> None:
    log = filled(LogConfig(segment_bytes=250, retention_ms=10, timestamp_after_max_ms=2**62))
    count = len(log.segments)
    assert len(log.expire_segments(2_000_000)) == count
    assert (log.log_start_offset, len(log.segments)) == (8, count + 1)


def test_local_retention_waits_until_the_leader_epochs_are_durable() -> None:
    config = LogConfig(
        segment_bytes=250,
        remote_storage=True,
        local_retention_bytes=0,
        timestamp_after_max_ms=2**62,
    )
    log = filled(config)
    log.remote_copied_to(7)
    log.flusher.recovery_point = 0  # As after an unclean shutdown.
    assert log.expire_segments(1_000_000) == []
    assert log.local_log_start_offset == 0
    log.flush()
    assert log.expire_segments(1_000_000)
    assert 0 == log.log_start_offset < log.local_log_start_offset


def test_segments_that_were_put_before_the_local_log_stay_until_it_has_moved() -> None:
    log = filled()
    log.delete_records(-1)
    log.retention.prepends = True
    assert not log.has_expired_segments
    assert log.delete_expired_segments(8) == 0
    log.retention.local_start_stored()
    assert log.has_expired_segments


def test_a_truncation_ends_a_prepending() -> None:
    log = filled()
    log.retention.prepends = True
    assert not log.retention.lower_local_start(log.truncation_count + 1)
    assert not log.retention.prepends
