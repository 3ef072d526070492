"""What a leader refuses, and what it changes, before a batch gets its offsets.

Method: one batch per rule; the hot path for plain topics must judge as the general one does, on
the same batches.
"""

import dataclasses
from typing import Any

import pytest

from ottla.base.errors import ApiError, Error
from ottla.log.config import LogConfig
from ottla.log.validation import (
    EXPANDED_BYTES_MIN,
    Allowance,
    NullKeys,
    TooHeavy,
    check_batches,
    check_plain,
    examine,
    expanded_bytes_max,
    finish,
)
from ottla.records.batch import CRC_AT, check_crc, parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from ottla.records.control import build_marker
from ottla.records.record import read_records
from tests.unit.log.support import batch, produced

NOW_MS = 1_000_000


def checked(data: bytes | bytearray, origin: Any = "client", **settings: Any) -> Any:
    config = LogConfig(**settings)
    return check_batches(data, config, now_ms=NOW_MS, origin=origin, log_name="t-0")


def changed(data: bytearray, **fields: Any) -> bytes:
    """The batch with other header fields and a right CRC."""
    header = parse_header(data)._replace(**fields)
    return seal(header, bytes(data[61:]))


def with_records(section: bytes, codec: Codec = Codec.NONE) -> bytes:
    """A batch of one record, whatever its bytes are, with a right CRC."""
    return seal(parse_header(batch())._replace(attributes=codec), section)


def damaged() -> bytes:
    data = batch()
    data[-1] ^= 1
    return bytes(data)


