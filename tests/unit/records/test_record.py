"""Records must be read exactly as other clients wrote them, and damage must show as such.

Method: batches from aiokafka's and kafka-python's builders, for every codec each has; records
assembled field by field with one thing wrong; flipped bits below a mended checksum.
"""

import tracemalloc
from collections.abc import Callable
from typing import Any

import aiokafka.record._crecords as aiokafka_cython
import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import LOG_APPEND_TIME, BatchHeader, parse_header, stamp_append_time
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import Codec, compress
from ottla.records.errors import CorruptBatch, InvalidRecord, RecordsError
from ottla.records.record import (
    Record,
    check_records,
    find_timestamp,
    iter_records,
    null_keys,
    read_records,
    record_bytes,
)
from ottla.records.varint import encode_varint
from tests.drawn import examples

T0 = 1_700_000_000_000
ROWS = [
    (b"key", b"value", [("a", b"1"), ("", None), ("é", b"")], T0),
    (None, b"x" * 70_000, [], T0 + 5),
    (b"", None, [("b", b"z" * 200)], T0 - 86_400_000),
    (b"k" * 64, b"", [], T0 + 2**40),
    (None, None, [], 0),
] + [(b"%d" % i, b"v%d" % i, [], T0 + i) for i in range(200)]
EXPECTED = [
    Record(offset, timestamp, key, value, tuple(headers))
    for offset, (key, value, headers, timestamp) in enumerate(ROWS)
]
BUILDERS: list[tuple[Any, set[Codec]]] = [
    (aiokafka_cython.default_records.DefaultRecordBatchBuilder, set(Codec)),
    (aiokafka_records._DefaultRecordBatchBuilderPy, set(Codec)),
    (kafka_records.DefaultRecordBatchBuilder, {Codec.NONE, Codec.GZIP, Codec.LZ4}),
]
CASES = [(builder, codec) for builder, codecs in BUILDERS for codec in sorted(codecs)]


def with_section(section: bytes, **fields: int) -> bytes:
    """Return a batch, its checksum right, around an arbitrary record section."""
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, T0, T0, -1, -1, -1, 1)
    return seal(header._replace(**fields), section)


def record(*fields: bytes | int, length: int | None = None) -> bytes:
    """Return one record: its attributes, then bytes as they are and integers as varints."""
    body = b"\0" + b"".join(f if isinstance(f, bytes) else encode_varint(f) for f in fields)
    return encode_varint(len(body) if length is None else length) + body


