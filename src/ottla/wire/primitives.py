"""Variable-length integers, as Kafka's protocol and record batches write them.

Seven bits a byte, lowest first, the top bit says that more follow. Unsigned ones carry lengths
and tags (KIP-482); the signed ones are zigzag-coded first (record format v2). A decoder takes a
buffer and a position and returns the value and the position behind it.
Source: ByteUtils.java.
"""

from ottla.wire.errors import WireError

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
UVARLONG_BYTES_MAX = 10
_UINT32_LIMIT = 1 << 32
_UINT64_LIMIT = 1 << 64

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The encodings of 0 to 127: most lengths and all tags are that small."""


def encode_uvarint(value: int) -> bytes:
    """Return `value` (0 to 2**32 - 1; larger ones of 64 bits too) as an unsigned varint."""
    assert 0 <= value < _UINT64_LIMIT
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a signed 32-bit integer."""
    assert -(1 << 31) <= value < 1 << 31
    return encode_uvarint((value << 1) ^ (value >> 31))


def encode_varlong(value: int) -> bytes:
    """Return the zigzag varint of a signed 64-bit integer."""
    assert -(1 << 63) <= value < 1 << 63
    return encode_uvarint((value << 1) ^ (value >> 63))


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 32 bits; raise WireError otherwise."""
    return _decode(buffer, position, UVARINT_BYTES_MAX, _UINT32_LIMIT)


def decode_uvarlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 10 bytes and 64 bits; raise WireError otherwise."""
    return _decode(buffer, position, UVARLONG_BYTES_MAX, _UINT64_LIMIT)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 bits."""
    value, position = _decode(buffer, position, UVARINT_BYTES_MAX, _UINT32_LIMIT)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a zigzag varint of 64 bits."""
    value, position = _decode(buffer, position, UVARLONG_BYTES_MAX, _UINT64_LIMIT)
    return (value >> 1) ^ -(value & 1), position


def _decode(buffer: Buffer, position: int, bytes_max: int, limit: int) -> tuple[int, int]:
    assert position >= 0
    value = shift = 0
    for byte in buffer[position : position + bytes_max]:
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= limit:
                raise WireError(f"varint of more than {limit.bit_length() - 1} bits")
            return value, position
        shift += 7
    raise WireError(f"varint does not end within {bytes_max} bytes")
