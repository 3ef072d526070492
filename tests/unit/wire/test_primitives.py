"""Variable-length integers: known bytes, round trips over the whole range, refused ones.

The known bytes are worked out by hand from seven-bit groups and zigzag.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.errors import WireError
from ottla.wire.primitives import (
    decode_uvarint,
    decode_uvarlong,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
)

UNSIGNED = [
    (0, "00"),
    (1, "01"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    ((1 << 32) - 1, "ffffffff0f"),
]
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (64, "8001"),
    ((1 << 31) - 1, "feffffff0f"),
    (-(1 << 31), "ffffffff0f"),
]
SIGNED_LONG = [
    ((1 << 63) - 1, "feffffffffffffffff01"),
    (-(1 << 63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "written"), UNSIGNED)
def test_unsigned(value: int, written: str) -> None:
    assert encode_uvarint(value).hex() == written
    assert decode_uvarint(bytes.fromhex(written), 0) == (value, len(written) // 2)


@pytest.mark.parametrize(("value", "written"), SIGNED)
def test_signed(value: int, written: str) -> None:
    assert encode_varint(value).hex() == encode_varlong(value).hex() == written
    assert decode_varint(bytes.fromhex(written), 0) == (value, len(written) // 2)
    assert decode_varlong(bytes.fromhex(written), 0) == (value, len(written) // 2)


@pytest.mark.parametrize(("value", "written"), SIGNED_LONG)
def test_signed_long(value: int, written: str) -> None:
    assert encode_varlong(value).hex() == written
    assert decode_varlong(bytes.fromhex(written), 0) == (value, 10)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(value: int, before: bytes, after: bytes) -> None:
    written = encode_varlong(value)
    for kind in (bytes, bytearray, memoryview):
        buffer = kind(before + written + after)
        assert decode_varlong(buffer, len(before)) == (value, len(before) + len(written))


def test_longer_forms_of_a_value_are_taken() -> None:
    """Kafka takes them, and some writers reserve a fixed width for a length."""
    assert decode_uvarint(b"\x81\x80\x80\x00", 0) == (1, 4)


@pytest.mark.parametrize(
    ("decode", "written"),
    [
        (decode_uvarint, ""),
        (decode_uvarint, "80"),
        (decode_uvarint, "808080808001"),
        (decode_uvarint, "ffffffff10"),
        (decode_varint, "ffffffffff"),
        (decode_uvarlong, "80" * 10 + "01"),
        (decode_varlong, "ff" * 9 + "02"),
    ],
)
def test_refused(decode: Callable[[bytes, int], tuple[int, int]], written: str) -> None:
    with pytest.raises(WireError):
        decode(bytes.fromhex(written), 0)
