"""The record batch, format version 2: its header, checksum and the fields a broker rewrites.

Offset  Bytes  Field                       Offset  Bytes  Field
0       8      base offset                 27      8      base timestamp
8       4      length of what follows      35      8      max timestamp
12      4      partition leader epoch      43      8      producer id
16      1      magic = 2                   51      2      producer epoch
17      4      CRC-32C of 21 to the end    53      4      base sequence
21      2      attributes                  57      4      record count
23      4      last offset delta           61      ..     records, compressed as one

Base offset and leader epoch lie outside the checksum, so that a broker stamps both in place and
never touches the rest. All work here is per batch; nothing looks at a record.

Sources: KIP-98; Kafka's DefaultRecordBatch; KIP-534 (delete horizon).
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.records.compression import DECOMPRESSED_BYTES_MAX, Buffer, Codec
from ottla.records.errors import CorruptBatch, InvalidRecord, InvalidTimestamp, UnsupportedMagic

MAGIC: Final = 2
LOG_OVERHEAD: Final = 12
"""Base offset and length: what precedes the bytes that the length counts."""
HEADER_SIZE: Final = 61
RECORDS_AT: Final = HEADER_SIZE
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD

RECORD_SIZE_MIN: Final = 7
"""Length, attributes, two deltas, null key, null value, no headers: one byte each."""

MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
PRODUCERS_BITS: Final = CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
"""What a producer may set: a delete horizon is set by the cleaner, other bits are undefined."""

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
TIMESTAMP_MS_MIN: Final = -TIMESTAMP_MS_MAX
"""The range of timestamps that fits into 64 bits as microseconds, too."""

INT32_MAX: Final = 2**31 - 1
BASE_OFFSET_MAX: Final = 2**63 - 1 - 2**31
"""Beyond it, the offset after a batch's last could overflow the 64 bits of an offset."""

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_SIZE

_CODECS = tuple(Codec)
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_unpack_header = HEADER.unpack_from
_new = tuple.__new__


class BatchHeader(NamedTuple):
    """The 61 bytes before the records of a batch.

    A named tuple, because every produced and fetched batch makes one: it is built three times
    as fast as a frozen dataclass and is as immutable. Timestamps are milliseconds.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def compression(self) -> Codec:
        return _CODECS[self.attributes & CODEC_MASK]

    @property
    def timestamp_type(self) -> int:
        """0 = the producer's clock; 1 = the broker's, and `max_timestamp` holds for each record."""
        return LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which tombstones may be dropped."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, which follows 2^31 - 1 with 0; -1 = unsequenced."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX


def parse_header(buffer: Buffer, position: int = 0, *, whole: bool = True) -> BatchHeader:
    """Return the header of the batch at `position`.

    With `whole`, the batch must end within `buffer`; without, the header alone must, as for a
    scan that reads headers only.

    Raises: CorruptBatch where the batch is truncated, not of format 2 or has impossible fields;
            UnsupportedMagic where it has format 0 or 1. The checksum is not verified.
    """
    available = len(buffer) - position
    if available < HEADER_SIZE:
        raise _short_header(buffer, position, available)
    fields = _unpack_header(buffer, position)
    if fields[3] != MAGIC:
        raise _wrong_magic(fields[3])
    if fields[1] < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"a batch has length {fields[1]}")
    if whole and fields[1] + LOG_OVERHEAD > available:
        raise CorruptBatch(f"a batch of {fields[1] + LOG_OVERHEAD} bytes is cut after {available}")
    if not 0 <= fields[0] <= BASE_OFFSET_MAX or fields[6] < 0 or fields[12] < 0:
        raise CorruptBatch(
            f"a batch has base offset {fields[0]}, last delta {fields[6]}, count {fields[12]}"
        )
    if fields[5] & CODEC_MASK >= len(_CODECS):
        raise CorruptBatch(f"a batch has the unknown codec {fields[5] & CODEC_MASK}")
    return _new(BatchHeader, fields)


def _wrong_magic(magic: int) -> CorruptBatch | UnsupportedMagic:
    if magic in (0, 1):
        return UnsupportedMagic(f"message format {magic} is no longer supported, only {MAGIC}")
    return CorruptBatch(f"a batch has magic {magic}")


def _short_header(buffer: Buffer, position: int, available: int) -> CorruptBatch | UnsupportedMagic:
    # A small message of an old format is shorter than our header, and still has its own error.
    if available > MAGIC_AT and buffer[position + MAGIC_AT] in (0, 1):
        return _wrong_magic(buffer[position + MAGIC_AT])
    return CorruptBatch(f"a batch header is cut after {max(available, 0)} bytes")


def iter_headers(
    buffer: Buffer, position: int = 0, *, allow_partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each batch from `position` to the end of `buffer`.

    With `allow_partial`, a batch cut by the end of the buffer, as in any fetch response, ends
    the iteration silently; without, it is corrupt. Raises: as `parse_header`.
    """
    end = len(buffer)
    while position < end:
        if allow_partial and _is_cut(buffer, position, end):
            return
        header = parse_header(buffer, position)
        yield position, header
        position += LOG_OVERHEAD + header.batch_length


