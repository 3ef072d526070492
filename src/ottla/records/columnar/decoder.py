"""Record batches to Arrow: at most one Python step per record, everything else in arrays.

1. Hop from record to record by their lengths: the one loop, 0.1 us a record; records of equal
   length in a row are found at once, and where a chunk has many batches, these advance side by
   side in numpy instead.
2. Decode every other varint of the chunk at once, and check that each record's cursor ends where
   the record does.
3. Gather keys and values without touching their bytes here: the boundaries [start, end, start,
   end, ...] over the raw buffer make a binary array whose even slots are the wanted fields, and
   Arrow's `take` compacts these.

Rules and errors are those of `ottla.records.record`, record for record.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import (
    LOG_APPEND_TIME_BIT,
    RECORD_SIZE_MIN,
    RECORDS_AT,
    BatchHeader,
    check_crc,
    iter_headers,
)
from ottla.records.columnar.fields import Fields, locate
from ottla.records.columnar.hops import find_records
from ottla.records.columnar.varints import Ints
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Buffer, Codec
from ottla.records.errors import InvalidRecord
from ottla.records.record import read_records, record_bytes

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
"""What `decode` can make; names and types are those of Spark's own Kafka source."""

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TimestampUnit = Literal["us", "ms"]

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Records decoded at once: enough to amortise numpy's calls, little enough for the caches."""
SPAN_BYTES_MAX: Final = 1 << 30
"""From a chunk's first byte to its last, so that 32-bit offsets of Arrow arrays hold them."""

_MICROSECONDS_MS_MAX = (2**63 - 1) // 1000
_ALL = ("key", "value", "offset", "timestamp", "timestampType")


