"""One log: what appends answer and write, what reads return.

Method: small logs on a disk in memory; bytes compared with what was sent, stamped.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.partition_log import UnexpectedOffset
from ottla.records.batch import iter_headers, parse_header, restamp
from ottla.records.builder import encode_retained
from ottla.records.compression import Codec
from ottla.records.control import build_marker
from ottla.records.record import iter_records
from tests.unit.log.support import (
    Environment,
    append,
    batch,
    content,
    max_timestamp_offset,
    offset_for_timestamp,
    produced,
    retain,
    values,
)

SMALL = LogConfig(segment_bytes=600, timestamp_after_max_ms=2**62)


def stamped(data: bytes, offset: int, epoch: int = 0) -> bytes:
    copy = bytearray(data)
    restamp(copy, 0, base_offset=offset, leader_epoch=epoch)
    return bytes(copy)


def marker(producer_id: int, *, committed: bool = False, epoch: int = 0) -> bytearray:
    return bytearray(
        build_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=0,
            timestamp=5,
        )
    )


def test_batches_get_offsets_and_epoch_and_nothing_else() -> None:
    log = Environment().open()
    sent = [bytes(batch(count, size=count * 10)) for count in (1, 3, 2)]
    infos = [log.append_as_leader(data, leader_epoch=4, now_ms=1_000_000) for data in sent]
    assert [(info.first_offset, info.last_offset) for info in infos] == [(0, 0), (1, 3), (4, 5)]
    assert [(info.record_count, info.size) for info in infos] == [
        (count, len(data)) for count, data in zip((1, 3, 2), sent, strict=True)
    ]
    assert content(log) == b"".join(
        stamped(data, offset, 4) for data, offset in zip(sent, (0, 1, 4), strict=True)
    )
    assert (log.log_end_offset, log.size_bytes) == (6, sum(map(len, sent)))
    assert log.latest_epoch == 4
    assert infos[0].log_append_time_ms == -1
    assert not infos[0].flush_due


def test_append_returns_the_log_append_time() -> None:
    log = Environment().open(LogConfig(log_append_time=True))
    info = log.append_as_leader(batch(timestamp=5), leader_epoch=0, now_ms=77)
    assert info.log_append_time_ms == 77
    assert offset_for_timestamp(log, 77) == (0, 77, 0)


def test_coordinators_append_several_batches_at_once() -> None:
    log = Environment().open(SMALL)
    data = b"".join(bytes(batch(2, size=100)) for _ in range(5))
    info = log.append_as_leader(data, leader_epoch=0, now_ms=0, origin="coordinator")
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 9, 10)
    assert len(log.segments) > 1
    assert [offset for offset, _ in values(log)] == list(range(10))


def test_a_duplicate_is_answered_with_its_first_offsets() -> None:
    log = Environment().open()
    first = log.append_as_leader(bytes(produced(1, 0, 0, 3)), leader_epoch=0, now_ms=0)
    append(log, batch())
    again = log.append_as_leader(bytes(produced(1, 0, 0, 3)), leader_epoch=0, now_ms=0)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert log.log_end_offset == 4


def test_the_general_path_and_the_plain_one_write_the_same() -> None:
    """`codec` equal to the batches' makes a log not plain, and changes nothing else."""
    plain = Environment().open(LogConfig(segment_bytes=2_000))
    general = Environment().open(LogConfig(segment_bytes=2_000, codec=Codec.NONE))
    for number in range(60):
        data = bytes(produced(number % 3, 0, number // 3, size=number))
        answers = [
            log.append_as_leader(data, leader_epoch=number // 20, now_ms=1_000_000)
            for log in (plain, general)
        ]
        assert answers[0] == answers[1]
    assert content(plain) == content(general)
    assert plain.epochs.entries == general.epochs.entries
    assert plain.producer_states() == general.producer_states()
    assert [segment.base_offset for segment in plain.segments] == [
        segment.base_offset for segment in general.segments
    ]


def test_segments_roll_by_size_and_hold_whole_batches() -> None:
    env = Environment()
    log = env.open(SMALL)
    size = len(batch(size=130))
    for _ in range(12):
        append(log, batch(size=130))
    per_segment = 600 // size
    assert [segment.base_offset for segment in log.segments] == list(range(0, 12, per_segment))
    assert all(segment.size <= 600 for segment in log.segments)
    assert [name for name in env.names() if name.endswith(".snapshot")] == [
        f"{base:020d}.snapshot" for base in range(per_segment, 12, per_segment)
    ]


def test_segments_roll_by_the_producers_time() -> None:
    log = Environment().open(LogConfig(segment_ms=100, timestamp_after_max_ms=2**62))
    for timestamp in (1_000, 1_100, 1_101, 900, 1_202):
        append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_a_jitter_above_the_segment_time_closes_no_segment_with_each_batch() -> None:
    env = Environment(jitter_ms=lambda bound: bound)
    config = LogConfig(segment_ms=100, segment_jitter_ms=1_000, timestamp_after_max_ms=2**62)
    log = env.open(config)
    for timestamp in (1_000, 1_000, 1_001, 1_001, 1_002):
        append(log, batch(timestamp=timestamp))
    assert [segment.base_offset for segment in log.segments] == [0, 4]


def test_segments_without_timestamps_roll_by_the_wall_clock() -> None:
    env = Environment()
    log = env.open(LogConfig(segment_ms=100))
    append(log, batch(timestamp=-1))
    env.clock.ms += 100
    append(log, batch(timestamp=-1))
    env.clock.ms += 1
    append(log, batch(timestamp=-1))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_segments_roll_when_an_index_is_full() -> None:
    log = Environment().open(LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for number in range(9):
        append(log, batch(timestamp=number))
    # Three offsets fit, and one timestamp beside the last: the second batch brings the first entry.
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]


def test_segments_roll_where_offsets_would_not_fit_32_bits() -> None:
    log = Environment().open()
    near = stamped(batch(), 5)
    far = stamped(batch(), 2**31)
    farther = stamped(batch(), 2**33)
    log.append_as_follower(near + far + farther, now_ms=0)
    # At the log's end, unless what comes is too far from there.
    assert [segment.base_offset for segment in log.segments] == [0, 6, 2**33]
    assert log.log_end_offset == 2**33 + 1
    assert content(log) == near + far + farther


def test_followers_keep_offsets_and_epochs() -> None:
    log = Environment().open()
    first, second, third = stamped(batch(2), 3, 1), stamped(batch(), 5, 1), stamped(batch(3), 9, 4)
    info = log.append_as_follower(first + second + third[:-1], now_ms=0)
    assert (info.first_offset, info.last_offset, info.record_count) == (3, 5, 3)
    log.append_as_follower(third, now_ms=0)
    assert content(log, 0) == first + second + third
    # Compaction has taken what was in between, of this epoch, that one or others: they are said
    # to begin at the earliest, or a replica that lags might keep other records there.
    assert log.epochs.entries == ((1, 0), (4, 6))
    assert log.append_as_follower(b"", now_ms=0).size == 0


def test_followers_refuse_what_does_not_follow() -> None:
    log = Environment().open()
    log.append_as_follower(stamped(batch(2), 3), now_ms=0)
    for data in (stamped(batch(), 4), stamped(batch(), 7) + stamped(batch(), 7)):
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(data, now_ms=0)
    damaged = bytearray(stamped(batch(), 9))
    damaged[-1] ^= 1
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(stamped(batch(), 8) + damaged, now_ms=0)
    assert caught.value.error is Error.CORRUPT_MESSAGE
    assert log.log_end_offset == 5


@pytest.mark.parametrize("limit", [1, 70, 100, 10_000])
def test_reads_of_every_offset_with_every_limit(limit: int) -> None:
    log = Environment().open(SMALL)
    for number in range(20):
        append(log, batch(1 + number % 3, size=20))
    everything = content(log)
    starts = [(start, header) for start, header in iter_headers(everything)]
    ends = {segment.base_offset for segment in log.segments} | {log.log_end_offset}
    position = 0
    for start, header in starts:
        size = header.size_in_bytes
        segment_end = min(end for end in ends if end > header.base_offset)
        left = sum(
            other.size_in_bytes
            for _, other in starts
            if header.base_offset <= other.base_offset < segment_end
        )
        for offset in range(header.base_offset, header.next_offset):
            found = log.read(offset, max_bytes=limit, upper_bound=10**9, at_least_one=True)
            assert found.size == min(left, max(limit, size))
            assert found.slices[0].read() == everything[start : start + found.size]
            found.slices[0].release()
            strict = log.read(offset, max_bytes=limit, upper_bound=10**9, at_least_one=False)
            assert strict.first_too_large == (limit < size)
            assert strict.size == (0 if limit < size else found.size)
            for piece in strict.slices:
                piece.release()
        position += size


def test_reads_stop_at_the_upper_bound() -> None:
    log = Environment().open(SMALL)
    for _ in range(20):
        append(log, batch(2, size=20))
    for upper in range(0, 41, 2):
        expected = [offset for offset, _ in values(log) if offset < upper]
        assert [record.offset for record in iter_records(content(log, 0, upper))] == expected
    assert log.read(40, max_bytes=100, upper_bound=40).slices == ()
    assert log.read(6, max_bytes=100, upper_bound=6).slices == ()
    assert log.read(6, max_bytes=100, upper_bound=2).slices == ()


def test_reads_outside_are_refused() -> None:
    log = Environment().open()
    append(log, batch(3))
    log.advance_high_watermark(3)
    log.delete_records(2)
    for offset in (-1, 1, 4):
        with pytest.raises(ApiError) as caught:
            log.read(offset, max_bytes=100, upper_bound=3)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.read(3, max_bytes=100, upper_bound=3).size == 0


def test_reads_pass_over_gaps() -> None:
    log = Environment().open(LogConfig(segment_bytes=200, timestamp_after_max_ms=2**62))
    for offset in (0, 10, 50, 100):
        log.append_as_follower(stamped(batch(size=60), offset), now_ms=0)
    assert len(log.segments) == 4
    for offset, expected in ((0, 0), (1, 10), (10, 10), (11, 50), (99, 100), (100, 100)):
        found = log.read(offset, max_bytes=1_000, upper_bound=101)
        assert parse_header(found.slices[0].read()).base_offset == expected
        found.slices[0].release()


def test_a_slice_survives_the_deletion_of_its_segment() -> None:
    env = Environment()
    log = env.open(LogConfig(segment_bytes=140, retention_ms=10))
    append(log, batch(size=60))
    append(log, batch(size=60))
    log.advance_high_watermark(2)
    found = log.read(0, max_bytes=1_000, upper_bound=2)
    env.clock.ms += 11
    retain(log, env.clock.ms)
    env.pass_ms(60_000)
    assert log.log_start_offset == 2
    assert parse_header(found.slices[0].read()).base_offset == 0
    found.slices[0].release()


@pytest.mark.parametrize(
    "then", ["goes on", "is killed", "is shut down", "is truncated", "loses its time index"]
)
def test_the_timestamp_of_a_batch_that_compaction_has_emptied_does_not_count(then: str) -> None:
    """The latest record is not looked for where there is none any more."""
    env = Environment()
    log = env.open(LogConfig(index_interval_bytes=0))

    def copy(offset: int, timestamp: int, *, is_emptied: bool = False) -> None:
        data = batch(timestamp=timestamp, base_offset=offset, leader_epoch=0)
        copied = encode_retained(parse_header(data), []) if is_emptied else data
        log.append_as_follower(bytearray(copied), now_ms=0)

    copy(0, 1_000)
    copy(1, 9_000, is_emptied=True)
    copy(2, 2_000)
    copy(3, 1_500)
    if then == "is truncated":
        log.truncate_to(3)
    elif then != "goes on":
        is_clean = then != "is killed"
        log.roll(0)
        index = log.segments.first.path(names.TIME_INDEX)
        job = log.prepare_close()
        job.run()
        job.release(failed=False)
        log.close()
        if then == "loses its time index":
            env.disk.remove(index)
        log = env.open(log.config, clean=is_clean)
    assert len(log.segments) == (1 if then in ("goes on", "is truncated") else 2)
    assert max_timestamp_offset(log) == (2, 2_000, 0)


def test_lookups_by_time() -> None:
    log = Environment().open(LogConfig(segment_bytes=400, index_interval_bytes=50))
    assert offset_for_timestamp(log, 0) is None
    assert max_timestamp_offset(log) is None
    for base in range(0, 100, 10):
        append(log, batch(3, timestamps=[base, base + 5, base + 3]), epoch=base // 50)
    assert len(log.segments) > 2
    for wanted, expected in (
        (0, (0, 0, 0)),
        (1, (1, 5, 0)),
        (4, (1, 5, 0)),
        (6, (3, 10, 0)),
        (50, (15, 50, 1)),
        (95, (28, 95, 1)),
    ):
        assert offset_for_timestamp(log, wanted) == expected
    assert offset_for_timestamp(log, 96) is None
    assert max_timestamp_offset(log) == (28, 95, 1)
    log.advance_high_watermark(30)
    log.delete_records(20)
    assert offset_for_timestamp(log, 0) == (20, 63, 1)


def test_the_high_watermark_never_goes_back_nor_beyond_the_end() -> None:
    log = Environment().open()
    append(log, batch(5))
    assert log.advance_high_watermark(3)
    assert not log.advance_high_watermark(2)
    assert log.high_watermark == 3
    assert log.advance_high_watermark(99)
    assert log.high_watermark == 5


def test_the_last_stable_offset_and_aborted_transactions() -> None:
    log = Environment().open(LogConfig(segment_bytes=400))
    append(log, batch(2))
    append(log, produced(1, 0, 0, 2, transactional=True))
    append(log, produced(2, 0, 0, 1, transactional=True))
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 2
    append(log, marker(1), origin="coordinator")
    assert log.last_stable_offset == 2
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 4
    append(log, marker(2, committed=True), origin="coordinator")
    log.advance_high_watermark(7)
    assert log.last_stable_offset == 7
    assert log.aborted_transactions(0, 7) == [(1, 2, 5, 4)]
    assert log.aborted_transactions(0, 2) == []
    assert log.aborted_transactions(6, 7) == []
    for _ in range(10):
        append(log, batch(size=60))
    append(log, produced(1, 0, 2, 1, transactional=True))
    append(log, marker(1), origin="coordinator")
    assert [entry.first_offset for entry in log.aborted_transactions(0, 99)] == [2, 17]
    assert [entry.first_offset for entry in log.aborted_transactions(7, 99)] == [17]


def test_record_deletion() -> None:
    log = Environment().open()
    append(log, batch(5))
    log.advance_high_watermark(4)
    for offset in (5, -2):
        with pytest.raises(ApiError) as caught:
            log.delete_records(offset)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    assert log.delete_records(2) == 2
    assert log.delete_records(1) == 2
    assert log.delete_records(-1) == 4
    assert log.epochs.entries == ((0, 4),)


def test_a_closed_log_refuses_everything() -> None:
    log = Environment().open()
    append(log, batch())
    log.close()
    for attempt in (
        lambda: append(log, batch()),
        lambda: log.append_as_follower(b"", now_ms=0),
        lambda: log.read(0, max_bytes=1, upper_bound=1),
        lambda: offset_for_timestamp(log, 0),
        log.search_max_timestamp,
        lambda: log.delete_records(0),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully_and_start_at(0),
        lambda: log.expire_segments(0),
        lambda: log.delete_expired_segments(0),
        log.flusher.job,
    ):
        with pytest.raises(ApiError) as caught:
            attempt()
        assert caught.value.error is Error.KAFKA_STORAGE_ERROR
    assert isinstance(log.flush().value, OSError)


def test_epochs_and_producers() -> None:
    env = Environment()
    log = env.open(LogConfig(producer_id_expiration_ms=100))
    append(log, batch(), epoch=1)
    log.assign_epoch(5)
    assert log.epoch_end_offset(1) == (1, 1)
    assert log.epoch_end_offset(5) == (5, 1)
    assert log.epoch_of(0) == 1
    append(log, produced(9, 0, 0), epoch=5)
    append(log, produced(3, 0, 0), epoch=5)
    assert [entry.producer_id for entry in log.producer_states()] == [3, 9]
    assert log.expire_producers(1_000_100) == 2


@pytest.mark.parametrize("role", ["plain", "checked", "follower"])
def test_a_producer_of_historic_data_does_not_expire_early(role: str) -> None:
    """Batches of a year ago: the producer was forgotten at the next look, and a retry landed."""
    env = Environment()
    log = env.open(LogConfig(producer_id_expiration_ms=100))
    data = produced(9, 0, 0, timestamp=env.clock.ms - 365 * 24 * 3_600_000)
    if role == "follower":
        log.append_as_follower(data, now_ms=env.clock.ms)
    else:
        append(log, data, origin="client" if role == "plain" else "coordinator")
    assert log.expire_producers(env.clock.ms + 99) == 0
    append(log, data)
    assert log.log_end_offset == 1
    assert log.expire_producers(env.clock.ms + 100) == 1


def test_a_truncation_forgets_no_producer_and_makes_none_younger() -> None:
    env = Environment()
    log = env.open(LogConfig(producer_id_expiration_ms=100))
    append(log, produced(1, 0, 0, timestamp=0))
    env.clock.ms += 60
    append(log, produced(2, 0, 0, timestamp=0))
    append(log, batch())
    log.truncate_to(2)
    assert log.expire_producers(env.clock.ms + 39) == 0
    assert log.expire_producers(env.clock.ms + 40) == 1
    assert [entry.producer_id for entry in log.producer_states()] == [2]


def test_files_are_bounded() -> None:
    env = Environment(open_files_max=5)
    log = env.open(SMALL)
    for _ in range(60):
        append(log, batch(size=130))
    assert len(log.segments) > 10
    assert len(values(log)) == 60
    # A flush holds pins, and recovery opens one file beside the cache.
    assert env.disk.open_files_max <= 5 + 6
