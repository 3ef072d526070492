"""Snapshot files of the producer state, byte for byte.

Method: a file built by hand field by field; every single-byte damage is noticed; any state comes
back but for the older batches.
"""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.log.producers.producer_state import BatchMetadata, ProducerEntry

BODY = bytes.fromhex(
    "00000002"
    # Producer id, epoch, last sequence, last offset, delta, timestamp, coordinator epoch, start.
    "0000000000000001 0002 00000003 0000000000000004 00000002 0000000000000006 00000007"
    "0000000000000002"
    "0000000000000009 0000 ffffffff ffffffffffffffff 00000000 ffffffffffffffff ffffffff"
    "ffffffffffffffff"
)
CONTENT = struct.pack(">hI", 1, crc32c(BODY)) + BODY


def entries() -> list[ProducerEntry]:
    first = ProducerEntry(1, 2, 7, 6, 2)
    first.batches.append(BatchMetadata(3, 4, 2, 6))
    return [first, ProducerEntry(9, 0)]


def test_bytes() -> None:
    assert encode_snapshot(reversed(entries())) == CONTENT
    assert decode_snapshot(CONTENT) == entries()
    assert encode_snapshot([]) == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_any_damaged_byte_is_noticed(position: int, flip: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[position] ^= flip
    with pytest.raises(MalformedFile):
        decode_snapshot(bytes(damaged))


@given(st.integers(0, len(CONTENT) - 1))
def test_any_cut_is_noticed(length: int) -> None:
    with pytest.raises(MalformedFile):
        decode_snapshot(CONTENT[:length])


def test_a_wrong_count_under_a_right_crc_is_noticed() -> None:
    body = b"\0\0\0\x03" + BODY[4:]
    with pytest.raises(MalformedFile, match="3 entries"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


@given(
    st.dictionaries(
        st.integers(0, 2**63 - 1),
        st.tuples(
            st.integers(0, 2**15 - 1),
            st.integers(-1, 2**31 - 1),
            st.integers(-1, 2**63 - 1),
            st.integers(-1, 2**63 - 1),
        ),
        max_size=5,
    )
)
def test_round_trip(fields: dict[int, tuple[int, int, int, int]]) -> None:
    state = [ProducerEntry(producer_id, *rest) for producer_id, rest in sorted(fields.items())]
    for entry in state:
        entry.batches.append(BatchMetadata(5, 9, 3, entry.last_timestamp))
    assert decode_snapshot(encode_snapshot(state)) == state
