"""Zigzag varints, as records of format 2 use them for every length and delta.

Seven bits a byte, lowest first, the high bit says that more follow; the sign is the lowest bit.
At most 5 bytes where Kafka has an int32 and 10 where it has an int64; longer or larger ones are
refused, which Kafka's own reader does for length and leaves to overflow for size.

Source: Kafka's ByteUtils; the encoding is that of Protocol Buffers' sint32 and sint64.
"""

from typing import Final

from ottla.records.compression import Expanded
from ottla.records.errors import InvalidRecord

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

ZIGZAG: Final = tuple(byte >> 1 ^ -(byte & 1) for byte in range(128))
"""The value that each one-byte varint stands for."""

_INT64_BITS = 64


def encode_varint(value: int) -> bytes:
    """Return the varint of an int32 or int64."""
    rest = value << 1 ^ value >> _INT64_BITS - 1
    if rest < 128:
        return _ONE_BYTE[rest]
    assert not rest >> _INT64_BITS, "no reader takes more than 64 bits"
    parts = bytearray()
    while rest > 127:
        parts.append(rest & 127 | 128)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


_ONE_BYTE = tuple(bytes((byte,)) for byte in range(128))


def read_varint(data: Expanded, position: int) -> tuple[int, int]:
    """Return the int32 at `position` and where it ends.

    Raises: InvalidRecord where it is no int32; IndexError where `data` ends within it.
    """
    byte = data[position]
    if byte < 128:
        return ZIGZAG[byte], position + 1
    second = data[position + 1]
    if second < 128:  # Most lengths and deltas need no more than two bytes.
        value = byte & 127 | second << 7
        return value >> 1 ^ -(value & 1), position + 2
    return _read(data, position, VARINT_BYTES_MAX, 32)


def read_varlong(data: Expanded, position: int) -> tuple[int, int]:
    """Return the int64 at `position` and where it ends; raises as `read_varint`."""
    byte = data[position]
    if byte < 128:
        return ZIGZAG[byte], position + 1
    second = data[position + 1]
    if second < 128:
        value = byte & 127 | second << 7
        return value >> 1 ^ -(value & 1), position + 2
    return _read(data, position, VARLONG_BYTES_MAX, 64)


def _read(data: Expanded, position: int, bytes_max: int, bits: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> bits:
                raise InvalidRecord(f"a varint exceeds {bits} bits")
            return value >> 1 ^ -(value & 1), position
    raise InvalidRecord(f"a varint is longer than {bytes_max} bytes")
