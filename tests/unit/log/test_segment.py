"""One segment: positions, timestamps, what survives sealing and activation.

Method: the same questions to a segment while it is active and after it was sealed.
"""

from ottla.log.config import LogConfig
from ottla.log.file_cache import FileCache
from ottla.log.indexes.time_index import TimestampOffset
from ottla.log.indexes.transaction_index import AbortedTransaction
from ottla.log.segment import RECENT_BATCHES_MAX, Found, Segment, new_segment
from ottla.records.batch import parse_header
from ottla.testing.disk import MemoryDisk
from tests.unit.log.support import batch, found_by

LIMIT = 1 << 20

CONFIG = LogConfig(segment_bytes=1 << 20)


def segment_on(disk: MemoryDisk, base: int = 100) -> Segment:
    disk.mkdir("/d")
    return new_segment(FileCache(disk, 10), "/d", base, CONFIG, now_ms=5)


def fill(segment: Segment, count: int, size: int = 20, interval: int = 300) -> list[Found]:
    places: list[Found] = []
    offset = segment.base_offset
    for number in range(count):
        data = bytes(batch(2, size=size, base_offset=offset, timestamp=1_000 + number // 2 * 10))
        places.append(Found(segment.size, len(data)))
        segment.append([data], [parse_header(data)], interval)
        offset += 2
    return places


def check_positions(segment: Segment, places: list[Found]) -> None:
    for number, place in enumerate(places):
        offset = segment.base_offset + 2 * number
        assert segment.position_of(offset) == place
        assert segment.position_of(offset + 1) == place
    assert segment.position_of(segment.base_offset + 2 * len(places)) is None
    assert segment.position_of(0) == places[0]


def test_positions_while_active_sealed_and_active_again() -> None:
    segment = segment_on(MemoryDisk())
    places = fill(segment, 60)
    check_positions(segment, places)
    segment.seal()
    assert not segment.is_active
    check_positions(segment, places)
    segment.activate(CONFIG)
    assert segment.is_active
    check_positions(segment, places)
    segment.activate(CONFIG)


def test_positions_beyond_what_is_remembered() -> None:
    segment = segment_on(MemoryDisk())
    places = fill(segment, RECENT_BATCHES_MAX + 700, size=1, interval=4096)
    for number in (0, 1, 5, 600, 699, 700, 701, RECENT_BATCHES_MAX + 699):
        assert segment.position_of(100 + 2 * number) == places[number]


def test_timestamps_while_active_and_sealed() -> None:
    segment = segment_on(MemoryDisk())
    fill(segment, 60)
    for _ in range(2):
        assert segment.max_timestamp == TimestampOffset(1_290, 217)
        assert found_by(segment.search_timestamp(1_290, 0, LIMIT)) == (216, 1_290, -1)
        assert found_by(segment.search_timestamp(1_000, 0, LIMIT)) == (100, 1_000, -1)
        assert found_by(segment.search_timestamp(1_001, 0, LIMIT)) == (104, 1_010, -1)
        assert found_by(segment.search_timestamp(1_000, 107, LIMIT)) == (107, 1_010, -1)
        assert found_by(segment.search_timestamp(1_291, 0, LIMIT)) is None
        if segment.is_active:
            segment.seal()


def test_a_segment_without_timestamps() -> None:
    segment = segment_on(MemoryDisk())
    data = bytes(batch(timestamp=-1, base_offset=100))
    segment.append([data], [parse_header(data)], 0)
    assert segment.max_timestamp == TimestampOffset(-1, 100)
    assert segment.max_timestamp.timestamp < 0


def test_truncation_and_what_follows() -> None:
    segment = segment_on(MemoryDisk())
    places = fill(segment, 60)
    assert segment.truncate_to(141) == 140
    assert segment.size == places[20].position
    check_positions(segment, places[:20])
    assert segment.max_timestamp == TimestampOffset(1_090, 137)
    assert segment.truncate_to(100) == 100
    assert (segment.size, segment.max_timestamp) == (0, TimestampOffset(-1, 100))
    check_positions(segment, fill(segment, 30))


def test_aborted_transactions_are_kept_and_cut() -> None:
    disk = MemoryDisk()
    segment = segment_on(disk)
    fill(segment, 10)
    entries = [AbortedTransaction(1, 100, 110, 111), AbortedTransaction(2, 104, 115, 116)]
    for entry in entries:
        segment.add_aborted(entry)
    again = Segment(FileCache(disk, 10), "/d", 100, size=segment.size, created_ms=0)
    assert again.aborted() == entries
    segment.truncate_to(112)
    again = Segment(FileCache(disk, 10), "/d", 100, size=segment.size, created_ms=0)
    assert again.aborted() == entries[:1]


def test_stale_files_of_the_same_offset_are_emptied() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    for suffix in ("log", "index", "timeindex"):
        disk.write_atomic(f"/d/{100:020d}.{suffix}", b"stale")
    segment = segment_on(disk)
    places = fill(segment, 3)
    check_positions(segment, places)
    assert disk.size(f"/d/{100:020d}.log") == segment.size
    assert disk.size(f"/d/{100:020d}.index") == 0


def test_jitter_makes_a_segment_roll_earlier() -> None:
    config = LogConfig(segment_ms=100)
    segment = segment_on(MemoryDisk())
    data = bytes(batch(base_offset=100, timestamp=1_000))
    header = parse_header(data)
    segment.append([data], [header], 4096)
    assert segment.fits(101, 1_100, 80, config, 0)
    segment.jitter_ms = 30
    assert segment.fits(101, 1_070, 80, config, 0)
    assert not segment.fits(101, 1_071, 80, config, 0)


def test_files_follow_a_rename() -> None:
    disk = MemoryDisk()
    segment = segment_on(disk)
    places = fill(segment, 5)
    disk.rename("/d", "/e")
    segment.moved("/e")
    segment.close()
    check_positions(segment, places)
    segment.write_indexes(final=True)
    assert disk.size(f"/e/{100:020d}.timeindex") == 24
