"""Variable-length integers of the protocol: its lengths and tags (KIP-482).

Seven bits a byte, lowest first, the top bit says that more follow. The decoder takes a buffer and a
position and returns the value and the position behind it. Records have signed ones, see
`ottla.records.varint`.
Source: ByteUtils.java.
"""

from ottla.wire.errors import WireError

Buffer = bytes | bytearray | memoryview

UVARINT_BYTES_MAX = 5
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


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes and 32 bits; raise WireError otherwise."""
    assert position >= 0
    value = shift = 0
    for byte in buffer[position : position + UVARINT_BYTES_MAX]:
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= _UINT32_LIMIT:
                raise WireError("varint of more than 32 bits")
            return value, position
        shift += 7
    raise WireError(f"varint does not end within {UVARINT_BYTES_MAX} bytes")
