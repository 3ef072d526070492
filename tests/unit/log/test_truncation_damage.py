"""A log is cut where its file is damaged: at the damage, before it, or not at all.

Method: batches of known places; bytes of one are overwritten beneath the log, with and without the
memory of where its last batches are.
"""

import pytest

from ottla.base.errors import Error
from ottla.log.config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.results import DamagedLog
from ottla.records.batch import iter_headers
from tests.unit.log.support import DIRECTORY, Environment, append, batch, values

CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=200)
LENGTH_AT, CRC_AT = 8, 17
BAD_LENGTH = b"\xff\xff\xff\xff"


def filled(env: Environment, config: LogConfig = CONFIG) -> PartitionLog:
    """Thirty batches of two records, some segments, two epochs."""
    log = env.open(config)
    for number in range(30):
        append(log, batch(2, size=30), epoch=number // 20)
    log.flush()
    return log


def damage(env: Environment, at: int, *offsets: int, data: bytes = BAD_LENGTH) -> str:
    """Overwrite bytes of the batches that begin at these offsets; return the first one's file."""
    places = {
        header.base_offset: (f"{DIRECTORY}/{name}", position)
        for name in env.names()
        if name.endswith(".log")
        for position, header in iter_headers(env.disk.read_bytes(f"{DIRECTORY}/{name}"))
    }
    for offset in offsets:
        path, position = places[offset]
        env.disk.corrupt(path, position + at, data)
    return places[offsets[0]][0]


@pytest.fixture(params=["warm", "cold"])
def env(request: pytest.FixtureRequest) -> Environment:
    """A disk; of a warm log the last positions are in memory, of a cold one they are not."""
    env = Environment()
    env.options = {"cold": request.param == "cold"}  # type: ignore[attr-defined]
    return env


def opened(env: Environment, config: LogConfig = CONFIG) -> PartitionLog:
    log = filled(env, config)
    if not env.options["cold"]:  # type: ignore[attr-defined]
        return log
    job = log.prepare_close()
    job.run()
    job.release(failed=False)
    log.close()
    return env.open(config, clean=True)


@pytest.mark.parametrize("config", [CONFIG, LogConfig(index_interval_bytes=200)])
def test_damage_that_goes_with_the_cut_is_none(env: Environment, config: LogConfig) -> None:
    log = opened(env, config)
    before = values(log)
    damage(env, LENGTH_AT, 24)
    assert log.truncate_to(24)
    assert (log.log_end_offset, values(log)) == (24, before[:24])
    assert append(log, batch([b"new"]), epoch=3) == 24
    log.flush()
    log.close()
    assert values(env.open(config)) == [*before[:24], (24, b"new")]


@pytest.mark.parametrize("config", [CONFIG, LogConfig(index_interval_bytes=200)])
@pytest.mark.parametrize("cut", [25, 26, 27])
def test_damage_before_the_cut_changes_nothing(
    env: Environment, config: LogConfig, cut: int
) -> None:
    """The segments above were dropped already, and the log went on with a hole."""
    log = opened(env, config)
    path = damage(env, LENGTH_AT, 24, 26)
    files = {name: env.disk.read_bytes(f"{DIRECTORY}/{name}") for name in env.names()}
    with pytest.raises(DamagedLog) as caught:
        log.truncate_to(cut)
    assert caught.value.error is Error.CORRUPT_MESSAGE
    assert (caught.value.path, caught.value.good_end) == (path, 24)
    assert log.log_end_offset == 60
    assert files == {name: env.disk.read_bytes(f"{DIRECTORY}/{name}") for name in files}
    assert log.truncate_to(caught.value.good_end)
    assert (log.log_end_offset, len(values(log))) == (24, 24)


def test_the_last_sound_batch_is_one_whose_crc_is_right(env: Environment) -> None:
    log = opened(env, LogConfig(index_interval_bytes=100_000))
    damage(env, CRC_AT, 10)
    damage(env, LENGTH_AT, 20, 22)
    with pytest.raises(DamagedLog) as caught:
        log.truncate_to(22)
    assert caught.value.good_end == 10


def test_damage_at_the_start_of_a_segment_leaves_the_one_before(env: Environment) -> None:
    log = opened(env)
    base = log.segments[1].base_offset
    damage(env, LENGTH_AT, base, base + 2)
    with pytest.raises(DamagedLog) as caught:
        log.truncate_to(base + 2)
    assert caught.value.good_end == base
    log.truncate_to(base)
    assert (log.log_end_offset, len(values(log))) == (base, base)


def test_a_damaged_transaction_index_is_found_before_anything_changes() -> None:
    """It took the whole log directory offline."""
    env = Environment()
    log = filled(env)
    base = log.segments[1].base_offset
    env.disk.write_atomic(f"{DIRECTORY}/{base:020d}.txnindex", b"0123456789")
    with pytest.raises(DamagedLog) as caught:
        log.truncate_to(base + 2)
    assert caught.value.path == f"{DIRECTORY}/{base:020d}.txnindex"
    assert caught.value.good_end == base
    assert log.log_end_offset == 60
    assert log.truncate_to(base)
    assert (log.log_end_offset, log.aborted_transactions(0, 60)) == (base, [])


@pytest.mark.parametrize("damaged", [False, True])
def test_readers_that_keep_all_files_open_do_not_fail_a_truncation(damaged: bool) -> None:
    """Each file that is opened beside theirs is closed when the next one is."""
    env = Environment(open_files_max=2)
    log = filled(env)
    bases = [segment.base_offset for segment in log.segments]
    sent = [log.read(base, max_bytes=100, upper_bound=60, at_least_one=True) for base in bases[1:]]
    assert sum(len(each.slices) for each in sent) > 2
    if damaged:
        damage(env, LENGTH_AT, 4, 6)
        with pytest.raises(DamagedLog) as caught:
            log.truncate_to(6)
        assert caught.value.good_end == 4
    assert log.truncate_to(4)
    assert (log.log_end_offset, len(values(log))) == (4, 4)
    assert append(log, batch([b"new"]), epoch=3) == 4


def test_damage_that_only_the_largest_timestamp_is_looked_for_in_is_left_to_its_readers() -> None:
    """The file was cut, and the log's end was not."""
    env = Environment()
    log = env.open(LogConfig(index_interval_bytes=0))
    append(log, batch(2, timestamp=2_000_000))
    for _ in range(9):
        append(log, batch(2, timestamp=1_000_000))
    damage(env, LENGTH_AT, 6)
    assert log.truncate_to(14)
    assert log.log_end_offset == 14