OLD_MAGIC = bytes(8) + b"\0\0\0\x20" + bytes(4) + b"\x01" + bytes(60)
MARKER = build_marker(
    committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
)
REFUSED: dict[str, tuple[bytes | bytearray, dict[str, Any], Error]] = {
    "nothing": (b"", {}, Error.CORRUPT_MESSAGE),
    "cut": (batch()[:-1], {}, Error.CORRUPT_MESSAGE),
    "damaged": (damaged(), {}, Error.CORRUPT_MESSAGE),
    "old format": (OLD_MAGIC, {}, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "two batches": (batch() + batch(), {}, Error.INVALID_RECORD),
    "large": (batch(size=500), {"max_message_bytes": 500}, Error.MESSAGE_TOO_LARGE),
    "larger than a segment": (batch(size=99), {"segment_bytes": 100}, Error.RECORD_LIST_TOO_LARGE),
    "base offset": (changed(batch(), base_offset=1), {}, Error.INVALID_RECORD),
    "count": (changed(batch(3), last_offset_delta=1), {}, Error.INVALID_RECORD),
    "impossible count": (
        changed(batch(), last_offset_delta=999, record_count=1000),
        {},
        Error.INVALID_RECORD,
    ),
    "control": (MARKER, {}, Error.INVALID_RECORD),
    "no sequence": (changed(produced(1, 0, 0), base_sequence=-1), {}, Error.INVALID_RECORD),
    "transaction without producer": (batch(transactional=True), {}, Error.INVALID_RECORD),
    "append time of its own": (batch(timestamp_type=1), {}, Error.INVALID_TIMESTAMP),
    "future": (
        batch(timestamp=NOW_MS + 11),
        {"timestamp_after_max_ms": 10},
        Error.INVALID_TIMESTAMP,
    ),
    "default future": (batch(timestamp=NOW_MS + 3_600_001), {}, Error.INVALID_TIMESTAMP),
    "past, within a batch": (
        batch(2, timestamps=[NOW_MS, NOW_MS - 11]),
        {"timestamp_before_max_ms": 10},
        Error.INVALID_TIMESTAMP,
    ),
    "undefined attributes": (changed(batch(), attributes=0x80), {}, Error.INVALID_RECORD),
    "delete horizon": (changed(batch(), attributes=0x40), {}, Error.INVALID_RECORD),
    "no epoch": (changed(produced(1, 0, 0), producer_epoch=-1), {}, Error.INVALID_RECORD),
    "producer id -2": (changed(batch(), producer_id=-2), {}, Error.INVALID_RECORD),
    "a base timestamp of no clock": (
        changed(batch(), base_timestamp=-(2**62)),
        {},
        Error.INVALID_TIMESTAMP,
    ),
    "a record of the future": (
        changed(batch(2, timestamps=[NOW_MS, NOW_MS + 3_600_001]), max_timestamp=NOW_MS),
        {},
        Error.INVALID_TIMESTAMP,
    ),
    "a record before all clocks": (
        batch(2, timestamps=[NOW_MS, -(2**63) // 1000 - 1]),
        {},
        Error.INVALID_TIMESTAMP,
    ),
    "garbage under a right checksum": (
        with_records(b"garbage, and more"),
        {},
        Error.INVALID_RECORD,
    ),
    "compressed garbage": (
        with_records(b"garbage", Codec.ZSTD),
        {},
        Error.INVALID_RECORD,
    ),
    "30 million records": (
        changed(batch(codec=Codec.ZSTD), record_count=30_000_000, last_offset_delta=30_000_000 - 1),
        {},
        Error.INVALID_RECORD,
    ),
    "one record too few": (
        changed(batch(3), record_count=2, last_offset_delta=1),
        {},
        Error.INVALID_RECORD,
    ),
    "null key": (batch(key=None), {"compacts": True}, Error.INVALID_RECORD),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    data, settings, error = REFUSED[case]
    with pytest.raises(ApiError) as caught:
        checked(data, **settings)
    assert caught.value.error is error
    config = LogConfig(**settings)
    if config.is_plain and case != "two batches":
        with pytest.raises(ApiError) as again:
            check_plain(data, config, NOW_MS, "t-0")
        assert (again.value.error, again.value.message) == (error, caught.value.message)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (batch(3), {}),
        (batch(timestamp=-1), {"timestamp_after_max_ms": 0}),
        (batch(timestamp=-1), {"timestamp_before_max_ms": 0}),
        (batch(timestamp=NOW_MS + 10), {"timestamp_after_max_ms": 10}),
        (batch(timestamp=NOW_MS - 10), {"timestamp_before_max_ms": 10}),
        (batch(size=300), {"max_message_bytes": 500}),
        (batch(key=b""), {"compacts": True}),
        (produced(1, 0, 5, 3), {}),
        (batch(codec=Codec.ZSTD), {}),
    ],
)
def test_what_passes_is_not_changed(data: bytearray, settings: dict[str, Any]) -> None:
    before = bytes(data)
    (found,) = checked(data, **settings)
    assert found.data is data
    assert bytes(data) == before
    assert found.header == parse_header(before)
    config = LogConfig(**settings)
    if config.is_plain:
        assert check_plain(data, config, NOW_MS, "t-0") == found


def test_bytes_that_cannot_be_written_are_copied() -> None:
    data = bytes(batch())
    for given in (data, memoryview(data)):
        (found,) = checked(given)
        assert isinstance(found.data, bytearray)
        assert found.data == data
    view = memoryview(bytearray(data))
    assert checked(view)[0].data is view


def test_a_cut_second_batch_is_left_out() -> None:
    data = batch()
    (found,) = checked(data + batch()[:-5])
    assert bytes(found.data) == data
    assert check_plain(data + batch()[:-5], LogConfig(), NOW_MS, "t-0") is None


def test_coordinators_may_send_several_batches_and_markers() -> None:
    found = checked(batch() + bytearray(MARKER) + batch(2), "coordinator")
    assert [item.header.record_count for item in found] == [1, 1, 2]
    assert [item.marker is not None for item in found] == [False, True, False]


def test_recompression_to_the_topics_codec() -> None:
    for source in Codec:
        for target in Codec:
            data = batch([b"x" * 100, b"y" * 100], codec=source)
            (found,) = checked(data, codec=target)
            assert found.header.compression is target
            check_crc(found.data, 0, found.header)
            values = [record.value for record in read_records(found.data, 0, found.header)]
            assert values == [b"x" * 100, b"y" * 100]
            assert (found.data is data) == (source is target)


def test_a_batch_may_become_too_large_by_recompression() -> None:
    data = batch(1, size=5_000, codec=Codec.GZIP)
    assert len(data) < 1_000
    with pytest.raises(ApiError) as caught:
        checked(data, codec=Codec.NONE, max_message_bytes=1_000)
    assert caught.value.error is Error.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    "settings", [{"codec": Codec.ZSTD}, {"compacts": True}, {"timestamp_before_max_ms": 1}]
)
def test_a_bomb_is_too_large_where_its_records_are_looked_at(settings: dict[str, Any]) -> None:
    zeros = compress(Codec.GZIP, bytes(EXPANDED_BYTES_MIN + 1))
    header = parse_header(batch())._replace(attributes=Codec.GZIP)
    bomb = bytearray(seal(header, zeros))
    with pytest.raises(ApiError) as raised:
        checked(bomb, **settings)
    assert raised.value.error is Error.MESSAGE_TOO_LARGE


def test_what_a_batch_may_expand_to_grows_with_what_the_topic_takes() -> None:
    assert expanded_bytes_max(LogConfig(max_message_bytes=1)) == EXPANDED_BYTES_MIN
    assert expanded_bytes_max(LogConfig(max_message_bytes=10 << 20)) == 80 << 20
    assert expanded_bytes_max(LogConfig(max_message_bytes=2**31 - 1)) == DECOMPRESSED_BYTES_MAX


def test_damage_within_the_compressed_records_is_corruption() -> None:
    data = batch(5, codec=Codec.GZIP)
    data[70:75] = b"abcde"
    crc_right = changed(data)
    with pytest.raises(ApiError) as caught:
        checked(crc_right, codec=Codec.NONE)
    assert caught.value.error in (Error.CORRUPT_MESSAGE, Error.INVALID_RECORD)


def test_the_topics_append_time() -> None:
    data = batch(2, timestamps=[5, 6])
    before = bytes(data[CRC_AT : CRC_AT + 4])
    (found,) = checked(data, log_append_time=True)
    assert found.header.max_timestamp == NOW_MS
    assert found.header.timestamp_type == 1
    assert bytes(data[CRC_AT : CRC_AT + 4]) != before
    check_crc(data, 0, found.header)
    assert [item.timestamp for item in read_records(data, 0, found.header)] == [NOW_MS, NOW_MS]


def test_null_keys_are_found() -> None:
    rows = [(b"k", b"v", (), NOW_MS), (None, b"v", (), NOW_MS)]
    with pytest.raises(ApiError) as caught:
        checked(bytearray(encode_batch(rows, codec=Codec.LZ4)), compacts=True)
    assert caught.value.error is Error.INVALID_RECORD
    assert "without key" in caught.value.message


def test_plain_is_decided_by_the_settings_alone() -> None:
    plain = LogConfig()
    assert plain.is_plain
    assert not dataclasses.replace(plain, codec=Codec.ZSTD).is_plain


def test_the_largest_timestamp_is_corrected() -> None:
    """Retention and lookups by time go by it."""
    for said in (NOW_MS - 5, NOW_MS + 5):
        for codec in (Codec.NONE, Codec.LZ4):
            data = batch(3, timestamps=[NOW_MS - 2, NOW_MS, NOW_MS - 1], codec=codec)
            (found,) = checked(changed(data, max_timestamp=said))
            assert found.header.max_timestamp == NOW_MS
            check_crc(found.data, 0, found.header)
            assert parse_header(found.data) == found.header
            assert bytes(found.data) == bytes(data)


def test_only_headers_are_checked_with_record_validation_batch() -> None:
    garbage = with_records(b"garbage, and more")
    assert checked(garbage, checks_records=False)
    assert check_plain(garbage, LogConfig(checks_records=False), NOW_MS, "t-0") is not None
    for settings in ({"compacts": True}, {"timestamp_before_max_ms": 10}):
        with pytest.raises(ApiError):
            checked(garbage, checks_records=False, **settings)
    with pytest.raises(ApiError):
        checked(changed(batch(), attributes=0x80), checks_records=False)


def test_record_validation_property() -> None:
    assert LogConfig.of({}).checks_records
    assert LogConfig.of({"ottla.record.validation": "full"}).checks_records
    assert not LogConfig.of({"ottla.record.validation": "batch"}).checks_records


def test_what_a_coordinator_appends_is_its_own() -> None:
    """Records of another shape are no client's business, and no keys are looked for."""
    assert checked(batch(key=None), "coordinator", compacts=True)


@pytest.mark.parametrize("codec", Codec)
def test_an_allowance_is_spent_and_held(codec: Codec) -> None:
    data = batch([bytes(1000 + index % 2) for index in range(500)], codec=codec)
    allowance = Allowance()
    before = dataclasses.replace(allowance)
    check_batches(
        data, LogConfig(), now_ms=NOW_MS, origin="client", log_name="t-0", allowance=allowance
    )
    assert before.bytes - allowance.bytes > 500_000
    assert before.steps - allowance.steps >= 500
    for small in (Allowance(bytes=400_000), Allowance(steps=400)):
        with pytest.raises(TooHeavy):
            check_batches(
                data, LogConfig(), now_ms=NOW_MS, origin="client", log_name="t-0", allowance=small
            )


def test_an_examined_batch_is_finished_by_the_clock() -> None:
    config = LogConfig(timestamp_after_max_ms=10, codec=Codec.GZIP)
    found = examine(batch(3, timestamp=NOW_MS), config, "t-0")
    assert found.header.compression is Codec.GZIP
    assert finish(found, config, NOW_MS).header == found.header
    with pytest.raises(ApiError) as caught:
        finish(found, config, NOW_MS - 11)
    assert caught.value.error is Error.INVALID_TIMESTAMP


def test_records_without_keys_are_named() -> None:
    rows = [(b"k" if index % 3 else None, b"v", (), NOW_MS) for index in range(10)]
    with pytest.raises(NullKeys) as caught:
        checked(bytearray(encode_batch(rows, codec=Codec.ZSTD)), compacts=True)
    assert caught.value.indexes == (0, 3, 6, 9)
