"""Arrow columns must become the very bytes that the plain builder writes.

Method: hypothesis over rows, sizes and codecs, compared byte for byte with `encode_batch` and read
back; column types as Spark and users bring them; aiokafka as a witness.
"""

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import iter_headers
from ottla.records.builder import NewRecord, encode_batch
from ottla.records.columnar import COLUMNS, HEADERS_TYPE, decode, encode
from ottla.records.compression import Codec
from ottla.records.record import Record, iter_records
from tests.drawn import examples

T0 = 1_700_000_000_000
FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
ROW = st.tuples(FIELD, FIELD, HEADERS, st.integers(-1, 2**62))


def table(rows: list[NewRecord]) -> Any:
    """Return the rows as a RecordBatch of the columns that `encode` takes."""
    keys, values, headers, timestamps = zip(*rows, strict=True)
    pairs = [[{"key": k, "value": v} for k, v in hs] if hs else None for hs in headers]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(pairs, HEADERS_TYPE),
            pa.array(timestamps, pa.int64()),
        ],
        names=["key", "value", "headers", "timestamp"],
    )


def rows_of(batches: list[bytes]) -> list[NewRecord]:
    return [(r.key, r.value, list(r.headers), r.timestamp) for r in iter_records(b"".join(batches))]


@settings(max_examples=examples(200))
@given(st.lists(ROW, min_size=1, max_size=20), st.sampled_from(Codec))
def test_equal_to_the_plain_builder(rows: list[NewRecord], codec: Codec) -> None:
    options: dict[str, Any] = {
        "codec": codec,
        "base_offset": 40,
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 9,
        "leader_epoch": 2,
        "transactional": True,
    }
    assert encode(table(rows), timestamp_ms=0, **options) == [encode_batch(rows, **options)]


@settings(max_examples=examples(100))
@given(st.lists(ROW, min_size=1, max_size=30), st.integers(1, 2000))
def test_batches_are_bounded_and_lose_nothing(rows: list[NewRecord], batch_bytes: int) -> None:
    batches = encode(table(rows), timestamp_ms=0, batch_bytes=batch_bytes, base_offset=7)
    assert rows_of(batches) == rows
    headers = [header for batch in batches for _, header in iter_headers(batch)]
    for header in headers:
        assert header.record_count == 1 or header.size_in_bytes <= batch_bytes + 61
    assert [h.base_offset for h in headers] == [7, *(h.next_offset for h in headers[:-1])]


