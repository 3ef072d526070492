"""How a leader validates batches before it assigns offsets, and what it changes in them.

A batch is first examined: header and checksum, then every record (`ottla.record.validation` may
leave that out if the topic does not need it), and it is recompressed if the topic has another
codec. This depends on the configuration alone, so a worker can do it; on the loop it must stay
within an `Allowance`. When the batch is appended it is finished: timestamps are checked against the
clock and stamped, in place.

A wrong largest timestamp in the header is corrected from the records, as in Kafka.

| what is wrong | error |
|---|---|
| checksum, length, an impossible header | CORRUPT_MESSAGE |
| count, offset deltas, lengths, varints, headers, attributes, producer fields, compressed bytes | \
INVALID_RECORD |
| an impossible timestamp, or one outside the topic's limits | INVALID_TIMESTAMP |
| more bytes than the topic allows, or more when decompressed | MESSAGE_TOO_LARGE |

Source: LogValidator, DefaultRecord, UnifiedLog.analyzeAndValidateRecords,
ProduceRequest.validateRecords.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.producers.producer_state import Origin
from ottla.log.recovery.scan import marker_of
from ottla.log.results import UnexpectedOffset
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
"""The most that a produced batch may decompress to: EXPANSION_MAX times max.message.bytes, but at
least EXPANDED_BYTES_MIN. A producer that compresses better gets MESSAGE_TOO_LARGE, as for any batch
that is too large; without a bound, one small request could take all the node's memory."""

INLINE_BYTES_MAX = 2 << 20
INLINE_STEPS_MAX = 20_000
INLINE_RECOMPRESSED_BYTES_MAX = 64 << 10
"""What one request may have examined on the loop, some 10 ms of work: bytes of its records, and
steps of `ottla.records.checking`. Recompression costs more per byte."""


class TooHeavy(Exception):
    """Examining the batch takes too long for the loop: a worker must do it."""


@dataclass(slots=True)
class Allowance:
    """What may still be examined on the loop for this request; every batch uses it up."""

    bytes: int = INLINE_BYTES_MAX
    steps: int = INLINE_STEPS_MAX
    recompressed_bytes: int = INLINE_RECOMPRESSED_BYTES_MAX

    def halve(self) -> None:
        """Reduce the allowance after a batch that was too heavy: the failed attempt counts."""
        self.bytes //= 2
        self.steps //= 2


class NullKeys(ApiError):
    """Records for a compacted topic have no key; `indexes`: their indexes in the batch."""

    def __init__(self, log_name: str, indexes: tuple[int, ...]) -> None:
        super().__init__(
            Error.INVALID_RECORD,
            f"Compacted topic cannot accept message without key in topic partition {log_name}.",
        )
        self.indexes = indexes


class NewBatch(NamedTuple):
    """A batch that may be appended: writable bytes, header, and its transaction marker, if any."""

    data: Writable
    header: BatchHeader
    marker: tuple[Marker, int] | None = None


class Examined(NamedTuple):
    """A client's batch that is valid under `config`, but for the checks of `finish`.

    Fields: `found`: the summary of its records; None = they were not read.
    """

    data: Writable
    header: BatchHeader
    found: RecordsSummary | None
    config: LogConfig


def api_error(error: RecordsError) -> ApiError:
    """Return the error for a client that sent malformed batches."""
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
    """Return the batches of `data`, validated, compressed and stamped as the topic requires.

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
            raise InvalidRecord(f"{len(found)} batches for {log_name} in one request, expected 1")
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


def check_follower_batches(
    data: bytes | Writable, end_offset: int, leader_epoch: int, log_name: str
) -> list[NewBatch]:
    """Return the whole batches of a fetch response, up to the first one of an epoch after
    `leader_epoch`.

    Raises: ApiError where a batch is damaged; UnexpectedOffset where the first batch is below
            `end_offset`, or offsets decrease.
    """
    new: list[NewBatch] = []
    expected = end_offset
    view = memoryview(data)
    try:
        for start, header in iter_headers(view, allow_partial=True):
            check_crc(view, start, header)
            if header.base_offset < expected:
                raise UnexpectedOffset(
                    f"{log_name}: expected a batch at offset {expected} or above, "
                    f"got {header.base_offset}"
                )
            if header.partition_leader_epoch > leader_epoch:
                break  # Appending it would hide that the logs diverge here (KAFKA-18723).
            expected = header.next_offset
            body = view[start : start + header.size_in_bytes]
            new.append(NewBatch(body, header, _marker_in(body, header)))
    except RecordsError as error:
        raise api_error(error) from None
    return new


def _marker_in(body: memoryview, header: BatchHeader) -> tuple[Marker, int] | None:
    if header.is_control and header.producer_id >= 0:
        return marker_of(body, 0, header)
    return None


def check_plain(
    data: bytes | Writable,
    config: LogConfig,
    now_ms: int,
    log_name: str,
    allowance: Allowance | None = None,
) -> NewBatch | None:
    """Check a client's one batch for a plain topic (`LogConfig.is_plain`).

    The hot path of `check_batches`, with the same rules. None = `data` is not just one batch: use
    `check_batches`.

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
    """Examine a client's one batch without an allowance; `finish` does the rest.

    Thread-safe. Raises: ApiError.
    """
    try:
        header = parse_header(data)
        if header.size_in_bytes != len(data):
            raise InvalidRecord("there must be one record batch for each partition")
        return _examine(data, header, config, log_name, None)
    except RecordsError as error:
        raise api_error(error) from None


def finish(examined: Examined, config: LogConfig, now_ms: int) -> NewBatch:
    """Check an examined batch's timestamps against the clock, and stamp it. Raises: ApiError."""
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
                f"Timestamps {oldest} to {newest} of the records are out of any valid range.",
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
    """Return how many bytes a batch for such a topic may decompress to."""
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
    # A batch of the broker itself: its records are not checked.
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
        limit = max(limit, header.batch_length)  # Uncompressed: it is in memory already.
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
    except MemoryError:
        if allowance is None:
            raise
        raise TooHeavy from None  # A worker tries it once more; its failures are answered.
    except CorruptBatch as error:
        # The checksum is right, so a retry of the same bytes would not help.
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
    # A record without a timestamp passes.
    if timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
        raise ApiError(
            Error.INVALID_TIMESTAMP,
            f"Timestamp {timestamp} is out of range. The timestamp should be within "
            f"[{low}, {high}].",
        )
