"""Arrow to record batches: varints for all records at once, bytes joined by Arrow.

Each record is six binary columns side by side: everything up to the key, key, the value's
length, value, the number of headers, headers. Joining them element by element yields an array
whose data buffer is the records of all batches one after another; each batch is a slice of it.

Rules are those of `ottla.records.builder`, byte for byte.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.batch import (
    INT32_MAX,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from ottla.records.builder import seal
from ottla.records.columnar.varints import Ints, varint_bytes
from ottla.records.compression import Codec, compress

BATCH_BYTES: Final = 1024 * 1024 - 4096
"""Fits `max.message.bytes`, whose default is 1 MB and 12 bytes, even where nothing compresses."""
BATCH_RECORDS_MAX: Final = 1 << 20
_OVERHEAD_BYTES_MAX = 40
"""Varints and attributes of one record: 5 + 1 + 10 + 5 + 5 + 5 + 5, rounded up."""
_GROUP_BYTES: Final = 64 * 1024 * 1024
"""Joined at once; far below the 2 GB that the offsets of a binary array reach."""

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Columns:
    """The input in the shape that encoding wants; all have the same length."""

    keys: Any
    values: Any
    headers: Any
    timestamps: Ints
    sizes: Ints
    """Bytes of each record, at most."""


def encode(
    batch: Any,
    *,
    timestamp_ms: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    batch_bytes: int = BATCH_BYTES,
) -> list[bytes]:
    """Return the rows of a pyarrow.RecordBatch as record batches, in order.

    Columns: `value` and `key` (binary or string, nullable), `timestamp` (any Arrow timestamp,
             or int64 milliseconds), `headers` (list of struct of key and value). All but
             `value` may be absent; others are ignored.
    Fields:  `timestamp_ms`: for rows without a timestamp.
             `batch_bytes`: a batch's records take at most that many bytes before compression,
             unless a single record takes more.
             `base_sequence`: of the first row, if there is a producer id; later batches go on.
    Raises:  ValueError for a column of another type or a header without a key.
    """
    columns = _columns(batch, timestamp_ms)
    attributes = int(codec) | (TRANSACTIONAL_BIT if transactional else 0)
    sequenced = base_sequence >= 0
    encoded: list[bytes] = []
    for group in _groups(columns.sizes, batch_bytes):
        records, bounds = _encode_group(columns, group)
        for first, last in pairwise(group):
            times = columns.timestamps[first:last]
            header = BatchHeader(
                base_offset + first,
                0,
                leader_epoch,
                MAGIC,
                0,
                attributes,
                last - first - 1,
                int(times[0]),
                int(times.max()),
                producer_id,
                producer_epoch,
                (base_sequence + first) & INT32_MAX if sequenced else -1,
                last - first,
            )
            section = records[int(bounds[first - group[0]]) : int(bounds[last - group[0]])]
            encoded.append(seal(header, compress(codec, section, level)))
    return encoded


def _columns(batch: Any, timestamp_ms: int) -> _Columns:
    names = batch.schema.names
    if "value" not in names:
        raise ValueError(f"no column 'value' among {', '.join(names)}")
    count = batch.num_rows
    values = _binary(batch.column("value"), "value")
    keys = _binary(batch.column("key"), "key") if "key" in names else pa.nulls(count, pa.binary())
    sizes = _lengths(keys) + _lengths(values) + _OVERHEAD_BYTES_MAX
    headers = None
    if "headers" in names and batch.column("headers").null_count < count:
        headers, header_sizes = _header_bytes(batch.column("headers"))
        sizes += header_sizes
    if "timestamp" in names:
        timestamps = _milliseconds(batch.column("timestamp"), timestamp_ms)
    else:
        timestamps = np.full(count, timestamp_ms, np.int64)
    return _Columns(keys, values, headers, timestamps, sizes)


def _binary(column: Any, name: str) -> Any:
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.binary())
    raise ValueError(f"column {name!r} has type {kind}: expected binary or string")


def _lengths(column: Any) -> Ints:
    """Return the fields' lengths, 0 for null."""
    lengths: Ints = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return lengths


