"""Frames: headers in all their versions, and what a broker can still say to an unknown request.

Method: bytes written by hand from the protocol guide, kio's header classes as a second opinion,
and every cut of a good frame.
"""

import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer

from ottla.wire.codec import decode
from ottla.wire.errors import UnsupportedVersionError, WireError
from ottla.wire.frames import (
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_header,
    encode_response,
    peek_throttle_ms,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.registry import APIS

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class FileSlice:
    """What the host sends from a file."""

    length = 1000


def test_header_versions() -> None:
    assert request_header_version(7, 0) == 0
    assert request_header_version(7, 1) == 1
    assert request_header_version(12, 3) == 1
    assert request_header_version(12, 4) == 2
    assert response_header_version(12, 3) == 0
    assert response_header_version(12, 4) == 1
    assert request_header_version(18, 3) == 2
    assert response_header_version(18, 3) == 0
    with pytest.raises(KeyError):
        request_header_version(12, 99)


def test_request_with_header_v1() -> None:
    frame = encode_request(HEARTBEAT, 0, 7, "me")
    assert frame.hex(" ") == (
        "00 00 00 16 00 0c 00 00 00 00 00 07 00 02 6d 65 00 01 67 00 00 00 01 00 01 6d"
    )
    header, offset = decode_request_header(frame[4:])
    assert header == RequestHeader(12, 0, 7, "me")
    assert decode(HeartbeatRequest, frame[4:], 0, offset) == HEARTBEAT


def test_request_with_header_v2() -> None:
    frame = encode_request(HEARTBEAT, 4, 7, None)
    assert frame.hex(" ") == (
        "00 00 00 15 00 0c 00 04 00 00 00 07 ff ff 00 02 67 00 00 00 01 02 6d 00 00"
    )
    header, offset = decode_request_header(memoryview(frame)[4:])
    assert header == RequestHeader(12, 4, 7, None)
    assert decode(HeartbeatRequest, memoryview(frame)[4:], 4, offset) == HEARTBEAT


def test_request_with_header_v0() -> None:
    request = ControlledShutdownRequest(broker_id=3)
    frame = encode_request(request, 0, 7, "not said")
    assert frame.hex(" ") == "00 00 00 0c 00 07 00 00 00 00 00 07 00 00 00 03"
    header, offset = decode_request_header(frame[4:])
    assert (header, offset) == (RequestHeader(7, 0, 7, None), 8)


@pytest.mark.parametrize("client_id", [None, "", "client", "é" * 100])
@pytest.mark.parametrize("version", [3, 4])
def test_headers_are_what_kio_writes(client_id: str | None, version: int) -> None:
    theirs = {3: KioHeader1, 4: KioHeader2}[version]
    buffer = io.BytesIO()
    header = theirs(
        request_api_key=12, request_api_version=version, correlation_id=-1, client_id=client_id
    )
    entity_writer(theirs)(buffer, header)
    ours = RequestHeader(12, version, -1, client_id)
    assert encode_request_header(ours) == buffer.getvalue()
    assert decode_request_header(buffer.getvalue()) == (ours, len(buffer.getvalue()))


def test_unknown_tags_of_a_header_are_skipped() -> None:
    received = bytes.fromhex("000c 0004 00000007 ffff 01 05 02 aabb")
    assert decode_request_header(received) == (RequestHeader(12, 4, 7, None), len(received))


@pytest.mark.parametrize(("key", "version"), [(18, 99), (18, -1), (1234, 0), (-1, 0), (12, 5)])
def test_unknown_requests_keep_what_can_be_read(key: int, version: int) -> None:
    received = (
        key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + bytes(3)
    )
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request_header(received + b"\x07" + b"whatever follows")
    assert (caught.value.api_key, caught.value.api_version) == (key, version)
    assert caught.value.correlation_id == 7
    assert isinstance(caught.value, WireError)


def test_every_cut_of_a_header_is_refused() -> None:
    received = bytes.fromhex("000c 0004 00000007 0002 6d65 01 05 02 aabb")
    for length in range(len(received)):
        with pytest.raises(WireError):
            decode_request_header(received[:length])


def test_client_id_must_be_text() -> None:
    with pytest.raises(WireError):
        decode_request_header(bytes.fromhex("000c 0003 00000007 0001 ff"))


def test_responses_of_both_header_versions() -> None:
    response = HeartbeatResponse(error_code=27)
    (old,) = encode_response(response, 1, 7)
    assert old == bytes.fromhex("0000000a 00000007 00000000 001b")
    (new,) = encode_response(response, 4, 7)
    assert new == bytes.fromhex("0000000c 00000007 00 00000000 001b 00")
    for version, frame in ((1, old), (4, new)):
        assert isinstance(frame, bytes)
        assert decode_response(HeartbeatResponse, frame[4:], version) == (7, response)


def test_api_versions_response_has_header_v0() -> None:
    key = ApiVersion(api_key=18, min_version=0, max_version=4)
    response = ApiVersionsResponse(error_code=0, api_keys=(key,))
    (frame,) = encode_response(response, 3, 7)
    assert isinstance(frame, bytes)
    assert frame[4:10] == b"\x00\x00\x00\x07\x00\x00"
    assert decode_response(ApiVersionsResponse, frame[4:], 3) == (7, response)


@pytest.mark.parametrize("version", range(5))
def test_the_throttle_of_a_response_is_read_without_decoding_it(version: int) -> None:
    throttle_ms = 70_000 if version else 0
    message = HeartbeatResponse(error_code=27, throttle_time_ms=throttle_ms)
    frame = b"".join(encode_response(message, version, 9))[4:]
    assert peek_throttle_ms(12, version, frame) == throttle_ms
    assert peek_throttle_ms(12, version, frame[:7]) == 0


def test_size_counts_chunks_that_are_not_bytes() -> None:
    part = PartitionData(
        partition_index=0, error_code=0, high_watermark=9, records=(b"head", FileSlice())
    )
    topic = FetchableTopicResponse(topic="t", partitions=(part,))
    chunks = encode_response(FetchResponse(responses=(topic,)), 12, 7)
    first, head, piece, last = chunks
    assert isinstance(first, bytes)
    assert isinstance(last, bytes)
    assert head == b"head"
    assert isinstance(piece, FileSlice)
    size = int.from_bytes(first[:4], "big")
    assert size == len(first) - 4 + len(b"head") + piece.length + len(last)


@pytest.mark.parametrize("received", ["", "000000", "00000007"])
def test_short_responses_are_refused(received: str) -> None:
    with pytest.raises(WireError):
        decode_response(HeartbeatResponse, bytes.fromhex(received), 4)


def test_all_known_versions_have_a_header() -> None:
    for key, api in APIS.items():
        for version in range(api.first, api.last + 1):
            header = RequestHeader(key, version, 1, None if (key, version) == (7, 0) else "c")
            encoded = encode_request_header(header)
            assert decode_request_header(encoded) == (header, len(encoded))


def test_api_versions_request_round_trip() -> None:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
    frame = encode_request(request, 3, 1, "c")
    header, offset = decode_request_header(frame[4:])
    assert decode(ApiVersionsRequest, frame[4:], header.api_version, offset) == request