@pytest.mark.parametrize(("builder", "codec"), CASES)
def test_other_clients_batches(builder: Callable[..., Any], codec: Codec) -> None:
    built = builder(2, int(codec), 1, 44, 3, 7, 1 << 20)
    for offset, (key, value, headers, timestamp) in enumerate(ROWS):
        assert built.append(offset, timestamp, key, value, headers) is not None
    batch = bytes(built.build())
    header = parse_header(batch)
    assert header.compression is codec
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (44, 3, 7)
    assert list(iter_records(batch)) == EXPECTED
    summary = check_records(batch, 0, header)
    assert summary[:3] == (0, T0 + 2**40, True)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_several_batches_in_any_buffer(kind: type[bytes]) -> None:
    parts = [
        encode_batch(ROWS[i : i + 50], base_offset=i, codec=Codec(i // 50 % 5))
        for i in range(0, len(ROWS), 50)
    ]
    assert list(iter_records(kind(b"".join(parts)))) == EXPECTED


def test_control_batches_are_left_out_unless_asked_for() -> None:
    row = (b"\0\0\0\1", b"\0\0\0\0\0\1", (), T0)
    log = encode_batch([row], control=True) + encode_batch([row], base_offset=1)
    assert [r.offset for r in iter_records(log)] == [1]
    assert [r.offset for r in iter_records(log, include_control=True)] == [0, 1]


def test_append_time_holds_for_each_record() -> None:
    batch = bytearray(encode_batch(ROWS[:3]))
    stamp_append_time(batch, 0, 99)
    assert [r.timestamp for r in iter_records(batch)] == [99, 99, 99]
    assert check_records(batch, 0, parse_header(batch))[:3] == (99, 99, True)
    written = encode_batch(ROWS[5:8], timestamp_type=LOG_APPEND_TIME)
    assert {r.timestamp for r in iter_records(written)} == {T0 + 2}


def test_the_checksum_is_checked_unless_told_otherwise() -> None:
    batch = bytearray(encode_batch([(b"k", b"v", (), T0)]))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        list(iter_records(batch))
    assert [r.value for r in iter_records(batch, verify_crc=False)] == [b"w"]


def test_null_keys_are_found() -> None:
    for rows, expected in ((ROWS[5:], False), (ROWS[:1], False), (ROWS[5:] + ROWS[1:2], True)):
        for codec in Codec:
            batch = encode_batch(rows, codec=codec)
            header = parse_header(batch)
            nulls = [i for i, row in enumerate(rows) if row[0] is None]
            assert null_keys(batch, 0, header) == tuple(nulls)
            assert check_records(batch, 0, header).has_null_key is expected


def test_gaps_are_read_but_not_taken_from_producers() -> None:
    section = record(0, 1, -1, -1, 0) + record(0, 7, -1, -1, 0)
    batch = with_section(section, last_offset_delta=9, record_count=2)
    header = parse_header(batch)
    assert [r.offset for r in iter_records(batch)] == [1, 7]
    with pytest.raises(InvalidRecord, match="offset delta 1"):
        check_records(batch, 0, header)


def test_an_empty_batch_is_read() -> None:
    batch = with_section(b"", record_count=0, last_offset_delta=4)
    assert list(iter_records(batch)) == []
    assert null_keys(batch, 0, parse_header(batch)) == ()


WRONG = {
    "too short a length": (record(0, 0, -1, -1, 0, length=5), {}),
    "too great a length": (record(0, 0, -1, -1, 0, length=7), {}),
    "length beyond the batch": (record(0, 0, -1, -1, 0, length=2**31 - 1), {}),
    "negative length": (record(0, 0, -1, -1, 0, length=-1), {}),
    "bytes after the last record": (record(0, 0, -1, -1, 0) + b"\0", {}),
    "fewer records than said": (record(0, 0, 8, b"8 bytes ", -1, 0), {"record_count": 2}),
    "more records than bytes": (record(0, 0, -1, -1, 0), {"record_count": 2**31 - 1}),
    "no records": (b"", {"record_count": 1}),
    "key of length -2": (record(0, 0, -2, -1, 0), {}),
    "key beyond the record": (record(0, 0, 9, -1, 0), {}),
    "value beyond the record": (record(0, 0, -1, 9, 0), {}),
    "huge value": (record(0, 0, -1, 2**31 - 1, 0), {}),
    "negative header count": (record(0, 0, -1, -1, -1), {}),
    "huge header count": (record(0, 0, -1, -1, 2**31 - 1), {}),
    "header without key": (record(0, 0, -1, -1, 1, -1, -1), {}),
    "header key not UTF-8": (record(0, 0, -1, -1, 1, 1, b"\xff", -1), {}),
    "header value of length -2": (record(0, 0, -1, -1, 1, 0, -2), {}),
    "header value beyond the record": (record(0, 0, -1, -1, 1, 0, 5), {}),
    "negative offset delta": (record(0, -1, -1, -1, 0), {}),
    "offset delta beyond the last": (record(0, 1, -1, -1, 0), {}),
    "offset delta twice": (record(0, 0, -1, -1, 0) * 2, {"record_count": 2}),
    "offset delta of 6 bytes": (record(0, b"\x80" * 5 + b"\0", -1, -1, 0), {}),
    "offset delta of 33 bits": (record(0, b"\xff\xff\xff\xff\x1f", -1, -1, 0), {}),
    "timestamp of 65 bits": (record(2**63 - 1, 0, -1, -1, 0), {}),
    "timestamp delta of 11 bytes": (record(b"\x80" * 10 + b"\0", 0, -1, -1, 0), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_records_are_invalid(name: str) -> None:
    section, fields = WRONG[name]
    batch = with_section(section, **fields)
    header = parse_header(batch)
    with pytest.raises(InvalidRecord):
        list(iter_records(batch))
    with pytest.raises(InvalidRecord):
        check_records(batch, 0, header)


def test_producers_offsets_must_fill_the_header() -> None:
    batch = with_section(record(0, 0, -1, -1, 0), last_offset_delta=1)
    assert len(list(iter_records(batch))) == 1
    with pytest.raises(InvalidRecord, match="1 records, last offset delta 1"):
        check_records(batch, 0, parse_header(batch))


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_holds(codec: Codec) -> None:
    batch = encode_batch([(None, bytes(100_000), (), T0)], codec=codec)
    header = parse_header(batch)
    size = len(record_bytes(batch, 0, header))
    assert len(read_records(batch, 0, header, limit=size)) == 1
    for read in (read_records, check_records):
        with pytest.raises(CorruptBatch, match="limit"):
            read(batch, 0, header, limit=size - 1)


@settings(max_examples=examples(400))
@given(st.integers(0, 2**20), st.integers(0, 7), st.sampled_from(Codec))
def test_damage_under_a_right_checksum(at: int, bit: int, codec: Codec) -> None:
    """A broker may be handed anything whose checksum is right."""
    rows = [(b"key", b"value", [("h", b"x"), ("n", None)], T0 + i) for i in range(5)]
    batch = encode_batch(rows, codec=codec)
    damaged = bytearray(batch[61:])
    damaged[at % len(damaged)] ^= 1 << bit
    resealed = seal(parse_header(batch), damaged)
    header = parse_header(resealed)
    for read in (read_records, check_records):
        try:
            read(resealed, 0, header, limit=100_000)
        except CorruptBatch:
            continue


@settings(max_examples=examples(400))
@given(st.binary(max_size=200), st.integers(0, 20), st.sampled_from(Codec))
def test_noise_as_records(noise: bytes, count: int, codec: Codec) -> None:
    batch = with_section(noise, record_count=count, last_offset_delta=count, attributes=codec)
    header = parse_header(batch)
    for read in (read_records, check_records):
        try:
            read(batch, 0, header, limit=10_000)
        except CorruptBatch:
            continue


@given(st.binary(max_size=300))
def test_noise_as_batches(noise: bytes) -> None:
    try:
        assert list(iter_records(noise)) == [] or noise
    except RecordsError:
        return


@pytest.mark.parametrize("codec", Codec)
def test_a_time_is_found_without_what_is_not_needed_for_it(codec: Codec) -> None:
    rows = [(None, b"v" * index, (("h", b"x"),) * (index % 3), T0 + index) for index in range(50)]
    batch = encode_batch(rows, base_offset=100, codec=codec)
    header = parse_header(batch)
    assert find_timestamp(batch, 0, header, 0) == (100, T0)
    assert find_timestamp(batch, 0, header, T0 + 7) == (107, T0 + 7)
    assert find_timestamp(batch, 0, header, T0 + 7, 120) == (120, T0 + 20)
    assert find_timestamp(batch, 0, header, T0 + 50) is None
    with pytest.raises(CorruptBatch, match="limit"):
        find_timestamp(batch, 0, header, T0, limit=100)


def test_headers_cost_a_lookup_by_time_nothing() -> None:
    """Sixteen million of them, in 3 KB: they are expanded, and passed over."""
    headers = 8 << 20
    tail = encode_varint(-1) * 2 + encode_varint(headers) + bytes(2 * headers)
    section = encode_varint(3 + len(tail)) + bytes(3) + tail
    packed = compress(Codec.ZSTD, section)
    batch = with_section(packed, attributes=Codec.ZSTD)
    assert len(batch) < 4_000
    tracemalloc.start()
    try:
        assert find_timestamp(batch, 0, parse_header(batch), T0) == (0, T0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * len(section)
