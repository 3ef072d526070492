"""Segments that are written before the first one of a log.

Method: the bytes of another log, written in pieces; the files are opened as a log's own. How they
take effect is tested with their user, `broker.remote.tasks.local_backfill`.
"""

import pytest

from ottla.log import names
from ottla.log.earlier_segments import EarlierSegments
from ottla.log.epoch_cache import EpochEntry
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import HEADER_SIZE
from ottla.records.errors import RecordsError
from tests.unit.log.support import DIRECTORY, Environment, append, batch, content
from tests.unit.log.test_remote_prefix import CONFIG, filled

EPOCHS = (EpochEntry(0, 0), EpochEntry(3, 6))


def source() -> PartitionLog:
    return filled(filled(Environment().open(CONFIG), 6), 10, epoch=3)


def writer(env: Environment, *, start: int = 4, end: int = 14) -> EarlierSegments:
    env.disk.mkdir(DIRECTORY)
    env.disk.sync_dir("/data")
    return EarlierSegments(
        env.disk, DIRECTORY, "topic-0", CONFIG, start=start, end=end, epochs=EPOCHS
    )


@pytest.mark.parametrize("size", [200, 500, 10_000])
def test_segments_are_those_of_a_log_that_was_appended_to(size: int) -> None:
    log, env = source(), Environment()
    earlier = writer(env)
    while not earlier.is_complete:
        data = content(log, earlier.next_offset)
        earlier.write(data[: max(size, 2 * HEADER_SIZE + 150)])
    built = earlier.finish()
    assert [each.base_offset for each in built] == [4, 6, 8, 10, 12]
    for each, own in zip(built, log.local_segments()[2:], strict=False):
        assert (each.base_offset, each.size) == (own.base_offset, own.size_bytes)
        assert (
            each.max_timestamp == log.segments[log.segments.floor(each.base_offset)].max_timestamp
        )
        for suffix in each.suffixes:
            name = names.segment_name(each.base_offset, suffix)
            path = f"{DIRECTORY}/{name}"
            assert env.disk.read_bytes(path + names.TEMPORARY) == log.ports.disk.read_bytes(path)
    env.disk.sync_dir(DIRECTORY)
    env.disk.crash()
    assert env.disk.exists(f"{DIRECTORY}/{names.segment_name(4, names.LOG)}{names.TEMPORARY}")


def test_a_batch_that_reaches_over_the_log_start_is_kept_whole() -> None:
    env, log = Environment(), Environment().open(CONFIG)
    append(log, batch(6))
    append(log, batch(4), epoch=3)
    log.advance_high_watermark(10)
    earlier = writer(env, end=10)
    earlier.write(content(log, 4))
    assert earlier.is_complete
    assert [each.base_offset for each in earlier.finish()] == [0, 6]


def refused(earlier: EarlierSegments, data: bytes) -> None:
    before = earlier.next_offset
    with pytest.raises(RecordsError):
        earlier.write(data)
    assert earlier.next_offset == before


def test_what_does_not_continue_is_refused() -> None:
    log = source()
    refused(writer(Environment()), b"")
    refused(writer(Environment()), content(log, 4)[: HEADER_SIZE + 3])
    refused(writer(Environment()), content(log, 3, 4))
    damaged = bytearray(content(log, 4))
    damaged[-1] ^= 1
    refused(writer(Environment(), start=15, end=16), bytes(damaged)[-(len(damaged) // 12) :])
    other = filled(Environment().open(CONFIG), 16, epoch=2)
    refused(writer(Environment()), content(other, 4))
    earlier = writer(Environment())
    earlier.write(content(log, 4, 8))
    refused(earlier, content(log, 6))
    env, wide = Environment(), Environment().open(CONFIG)
    append(wide, batch(6))
    wide.advance_high_watermark(6)
    refused(writer(env, end=5), content(wide, 4))


def test_an_abandoned_writer_leaves_nothing() -> None:
    env = Environment()
    earlier = writer(env)
    earlier.write(content(source(), 4, 9))
    assert env.names()
    earlier.abandon()
    assert env.names() == []
