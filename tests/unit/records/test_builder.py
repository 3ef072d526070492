"""Batches must come back as they went in, for us and for other clients' readers.

Method: hypothesis round trips; aiokafka's and kafka-python's readers on ours; compaction's
and recompression's results against the batch they came from.
"""

from typing import Any

import aiokafka.record._crecords as aiokafka_cython
import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import check_crc, check_produced, iter_headers, parse_header
from ottla.records.builder import (
    NewRecord,
    concatenate,
    encode_batch,
    encode_retained,
    recompress,
)
from ottla.records.compression import Codec
from ottla.records.record import Record, check_records, iter_records
from tests.drawn import examples

T0 = 1_700_000_000_000
FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=4)
ROW = st.tuples(FIELD, FIELD, HEADERS, st.integers(0, 2**62))
ROWS = [
    (b"key", b"value", [("a", b"1"), ("", None), ("é", b"")], T0),
    (None, b"x" * 70_000, [], T0 + 5),
    (b"", None, [("b", b"z" * 200)], T0 - 86_400_000),
    (b"%d" % 7, b"v", [], 0),
]
READERS: list[tuple[Any, set[Codec]]] = [
    (aiokafka_cython.default_records.DefaultRecordBatch, set(Codec)),
    (aiokafka_records._DefaultRecordBatchPy, set(Codec)),
    (kafka_records.DefaultRecordBatch, {Codec.NONE, Codec.GZIP, Codec.LZ4}),
]
CASES = [(reader, codec) for reader, codecs in READERS for codec in sorted(codecs)]


def as_records(rows: list[NewRecord], base_offset: int) -> list[Record]:
    return [
        Record(base_offset + i, timestamp, key, value, tuple(headers))
        for i, (key, value, headers, timestamp) in enumerate(rows)
    ]


@settings(max_examples=examples(200))
@given(st.lists(ROW, min_size=1, max_size=20), st.sampled_from(Codec), st.integers(0, 2**62))
def test_round_trip(rows: list[NewRecord], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(rows, codec=codec, base_offset=base_offset, leader_epoch=4)
    header = parse_header(batch)
    assert list(iter_records(batch)) == as_records(rows, base_offset)
    assert header.compression is codec
    assert header.max_timestamp == max(row[3] for row in rows)
    assert header.next_offset == base_offset + len(rows)
    assert header.partition_leader_epoch == 4
    summary = check_records(batch, 0, header)
    assert summary.timestamp_min == min(row[3] for row in rows)
    assert summary.timestamp_max == header.max_timestamp
    assert summary.has_null_key == any(row[0] is None for row in rows)


@pytest.mark.parametrize(("reader", "codec"), CASES)
def test_other_clients_read_ours(reader: Any, codec: Codec) -> None:
    batch = encode_batch(
        ROWS,
        base_offset=900,
        codec=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=11,
        transactional=True,
    )
    theirs = reader(bytearray(batch))
    assert theirs.validate_crc()
    assert theirs.is_transactional
    assert not theirs.is_control_batch
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (5, 2, 11)
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == as_records(ROWS, 900)


def test_no_records_make_no_batch() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


def test_a_built_batch_may_be_produced() -> None:
    check_produced(parse_header(encode_batch(ROWS)))
    idempotent = encode_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=0)
    check_produced(parse_header(idempotent))


@pytest.mark.parametrize("codec", Codec)
def test_recompression_changes_nothing_else(codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=Codec.GZIP, base_offset=3, producer_id=5, base_sequence=1)
    header = parse_header(batch)
    again = recompress(batch, 0, header, codec)
    fresh = parse_header(again)
    check_crc(again, 0, fresh)
    assert fresh.compression is codec
    assert fresh._replace(batch_length=0, crc=0, attributes=0) == header._replace(
        batch_length=0, crc=0, attributes=0
    )
    assert list(iter_records(again)) == list(iter_records(batch))


@pytest.mark.parametrize("codec", Codec)
def test_compaction_keeps_offsets_and_producer(codec: Codec) -> None:
    batch = encode_batch(ROWS, codec=codec, base_offset=30, producer_id=5, base_sequence=1)
    header = parse_header(batch)
    records = list(iter_records(batch))
    kept = encode_retained(header, records[1::2])
    fresh = parse_header(kept)
    assert list(iter_records(kept)) == records[1::2]
    assert (fresh.base_offset, fresh.last_offset) == (30, 33)
    assert (fresh.producer_id, fresh.last_sequence) == (5, header.last_sequence)
    assert fresh.max_timestamp == T0 + 5
    assert encode_retained(header, records) == batch


def test_compaction_may_empty_a_batch() -> None:
    header = parse_header(encode_batch(ROWS, codec=Codec.ZSTD, producer_id=5, base_sequence=1))
    emptied = encode_retained(header, [])
    fresh = parse_header(emptied)
    check_crc(emptied, 0, fresh)
    assert list(iter_records(emptied)) == []
    assert (fresh.record_count, fresh.next_offset, fresh.last_sequence) == (0, 4, 4)
    assert fresh.max_timestamp == header.max_timestamp


def test_a_delete_horizon_moves_the_base_timestamp_only() -> None:
    batch = encode_batch(ROWS)
    records = list(iter_records(batch))
    marked = encode_retained(parse_header(batch), records, delete_horizon_ms=T0 + 99)
    header = parse_header(marked)
    assert header.has_delete_horizon
    assert header.base_timestamp == T0 + 99
    assert list(iter_records(marked)) == records
    assert list(iter_records(encode_retained(header, records))) == records  # And it stays.
    assert parse_header(encode_retained(header, records)).base_timestamp == T0 + 99


def test_concatenating() -> None:
    log = concatenate(
        [encode_batch(ROWS), encode_batch(ROWS[:1], codec=Codec.LZ4)],
        base_offset=50,
        leader_epoch=2,
    )
    assert [r.offset for r in iter_records(log)] == [50, 51, 52, 53, 54]
    assert [h.partition_leader_epoch for _, h in iter_headers(log)] == [2, 2]
