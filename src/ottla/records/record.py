"""Records in plain Python: for coordinators' replay, compaction, tools and tests.

A record of format 2 is a length, one unused byte of attributes, the deltas of timestamp and
offset, then key, value and headers, all lengths being varints (-1 = null). Bulk decoding has its
own vectorised module, `columnar`, which keeps exactly the rules of this one.

Sources: KIP-98, KIP-82 (headers); Kafka's DefaultRecord, LogValidator.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.records.batch import (
    BATCH_LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    RECORD_SIZE_MIN,
    RECORDS_AT,
    BatchHeader,
    check_crc,
    iter_headers,
)
from ottla.records.checking import UNBOUNDED, check_sequence
from ottla.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Buffer,
    Codec,
    Expanded,
    check_single,
    expand,
)
from ottla.records.errors import CorruptBatch, InvalidRecord
from ottla.records.varint import ZIGZAG, read_varint, read_varlong

_new = tuple.__new__
"""Makes a named tuple in a third of the time of its class: this is done for each record."""

Headers = tuple[tuple[str, bytes | None], ...]

TIMESTAMP_MIN: Final = -(2**63)
TIMESTAMP_MAX: Final = 2**63 - 1

NULL: Final = 1
"""The varint of -1, the length of what is null."""
NULL_KEYS_MAX: Final = 1_000
"""Records without a key that an error lists; the whole batch is refused in any case."""


class Record(NamedTuple):
    """One record, with its absolute offset and its timestamp in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordsSummary(NamedTuple):
    """The result of `check_records`, for the broker's further checks.

    Fields: `size_in_bytes`: of the records, decompressed; `steps`: what is left of those given.
    """

    timestamp_min: int
    timestamp_max: int
    has_null_key: bool
    size_in_bytes: int = 0
    steps: int = UNBOUNDED


def iter_records(
    buffer: Buffer,
    *,
    verify_crc: bool = True,
    include_control: bool = False,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Yield the records of all batches in `buffer`, which must hold whole batches.

    Control batches are left out unless asked for: their keys and values are not the topic's.
    A batch is decoded as a whole before its first record is yielded.

    Fields: `limit`: bytes that any one batch may decompress to.
    Raises: CorruptBatch, UnsupportedMagic.
    """
    for position, header in iter_headers(buffer):
        if verify_crc:
            check_crc(buffer, position, header)
        if include_control or not header.is_control:
            yield from read_records(buffer, position, header, limit=limit)


def read_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Return the records of one batch, in order; offsets may have gaps, as compaction leaves.

    Raises: CorruptBatch, or its child InvalidRecord where the bytes are sound but the records
            do not fill them exactly, leave the header's offsets or go back.
    """
    data = record_bytes(buffer, position, header, limit=limit)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.attributes & LOG_APPEND_TIME_BIT
    delta_max = header.last_offset_delta
    found: list[Record] = []
    cursor = 0
    delta_before = -1
    try:
        for _ in range(header.record_count):
            timestamp, delta, key_at, key_length, value_at, value_length, cursor, count, end = (
                _fields_at(data, cursor)
            )
            headers, cursor = _headers_at(data, cursor, count) if count else ((), cursor)
            # Cursors only grow, so this also proves that no slice before it was cut short.
            if cursor != end or end > len(data):
                raise _wrong_end(cursor, end)
            if not delta_before < delta <= delta_max:
                raise _wrong_delta(delta, delta_before, header)
            delta_before = delta
            timestamp += base_timestamp
            if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                raise InvalidRecord("a record's timestamp exceeds 64 bits")
            found.append(
                _new(
                    Record,
                    (
                        base_offset + delta,
                        header.max_timestamp if fixed_timestamp else timestamp,
                        None if key_length < 0 else data[key_at : key_at + key_length],
                        None if value_length < 0 else data[value_at : value_at + value_length],
                        headers,
                    ),
                )
            )
    except IndexError:
        raise _too_few(header, len(found)) from None
    if cursor != len(data):
        raise InvalidRecord(f"{len(data) - cursor} bytes follow the batch's last record")
    return found


def check_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
    steps: int = UNBOUNDED,
) -> RecordsSummary:
    """Check one batch as Kafka checks a producer's; return a summary for the topic's own checks.

    Beyond what `read_records` checks, the offset deltas must be 0, 1, 2, ...; see `checking`.

    Raises: CorruptBatch, InvalidRecord; StepsExhausted. Source: LogValidator.
    """
    data, size = expanded_records(buffer, position, header, limit=limit)
    codec = header.compression
    if codec is not Codec.NONE and header.batch_length > BATCH_LENGTH_MIN:
        with memoryview(buffer) as view:
            check_single(codec, view[position + RECORDS_AT : position + header.size_in_bytes])
    count = header.record_count
    found = check_sequence(data, count, steps, size=size)
    if header.last_offset_delta != count - 1:
        raise InvalidRecord(f"{count} records, last offset delta {header.last_offset_delta}")
    oldest = newest = header.max_timestamp
    if count and not header.attributes & LOG_APPEND_TIME_BIT:
        oldest = header.base_timestamp + found.delta_min
        newest = header.base_timestamp + found.delta_max
        if oldest < TIMESTAMP_MIN or newest > TIMESTAMP_MAX:
            raise InvalidRecord("a record's timestamp exceeds 64 bits")
    return RecordsSummary(oldest, newest, found.has_null_key, size, found.steps)


