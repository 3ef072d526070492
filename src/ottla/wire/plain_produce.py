"""Produce requests of one batch for one partition, read and answered by hand.

Most producers send such requests, and those of one small record cost as much to decode and encode
as to append. What is not plain in this sense, or malformed, is left to the general codec.
`tests/unit/wire/test_plain_produce.py` compares both. Source: ProduceRequest.json,
ProduceResponse.json.
"""

import struct
from typing import Final, NamedTuple

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.registry import PRODUCE

VERSIONS: Final = range(5, 14)
"""Those of which all responses tell the log start."""

FLEXIBLE_FIRST: Final = 9
TOPIC_ID_FIRST: Final = 13

_header = struct.Struct(">hhih").unpack_from
"""Key, version, correlation id and the length of the client id."""

_acks_and_timeout = struct.Struct(">hi").unpack_from
_transactional_id_to_topics = struct.Struct(">hhii").unpack_from
"""The length of the transactional id, acks, timeout and the number of topics."""

_partitions_to_records = struct.Struct(">iii").unpack_from
"""The number of partitions, the first one's id and the length of its records."""

_length = struct.Struct(">h").unpack_from
_partition = struct.Struct(">i").unpack_from

_HEADER_BYTES: Final = 10
_NO_TAGS: Final = b"\0\0\0"
"""Those of a partition, a topic and the request."""

_result = struct.Struct(">ihqqq").pack
_sizes = struct.Struct(">ii").pack
_FLEXIBLE_END: Final = b"\1\0\0" + b"\0" + b"\0\0\0\0" + b"\0"
"""No record errors, no message, no tags; no tags of the topic; no throttle; no tags."""

_V8_END: Final = b"\0\0\0\0" + b"\xff\xff" + b"\0\0\0\0"
_V5_END: Final = b"\0\0\0\0"


class PlainProduce(NamedTuple):
    """A request but for its records.

    Fields: `timeout_ms`; `topic`, "" from TOPIC_ID_FIRST on, and `topic_id`, NO_UUID before;
            `sent_topic`: either of them as it was sent, with its length.
    """

    version: int
    correlation_id: int
    acks: int
    timeout_ms: int
    topic: str
    topic_id: Uuid
    partition: int
    sent_topic: bytes


def read(frame: memoryview) -> tuple[PlainProduce, memoryview] | None:
    """Return a plain request and its records; None = use the general codec.

    `frame`: a request of any API, header included.
    """
    try:
        key, version, correlation_id, length = _header(frame)
        if key != PRODUCE or version not in VERSIONS:
            return None
        body_at = _HEADER_BYTES
        if length > 0:
            body_at += length
            if not bytes(frame[_HEADER_BYTES:body_at]).isascii():
                return None
        if version < FLEXIBLE_FIRST:
            return _read_before_v9(frame, version, correlation_id, body_at)
        return _read_flexible(frame, version, correlation_id, body_at)
    except (IndexError, ValueError, struct.error):
        return None


def _read_flexible(
    frame: memoryview, version: int, correlation_id: int, at: int
) -> tuple[PlainProduce, memoryview] | None:
    """Read from the header's tags on. Raises: IndexError, ValueError, struct.error."""
    if frame[at] or frame[at + 1]:  # A transactional id.
        return None
    acks, timeout_ms = _acks_and_timeout(frame, at + 2)
    at += 8
    if frame[at] != 2:  # Lengths are sent plus one.
        return None
    at += 1
    if version < TOPIC_ID_FIRST:
        length = frame[at]
        if not 1 < length < 128:
            return None
        sent_topic = bytes(frame[at : at + length])
        topic, topic_id = sent_topic[1:].decode(), NO_UUID
        at += length
    else:
        sent_topic = bytes(frame[at : at + 16])
        topic, topic_id = "", Uuid(sent_topic)
        at += 16
    if frame[at] != 2:
        return None
    (partition,) = _partition(frame, at + 1)
    at += 5
    size = shift = 0
    while (byte := frame[at]) > 127:
        size |= (byte & 127) << shift
        shift += 7
        at += 1
    at += 1
    end = at + (size | byte << shift) - 1
    if end <= at or bytes(frame[end:]) != _NO_TAGS:
        return None
    request = PlainProduce(
        version, correlation_id, acks, timeout_ms, topic, topic_id, partition, sent_topic
    )
    return request, frame[at:end]


def _read_before_v9(
    frame: memoryview, version: int, correlation_id: int, at: int
) -> tuple[PlainProduce, memoryview] | None:
    """Read from the body on. Raises: ValueError, struct.error."""
    transactional_id, acks, timeout_ms, topics = _transactional_id_to_topics(frame, at)
    if transactional_id != -1 or topics != 1:
        return None
    at += 12
    (length,) = _length(frame, at)
    if length <= 0:
        return None
    sent_topic = bytes(frame[at : at + 2 + length])
    at += 2 + length
    partitions, partition, size = _partitions_to_records(frame, at)
    at += 12
    if partitions != 1 or size <= 0 or at + size != len(frame):
        return None
    topic = sent_topic[2:].decode()
    request = PlainProduce(
        version, correlation_id, acks, timeout_ms, topic, NO_UUID, partition, sent_topic
    )
    return request, frame[at:]


def encode_success(
    request: PlainProduce, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> bytes:
    """Return the whole frame of the response to a request whose batch was appended."""
    version, topic = request.version, request.sent_topic
    result = _result(request.partition, 0, base_offset, log_append_time_ms, log_start_offset)
    if version >= FLEXIBLE_FIRST:
        size = 16 + len(topic) + len(result)
        head = _sizes(size, request.correlation_id)
        return b"".join((head, b"\0\2", topic, b"\2", result, _FLEXIBLE_END))
    end = _V8_END if version >= 8 else _V5_END
    size = 12 + len(topic) + len(result) + len(end)
    one = b"\0\0\0\1"
    return b"".join((_sizes(size, request.correlation_id), one, topic, one, result, end))
