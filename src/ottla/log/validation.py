"""What a leader checks of batches before they get offsets, and how it may change them.

Work is per batch; records are looked at only where a rule is about records: null keys on
compacted topics, timestamps where `message.timestamp.before.max.ms` is set. The header's largest
timestamp is believed: a producer that misstates it misleads only readers of its own records.

Source: LogValidator, UnifiedLog.analyzeAndValidateRecords, ProduceRequest.validateRecords.
"""

from typing import NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.log.config import INT64_MAX, LogConfig
from ottla.log.producer_state import Origin
from ottla.log.scan import marker_of
from ottla.records.batch import (
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    check_crc,
    check_produced,
    iter_headers,
    parse_header,
    stamp_append_time,
)
from ottla.records.builder import recompress
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.control import Marker
from ottla.records.errors import InvalidRecord, RecordsError, RecordsTooLarge, UnsupportedMagic
from ottla.records.record import check_records, has_null_key

Writable = bytearray | memoryview

EXPANDED_BYTES_MIN = 32 << 20
EXPANSION_MAX = 8
"""What a produced batch may decompress to where the broker has to look into it: so many times
max.message.bytes, or that much where a topic takes small batches only. A producer that compresses
better is asked, as with any batch that is too large, to send less at once; without a bound, one
small request could take all the node's memory and hold its loop for seconds."""


class NewBatch(NamedTuple):
    """A batch that may be appended: writable bytes, their header, and the marker it may be."""

    data: Writable
    header: BatchHeader
    marker: tuple[Marker, int] | None = None


def api_error(error: RecordsError) -> ApiError:
    """Return what a client is told of malformed batches."""
    if isinstance(error, UnsupportedMagic):
        return ApiError(Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error))
    if isinstance(error, RecordsTooLarge):
        return ApiError(Error.MESSAGE_TOO_LARGE, str(error))
    if isinstance(error, InvalidRecord):
        return ApiError(Error.INVALID_RECORD, str(error))
    return ApiError(Error.CORRUPT_MESSAGE, str(error))


def check_batches(
    data: bytes | Writable, config: LogConfig, *, now_ms: int, origin: Origin, where: str
) -> list[NewBatch]:
    """Return the batches of `data`, checked, compressed and stamped as the topic asks.

    A client sends one batch a partition; coordinators may send several.

    Raises: ApiError.
    """
    try:
        header = parse_header(data)
        if header.size_in_bytes == len(data):
            return [_check_batch(writable(data), header, config, now_ms, origin, where)]
        view = memoryview(data)
        found = list(iter_headers(view, allow_partial=True))
        if origin == "client" and len(found) > 1:
            raise InvalidRecord(f"{len(found)} batches for {where} in one request, not 1")
        return [
            _check_batch(
                writable(view[start : start + header.size_in_bytes]),
                header,
                config,
                now_ms,
                origin,
                where,
            )
            for start, header in found
        ]
    except RecordsError as error:
        raise api_error(error) from None


def check_plain(
    data: bytes | Writable, config: LogConfig, now_ms: int, where: str
) -> BatchHeader | None:
    """Check a client's one batch for a plain topic (`LogConfig.is_plain`); return its header.

    The hot path of `check_batches`, with the same rules. None = `data` is not just one batch,
    which is for the other to judge.

    Raises: ApiError.
    """
    try:
        header = parse_header(data)
        size = header.size_in_bytes
        if size != len(data):
            return None
        if size > config.batch_bytes_max:
            _check_size(header, config, where)
        check_crc(data, 0, header)
        check_produced(header)
    except RecordsError as error:
        raise api_error(error) from None
    if header.attributes & LOG_APPEND_TIME_BIT:
        raise _wrong_timestamp_type()
    if header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        _check_timestamps(data, header, config, now_ms)
    return header


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
    data: Writable,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    origin: Origin,
    where: str,
) -> NewBatch:
    _check_size(header, config, where)
    check_crc(data, 0, header)
    if header.is_control:
        if origin == "client":
            check_produced(header)  # Which says why not.
        return NewBatch(data, header, marker_of(data, 0, header))
    if origin == "client":
        check_produced(header)
        if header.attributes & LOG_APPEND_TIME_BIT:
            raise _wrong_timestamp_type()
    if config.compacts and has_null_key(data, 0, header, limit=expanded_bytes_max(config)):
        raise ApiError(
            Error.INVALID_RECORD,
            f"Compacted topic cannot accept message without key in topic partition {where}.",
        )
    if not config.log_append_time:
        _check_timestamps(data, header, config, now_ms)
    if config.codec is not None and config.codec is not header.compression:
        level = config.level(config.codec)
        limit = expanded_bytes_max(config)
        data = bytearray(recompress(data, 0, header, config.codec, level=level, limit=limit))
        header = parse_header(data)
        _check_size(header, config, where)
    if config.log_append_time:
        header = stamp_append_time(data, 0, now_ms)
    return NewBatch(data, header)


def _wrong_timestamp_type() -> ApiError:
    return ApiError(
        Error.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime."
    )


def _check_size(header: BatchHeader, config: LogConfig, where: str) -> None:
    size = header.size_in_bytes
    if size > config.max_message_bytes:
        raise ApiError(
            Error.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {where} is {size} bytes which exceeds "
            f"the maximum configured value of {config.max_message_bytes}.",
        )
    if size > config.segment_bytes:
        raise ApiError(
            Error.RECORD_LIST_TOO_LARGE,
            f"The record batch size in the append to {where} is {size} bytes which exceeds "
            f"the maximum configured segment size of {config.segment_bytes}.",
        )


def _check_timestamps(
    data: bytes | Writable, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    oldest = header.max_timestamp
    if config.timestamp_before_max_ms < INT64_MAX:
        limit = expanded_bytes_max(config)
        oldest = check_records(data, 0, header, limit=limit).timestamp_min
    for timestamp in (header.max_timestamp, oldest):
        if timestamp == -1:
            continue  # A record without a timestamp has none to be wrong.
        if (
            now_ms - timestamp > config.timestamp_before_max_ms
            or timestamp - now_ms > config.timestamp_after_max_ms
        ):
            low, high = (
                now_ms - config.timestamp_before_max_ms,
                now_ms + config.timestamp_after_max_ms,
            )
            raise ApiError(
                Error.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} is out of range. The timestamp should be within "
                f"[{low}, {high}].",
            )