def schema_of(columns: Sequence[str] = _ALL, *, timestamp: TimestampUnit = "us") -> Any:
    """Return the Arrow schema of what `decode` yields for the same arguments."""
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC") if timestamp == "us" else pa.int64(),
        "timestampType": pa.int32(),
        "headers": HEADERS_TYPE,
    }
    unknown = [name for name in columns if name not in types]
    if unknown or not columns:
        raise ValueError(f"columns {unknown} are unknown: expected some of {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, types[name]) for name in columns])


def decode(
    buffer: Buffer,
    *,
    lo: int | None = None,
    hi: int | None = None,
    columns: Sequence[str] = _ALL,
    timestamp: TimestampUnit = "us",
    aborted: AbortedTransactions | Iterable[tuple[int, int]] = (),
    allow_partial: bool = False,
    verify_crc: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Any]:
    """Yield pyarrow.RecordBatch after RecordBatch of the records in a partition's batches.

    Fields: `lo`, `hi`: only offsets in [lo, hi).
            `timestamp`: "us" gives timestamp[us, UTC], "ms" the int64 of the wire.
            `aborted`: pairs (producer id, first offset), left out as read_committed does; an
            `AbortedTransactions` where one reader goes through several buffers.
            `allow_partial`: end silently at a batch cut by the buffer's end, as fetches have.
            `verify_crc`: False = trust the bytes, where something else has checked them.
            `chunk_bytes`: about how many bytes of records make one RecordBatch.
            `limit`: bytes that one batch's records may take, decompressed.
    Order:  offsets ascend as in the log. Control batches never show; every batch that is
            decoded has its checksum verified, unless that is off. Yielded arrays do not refer
            to `buffer`.
    Raises: CorruptBatch, UnsupportedMagic; ValueError for unknown columns. A timestamp that
            microseconds cannot express is an InvalidRecord, so ask for "ms" to read it.
    """
    schema = schema_of(columns, timestamp=timestamp)
    if not isinstance(aborted, AbortedTransactions):
        aborted = AbortedTransactions(aborted)
    low = 0 if lo is None else lo
    high = 2**63 - 1 if hi is None else hi
    selected = _select(buffer, low, high, aborted, allow_partial, verify_crc, limit)
    for chunk in _chunks(buffer, selected, chunk_bytes, limit):
        batch, offsets = _decode_chunk(chunk, schema)
        clipped = _clip(batch, offsets, low, high)
        if clipped.num_rows:
            yield clipped


def _select(
    buffer: Buffer,
    lo: int,
    hi: int,
    aborted: AbortedTransactions,
    allow_partial: bool,
    verify_crc: bool,
    limit: int,
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches that have records to show, their checksums verified if `verify_crc`."""
    for position, header in iter_headers(buffer, allow_partial=allow_partial):
        if header.base_offset >= hi:
            return
        if header.is_control:
            if verify_crc:
                check_crc(buffer, position, header)
            aborted.drops(buffer, position, header)  # A marker may end a transaction.
            continue
        if aborted.drops(buffer, position, header) or header.next_offset <= lo:
            continue
        if verify_crc:
            check_crc(buffer, position, header)
        if header.record_count:
            yield position, header
        else:
            read_records(buffer, position, header, limit=limit)  # It must indeed be empty.


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some batches' records in one buffer: batch i is raw[starts[i]:ends[i]]."""

    raw: Buffer
    starts: list[int]
    ends: list[int]
    headers: list[BatchHeader]


def _chunks(
    buffer: Buffer, selected: Iterator[tuple[int, BatchHeader]], chunk_bytes: int, limit: int
) -> Iterator[_Chunk]:
    """Group the batches into chunks, decompressed."""
    group: list[tuple[int, BatchHeader, bytes | None]] = []
    size = 0
    for position, header in selected:
        body = None
        length = header.size_in_bytes - RECORDS_AT
        if header.compression is not Codec.NONE or length > limit:
            body = record_bytes(buffer, position, header, limit=limit)
            length = len(body)
        if header.record_count * RECORD_SIZE_MIN > length:
            raise InvalidRecord(f"{length} bytes cannot hold {header.record_count} records")
        if group and (
            size + length > chunk_bytes
            or position + header.size_in_bytes - group[0][0] > SPAN_BYTES_MAX
        ):
            yield _chunk(buffer, group)
            group, size = [], 0
        group.append((position, header, body))
        size += length
    if group:
        yield _chunk(buffer, group)


def _chunk(buffer: Buffer, group: list[tuple[int, BatchHeader, bytes | None]]) -> _Chunk:
    headers = [header for _, header, _ in group]
    if all(body is None for _, _, body in group):
        # Single bytes are read faster from `bytes` than from a view; neither copies here.
        small = isinstance(buffer, bytes) and len(buffer) <= SPAN_BYTES_MAX
        first = 0 if small else group[0][0]
        starts = [position - first + RECORDS_AT for position, _, _ in group]
        ends = [position - first + header.size_in_bytes for position, header, _ in group]
        raw = buffer if small else memoryview(buffer)[first : first + ends[-1]]
        return _Chunk(raw, starts, ends, headers)
    view = memoryview(buffer)
    bodies: list[bytes | memoryview] = [
        view[position + RECORDS_AT : position + header.size_in_bytes] if body is None else body
        for position, header, body in group
    ]
    ends = np.cumsum([len(body) for body in bodies]).tolist()
    joined = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    return _Chunk(joined, [0, *ends[:-1]], ends, headers)


def _decode_chunk(chunk: _Chunk, schema: Any) -> tuple[Any, Ints]:
    """Return the chunk's records as a RecordBatch, and their offsets."""
    headers = chunk.headers
    counts = np.array([header.record_count for header in headers], np.int64)
    raw = np.frombuffer(chunk.raw, np.uint8)
    starts = find_records(chunk.raw, raw, chunk.starts, chunk.ends, counts)
    fields = locate(raw, starts, np.array(chunk.ends, np.int64), counts)
    offsets = _offsets(fields.offset_deltas, headers, counts)
    data = pa.py_buffer(chunk.raw)
    arrays: list[Any] = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        if name == "key":
            arrays.append(gather(data, fields.key_starts, fields.key_lengths))
        elif name == "value":
            arrays.append(gather(data, fields.value_starts, fields.value_lengths))
        elif name == "offset":
            arrays.append(pa.array(offsets))
        elif name == "timestamp":
            arrays.append(_timestamps(fields.timestamp_deltas, headers, counts, kind))
        elif name == "timestampType":
            types = np.array([header.timestamp_type for header in headers], np.int32)
            arrays.append(pa.array(types.repeat(counts)))
        else:
            arrays.append(_headers(data, fields))
    if "timestamp" not in schema.names:
        _milliseconds(fields.timestamp_deltas, headers, counts)  # For its checks.
    return pa.RecordBatch.from_arrays(arrays, schema=schema), offsets


def gather(data: Any, starts: Ints, lengths: Ints) -> Any:
    """Return the binary array of the fields at `starts` in `data`; a negative length is null."""
    count = len(starts)
    sizes = np.maximum(lengths, 0)
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1:-1:2] = starts + sizes
    bounds[-1] = bounds[-2]  # The last slot is empty.
    slots = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds.data), data]
    )
    # `take` reserves the slots' mean size for each index, about half of what large fields need, and
    # then copies what it has to larger memory. Indices of the empty slot make it reserve enough.
    spanned = int(bounds[-1]) - int(bounds[0])
    spare = max(0, 2 * count * int(sizes.sum()) // max(spanned, 1) + 1 - count)
    wanted = np.full(count + spare, 2 * count - 1, np.int32)
    wanted[:count] = np.arange(0, 2 * count, 2, dtype=np.int32)
    null = lengths < 0
    mask = np.concatenate((null, np.zeros(spare, np.bool_))) if null.any() else None
    indices: Any = pa.array(wanted, mask=mask)
    return slots.take(indices).slice(0, count)


def _offsets(deltas: Ints, headers: list[BatchHeader], counts: Ints) -> Ints:
    """Return the records' offsets; they must ascend within their batch's own range."""
    last_deltas = np.array([header.last_offset_delta for header in headers], np.int64)
    bases = np.array([header.base_offset for header in headers], np.int64)
    ascending = np.empty(len(deltas), np.bool_)
    np.greater(deltas[1:], deltas[:-1], out=ascending[1:])
    firsts = np.cumsum(counts) - counts
    ascending[firsts] = deltas[firsts] >= 0
    if not ascending.all() or (deltas > last_deltas.repeat(counts)).any():
        raise InvalidRecord("offset deltas do not ascend from 0 to the batch's last one")
    return deltas + bases.repeat(counts)


def _milliseconds(deltas: Ints, headers: list[BatchHeader], counts: Ints) -> Ints:
    bases = np.array([header.base_timestamp for header in headers], np.int64)
    base = bases.repeat(counts)
    with np.errstate(over="ignore"):
        milliseconds = base + deltas
    # The sum overflowed where its sign differs from both of its terms'.
    if (((base ^ milliseconds) & (deltas ^ milliseconds)) < 0).any():
        raise InvalidRecord("a record's timestamp exceeds 64 bits")
    appended = np.array([bool(h.attributes & LOG_APPEND_TIME_BIT) for h in headers])
    if appended.any():
        latest = np.array([header.max_timestamp for header in headers], np.int64)
        milliseconds = np.where(appended.repeat(counts), latest.repeat(counts), milliseconds)
    return milliseconds


def _timestamps(deltas: Ints, headers: list[BatchHeader], counts: Ints, kind: Any) -> Any:
    milliseconds = _milliseconds(deltas, headers, counts)
    if kind == pa.int64():
        return pa.array(milliseconds)
    lowest, highest = int(milliseconds.min()), int(milliseconds.max())
    if lowest < -_MICROSECONDS_MS_MAX or highest > _MICROSECONDS_MS_MAX:
        raise InvalidRecord(f"timestamps {lowest} to {highest} ms do not fit microseconds")
    return pa.array(milliseconds * 1000).view(kind)


def _headers(data: Any, fields: Fields) -> Any:
    """Return the list column of headers: null, not empty, where there are none."""
    counts = fields.header_counts
    none = counts == 0
    bounds = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    if bounds[-1]:
        found = fields.headers
        try:
            names = gather(data, found.key_starts, found.key_lengths).cast(pa.string())
        except pa.ArrowInvalid:
            raise InvalidRecord("a header's key is not UTF-8") from None
        values = gather(data, found.value_starts, found.value_lengths)
    else:
        names, values = pa.array([], pa.string()), pa.array([], pa.binary())
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
    offsets: Any = pa.array(bounds)
    absent = pa.array(none) if none.any() else None
    return pa.ListArray.from_arrays(offsets, pairs, type=HEADERS_TYPE, mask=absent)


def _clip(batch: Any, offsets: Ints, lo: int, hi: int) -> Any:
    inside = np.flatnonzero((offsets >= lo) & (offsets < hi))
    if len(inside) == len(offsets):
        return batch
    if not len(inside):
        return batch.slice(0, 0)
    first, last = int(inside[0]), int(inside[-1])
    if last - first + 1 == len(inside):
        return batch.slice(first, len(inside))
    return batch.take(pa.array(inside))
