"""Goal: a log's segments, its size and its end agree, and say what retention and copiers need.

Method: a log on a disk in memory, seen through its local part.
"""

import pytest

from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.local_log import LocalLog
from ottla.log.validation import NewBatch
from ottla.records.batch import parse_header
from tests.unit.log.support import DIRECTORY, Environment, append, batch

CONFIG = LogConfig(segment_bytes=250, timestamp_after_max_ms=2**62)


def filled(config: LogConfig = CONFIG, count: int = 8) -> tuple[Environment, LocalLog]:
    env = Environment()
    log = env.open(config)
    for number in range(count):
        append(log, batch(timestamp=1_000_000 + number))
    return env, log.local


def bases(local: LocalLog) -> list[int]:
    return [segment.base_offset for segment in local.segments]


def new(count: int, **options: int) -> list[NewBatch]:
    made = [batch(**options) for _ in range(count)]  # type: ignore[arg-type]
    return [NewBatch(data, parse_header(data)) for data in made]


def test_so_many_batches_are_written_at_once_as_the_active_segment_takes() -> None:
    env = Environment()
    log = env.open(CONFIG)
    size = len(batch())
    room = 250 // size
    assert log.local.fitting(new(10), 0) == room
    append(log, batch())
    assert log.local.fitting(new(10), 0) == room - 1
    assert log.local.fitting(new(1, size=1_000), 0) == 1  # The first one has been rolled for.


def test_a_failed_write_changes_neither_size_nor_end() -> None:
    env, local = filled()
    before = (local.size_bytes, local.log_end_offset, local.segments.active.size)
    env.disk.fail("append")
    with pytest.raises(OSError):
        local.append_one(batch(), 8, 1_000_000, len(batch()))
    assert (local.size_bytes, local.log_end_offset, local.segments.active.size) == before
    assert not local.failed


@pytest.mark.parametrize(("batches", "added"), [(8, 1), (9, 5)])
def test_an_append_whose_index_entry_is_impossible_leaves_nothing(batches: int, added: int) -> None:
    """The next batch gets the same offset and position."""
    # From the third on, every second batch gets an entry: of the five the second.
    config = LogConfig(index_interval_bytes=100, timestamp_after_max_ms=2**62)
    env, local = filled(config, batches)
    active = local.segments.active
    before = (local.size_bytes, local.log_end_offset, active.size, active.max_timestamp)
    run = new(added, timestamp=9_000_000)

    def add() -> None:
        if added == 1:
            local.append_one(run[0].data, 0, 9_000_000, len(run[0].data))
        else:
            local.append_run(run)

    with pytest.raises(AssertionError):  # Offset 0 follows higher ones.
        add()
    after = (local.size_bytes, local.log_end_offset, active.size, active.max_timestamp)
    assert after == before
    assert env.disk.size(active.path(names.LOG)) == active.size
    assert not local.failed
    (next_one,) = new(1, timestamp=2_000_000)
    local.append_one(next_one.data, batches, 2_000_000, len(next_one.data))
    assert active.position_of(batches) == (before[2], len(next_one.data))
    assert active.max_timestamp == (2_000_000, batches)


def test_segments_are_counted_below_an_offset_but_for_the_active_one() -> None:
    _, local = filled()
    first, second, third, *_ = bases(local)
    assert local.count_below(first) == 0
    assert local.count_below(second - 1) == 0
    assert local.count_below(second) == 1
    assert local.count_below(third) == 2
    assert local.count_below(100) == len(local.segments) - 1


def test_what_is_taken_from_the_front_is_not_in_the_size() -> None:
    env, local = filled()
    second = bases(local)[1]
    (gone,) = local.take_first(1)
    assert bases(local)[0] == second
    assert local.size_bytes == sum(segment.size for segment in local.segments)
    assert env.disk.exists(gone.path(names.LOG))  # Its files are deleted by themselves.


def test_the_extents_of_the_first_segments() -> None:
    _, local = filled()
    assert [each.base_offset for each in local.extents()] == bases(local)
    assert [each.base_offset for each in local.extents(2)] == bases(local)[:2]
    assert sum(each.size for each in local.extents()) == local.size_bytes


def test_facts_for_retention_have_no_time_where_none_is_needed() -> None:
    _, local = filled()
    facts = local.segment_facts(2_000_000, local.log_end_offset)
    assert [each.base_offset for each in facts] == bases(local)
    assert facts[0].newest_ms == 1_000_000 + facts[0].end_offset - 1
    assert [each.newest_ms for each in local.segment_facts(2_000_000, 0)] == [0] * len(facts)
    _, local = filled(LogConfig(segment_bytes=250, retention_ms=-1, timestamp_after_max_ms=2**62))
    assert {each.newest_ms for each in local.segment_facts(2_000_000, 8)} == {0}


def test_a_timestamp_in_the_future_counts_as_that_of_its_file_with_remote_storage() -> None:
    config = LogConfig(
        segment_bytes=250, remote_storage=True, local_retention_ms=1, timestamp_after_max_ms=2**62
    )
    _, local = filled(config)
    (first, *_) = local.segment_facts(10, local.log_end_offset)
    assert first.newest_ms == 1_000_000  # When the disk says that it was written.


def test_deleted_files_are_renamed_now_and_removed_later() -> None:
    env, local = filled()
    (gone,) = local.take_first(1)
    path = gone.path(names.LOG)
    local.delete_segments([gone], pytest.fail)
    assert local.delayed_deletions == 1
    assert not env.disk.exists(path)
    assert env.disk.exists(path + names.DELETED)
    env.pass_ms(CONFIG.file_delete_delay_ms)
    assert local.delayed_deletions == 0
    assert not env.disk.exists(path + names.DELETED)


def test_the_failure_of_a_late_removal_is_reported() -> None:
    env, local = filled()
    failures: list[OSError] = []
    local.delete_segments(local.take_first(1), failures.append)
    env.disk.fail("remove")
    env.pass_ms(CONFIG.file_delete_delay_ms)
    assert len(failures) == 1


def test_a_closed_log_syncs_nothing_any_more() -> None:
    _, local = filled()
    local.note_unsynced(f"{DIRECTORY}/{names.PARTITION_METADATA}")
    local.close()
    assert local.failed
    assert local.unsynced_handles == []