def _milliseconds(column: Any, missing: int) -> Ints:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Rounds down, as a clock does; Arrow's own casts truncate towards 1970.
        per_ms = {"s": None, "ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
        ticks = column.cast(pa.int64())
    elif pa.types.is_integer(kind):
        per_ms, ticks = 1, column.cast(pa.int64())
    else:
        raise ValueError(f"column 'timestamp' has type {kind}: expected timestamp or int64")
    present = ticks.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(ticks, 0).to_numpy()
    milliseconds = numbers * 1000 if per_ms is None else numbers // per_ms
    return np.where(present, milliseconds, missing).astype(np.int64)


def _header_bytes(column: Any) -> tuple[Any, Ints]:
    """Return each record's header count and headers as one binary column, and their lengths."""
    if not pa.types.is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        raise ValueError(f"column 'headers' has type {column.type}: expected a list of structs")
    counts: Ints = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    pairs = column.flatten()
    names, values = (_binary(child, "headers") for child in pairs.flatten()[:2])
    if names.null_count:
        raise ValueError("a header has no key")
    if not len(names):
        return _varints(counts), np.ones(len(counts), np.int64)
    value_lengths = np.where(_valid(values), _lengths(values), -1)
    joined = _join(_varints(_lengths(names)), names, _varints(value_lengths), values)
    # All headers lie in one buffer in the records' order: only the boundaries change.
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[: len(joined) + 1]
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    grouped = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(counts),
        [None, pa.py_buffer(offsets[bounds].data), joined.buffers()[2]],
    )
    tails = _join(_varints(counts), grouped)
    return tails, _lengths(tails)


def _valid(column: Any) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _groups(sizes: Ints, batch_bytes: int) -> Iterator[list[int]]:
    """Yield the rows where batches start, group by group, each ending where the next begins."""
    totals = np.concatenate([[0], np.cumsum(sizes)])
    rows = len(sizes)
    group = [0]
    while group[-1] < rows:
        start = group[-1]
        fitting = int(np.searchsorted(totals, totals[start] + batch_bytes, side="right")) - 1
        end = min(max(fitting, start + 1), start + BATCH_RECORDS_MAX, rows)
        if len(group) > 1 and totals[end] - totals[group[0]] > _GROUP_BYTES:
            yield group
            group = [start]
        group.append(end)
    if len(group) > 1:
        yield group


def _encode_group(columns: _Columns, group: list[int]) -> tuple[memoryview, Ints]:
    """Return the records of the group's batches, and where each starts and the last one ends."""
    first, count = group[0], group[-1] - group[0]
    keys, values = columns.keys.slice(first, count), columns.values.slice(first, count)
    times = columns.timestamps[first : group[-1]]
    heads = np.array(group[:-1]) - first
    lengths = np.diff(group)
    deltas = np.arange(count) - heads.repeat(lengths)
    if int(times.max()) - int(times.min()) > _INT64_MAX:
        raise ValueError("timestamps lie too far apart for one batch")
    time_deltas = times - times[heads].repeat(lengths)
    key_lengths = np.where(_valid(keys), _lengths(keys), -1)
    value_lengths = np.where(_valid(values), _lengths(values), -1)
    value_heads = _varints(value_lengths)
    pieces = [value_heads, values]
    tails: Any = pa.scalar(b"\0", pa.binary())  # No headers.
    tail_lengths: Ints | int = 1
    if columns.headers is not None:
        tails = columns.headers.slice(first, count)
        tail_lengths = _lengths(tails)
    parts = [
        (np.zeros((count, 1), np.uint8), np.ones((count, 1), np.bool_)),  # Attributes.
        varint_bytes(time_deltas),
        varint_bytes(deltas),
        varint_bytes(key_lengths),
    ]
    sizes = sum(used.sum(axis=1) for _, used in parts) + np.maximum(key_lengths, 0)
    sizes = sizes + _lengths(value_heads) + np.maximum(value_lengths, 0) + tail_lengths
    heads_column = _flatten([varint_bytes(sizes.astype(np.int64)), *parts])
    joined = _join(heads_column, keys, *pieces, tails)
    bounds = np.frombuffer(joined.buffers()[1], np.int32)[: count + 1].astype(np.int64)
    return memoryview(joined.buffers()[2]), bounds


def _varints(values: Ints) -> Any:
    return _flatten([varint_bytes(values)])


def _flatten(parts: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]]) -> Any:
    """Return a binary array, a row of the matrices' used cells each."""
    cells = parts[0][0] if len(parts) == 1 else np.hstack([cells for cells, _ in parts])
    used = parts[0][1] if len(parts) == 1 else np.hstack([used for _, used in parts])
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(cells), [None, pa.py_buffer(offsets.data), pa.py_buffer(cells[used].data)]
    )


def _join(*pieces: Any) -> Any:
    join: Any = pc.binary_join_element_wise
    separator = pa.scalar(b"", pa.binary())
    joined = join(*pieces, separator, null_handling="replace", null_replacement=b"")
    assert joined.offset == 0
    return joined
