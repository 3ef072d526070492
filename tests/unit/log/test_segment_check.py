"""A flipped bit of a sealed segment is found, and a sound segment is sound.

Method: small logs on a disk in memory; each bit of a segment's file is flipped beneath its log.
"""

import pytest

from ottla.log import segment_check
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.segment_check import SegmentCheck
from ottla.records.batch import iter_headers
from ottla.records.errors import RecordsError
from tests.unit.log.support import DIRECTORY, Environment, append, batch

PATH = f"{DIRECTORY}/{0:020d}.log"


def filled(env: Environment) -> PartitionLog:
    """Return a log whose first segment has three batches of two leader epochs."""
    log = env.open(LogConfig(timestamp_after_max_ms=2**62))
    for epoch, count in ((1, 2), (1, 1), (4, 2)):
        append(log, batch(count), epoch=epoch)
    log.roll(0)
    append(log, batch(), epoch=4)
    log.advance_high_watermark(log.log_end_offset)
    return log


def check_of(log: PartitionLog) -> SegmentCheck:
    files = log.segment_files(0)
    assert files is not None
    return files.begin_check()


def is_sound(log: PartitionLog) -> bool:
    check = check_of(log)
    try:
        check.step()
    except RecordsError:
        return False
    assert check.is_over
    return True


def test_every_flipped_bit_is_found_that_makes_anything_impossible() -> None:
    """Of leader epochs that are 1, 1 and 4, some may be others: nothing else says what they are."""
    env = Environment()
    log = filled(env)
    data = env.disk.read_bytes(PATH)
    missed: list[tuple[int, ...]] = []
    for at in range(8 * len(data)):
        byte, bit = divmod(at, 8)
        flipped = bytearray(data)
        flipped[byte] ^= 1 << bit
        env.disk.corrupt(PATH, byte, flipped[byte : byte + 1])
        if is_sound(log):
            missed.append(tuple(each.partition_leader_epoch for _, each in iter_headers(flipped)))
        env.disk.corrupt(PATH, byte, data[byte : byte + 1])
    assert is_sound(log)
    assert sorted(missed) == [(0, 1, 4), (1, 3, 4)]


def test_a_check_goes_on_behind_the_last_sound_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_check, "PART_BYTES", 1)
    env = Environment()
    log = filled(env)
    [_, (second, _), _] = list(iter_headers(env.disk.read_bytes(PATH)))
    sound = env.disk.read_bytes(PATH)[second + 70 : second + 71]
    env.disk.corrupt(PATH, second + 70, b"\xff")
    check = check_of(log)
    check.step()
    for _ in range(2):
        with pytest.raises(RecordsError):
            check.step()
        assert (check.position, check.next_offset) == (second, 2)
    env.disk.corrupt(PATH, second + 70, sound)
    check.step()
    check.step()
    assert check.is_over


@pytest.mark.parametrize("start", [1, 2, 4, 5])
def test_the_log_may_start_within_the_segment(start: int) -> None:
    log = filled(Environment())
    log.delete_records(start)
    assert is_sound(log)


def test_a_file_that_ends_early_is_damaged() -> None:
    env = Environment()
    log = filled(env)
    env.disk.write_atomic(PATH, env.disk.read_bytes(PATH)[:-1])
    assert not is_sound(log)
