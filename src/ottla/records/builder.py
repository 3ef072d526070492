"""Building record batches: new ones, what compaction retains of old ones, and recompression.

Sources: Kafka's MemoryRecordsBuilder, MemoryRecords.filterTo; KIP-534 (delete horizon).
"""

import struct
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from ottla.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    restamp,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Buffer, Codec, compress
from ottla.records.record import Record, record_bytes
from ottla.records.varint import encode_varint

HeaderPairs = Iterable[tuple[str, bytes | None]]
NewRecord = tuple[bytes | None, bytes | None, HeaderPairs, int]
"""Key, value, headers, timestamp in milliseconds."""

_CRC = struct.Struct(">I")
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def encode_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytes:
    """Return one batch of these records, at consecutive offsets.

    With LOG_APPEND_TIME, readers take the largest of the timestamps for all records.

    Raises: ValueError without any record: only compaction leaves empty batches.
    """
    rows = list(records)
    if not rows:
        raise ValueError("a batch must hold at least one record")
    base_timestamp = rows[0][3]
    parts: list[bytes] = []
    for delta, (key, value, headers, timestamp) in enumerate(rows):
        _append_record(parts, timestamp - base_timestamp, delta, key, value, headers)
    attributes = (
        codec
        | (LOG_APPEND_TIME_BIT if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(rows) - 1,
        base_timestamp,
        max(row[3] for row in rows),
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    return seal(header, compress(codec, b"".join(parts), level))


def encode_retained(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return the batch of `header` with only these of its records.

    Offsets, producer fields, codec and the batch's own offset range stay, so that producers'
    sequences survive compaction even in a batch that became empty.

    Fields: `delete_horizon_ms`: when the batch's tombstones may be removed; None = unchanged.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    max_timestamp = header.max_timestamp
    if records and not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = max(record.timestamp for record in records)
    parts: list[bytes] = []
    for offset, timestamp, key, value, headers in records:
        delta = offset - header.base_offset
        assert 0 <= delta <= header.last_offset_delta
        _append_record(parts, timestamp - base_timestamp, delta, key, value, headers)
    retained = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(records),
    )
    body = b"".join(parts)
    return seal(retained, compress(header.compression, body, level) if records else b"")


def recompress(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    codec: Codec,
    *,
    level: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Return the same batch with its records under another codec; they are not parsed.

    Raises: CorruptBatch where they cannot be decompressed within `limit` bytes.
    """
    data = record_bytes(buffer, position, header, limit=limit)
    attributes = header.attributes & ~CODEC_MASK | codec
    return seal(header._replace(attributes=attributes), compress(codec, data, level))


def seal(header: BatchHeader, section: Buffer) -> bytes:
    """Return the batch of this header and these (compressed) records; length and CRC are set."""
    base_offset, _length, *others = header
    length = HEADER_SIZE - LOG_OVERHEAD + len(section)
    batch = bytearray(HEADER_SIZE + len(section))
    HEADER.pack_into(batch, 0, base_offset, length, *others)
    batch[HEADER_SIZE:] = section
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_AT:])
    _CRC.pack_into(batch, CRC_AT, crc)
    return bytes(batch)


def _append_record(
    parts: list[bytes],
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: HeaderPairs,
) -> None:
    fields = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    _append_field(fields, key)
    _append_field(fields, value)
    pairs = tuple(headers)
    if pairs:
        fields.append(encode_varint(len(pairs)))
        for name, content in pairs:
            _append_field(fields, name.encode())
            _append_field(fields, content)
    else:
        fields.append(_NO_HEADERS)
    record = b"".join(fields)
    parts += (encode_varint(len(record)), record)


def _append_field(fields: list[bytes], content: bytes | None) -> None:
    if content is None:
        fields.append(_NULL)
    else:
        fields += (encode_varint(len(content)), content)


def concatenate(batches: Iterable[bytes], *, base_offset: int, leader_epoch: int = -1) -> bytes:
    """Return the batches one after another, stamped with consecutive offsets: a log's content."""
    log = bytearray()
    for batch in batches:
        position = len(log)
        log += batch
        restamp(log, position, base_offset=base_offset, leader_epoch=leader_epoch)
        base_offset += HEADER.unpack_from(log, position)[6] + 1
    return bytes(log)
