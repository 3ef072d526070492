"""The vectorised decoder must equal the plain one on everything, damage included.

Method: fuzzed logs (mixed codecs, null, empty and 70 KB fields, headers, gaps, append time,
control batches) decoded both ways; then the same with one byte changed under a right checksum.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import BatchHeader, parse_header, stamp_append_time
from ottla.records.builder import (
    NewRecord,
    concatenate,
    encode_batch,
    encode_retained,
    seal,
)
from ottla.records.columnar import COLUMNS, decode, schema_of
from ottla.records.columnar.decoder import gather
from ottla.records.compression import Codec
from ottla.records.control import ControlType, build_control, build_marker
from ottla.records.errors import CorruptBatch, InvalidRecord, UnsupportedMagic
from ottla.records.record import Record, iter_records
from tests.drawn import examples

T0 = 1_700_000_000_000
FIELD = st.none() | st.binary(max_size=70)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
ROW = st.tuples(FIELD, FIELD, HEADERS, st.integers(-(2**61), 2**61))
BATCH = st.tuples(st.lists(ROW, min_size=1, max_size=8), st.sampled_from(Codec), st.booleans())


def read(log: Any, **options: Any) -> list[Record]:
    """Return what the vectorised decoder makes of a log, as records."""
    options = {"columns": COLUMNS, "timestamp": "ms", **options}
    rows = [row for batch in decode(log, **options) for row in batch.to_pylist()]
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"] or ()),
        )
        for row in rows
    ]


def random_rows(rng: random.Random, count: int, *, big: bool) -> list[NewRecord]:
    sizes = (0, 1, 63, 64, 200, 70_000 if big else 9000)

    def field() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice(sizes))

    def headers() -> list[tuple[str, bytes | None]]:
        count = rng.choice((0, 0, 0, 1, 3, 70))
        return [(f"é{i}", None if i % 2 else b"v" * i) for i in range(count)]

    return [
        (field(), field(), headers(), T0 + rng.randrange(-(10**10), 10**10)) for _ in range(count)
    ]


def random_log(seed: int, *, compressed: bool) -> bytes:
    """Return a log with everything in it that a log may have."""
    rng = random.Random(seed)
    batches = []
    for number in range(30):
        codec = Codec(rng.randrange(5)) if compressed else Codec.NONE
        batch = encode_batch(
            random_rows(rng, rng.choice((1, 2, 40)), big=number % 10 == 0), codec=codec
        )
        header = parse_header(batch)
        if number % 4 == 1:  # As compaction leaves it.
            batch = encode_retained(header, [r for r in iter_records(batch) if rng.random() < 0.5])
        if number % 4 == 2:
            stamped = bytearray(batch)
            stamp_append_time(stamped, 0, T0 + number)
            batch = bytes(stamped)
        batches.append(batch)
        if number % 7 == 0:
            batches.append(build_control(ControlType.LEADER_CHANGE, b"", timestamp=T0))
    return concatenate(batches, base_offset=1_000, leader_epoch=3)


LOGS = [random_log(seed, compressed=seed % 2 == 1) for seed in range(4)]


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_equal_to_plain_python(log: bytes, kind: type[bytes]) -> None:
    assert read(kind(log)) == list(iter_records(log))


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("chunk_bytes", [1, 5000, 100_000])
def test_chunks_of_any_size(log: bytes, chunk_bytes: int) -> None:
    assert read(log, chunk_bytes=chunk_bytes) == list(iter_records(log))


@pytest.mark.parametrize("codec", Codec)
def test_many_small_batches_go_side_by_side(codec: Codec) -> None:
    rng = random.Random(7)
    batches = [
        encode_batch(random_rows(rng, rng.randrange(1, 5), big=False), codec=codec)
        for _ in range(150)
    ]
    log = concatenate(batches, base_offset=0)
    assert read(log) == list(iter_records(log))


@settings(max_examples=examples(200))
@given(st.lists(BATCH, min_size=1, max_size=5), st.integers(0, 2**62))
def test_equal_to_plain_python_on_any_rows(
    batches: list[tuple[list[NewRecord], Codec, bool]], base_offset: int
) -> None:
    log = concatenate(
        (encode_batch(rows, codec=c, timestamp_type=int(t)) for rows, c, t in batches),
        base_offset=base_offset,
    )
    assert read(log) == list(iter_records(log))


CLIPPED = concatenate(
    (encode_batch([(None, b"%d" % i, (), T0)] * i, codec=Codec(i % 5)) for i in range(1, 25)),
    base_offset=1000,
)


@settings(max_examples=examples(50))
@given(st.integers(990, 1310), st.integers(990, 1310))
def test_clipping(lo: int, hi: int) -> None:
    records = list(iter_records(CLIPPED))
    log = CLIPPED
    assert read(log, lo=lo, hi=hi) == [r for r in records if lo <= r.offset < hi]
    assert read(log, lo=lo) == [r for r in records if lo <= r.offset]
    assert read(log, hi=hi) == [r for r in records if r.offset < hi]


def test_nothing_to_read() -> None:
    assert list(decode(b"")) == []
    assert list(decode(LOGS[0], lo=5, hi=10)) == []
    assert list(decode(build_control(ControlType.LEADER_CHANGE, b"", timestamp=0))) == []
    batch = encode_batch([(None, None, (), T0)], codec=Codec.ZSTD)
    assert list(decode(encode_retained(parse_header(batch), []))) == []


@pytest.mark.parametrize("columns", [("offset",), ("value", "timestampType"), ("headers", "key")])
def test_columns_come_in_the_requested_order(columns: Sequence[str]) -> None:
    for log in LOGS[:2]:
        everything = pa.Table.from_batches(list(decode(log, columns=COLUMNS)))
        some = pa.Table.from_batches(list(decode(log, columns=columns)))
        assert some.schema == schema_of(columns)
        assert some.equals(everything.select(list(columns)))


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="topic"):
        list(decode(b"", columns=("value", "topic")))
    with pytest.raises(ValueError, match="expected some of"):
        list(decode(b"", columns=()))


def test_types_are_those_of_sparks_kafka_source() -> None:
    rows: list[NewRecord] = [(b"k", None, [("h", None)], T0), (None, b"v", (), -1)]
    (batch,) = decode(encode_batch(rows), columns=COLUMNS)
    batch.validate(full=True)
    assert batch.schema == schema_of(COLUMNS)
    assert [str(kind) for kind in batch.schema.types] == [
        "binary",
        "binary",
        "int64",
        "timestamp[us, tz=UTC]",
        "int32",
        "list<element: struct<key: string, value: binary>>",
    ]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [T0 * 1000, -1000]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": None}], None]
    assert batch.column("timestampType").to_pylist() == [0, 0]


def test_append_time() -> None:
    batch = bytearray(encode_batch([(None, b"v", (), T0 + i) for i in range(3)]))
    stamp_append_time(batch, 0, 99)
    (columns,) = decode(batch, columns=("timestamp", "timestampType"), timestamp="ms")
    assert columns.to_pydict() == {"timestamp": [99] * 3, "timestampType": [1] * 3}


@pytest.mark.parametrize("timestamp", [T0 * 1_000_000, -(2**62)])
def test_timestamps_that_microseconds_cannot_hold(timestamp: int) -> None:
    """Nanoseconds sent as milliseconds happen: "us" must not wrap, "ms" must read them."""
    batch = encode_batch([(None, b"v", (), timestamp)])
    with pytest.raises(InvalidRecord, match="do not fit microseconds"):
        list(decode(batch))
    assert [r.timestamp for r in read(batch)] == [timestamp]


def test_aborted_transactions_are_left_out() -> None:
    def write(producer_id: int, value: bytes) -> bytes:
        return encode_batch([(None, value, (), T0)], producer_id=producer_id, transactional=True)

    def end(producer_id: int, committed: bool) -> bytes:
        return build_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=T0,
        )

    parts = [write(1, b"a"), write(2, b"b"), end(1, False), end(2, True), write(1, b"c")]
    log = concatenate(parts, base_offset=10)
    assert [r.value for r in read(log)] == [b"a", b"b", b"c"]
    assert [r.value for r in read(log, aborted=[(1, 10)])] == [b"b", b"c"]
    assert [r.value for r in read(log, aborted=[(1, 10)], lo=13)] == [b"c"]
    across = AbortedTransactions([(1, 10)])
    half = len(parts[0])
    assert read(log[:half], aborted=across) == []
    assert [r.value for r in read(log[half:], aborted=across)] == [b"b", b"c"]


def test_a_cut_batch_at_the_end() -> None:
    log = encode_batch([(None, b"v", (), T0)])
    cut = log + log[:-1]
    assert len(read(cut, allow_partial=True)) == 1
    with pytest.raises(CorruptBatch):
        read(cut)


def test_checksums_are_verified() -> None:
    log = bytearray(LOGS[0])
    log[100] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        read(log)
    assert len(read(bytes(log[:17]) + b"\0\0\0\0" + LOGS[0][21:], verify_crc=False)) == len(
        read(LOGS[0])
    )


def test_old_formats_are_named() -> None:
    log = bytearray(LOGS[0])
    log[16] = 1
    with pytest.raises(UnsupportedMagic):
        read(log)


def test_results_do_not_depend_on_the_buffer() -> None:
    log = bytearray(LOGS[0])
    batches = list(decode(log))
    before = [batch.to_pylist() for batch in batches]
    log[:] = bytes(len(log))
    assert [batch.to_pylist() for batch in batches] == before


def outcome(decoder: Any, log: bytes) -> list[Record] | type[Exception]:
    try:
        return list(decoder(log))
    except CorruptBatch:
        return CorruptBatch


@settings(max_examples=examples(600))
@given(st.integers(0, 2**16), st.integers(0, 255), st.sampled_from([20, 3]), st.booleans())
def test_damage_is_judged_as_plain_python_does(at: int, byte: int, count: int, many: bool) -> None:
    """One byte of the records changed, the checksum mended: as a hostile producer could."""
    rng = random.Random(count)
    batch = encode_batch([(b"key", b"v" * rng.randrange(80), [("h", b"x")], T0)] * count)
    section = bytearray(batch[61:])
    section[at % len(section)] = byte
    damaged = seal(parse_header(batch), section)
    log = concatenate([batch] * (40 if many else 0) + [damaged], base_offset=0)
    assert outcome(read, log) == outcome(iter_records, log)


@settings(max_examples=examples(300))
@given(st.binary(max_size=150), st.integers(1, 12))
def test_noise_is_judged_as_plain_python_does(noise: bytes, count: int) -> None:
    header = BatchHeader(0, 0, -1, 2, 0, 0, count, T0, T0, -1, -1, -1, count)
    log = seal(header, noise)
    assert outcome(read, log) == outcome(iter_records, log)


def test_many_headers_in_few_records() -> None:
    """Rounds pay for many records; a single record's headers are walked one by one."""
    rows: list[NewRecord] = [(None, b"v", [("k", b"v")] * 20_000, T0)] * 2
    log = encode_batch(rows + [(None, b"w", [("only", None)], T0)] * 30)
    assert read(log) == list(iter_records(log))


def test_gathering() -> None:
    data = pa.py_buffer(b"..one.two")
    starts, lengths = np.array([2, 5, 6, 9]), np.array([3, -1, 3, 0])
    assert gather(data, starts, lengths).to_pylist() == [b"one", None, b"two", b""]


@pytest.mark.parametrize("field_bytes", [0, 3, 900])
def test_gathering_reserves_what_it_needs(field_bytes: int) -> None:
    """More allocations would be copies of what was gathered before."""
    raw = bytes(range(250)) * 4 * 5000
    starts = np.arange(5000) * 1000
    pool = pa.default_memory_pool()
    allocations, allocated = pool.num_allocations(), pool.total_bytes_allocated()
    found = gather(pa.py_buffer(raw), starts, np.full(5000, field_bytes))
    assert pool.num_allocations() - allocations <= 3
    assert pool.total_bytes_allocated() - allocated < 1.1 * len(raw)
    assert found.to_pylist() == [raw[start : start + field_bytes] for start in starts.tolist()]
