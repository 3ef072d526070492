"""Goal: the producers of a log, its snapshots and their list agree after every change.

Method: a log with several segments on a disk in memory.
"""

from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_snapshot import decode_snapshot
from tests.unit.log.support import DIRECTORY, Environment, append, produced

CONFIG = LogConfig(segment_bytes=250, timestamp_after_max_ms=2**62)


def filled(count: int = 8) -> tuple[Environment, PartitionLog]:
    env = Environment()
    log = env.open(CONFIG)
    for sequence in range(count):
        append(log, produced(7, 0, sequence))
    return env, log


def on_disk(env: Environment) -> list[int]:
    found = [names.parse_segment_name(name) for name in env.names()]
    return sorted(each[0] for each in found if each and each[1] == names.SNAPSHOT)


def snapshot(env: Environment, offset: int) -> list[tuple[int, int]]:
    """Return the producers of a snapshot file, each with its last offset."""
    data = env.disk.read_bytes(f"{DIRECTORY}/{names.segment_name(offset, names.SNAPSHOT)}")
    return [(each.producer_id, each.last_offset) for each in decode_snapshot(data)]


def test_a_snapshot_is_taken_where_a_segment_is_sealed() -> None:
    env, log = filled()
    manager = log.producer_manager
    assert manager.snapshots == on_disk(env) == [each.base_offset for each in log.segments][1:]
    offset = manager.snapshots[1]
    assert snapshot(env, offset) == [(7, offset - 1)]


def test_a_snapshot_of_the_same_offset_replaces_the_former() -> None:
    env, log = filled()
    log.producer_manager.take_snapshot(8)
    log.producer_manager.take_snapshot(8)
    assert log.producer_manager.snapshots == on_disk(env)
    assert log.producer_manager.snapshots[-2:] != [8, 8]


def test_the_next_flush_syncs_a_snapshot() -> None:
    env, log = filled()
    log.producer_manager.take_snapshot(8)
    assert log.local.names_changed
    log.flush_now()
    env.disk.crash()
    assert snapshot(env, 8) == [(7, 7)]


def test_snapshots_below_an_offset_are_removed() -> None:
    env, log = filled()
    first, *_, last = log.producer_manager.snapshots
    log.producer_manager.remove_snapshots_below(last)
    assert log.producer_manager.snapshots == on_disk(env) == [last]
    log.producer_manager.remove_snapshots({first})  # Gone already.
    log.producer_manager.remove_all_snapshots()
    assert log.producer_manager.snapshots == on_disk(env) == []


def test_the_state_is_rebuilt_for_the_new_end_and_keeps_the_times_of_appends() -> None:
    env, log = filled()
    env.clock.ms += 5_000
    append(log, produced(9, 0, 0))
    log.truncate_to(5)
    (entry,) = log.producer_states()
    assert (entry.producer_id, entry.last_offset) == (7, 4)
    assert entry.appended_ms == 1_000_000
    assert max(log.producer_manager.snapshots) <= 5
    assert log.producer_manager.snapshots == on_disk(env)


def test_a_log_that_begins_elsewhere_has_the_producers_it_is_given() -> None:
    _, log = filled()
    (entry,) = log.producer_states()
    entry.producer_id = 11
    log.producer_manager.start_with([entry])
    assert list(log.producers.entries) == [11]
