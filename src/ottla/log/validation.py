"""What a leader checks of batches before they get offsets, and how it may change them.

A batch is first examined: its header and checksum, then every record (`ottla.record.validation`
may leave that out where the topic does not need it), and it is compressed as the topic asks. That
depends on the settings alone, so that a worker can do it; on the loop it must stay within an
`Allowance`. Then it is finished, when it is appended: by the clock, in place.

The header's largest timestamp is corrected where the records say another, as Kafka does.

| what is wrong | error |
|---|---|
| checksum, length, an absurd header | CORRUPT_MESSAGE |
| count, offset deltas, lengths, varints, headers, attributes, producer fields, compressed bytes | \
INVALID_RECORD |
| a timestamp that no clock says, or outside the topic's limits | INVALID_TIMESTAMP |
| more bytes than the topic takes, or than they may expand to | MESSAGE_TOO_LARGE |

Source: LogValidator, DefaultRecord, UnifiedLog.analyzeAndValidateRecords,
ProduceRequest.validateRecords.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.producer_state import Origin
from ottla.log.scan import marker_of
from ottla.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
    BatchHeader,
    check_crc,
    check_produced,
    iter_headers,
    parse_header,
    stamp_append_time,
    stamp_max_timestamp,
)
from ottla.records.builder import recompress
from ottla.records.checking import UNBOUNDED, StepsExhausted
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.control import Marker
from ottla.records.errors import (
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    RecordsError,
    RecordsTooLarge,
    UnsupportedMagic,
)
from ottla.records.record import RecordsSummary, check_records, null_keys

Writable = bytearray | memoryview

NO_TIMESTAMP = -1

EXPANDED_BYTES_MIN = 32 << 20
EXPANSION_MAX = 8
"""What a produced batch may decompress to: so many times max.message.bytes, or that much where a
topic takes small batches only. A producer that compresses better is asked, as with any batch that
is too large, to send less at once; without a bound, one small request could take all the node's
memory."""

INLINE_BYTES_MAX = 2 << 20
INLINE_STEPS_MAX = 20_000
INLINE_RECOMPRESSED_BYTES_MAX = 64 << 10
"""What one request may have examined on the loop, some 10 ms of work: bytes that its records take,
and steps of `ottla.records.checking`. Compressing anew costs more a byte."""


class TooHeavy(Exception):
    """To examine a batch is more than the loop should do at once: it is for a worker."""


@dataclass(slots=True)
class Allowance:
    """What may still be examined where it is asked for; spent as it goes."""

    bytes: int = INLINE_BYTES_MAX
    steps: int = INLINE_STEPS_MAX
    recompressed_bytes: int = INLINE_RECOMPRESSED_BYTES_MAX

    def halve(self) -> None:
        """Follow that a batch was too heavy: what was tried in vain counts, too."""
        self.bytes //= 2
        self.steps //= 2


class NullKeys(ApiError):
    """A compacted topic was sent records without a key; `indexes`: which ones, in the batch."""

    def __init__(self, log_name: str, indexes: tuple[int, ...]) -> None:
        super().__init__(
            Error.INVALID_RECORD,
            f"Compacted topic cannot accept message without key in topic partition {log_name}.",
        )
        self.indexes = indexes


class NewBatch(NamedTuple):
    """A batch that may be appended: writable bytes, their header, and the marker it may be."""

    data: Writable
    header: BatchHeader
    marker: tuple[Marker, int] | None = None


class Examined(NamedTuple):
    """A client's batch that may be appended under the settings `config`, but for its time.

    Fields: `found`: what its records say; None = they were not looked at.
    """

    data: Writable
    header: BatchHeader
    found: RecordsSummary | None
    config: LogConfig


def api_error(error: RecordsError) -> ApiError:
    """Return what a client is told of malformed batches."""
    if isinstance(error, UnsupportedMagic):
        return ApiError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error))
    if isinstance(error, RecordsTooLarge):
        return ApiError(Error.MESSAGE_TOO_LARGE, str(error))
    if isinstance(error, InvalidTimestamp):
        return ApiError(Error.INVALID_TIMESTAMP, str(error))
    if isinstance(error, InvalidRecord):
        return ApiError(Error.INVALID_RECORD, str(error))
    return ApiError(Error.CORRUPT_MESSAGE, str(error))


def check_batches(
    data: bytes | Writable,
    config: LogConfig,
    *,
    now_ms: int,
    origin: Origin,
    log_name: str,
    allowance: Allowance | None = None,
) -> list[NewBatch]:
    """Return the batches of `data`, checked, compressed and stamped as the topic asks.

    A client sends one batch a partition; coordinators may send several.

    Raises: ApiError; TooHeavy where that takes more than the allowance, None = no bound.
    """
    try:
        header = parse_header(data)
        if header.size_in_bytes == len(data):
            return [_check_batch(data, header, config, now_ms, origin, log_name, allowance)]
        view = memoryview(data)
        found = list(iter_headers(view, allow_partial=True))
        if origin == "client" and len(found) > 1:
            raise InvalidRecord(f"{len(found)} batches for {log_name} in one request, not 1")
        return [
            _check_batch(
                view[start : start + header.size_in_bytes],
                header,
                config,
                now_ms,
                origin,
                log_name,
                allowance,
            )
            for start, header in found
        ]
    except RecordsError as error:
        raise api_error(error) from None


def check_plain(
    data: bytes | Writable,
    config: LogConfig,
    now_ms: int,
    log_name: str,
    allowance: Allowance | None = None,
) -> NewBatch | None:
    """Check a client's one batch for a plain topic (`LogConfig.is_plain`).

    The hot path of `check_batches`, with the same rules. None = `data` is not just one batch,
    which is for the other to judge.

    Raises: as `check_batches`.
    """
    try:
        header = parse_header(data)
        if header.size_in_bytes != len(data):
            return None
        examined = _examine(data, header, config, log_name, allowance)
    except RecordsError as error:
        raise api_error(error) from None
    return finish(examined, config, now_ms)


def examine(data: bytes | Writable, config: LogConfig, log_name: str) -> Examined:
    """Examine a client's one batch as long as that takes; `finish` says what is left to do.

    Touches nothing else, so that any thread may do it. Raises: ApiError.
    """
    try:
        header = parse_header(data)
        if header.size_in_bytes != len(data):
            raise InvalidRecord("there must be one record batch for each partition")
        return _examine(data, header, config, log_name, None)
    except RecordsError as error:
        raise api_error(error) from None


def finish(examined: Examined, config: LogConfig, now_ms: int) -> NewBatch:
    """Hold an examined batch against the clock, and stamp it. Raises: ApiError."""
    data, header, found, _ = examined
    if config.log_append_time:
        return NewBatch(data, stamp_append_time(data, 0, now_ms))
    newest = header.max_timestamp
    if found is not None:
        newest = found.timestamp_max
        oldest = found.timestamp_min
        if oldest < TIMESTAMP_MS_MIN or newest > TIMESTAMP_MS_MAX:
            raise ApiError(
                Error.INVALID_TIMESTAMP,
                f"The records' timestamps, {oldest} to {newest}, are not what any clock says.",
            )
        if config.timestamp_before_max_ms < INT64_MAX:
            _check_time(oldest, config, now_ms)
    if newest - now_ms > config.timestamp_after_max_ms:
        _check_time(newest, config, now_ms)
    if config.timestamp_before_max_ms < INT64_MAX:
        _check_time(newest, config, now_ms)
    if newest != header.max_timestamp:
        header = stamp_max_timestamp(data, 0, header, newest)
    return NewBatch(data, header)


def expanded_bytes_max(config: LogConfig) -> int:
    """Return what a batch for such a topic may decompress to."""
    wanted = max(EXPANDED_BYTES_MIN, EXPANSION_MAX * config.max_message_bytes)
    return min(wanted, DECOMPRESSED_BYTES_MAX)


def writable(data: bytes | Writable) -> Writable:
    """Return `data`, or a copy where it cannot be written to."""
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        return bytearray(data)
    return data


def _check_batch(
    data: bytes | Writable,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    origin: Origin,
    log_name: str,
    allowance: Allowance | None,
) -> NewBatch:
    if origin == "client":
        return finish(_examine(data, header, config, log_name, allowance), config, now_ms)
    # The broker's own: nothing in it is anybody else's.
    _check_size(header, config, log_name)
    check_crc(data, 0, header)
    data = writable(data)
    if header.is_control:
        return NewBatch(data, header, marker_of(data, 0, header))
    data, header = _compressed(data, header, config, log_name)
    return finish(Examined(data, header, None, config), config, now_ms)


def _examine(
    data: bytes | Writable,
    header: BatchHeader,
    config: LogConfig,
    log_name: str,
    allowance: Allowance | None,
) -> Examined:
    """Do as `examine`. Raises: ApiError, RecordsError, TooHeavy."""
    if header.size_in_bytes > config.batch_bytes_max:
        _check_size(header, config, log_name)
    check_crc(data, 0, header)
    check_produced(header)
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise ApiError(
            Error.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime."
        )
    found = None
    if config.decodes_records:
        found = _look(data, header, config, allowance)
        if found.has_null_key and config.compacts:
            limit = expanded_bytes_max(config)
            raise NullKeys(log_name, null_keys(data, 0, header, limit=limit))
    data = writable(data)
    if config.codec is not None and config.codec is not header.compression:
        if allowance is not None and (
            found is None or found.size_in_bytes > allowance.recompressed_bytes
        ):
            raise TooHeavy
        data, header = _compressed(data, header, config, log_name)
    return Examined(data, header, found, config)


def _look(
    data: bytes | Writable, header: BatchHeader, config: LogConfig, allowance: Allowance | None
) -> RecordsSummary:
    """Check all records, within the allowance. Raises: RecordsError, TooHeavy."""
    limit = expanded_bytes_max(config)
    if not header.attributes & CODEC_MASK:
        limit = max(limit, header.batch_length)  # It is here already.
    steps = UNBOUNDED
    is_bounded = allowance is not None and allowance.bytes < limit
    if allowance is not None:
        steps = allowance.steps
        limit = min(limit, allowance.bytes)
    try:
        found = check_records(data, 0, header, limit=limit, steps=steps)
    except StepsExhausted:
        assert allowance is not None
        allowance.halve()
        raise TooHeavy from None
    except RecordsTooLarge:
        if allowance is None or not is_bounded:
            raise
        allowance.halve()
        raise TooHeavy from None
    except CorruptBatch as error:
        # The checksum is right: nothing is gained by sending the same bytes again.
        raise InvalidRecord(str(error)) from None
    if allowance is not None:
        allowance.bytes -= found.size_in_bytes
        allowance.steps = found.steps
        allowance.recompressed_bytes = min(allowance.recompressed_bytes, allowance.bytes)
    return found


def _compressed(
    data: Writable, header: BatchHeader, config: LogConfig, log_name: str
) -> tuple[Writable, BatchHeader]:
    """Return the batch under the topic's codec. Raises: ApiError, RecordsError."""
    codec = config.codec
    if codec is None or codec is header.compression:
        return data, header
    limit = expanded_bytes_max(config)
    data = bytearray(recompress(data, 0, header, codec, level=config.level(codec), limit=limit))
    header = parse_header(data)
    _check_size(header, config, log_name)
    return data, header


def _check_size(header: BatchHeader, config: LogConfig, log_name: str) -> None:
    size = header.size_in_bytes
    if size > config.max_message_bytes:
        raise ApiError(
            Error.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {log_name} is {size} bytes which exceeds "
            f"the maximum configured value of {config.max_message_bytes}.",
        )
    if size > config.segment_bytes:
        raise ApiError(
            Error.RECORD_LIST_TOO_LARGE,
            f"The record batch size in the append to {log_name} is {size} bytes which exceeds "
            f"the maximum configured segment size of {config.segment_bytes}.",
        )


def _check_time(timestamp: int, config: LogConfig, now_ms: int) -> None:
    """Raise ApiError (INVALID_TIMESTAMP) for a time that is outside the topic's limits."""
    low, high = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    # A record without a timestamp has none to be wrong.
    if timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
        raise ApiError(
            Error.INVALID_TIMESTAMP,
            f"Timestamp {timestamp} is out of range. The timestamp should be within "
            f"[{low}, {high}].",
        )
