"""Variable-length integers: known bytes, round trips over the whole range, refused ones.

The known bytes are worked out by hand from seven-bit groups.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.errors import WireError
from ottla.wire.primitives import (
    decode_uvarint,
    encode_uvarint,
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


@pytest.mark.parametrize(("value", "written"), UNSIGNED)
def test_unsigned(value: int, written: str) -> None:
    assert encode_uvarint(value).hex() == written
    assert decode_uvarint(bytes.fromhex(written), 0) == (value, len(written) // 2)


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(value: int, before: bytes, after: bytes) -> None:
    written = encode_uvarint(value)
    for kind in (bytes, bytearray, memoryview):
        buffer = kind(before + written + after)
        assert decode_uvarint(buffer, len(before)) == (value, len(before) + len(written))


def test_longer_forms_of_a_value_are_taken() -> None:
    """Kafka takes them, and some writers reserve a fixed width for a length."""
    assert decode_uvarint(b"\x81\x80\x80\x00", 0) == (1, 4)


@pytest.mark.parametrize("written", ["", "80", "808080808001", "ffffffff10", "ffffffffff"])
def test_refused(written: str) -> None:
    with pytest.raises(WireError):
        decode_uvarint(bytes.fromhex(written), 0)