@given(st.lists(ROW, min_size=2, max_size=20), st.data())
def test_slices_of_larger_arrays(rows: list[NewRecord], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    assert rows_of(encode(table(rows).slice(start), timestamp_ms=0)) == rows[start:]


def test_sequences_go_on_and_wrap() -> None:
    rows: list[NewRecord] = [(None, bytes(100), (), T0)] * 4
    batches = encode(
        table(rows), timestamp_ms=0, batch_bytes=300, producer_id=1, base_sequence=2**31 - 2
    )
    headers = [header for batch in batches for _, header in iter_headers(batch)]
    assert [(h.base_sequence, h.record_count) for h in headers] == [(2**31 - 2, 2), (0, 2)]


def test_what_decode_yields_goes_back_in() -> None:
    rows: list[NewRecord] = [
        (b"k" * (i % 70), b"v" * i, [("h", b"%d" % i)] * (i % 3), T0 + i) for i in range(500)
    ]
    (columns,) = decode(encode_batch(rows), columns=COLUMNS)
    assert rows_of(encode(columns, timestamp_ms=0, batch_bytes=10_000)) == rows


def test_aiokafka_reads_it() -> None:
    rows: list[NewRecord] = [(b"k", b"v" * i, [("h", None)], T0 + i) for i in range(100)]
    for codec in Codec:
        (batch,) = encode(table(rows), timestamp_ms=0, codec=codec)
        theirs = aiokafka_records.DefaultRecordBatch(bytearray(batch))
        assert theirs.validate_crc()
        assert [(r.key, r.value, list(r.headers), r.timestamp) for r in theirs] == rows


def test_only_a_value_is_needed() -> None:
    batch = pa.record_batch({"value": [b"a", None], "other": [1, 2]})
    (encoded,) = encode(batch, timestamp_ms=T0)
    assert list(iter_records(encoded)) == [Record(0, T0, None, b"a"), Record(1, T0, None, None)]
    with pytest.raises(ValueError, match="no column 'value'"):
        encode(pa.record_batch({"key": [b"a"]}), timestamp_ms=T0)


def test_no_rows_make_no_batches() -> None:
    assert encode(table([(None, None, (), 0)]).slice(1), timestamp_ms=0) == []
    assert encode(pa.record_batch({"value": pa.array([], pa.binary())}), timestamp_ms=0) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_text_and_large_columns(kind: pa.DataType) -> None:
    batch = pa.record_batch(
        {"key": pa.array(["é", None], kind), "value": pa.array(["a", "b"], kind)}
    )
    rows = rows_of(encode(batch, timestamp_ms=T0))
    assert [row[:2] for row in rows] == [("é".encode(), b"a"), (None, b"b")]


def test_columns_of_nulls_only() -> None:
    batch = pa.record_batch(
        {
            "key": pa.nulls(2),
            "value": pa.nulls(2),
            "headers": pa.nulls(2, HEADERS_TYPE),
            "timestamp": pa.nulls(2, pa.timestamp("us", tz="UTC")),
        }
    )
    assert rows_of(encode(batch, timestamp_ms=T0)) == [(None, None, [], T0)] * 2


def test_headers_that_are_all_empty() -> None:
    batch = pa.record_batch({"value": [b"a", b"b"], "headers": pa.array([[], None], HEADERS_TYPE)})
    assert rows_of(encode(batch, timestamp_ms=T0)) == [(None, v, [], T0) for v in (b"a", b"b")]


@pytest.mark.parametrize(
    ("unit", "ticks", "milliseconds"),
    [
        ("s", [5, None, -1], [5000, T0, -1000]),
        ("ms", [5, None, -1], [5, T0, -1]),
        ("us", [5999, None, -1], [5, T0, -1]),
        ("ns", [5_999_999, None, -1], [5, T0, -1]),
    ],
)
def test_timestamps_of_any_unit(unit: str, ticks: list[int], milliseconds: list[int]) -> None:
    times = pa.array(ticks, pa.int64()).view(pa.timestamp(unit))
    batch = pa.record_batch({"value": pa.nulls(3, pa.binary()), "timestamp": times})
    assert [row[3] for row in rows_of(encode(batch, timestamp_ms=T0))] == milliseconds


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("value", pa.array([1])),
        ("key", pa.array([1.5])),
        ("timestamp", pa.array(["now"])),
        ("headers", pa.array([b"h"])),
        ("headers", pa.array([[b"h"]])),
        ("headers", pa.array([[{"key": None, "value": b"v"}]], HEADERS_TYPE)),
    ],
)
def test_other_types_are_refused(column: str, array: pa.Array) -> None:
    columns = {"value": pa.array([b"v"]), column: array}
    with pytest.raises(ValueError, match=r"expected|no key"):
        encode(pa.record_batch(columns), timestamp_ms=T0)


def test_timestamps_too_far_apart() -> None:
    batch = table([(None, None, (), -(2**62)), (None, None, (), 2**62 + 1)])
    with pytest.raises(ValueError, match="too far apart"):
        encode(batch, timestamp_ms=0)


def test_more_rows_than_are_joined_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.records.columnar import encoder

    monkeypatch.setattr(encoder, "_GROUP_BYTES", 1000)
    rows: list[NewRecord] = [(None, b"%d" % i * 30, [("h", b"v")], T0 + i) for i in range(100)]
    assert rows_of(encode(table(rows), timestamp_ms=0, batch_bytes=400)) == rows
