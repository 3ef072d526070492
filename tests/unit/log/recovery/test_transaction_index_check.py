"""A start rebuilds impossible transaction indexes, where the batches tell what was in them.

Method: a log of four segments on a disk in memory, one index of which is overwritten while the log
is closed.
"""

import pytest

from ottla.base.errors import Error
from ottla.log import names
from ottla.log.names import segment_name
from ottla.log.partition_log import PartitionLog
from ottla.log.results import DamagedLog
from ottla.records.control import build_marker
from tests.unit.log.recovery.test_log_loader import CONFIG, bases, close, path
from tests.unit.log.support import Environment, append, batch, produced


def aborted_in_three_segments(env: Environment) -> PartitionLog:
    """Fill a log in whose segments transactions end that began in the one before."""
    log = env.open(CONFIG)
    for number in range(3):
        append(log, produced(1, 0, number, size=60, transactional=True))
        append(log, produced(2, 0, number, size=60, transactional=True))
        log.roll(env.clock.ms)
        marker = build_marker(
            committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=2, timestamp=9
        )
        append(log, bytearray(marker), origin="coordinator")
        append(log, batch())
    assert len(log.aborted_transactions(0, 99)) == 3
    return log


@pytest.mark.parametrize("data", [b"0123456789", b"\xff" * 34], ids=len)
@pytest.mark.parametrize("which", [0, 1, 2, -1])
@pytest.mark.parametrize("clean", [True, False])
def test_an_impossible_transaction_index_is_rebuilt(
    data: bytes, which: int, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """One fetch of a read_committed consumer took the whole log directory offline."""
    env = Environment()
    log = aborted_in_three_segments(env)
    expected, base = log.aborted_transactions(0, 99), bases(log)[which]
    close(log)
    target = path(base, names.TRANSACTION_INDEX)
    before = env.disk.read_bytes(target) if env.disk.exists(target) else None
    env.disk.write_atomic(target, data)
    log = env.open(CONFIG, clean=clean, recovery_point=log.log_end_offset)
    assert log.aborted_transactions(0, 99) == expected
    assert (env.disk.read_bytes(target) if env.disk.exists(target) else None) == before
    lines = [each.message for each in caplog.records if each.levelname == "WARNING"]
    if clean or which != -1:  # Else the segment is read anyway.
        name = segment_name(base, names.TRANSACTION_INDEX)
        assert [each.partition(" (")[0] for each in lines] == [f"topic-0: {name} is damaged"]
        assert lines[0].endswith("; rebuilt it from the batches")


@pytest.mark.parametrize("also", ["batches", "snapshot"])
def test_a_transaction_index_that_cannot_be_rebuilt_fails_the_reads_that_need_it(
    also: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without it records of aborted transactions would be returned as committed."""
    env = Environment()
    log = aborted_in_three_segments(env)
    first, second, third, _ = bases(log)
    close(log)
    env.disk.write_atomic(path(second, names.TRANSACTION_INDEX), b"0123456789")
    if also == "batches":
        env.disk.corrupt(path(second, names.LOG), 70, b"\xff")
    else:
        env.disk.remove(path(second, names.SNAPSHOT))
    log = env.open(CONFIG, clean=True)
    assert "is damaged" in caplog.text
    assert "and cannot be rebuilt" in caplog.text
    for _ in range(2):
        with pytest.raises(DamagedLog) as caught:
            log.aborted_transactions(first, third)
        assert caught.value.error is Error.CORRUPT_MESSAGE
        assert caught.value.path == path(second, names.TRANSACTION_INDEX)
    assert len(log.aborted_transactions(third, 99)) == 2
