"""Every disk operation fails once: what was acknowledged and flushed must survive.

Method: one life of a log is replayed again and again; in each run another operation fails, with
EIO or ENOSPC, half written or not at all. Then the power is lost, and the log is read.
"""

import errno
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, TypeVar

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ports import is_shortage
from ottla.log.config import LogConfig
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.flushing import RETRY_MS
from ottla.log.names import segment_name
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import restamp
from ottla.records.control import build_marker
from tests.unit.log.support import Environment, append, batch, produced, retain, values

T = TypeVar("T")

CONFIG = LogConfig(
    segment_bytes=500, index_interval_bytes=100, retention_bytes=700, file_delete_delay_ms=10
)


class Life:
    """A fixed sequence of acts, stopped by the first failure."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.log: PartitionLog | None = None
        self.written: list[bytes] = []
        self.flushed = 0
        self.refused: Exception | None = None

    def run(self) -> None:
        try:
            for _ in self._acts():
                pass
        except (OSError, ApiError) as error:
            self.refused = error

    def _acts(self) -> Iterator[None]:
        log = self.log = self.env.open(CONFIG)
        for number in range(24):
            value = b"%d" % number
            data = (
                batch([value] * 2, size=30)
                if number % 2
                else batch([value] * 2, producer_id=1, producer_epoch=0, base_sequence=number)
            )
            append(log, data, epoch=number // 5)
            self.written += [value] * 2
            yield
            if number % 4 == 3:
                error = log.flush().value
                if error is not None:
                    raise error
                self.flushed = len(self.written)
                log.advance_high_watermark(self.flushed)
                yield
            if number % 8 == 7:
                retain(log, self.env.clock.ms)
                self.env.pass_ms(10)
                yield
        job = log.prepare_close()
        job.run()
        job.release(failed=False)
        log.flushed(job)
        self.flushed = len(self.written)


def operations_of_a_life() -> int:
    env = Environment()
    before = env.disk.operations
    life = Life(env)
    life.run()
    assert life.refused is None
    assert life.log is not None
    assert life.log.log_start_offset > 0
    return env.disk.operations - before


@pytest.mark.forms(2)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("lasting", [False, True])
def test_acknowledged_and_flushed_records_survive(number: int, lasting: bool) -> None:
    total = operations_of_a_life()
    assert total > 150
    refused = 0
    for count in range(total):
        env = Environment()
        env.disk.fail(None, number, skip=count, times=None if lasting else 1, written=count % 90)
        life = Life(env)
        life.run()
        refused += life.refused is not None or bool(env.failures)
        env.disk.crash(lambda path, unsynced, count=count: count * 7 % (unsynced + 1))
        log = env.open(CONFIG)
        found = dict(values(log))
        for offset in range(log.log_start_offset, life.flushed):
            assert found[offset] == life.written[offset], (count, offset)
        assert log.log_end_offset >= life.flushed
        assert list(found.values()) == life.written[log.log_start_offset : log.log_end_offset]
        assert append(log, batch([b"new"])) == log.log_end_offset - 1
    assert refused > total // 2


@pytest.mark.parametrize("written", [0, 1, 60, 1_000])
def test_a_failed_append_leaves_the_log_as_it_was(written: int) -> None:
    env = Environment()
    log = env.open(CONFIG)
    append(log, produced(1, 0, 0))
    size = log.size_bytes
    env.disk.fail("append", errno.ENOSPC, written=written)
    with pytest.raises(OSError):
        append(log, produced(1, 0, 1))
    assert (log.log_end_offset, log.size_bytes) == (1, size)
    assert env.disk.size(log.segments.active.path(".log")) == size
    assert log.producers.entries[1].last_sequence == 0
    assert not log.failed
    assert append(log, produced(1, 0, 1)) == 1
    assert len(values(log)) == 2


def test_torn_bytes_that_cannot_be_removed_take_the_log_offline() -> None:
    env = Environment()
    log = env.open(CONFIG)
    append(log, batch())
    env.disk.fail("append", errno.ENOSPC, written=30)
    env.disk.fail("truncate", errno.EIO)
    with pytest.raises(OSError):
        append(log, batch())
    assert log.failed
    with pytest.raises(ApiError) as caught:
        append(log, batch())
    assert caught.value.error is Error.KAFKA_STORAGE_ERROR
    assert len(values(env.open(CONFIG))) == 1


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    env = Environment()
    log = env.open(CONFIG)
    append(log, batch(size=100))
    env.disk.capacity = 450
    append(log, batch(size=100))
    with pytest.raises(OSError) as caught:
        append(log, batch(size=100))
    assert caught.value.errno == errno.ENOSPC
    count = log.log_end_offset
    env.disk.capacity = None
    append(log, batch(size=100))
    assert len(values(log)) == count + 1


def marker(producer_id: int) -> bytearray:
    return bytearray(
        build_marker(
            committed=False,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=5,
        )
    )


class Shortage:
    """A life in a process that is out of descriptors at times: each act is repeated."""

    def __init__(self, operation: str, skip: int, times: int) -> None:
        self.env = Environment(open_files_max=3)
        self.fault = self.env.disk.fail(operation, errno.EMFILE, skip=skip, times=times)

    def act(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except OutOfDescriptors:
                continue
            except OSError as error:
                if not is_shortage(error):
                    raise

    def append(self, log: PartitionLog, data: bytearray, **options: Any) -> None:
        self.act(lambda: append(log, bytearray(data), **options))

    def flush(self, log: PartitionLog) -> None:
        flushed = log.flush()
        while not flushed.done:
            self.env.pass_ms(RETRY_MS)
        assert flushed.value is None

    def truncate(self, log: PartitionLog, offset: int) -> None:
        """Truncate without a shortage, of which there is another test."""
        self.env.disk.faults.remove(self.fault)
        log.truncate_to(offset)
        self.flush(log)
        self.env.disk.faults.append(self.fault)

    def live(self) -> PartitionLog:
        log = self.act(lambda: self.env.open(CONFIG))
        for number in range(30):
            self.append(log, batch([b"%d" % number] * 2, size=30))
            if number % 5 == 0:
                self.append(log, produced(number, 0, 0, transactional=True))
                self.append(log, marker(number), origin="coordinator")
            if number % 7 == 3:
                self.flush(log)
            if number == 20:
                self.truncate(log, log.log_end_offset - 20)
        log.advance_high_watermark(log.log_end_offset)
        self.act(lambda: retain(log, self.env.clock.ms))
        self.env.pass_ms(10)
        self.flush(log)
        return log


@pytest.mark.parametrize("operation", ["open", "write_atomic", "read_bytes", "listdir", "sync_dir"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_shortage_of_descriptors_at_any_moment_costs_nothing(operation: str, times: int) -> None:
    expected = Shortage(operation, 0, 0).live()
    records, aborted = values(expected), expected.aborted_transactions(0, 2**40)
    assert len(expected.segments) > 3
    assert aborted
    for skip in range(1_000):
        life = Shortage(operation, skip, times)
        log = life.live()
        life.env.disk.faults.clear()
        assert (values(log), log.aborted_transactions(0, 2**40)) == (records, aborted), skip
        assert life.env.failures == []
        life.env.disk.crash()
        again = life.env.open(CONFIG)
        assert values(again)[-len(records) :] == records, skip
        if life.fault.hits < times:
            return  # The whole life had no shortage, or the end of one.
    raise AssertionError("a life has fewer operations")


def test_a_roll_that_finds_no_descriptor_leaves_no_file_and_is_done_by_the_next_append() -> None:
    env = Environment()
    log = env.open(CONFIG)
    append(log, batch([bytes(300)]))
    fault = env.disk.fail("open", errno.EMFILE, path=f"{1:020d}.index", times=None)
    with pytest.raises(OutOfDescriptors):
        append(log, batch([bytes(300)]))
    assert not [name for name in env.names() if name.startswith(f"{1:020d}.log")]
    env.disk.faults.remove(fault)
    append(log, batch([b"small"]))
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.flush_now()
    env.disk.crash()
    assert [value for _, value in values(env.open(CONFIG))] == [bytes(300), b"small"]


@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_without_descriptors_changes_nothing_or_fails(fully: bool) -> None:
    """What it leaves in its middle must not be appended to."""
    seen = set()
    for operation, skip in product(("open", "write_atomic", "listdir", "sync_dir"), range(25)):
        env = Environment(open_files_max=3)
        log = env.open(CONFIG)
        for number in range(12):
            append(log, batch([b"%d" % number], size=60))
        records = values(log)
        log.segments.active.close()
        env.disk.fail(operation, errno.EMFILE, skip=skip, times=3)
        try:
            if fully:
                log.truncate_fully_and_start_at(20)
            else:
                log.truncate_to(5)
        except (OSError, OutOfDescriptors) as error:
            may_pass = isinstance(error, OutOfDescriptors) or is_shortage(error)
            env.disk.faults.clear()
            assert not may_pass or values(log) == records, (operation, skip)
            seen.add(may_pass)
        else:
            assert values(log) == ([] if fully else records[:5]), (operation, skip)
    assert seen == {True, False}


def test_a_roll_that_is_repeated_begins_where_the_batches_end() -> None:
    """Compaction has left a gap in which a truncation ended; recovery takes a gap between segments
    for lost records."""
    env = Environment()
    config = LogConfig(segment_bytes=600, timestamp_after_max_ms=2**62)
    log = env.open(config)
    for size in (100, 1):
        append(log, batch([bytes(size)]))
    behind = batch([bytes(20)])
    restamp(behind, 0, base_offset=10, leader_epoch=0)
    log.append_as_follower(behind, now_ms=0)
    log.truncate_to(6)
    fault = env.disk.fail("open", errno.EMFILE, path=segment_name(2, ".index"), times=None)
    with pytest.raises(OutOfDescriptors):
        append(log, batch([bytes(500)]))
    env.disk.faults.remove(fault)
    assert append(log, batch([bytes(500)])) == 6
    assert [each.base_offset for each in log.segments] == [0, 2]
