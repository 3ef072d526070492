"""Checkpoint files, byte for byte as Kafka writes them.

Method: content written by hand, damage of each kind, round trips of any offsets.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.dirs.checkpoints import (
    MalformedFile,
    decode_checkpoint,
    decode_clean_shutdown,
    decode_offsets,
    encode_clean_shutdown,
    encode_offsets,
    read_offsets,
)
from ottla.testing.disk import MemoryDisk

OFFSETS = {("b", 0): 7, ("a", 10): 0, ("a", 2): 2**63 - 1}
CONTENT = b"0\n3\na 2 9223372036854775807\na 10 0\nb 0 7\n"


def test_offsets() -> None:
    assert encode_offsets(OFFSETS) == CONTENT
    assert decode_offsets(CONTENT) == OFFSETS
    assert encode_offsets({}) == b"0\n0\n"
    assert decode_offsets(b"0\n0\n") == {}


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-z._-]{1,9}", fullmatch=True), st.integers(0, 9999)),
        st.integers(0, 2**63 - 1),
    )
)
def test_offsets_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\n",
        b"x\n0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n0\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 1 2\n",
        b"0\n1\na x 1\n",
        b"0\n1\na 0 x\n",
        b"\xff\xfe\n",
    ],
)
def test_damaged_offsets(data: bytes) -> None:
    with pytest.raises(MalformedFile):
        decode_offsets(data)


def test_a_cut_entry_is_noticed_by_the_count() -> None:
    with pytest.raises(MalformedFile):
        decode_checkpoint(CONTENT[: CONTENT.index(b"b 0")], 3)


def test_a_missing_or_empty_checkpoint_has_no_entries() -> None:
    """Kafka creates it empty."""
    disk = MemoryDisk()
    disk.mkdir("/d")
    assert read_offsets(disk, "/d/c") == {}
    disk.write_atomic("/d/c", b"")
    assert read_offsets(disk, "/d/c") == {}
    disk.write_atomic("/d/c", CONTENT)
    assert read_offsets(disk, "/d/c") == OFFSETS


def test_a_damaged_or_unreadable_checkpoint_does_not_count_as_empty() -> None:
    disk = MemoryDisk()
    disk.mkdir("/d")
    disk.write_atomic("/d/c", CONTENT[:-1] + b"\0\n")
    with pytest.raises(MalformedFile):
        read_offsets(disk, "/d/c")
    disk.write_atomic("/d/c", CONTENT)
    disk.fail("read_bytes")
    with pytest.raises(OSError):
        read_offsets(disk, "/d/c")


def test_clean_shutdown() -> None:
    assert encode_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":12}') == 12
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":12,"more":1}') == 12


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"x"}'])
def test_a_clean_shutdown_file_without_an_epoch(data: bytes) -> None:
    assert decode_clean_shutdown(data) == -1
