"""What the copier to remote storage gets to see of a log, and whether its files are still the same.

Method: small logs on a disk in memory.
"""

from ottla.base.object_store import FileSource
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.epoch_cache import EpochCache
from ottla.log.partition_log import PartitionLog
from ottla.log.segment_files import SegmentFiles
from tests.unit.log.support import DIRECTORY, Environment, append, batch, produced
from tests.unit.log.test_partition_log import marker

CONFIG = LogConfig(
    segment_bytes=300, index_interval_bytes=100, retention_ms=-1, timestamp_after_max_ms=2**62
)


def filled(env: Environment, count: int = 5) -> PartitionLog:
    """Return a log of two records to a segment, of epoch 1 and, from offset 3 on, 4."""
    log = env.open(CONFIG)
    for number in range(count):
        data = batch([b"%060d" % number], timestamp=1_000_000 + number)
        append(log, data, epoch=1 if number < 3 else 4)
    log.advance_high_watermark(count)
    return log


def files(log: PartitionLog, base_offset: int) -> SegmentFiles:
    found = log.segment_files(base_offset)
    assert found is not None
    return found


def content(env: Environment, source: FileSource) -> bytes:
    data = env.disk.read_bytes(source.path)
    assert len(data) == source.size_bytes
    return data


def test_the_segments_in_order() -> None:
    log = filled(Environment())
    found = log.local_segments()
    assert [(each.base_offset, each.end_offset, each.is_active) for each in found] == [
        (0, 2, False),
        (2, 4, False),
        (4, 5, True),
    ]
    assert [each.size_bytes for each in found] == [each.size for each in log.segments]


def test_the_files_of_a_sealed_segment() -> None:
    env = Environment()
    log = filled(env)
    found = files(log, 2)
    assert (found.base_offset, found.end_offset, found.max_timestamp_ms) == (2, 4, 1_000_003)
    assert found.log == FileSource(f"{DIRECTORY}/{2:020d}.log", log.segments[1].size)
    for source in (found.log, found.offset_index, found.time_index):
        assert content(env, source)
    assert found.transaction_index is None
    assert found.producer_snapshot is not None
    assert found.producer_snapshot.path == f"{DIRECTORY}/{4:020d}.snapshot"
    assert content(env, found.producer_snapshot)
    assert found.epochs == ((1, 2), (4, 3))
    assert EpochCache.decode(found.leader_epochs).entries == ((1, 0), (4, 3))
    assert EpochCache.decode(files(log, 0).leader_epochs).entries == ((1, 0),)


def test_no_other_segment_can_be_copied() -> None:
    log = filled(Environment())
    assert log.segment_files(4) is None, "it is active"
    assert log.segment_files(1) is None


def test_aborted_transactions_are_copied() -> None:
    env = Environment()
    log = env.open(CONFIG)
    append(log, produced(7, 0, 0, transactional=True))
    append(log, marker(7), origin="coordinator")
    log.roll(0)
    found = files(log, 0)
    assert found.transaction_index is not None
    assert len(content(env, found.transaction_index)) == 34


def test_a_missing_producer_snapshot_is_rebuilt() -> None:
    env = Environment()
    log = env.open(CONFIG)
    for sequence in range(5):
        append(log, produced(7, 0, sequence, size=60))
    there = files(log, 2).producer_snapshot
    assert there is not None
    expected = content(env, there)
    for offset in tuple(log.producer_manager.snapshots):
        env.disk.remove(f"{DIRECTORY}/{names.segment_name(offset, names.SNAPSHOT)}")
        log.producer_manager.snapshots.remove(offset)
    found = files(log, 2)
    assert found.producer_snapshot is None
    assert found.rebuild_snapshot() == expected


def test_files_that_may_have_other_bytes_are_not_intact() -> None:
    env = Environment()
    log = filled(env, 9)
    found = files(log, 2)
    assert found.is_intact()
    filled_more = append(log, batch(1), epoch=4)
    assert filled_more == 9
    assert found.is_intact()
    log.truncate_to(3)
    assert not found.is_intact()


def test_a_deleted_segment_was_intact_to_its_end() -> None:
    """Its copy may have ended before; it fails where it had not begun."""
    env = Environment()
    log = filled(env, 9)
    found = files(log, 2)
    log.delete_records(6)
    log.delete_expired_segments(6)
    assert not env.disk.exists(found.log.path)
    assert found.is_intact()


def test_a_log_that_moved_or_closed_is_not_intact() -> None:
    log = filled(Environment())
    found = files(log, 2)
    log.moved(f"{DIRECTORY}.{'0' * 32}-delete")
    assert not found.is_intact()
    log.moved(DIRECTORY)
    assert found.is_intact()
    log.close()
    assert not found.is_intact()
