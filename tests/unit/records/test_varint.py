"""Varints must be those of Kafka's ByteUtils, and nothing longer may pass.

Method: known encodings, a round trip of every width, and refusals byte by byte.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.errors import InvalidRecord
from ottla.records.varint import encode_varint, read_varint, read_varlong

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")],
)
def test_longest_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, 10)


@given(INT32)
def test_int32_returns(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert len(encoded) <= 5


@given(INT64)
def test_int64_returns(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))
    assert len(encoded) <= 10


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffffff00", "8080808080"])
def test_no_int32(encoded: str) -> None:
    with pytest.raises(InvalidRecord):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 10 + "00"])
def test_no_int64(encoded: str) -> None:
    with pytest.raises(InvalidRecord):
        read_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffff", "ffffffff"])
def test_a_cut_varint_is_an_index_error(encoded: str) -> None:
    for read in (read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(bytes.fromhex(encoded), 0)