def null_keys(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
    count_max: int = NULL_KEYS_MAX,
) -> tuple[int, ...]:
    """Return the first indexes of the records without a key in a batch that was checked."""
    data, _ = expanded_records(buffer, position, header, limit=limit)
    found: list[int] = []
    cursor = 0
    for index in range(header.record_count):
        length, cursor = read_varint(data, cursor)
        end = cursor + length
        _, cursor = read_varlong(data, cursor + 1)
        _, cursor = read_varint(data, cursor)
        if data[cursor] == NULL:
            found.append(index)
            if len(found) == count_max:
                break
        cursor = end
    return tuple(found)


def find_timestamp(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    timestamp: int,
    start_offset: int = 0,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int, int] | None:
    """Return offset and timestamp of the first record that is not before a time, or an offset.

    Reads only length and deltas of each record up to that one.
    Raises: CorruptBatch where these are malformed.
    """
    data, size = expanded_records(buffer, position, header, limit=limit)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.attributes & LOG_APPEND_TIME_BIT
    cursor = 0
    try:
        for _ in range(header.record_count):
            length, cursor = read_varint(data, cursor)
            end = cursor + length
            found, cursor = read_varlong(data, cursor + 1)
            found = header.max_timestamp if fixed_timestamp else base_timestamp + found
            if found >= timestamp:
                delta, cursor = read_varint(data, cursor)
                if base_offset + delta >= start_offset:
                    return base_offset + delta, found
            if not cursor < end <= size:
                raise InvalidRecord(f"a record has length {length}")
            cursor = end
    except IndexError:
        raise InvalidRecord("a batch's records are cut") from None
    return None


def record_bytes(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """Return the records of one batch, decompressed but not parsed; see `expanded_records`."""
    data, size = expanded_records(buffer, position, header, limit=limit)
    if isinstance(data, bytes):
        return data
    with memoryview(data) as view:
        return bytes(view[:size])


def expanded_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[Expanded, int]:
    """Return the records of one batch and their size, for reading in place; see `expand`.

    Raises: CorruptBatch where they are damaged, longer than `limit`, or too few bytes for the
            header's record count (so that nothing is allocated for billions of records).
    """
    with memoryview(buffer) as view:
        section = view[position + RECORDS_AT : position + header.size_in_bytes]
        data, size = expand(header.compression, section, limit) if len(section) else (b"", 0)
    if header.record_count * RECORD_SIZE_MIN > size:
        raise InvalidRecord(f"{size} bytes cannot hold {header.record_count} records")
    return data, size


def _fields_at(data: bytes, cursor: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Return one record's fields and their positions.

    In order: timestamp delta, offset delta, start and length of key, of value, start and number of
    the headers, end of the record by its length. Most varints have one byte; the branches below
    save a call for each of these.
    """
    if (length := data[cursor]) < 128:
        cursor += 1
        length = ZIGZAG[length]
    else:
        length, cursor = read_varint(data, cursor)
    end = cursor + length
    cursor += 1  # Attributes: unused so far.
    if (timestamp := data[cursor]) < 128:
        cursor += 1
        timestamp = ZIGZAG[timestamp]
    else:
        timestamp, cursor = read_varlong(data, cursor)
    if (delta := data[cursor]) < 128:
        cursor += 1
        delta = ZIGZAG[delta]
    else:
        delta, cursor = read_varint(data, cursor)
    key_at, key_length = _field_at(data, cursor)
    cursor = key_at + key_length if key_length > 0 else key_at
    value_at, value_length = _field_at(data, cursor)
    cursor = value_at + value_length if value_length > 0 else value_at
    if (count := data[cursor]) < 128:
        cursor += 1
        count = ZIGZAG[count]
    else:
        count, cursor = read_varint(data, cursor)
    if count < 0:
        raise InvalidRecord(f"a record has a header count of {count}")
    return timestamp, delta, key_at, key_length, value_at, value_length, cursor, count, end


def _field_at(data: bytes, cursor: int) -> tuple[int, int]:
    """Return where a nullable field's bytes start, and how many they are; -1 = null."""
    if (length := data[cursor]) < 128:
        cursor += 1
        length = ZIGZAG[length]
    else:
        length, cursor = read_varint(data, cursor)
    if length < -1:
        raise InvalidRecord(f"a field has length {length}")
    return cursor, length


def _headers_at(data: bytes, cursor: int, count: int) -> tuple[Headers, int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        start, length = _field_at(data, cursor)
        if length < 0:
            raise InvalidRecord("a header has no key")
        cursor = start + length
        try:
            key = data[start:cursor].decode()
        except UnicodeDecodeError:
            raise InvalidRecord("a header's key is not UTF-8") from None
        start, length = _field_at(data, cursor)
        cursor = start + length if length > 0 else start
        headers.append((key, None if length < 0 else data[start:cursor]))
    return tuple(headers), cursor


def _wrong_end(cursor: int, end: int) -> InvalidRecord:
    return InvalidRecord(f"a record ends at byte {end} by its length, its fields at {cursor}")


def _wrong_delta(delta: int, before: int, header: BatchHeader) -> InvalidRecord:
    return InvalidRecord(
        f"offset delta {delta} follows {before}, the last is {header.last_offset_delta}"
    )


def _too_few(header: BatchHeader, found: int) -> CorruptBatch:
    return InvalidRecord(f"the bytes end within record {found} of {header.record_count}")
