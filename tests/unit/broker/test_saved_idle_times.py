"""What was counted of idle topics outlives a clean stop, and nothing else.

Method: brokers one after the other on one disk in memory, with one or two log directories; how each
ended is the test's. An interval is a second, and all of them begin with the same image.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.broker.idle import SavedIdleTime
from ottla.broker.saved_idle_times import NAME, VERSION, decode_idle_times, encode_idle_times
from ottla.metadata.image import EMPTY
from ottla.testing.disk import MemoryDisk

from .harness import LOG_DIR, TOPIC_ID, BrokerHarness

SECOND = 1_000
EPOCH = 7
SECOND_DIR = "/more-logs"


def broker(disk: MemoryDisk, *, epoch: int = EPOCH, dirs: str = LOG_DIR) -> BrokerHarness:
    """Return a broker that begins on a disk and serves a topic that has a limit."""
    at = BrokerHarness(
        {"ottla.topic.idle.check.interval.ms": str(SECOND), "log.dirs": dirs}, disk=disk
    )
    source = BrokerHarness()
    source.add_broker()
    source.add_topic(ottla_topic_ttl_ms="3600000")
    at.log_dirs.acquire(node_id=1, cluster_id=None)
    at.load(source.broker.image)
    at.broker.idle = at.broker._idle_topics()  # A node makes its broker when logs are loaded.
    at.broker.epoch = epoch
    at.add_broker()
    at.add_topic(ottla_topic_ttl_ms="3600000")
    at.broker.start_serving()
    return at


def idle_ms(at: BrokerHarness) -> int:
    return at.broker.idle.saved()[TOPIC_ID].idle_ms


def counted(disk: MemoryDisk, **how: object) -> BrokerHarness:
    """Return a broker that has counted five seconds and stopped cleanly."""
    at = broker(disk, **how)  # type: ignore[arg-type]
    at.clock.advance(5 * SECOND)
    assert idle_ms(at) == 5 * SECOND
    assert at.broker.shutdown().done
    return at


def test_a_clean_stop_keeps_it() -> None:
    disk = MemoryDisk()
    counted(disk)
    at = broker(disk, epoch=8)
    assert idle_ms(at) == 5 * SECOND
    at.clock.advance(SECOND)
    assert idle_ms(at) == 6 * SECOND
    at.broker.shutdown()
    assert idle_ms(broker(disk, epoch=9)) == 6 * SECOND


def test_a_crash_drops_the_idle_times_also_those_of_an_earlier_process() -> None:
    disk = MemoryDisk()
    counted(disk)
    at = broker(disk, epoch=8)
    assert idle_ms(at) == 5 * SECOND
    at.log_dirs.release()  # It dies.
    assert idle_ms(broker(disk, epoch=9)) == 0


def test_a_log_dir_that_was_away_invalidates_the_file() -> None:
    """Its clean shutdown file is of an earlier registration."""
    disk = MemoryDisk()
    both = f"{LOG_DIR},{SECOND_DIR}"
    counted(disk, dirs=both)
    again = broker(disk, epoch=8, dirs=both)
    assert idle_ms(again) == 5 * SECOND
    again.broker.shutdown()
    other = BrokerHarness({"log.dirs": SECOND_DIR}, disk=disk)
    other.log_dirs.acquire(node_id=1, cluster_id=None)
    other.load(EMPTY)
    other.broker.epoch = 9
    other.broker.shutdown()
    assert idle_ms(broker(disk, epoch=10, dirs=both)) == 0


def test_a_file_that_cannot_be_written_does_not_block_the_shutdown() -> None:
    disk = MemoryDisk()
    at = broker(disk)
    at.clock.advance(5 * SECOND)
    at.fail_disk("write_atomic", f"{LOG_DIR}/{NAME}")
    assert at.broker.shutdown().done
    disk.faults.clear()
    assert idle_ms(broker(disk, epoch=8)) == 0


def test_where_nothing_is_counted_nothing_is_written() -> None:
    disk = MemoryDisk()
    at = BrokerHarness(disk=disk)
    at.add_broker()
    at.add_topic()
    at.broker.shutdown()
    assert not disk.exists(f"{LOG_DIR}/{NAME}")


uuids = st.binary(min_size=16, max_size=16).map(Uuid)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
KEPT = st.dictionaries(uuids, st.builds(SavedIdleTime, ids, ids, st.integers(0, 2**62)), max_size=4)


@settings(deadline=None)
@given(saved=KEPT, epoch=st.integers(0, 2**62))
def test_a_file_is_read_as_it_was_written_and_of_its_epoch_only(
    saved: dict[Uuid, SavedIdleTime], epoch: int
) -> None:
    data = encode_idle_times(saved, epoch)
    assert decode_idle_times(data, epoch) == saved
    assert decode_idle_times(data, epoch + 1) == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:-2],
        lambda data: b"[]",
        lambda data: b"\xff" + data,
        lambda data: data.replace(b'"idle_ms"', b'"idle"'),
        lambda data: data.replace(b'"version": 1', b'"version": 2'),
        lambda data: data.replace(b"5000", b'"long"'),
    ],
)
def test_a_damaged_file_is_no_file(spoil: Callable[[bytes], bytes]) -> None:
    assert VERSION == 1
    data = encode_idle_times({TOPIC_ID: SavedIdleTime((1,), (), 5_000)}, EPOCH)
    assert decode_idle_times(spoil(data), EPOCH) == {}
