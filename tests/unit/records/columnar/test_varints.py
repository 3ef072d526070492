"""Varints in arrays must be those of `ottla.records.varint`, refusals included.

Method: hypothesis; each array's varints laid out in one buffer, read and written both ways.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.columnar.varints import read_varints, read_varlongs, varint_bytes
from ottla.records.errors import InvalidRecord
from ottla.records.varint import encode_varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-70, 70)


def laid_out(values: list[int]) -> tuple[bytes, list[int]]:
    """Return the varints one after another, and where each starts and the last one ends."""
    parts = [encode_varint(value) for value in values]
    return b"".join(parts), np.cumsum([0, *map(len, parts)]).tolist()


@given(st.lists(INT32 | SMALL, min_size=1) | st.lists(SMALL, min_size=1))
def test_int32_are_read(values: list[int]) -> None:
    data, bounds = laid_out(values)
    cursors = np.array(bounds[:-1], np.int64)
    assert read_varints(np.frombuffer(data, np.uint8), cursors).tolist() == values
    assert cursors.tolist() == bounds[1:]


@given(st.lists(INT64 | SMALL, min_size=1) | st.lists(SMALL, min_size=1))
def test_int64_are_read_and_written(values: list[int]) -> None:
    data, bounds = laid_out(values)
    cursors = np.array(bounds[:-1], np.int64)
    assert read_varlongs(np.frombuffer(data, np.uint8), cursors).tolist() == values
    assert cursors.tolist() == bounds[1:]
    cells, used = varint_bytes(np.array(values, np.int64))
    assert cells[used].tobytes() == data


def test_no_values() -> None:
    cells, used = varint_bytes(np.array([], np.int64))
    assert cells[used].size == 0


@pytest.mark.parametrize("encoded", ["ffffffff10", "ffffffffff00"])
def test_no_int32(encoded: str) -> None:
    raw = np.frombuffer(bytes.fromhex("00" + encoded), np.uint8)
    with pytest.raises(InvalidRecord):
        read_varints(raw, np.array([0, 1], np.int64))


@pytest.mark.parametrize("encoded", ["ff" * 9 + "02", "80" * 10 + "00"])
def test_no_int64(encoded: str) -> None:
    raw = np.frombuffer(bytes.fromhex("00" + encoded), np.uint8)
    with pytest.raises(InvalidRecord):
        read_varlongs(raw, np.array([0, 1], np.int64))


def test_a_cursor_beyond_the_end_reads_something_and_still_grows() -> None:
    """The caller compares cursors with where they must end; reading must only not fail."""
    raw = np.frombuffer(b"\x02\x81", np.uint8)
    cursors = np.array([0, 5], np.int64)
    with pytest.raises(InvalidRecord):  # The last byte repeats for ever.
        read_varints(raw, cursors)
    raw = np.frombuffer(b"\x02\x01", np.uint8)
    cursors = np.array([0, 5], np.int64)
    read_varints(raw, cursors)
    assert cursors.tolist() == [1, 6]
