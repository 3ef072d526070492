"""Frames of requests and responses: a 4-byte size, a header, a body.

Header versions: a flexible request has header v2 and its response header v1, others v1 and v0.
ApiVersions responses always have header v0, since a client reads one before it knows the broker's
versions (KIP-511); ControlledShutdown v0 requests have header v0, without a client id.
Source: RequestHeader.json, ResponseHeader.json; ApiMessageType; KIP-482.
"""

import struct
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

from ottla.wire.codec import decode, encode_parts, encode_parts_in_steps, gather
from ottla.wire.compile_decode import skip_tags
from ottla.wire.compile_encode import Cut
from ottla.wire.errors import EncodeError, UnsupportedVersionError, WireError
from ottla.wire.primitives import Buffer
from ottla.wire.registry import (
    API_VERSIONS,
    APIS,
    CONTROLLED_SHUTDOWN,
    ApiInfo,
    response_type,
)
from ottla.wire.schema import Chunk, is_flexible, spec_of

T = TypeVar("T")

_FIXED = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """A request's header; `client_id` None = null.

    A tuple, because one is made for every request and a frozen dataclass takes thrice as long.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def _request_header_version(api: ApiInfo, api_key: int, api_version: int) -> int:
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api.is_flexible(api_version) else 1


_REQUEST_HEADERS: Final[dict[tuple[int, int], int]] = {
    (key, version): _request_header_version(api, key, version)
    for key, api in APIS.items()
    for version in range(api.first, api.last + 1)
}


def request_header_version(api_key: int, api_version: int) -> int:
    """Return 0, 1 or 2; KeyError where the key or version is unknown."""
    return _REQUEST_HEADERS[api_key, api_version]


def response_header_version(api_key: int, api_version: int) -> int:
    """Return 0 or 1. The key and version must be known."""
    if api_key == API_VERSIONS:
        return 0
    return 1 if APIS[api_key].is_flexible(api_version) else 0


def decode_request_header(buffer: Buffer) -> tuple[RequestHeader, int]:
    """Read the header at the start of a request (its size prefix taken off).

    Returns it with the body's offset. Raises UnsupportedVersionError where the key or version is
    unknown, so that the rest of the header cannot be read, else WireError.
    """
    if len(buffer) < _FIXED.size:
        raise WireError(f"a request of {len(buffer)} bytes has no header")
    api_key, api_version, correlation_id = _FIXED.unpack_from(buffer)
    header_version = _REQUEST_HEADERS.get((api_key, api_version))
    if header_version is None:
        raise UnsupportedVersionError(api_key, api_version, correlation_id)
    position = _FIXED.size
    client_id = None
    if header_version:
        client_id, position = _decode_client_id(buffer, position)
    if header_version == 2:
        if position >= len(buffer):
            raise WireError("the request ends within its header")
        count = buffer[position]
        position += 1
        if count:
            position = skip_tags(buffer, position, count)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _decode_client_id(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """Read the nullable string that is not compact even in header v2 (KIP-482)."""
    start = position + 2
    if start > len(buffer):
        raise WireError("the request ends within its header")
    (size,) = _INT16.unpack_from(buffer, position)
    if size < 0:
        return None, start
    stop = start + size
    if stop > len(buffer):
        raise WireError("the client id is longer than the request")
    try:
        return str(buffer[start:stop], "utf-8"), stop
    except UnicodeDecodeError as error:
        raise WireError(f"client id: {error}") from None


def encode_request(
    message: object, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the whole frame of a request, size prefix included."""
    api_key = _key_of(message)
    parts, _ = encode_parts(message, version)
    header = encode_request_header(RequestHeader(api_key, version, correlation_id, client_id))
    try:
        body = b"".join(parts)
    except TypeError as error:
        raise EncodeError(f"{type(message).__name__}: {error}") from None
    return _INT32.pack(len(header) + len(body)) + header + body


def encode_request_header(header: RequestHeader) -> bytes:
    """Return the bytes of a request header, in the version that its key and version call for."""
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id)
    header_version = request_header_version(header.api_key, header.api_version)
    if header_version == 0:
        return fixed
    name = b"" if header.client_id is None else header.client_id.encode()
    size = -1 if header.client_id is None else len(name)
    tags = b"\x00" if header_version == 2 else b""
    return fixed + _INT16.pack(size) + name + tags


def encode_response(message: object, version: int, correlation_id: int) -> list[Chunk]:
    """Return the frame of a response as chunks to send in order, size prefix included.

    RECORDS chunks are passed on uncopied; a chunk that is not bytes-like counts by its `length`.
    """
    return _response_frame(message, version, correlation_id, *encode_parts(message, version))


def encode_response_in_steps(
    message: object, version: int, correlation_id: int
) -> Generator[None, None, list[Chunk]]:
    """Return the same; yield now and then."""
    parts, cuts = yield from encode_parts_in_steps(message, version)
    return _response_frame(message, version, correlation_id, parts, cuts)


def _response_frame(
    message: object, version: int, correlation_id: int, parts: list[Any], cuts: list[Cut]
) -> list[Chunk]:
    api_key = _key_of(message)
    tags = b"\x00" if response_header_version(api_key, version) else b""
    chunks, size = gather(parts, cuts)
    first = chunks[0]
    assert isinstance(first, bytes)
    chunks[0] = _SIZE_AND_CORRELATION.pack(size + len(tags) + 4, correlation_id) + tags + first
    return chunks


def decode_response(cls: type[T], buffer: Buffer, version: int) -> tuple[int, T]:
    """Return the correlation id and the message of a response (its size prefix taken off)."""
    api_key = spec_of(cls).key
    assert api_key is not None
    if len(buffer) < 4:
        raise WireError(f"a response of {len(buffer)} bytes has no header")
    (correlation_id,) = _INT32.unpack_from(buffer)
    position = 4
    if api_key != API_VERSIONS and is_flexible(cls, version):
        if len(buffer) < 5:
            raise WireError("the response ends within its header")
        position = skip_tags(buffer, 5, buffer[4])
    return correlation_id, decode(cls, buffer, version, position)


def peek_throttle_ms(api_key: int, version: int, buffer: Buffer) -> int:
    """Return the throttle of an encoded response (its size prefix taken off); 0 = it has none.

    Only for responses where it is the first field, as in all that the controller has for brokers to
    pass on.
    """
    fields = spec_of(response_type(api_key)).fields
    first = next((each for each in fields if version in each.versions), None)
    position = 4
    if response_header_version(api_key, version) and len(buffer) > position:
        position = skip_tags(buffer, position + 1, buffer[position])
    if first is None or first.name != "throttle_time_ms" or len(buffer) < position + 4:
        return 0
    throttle_ms: int = _INT32.unpack_from(buffer, position)[0]
    return throttle_ms


def _key_of(message: object) -> int:
    api_key = spec_of(type(message)).key
    assert api_key is not None, f"{type(message).__name__} is no request or response"
    return api_key
