"""The aborted transactions of a segment, for read_committed consumers.

An entry is 34 bytes: version 0 (int16), producer id, first offset, last offset (that of the abort
marker) and the last stable offset when it was written (int64 each). It is in the index of the
segment with the marker; entries are in the order of last offsets. The file exists only if a
transaction was aborted.

Source: TransactionIndex, AbortedTxn; KIP-98.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = ENTRY.size
assert ENTRY_SIZE == 34
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """One entry. Offsets are absolute; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_entry(entry: AbortedTransaction) -> bytes:
    """Return the 34 bytes."""
    return ENTRY.pack(VERSION, *entry)


def decode_entries(data: bytes, base_offset: int) -> list[AbortedTransaction]:
    """Return a file's entries. Raises: ValueError where it is corrupt."""
    if len(data) % ENTRY_SIZE:
        raise ValueError(f"a transaction index of {len(data)} bytes is not whole entries")
    entries: list[AbortedTransaction] = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise ValueError(f"a transaction index entry has version {version}")
        entry = AbortedTransaction(*fields)
        if entry.last_offset < base_offset or entry.first_offset > entry.last_offset:
            raise ValueError(f"{entry} cannot be of the segment at {base_offset}")
        entries.append(entry)
    return entries


def select(
    entries: Iterable[AbortedTransaction], start_offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return the transactions with records in [start, end), and whether the search is complete.

    It is complete at an entry whose last stable offset reaches the end: all transactions that
    began before that offset had ended by then.
    """
    found: list[AbortedTransaction] = []
    for entry in entries:
        if entry.last_offset >= start_offset and entry.first_offset < end_offset:
            found.append(entry)
        if entry.last_stable_offset >= end_offset:
            return found, True
    return found, False