def _is_cut(buffer: Buffer, position: int, end: int) -> bool:
    if end - position <= MAGIC_AT:
        return True
    (length,) = _INT32.unpack_from(buffer, position + 8)
    # `parse_header` refuses an impossible length or an old magic, whether the batch is cut or not.
    return (
        length >= BATCH_LENGTH_MIN
        and buffer[position + MAGIC_AT] == MAGIC
        and position + LOG_OVERHEAD + length > end
    )


def batch_crc(buffer: Buffer, position: int, size_in_bytes: int) -> int:
    """Return the checksum that the bytes of the batch have."""
    with memoryview(buffer) as view:
        return crc32c(view[position + ATTRIBUTES_AT : position + size_in_bytes])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the batch's bytes have the checksum in its header."""
    found = batch_crc(buffer, position, LOG_OVERHEAD + header.batch_length)
    if found != header.crc:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} has CRC {found:08x}, "
            f"its header {header.crc:08x}"
        )


def check_produced(header: BatchHeader) -> None:
    """Raise InvalidRecord unless a client may send a batch with this header.

    The bytes must be able to hold the record count, since offsets are assigned by it. The records
    themselves are checked by `check_records`.

    Raises: InvalidRecord, its subclass InvalidTimestamp.
    Source: LogValidator.validateBatch and UnifiedLog.analyzeAndValidateRecords.
    """
    count = header.record_count
    room = header.batch_length - BATCH_LENGTH_MIN
    if header.attributes & CODEC_MASK:
        room = DECOMPRESSED_BYTES_MAX
    if header.base_offset != 0:
        raise InvalidRecord(f"a produced batch has base offset {header.base_offset}, not 0")
    if count == 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{count} records with last offset delta {header.last_offset_delta}")
    if count * RECORD_SIZE_MIN > room:
        raise InvalidRecord(f"{room} bytes cannot hold {count} records")
    if header.is_control:
        raise InvalidRecord("clients are not allowed to write control records")
    if header.attributes & ~PRODUCERS_BITS:
        raise InvalidRecord(f"attributes {header.attributes:#x} are not a producer's")
    if header.producer_id >= 0:
        if header.base_sequence < 0:
            raise InvalidRecord(f"sequence {header.base_sequence} with a producer id")
        if header.producer_epoch < 0:
            raise InvalidRecord(f"epoch {header.producer_epoch} with a producer id")
    elif header.producer_id < -1:
        raise InvalidRecord(f"a batch has producer id {header.producer_id}")
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not TIMESTAMP_MS_MIN <= timestamp <= TIMESTAMP_MS_MAX:
            raise InvalidTimestamp(f"a batch has timestamp {timestamp}")
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecord("a transactional batch has no producer id")


def restamp(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Write the two fields outside the checksum, in place. Headers parsed before are then stale."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> BatchHeader:
    """Make the batch one of LogAppendTime, in place, and return its new header.

    The records keep their deltas; readers take `max_timestamp` for all of them.
    """
    header = parse_header(buffer, position)
    header = header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT)
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes)
    return stamp_max_timestamp(buffer, position, header, now_ms)


def stamp_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp: int
) -> BatchHeader:
    """Write the batch's largest timestamp, in place, and return its new header."""
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, timestamp)
    crc = batch_crc(buffer, position, header.size_in_bytes)
    _UINT32.pack_into(buffer, position + CRC_AT, crc)
    return header._replace(max_timestamp=timestamp, crc=crc)
