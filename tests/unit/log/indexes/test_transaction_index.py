"""The transaction index: 34-byte entries, and which of them a read needs.

Method: bytes by hand; selections against small stories of transactions.
"""

import pytest

from ottla.log.indexes.transaction_index import (
    AbortedTransaction,
    decode_entries,
    encode_entry,
    select,
)

ENTRY = AbortedTransaction(producer_id=1, first_offset=2, last_offset=0x0304, last_stable_offset=5)
BYTES = bytes.fromhex("0000 0000000000000001 0000000000000002 0000000000000304 0000000000000005")


def test_bytes() -> None:
    assert encode_entry(ENTRY) == BYTES
    assert decode_entries(BYTES + BYTES, 0) == [ENTRY, ENTRY]
    assert decode_entries(b"", 0) == []


@pytest.mark.parametrize(
    ("data", "base"),
    [
        (BYTES[:-1], 0),
        (b"\x00\x01" + BYTES[2:], 0),
        (BYTES, 0x0305),
        (encode_entry(ENTRY._replace(first_offset=0x0305)), 0),
    ],
)
def test_corruption(data: bytes, base: int) -> None:
    with pytest.raises(ValueError):
        decode_entries(data, base)


def test_selection() -> None:
    early = AbortedTransaction(1, first_offset=0, last_offset=10, last_stable_offset=5)
    late = AbortedTransaction(2, first_offset=5, last_offset=30, last_stable_offset=31)
    entries = [early, late]
    assert select(entries, 0, 5) == ([early], True)
    assert select(entries, 0, 6) == ([early, late], True)
    assert select(entries, 11, 20) == ([late], True)
    assert select(entries, 31, 40) == ([], False)
    assert select(entries, 11, 40) == ([late], False)
