"""Finding where records start: the one thing that goes step by step.

Each record begins with its length, so the next one's place is known only once this one is. A
Python loop does a step in about 0.12 us. Where a chunk has many batches, these advance side by
side: a step of all of them is five calls to numpy, about 4 us.
"""

from itertools import repeat
from typing import Final

import numpy as np

from ottla.records.columnar.varints import Bytes, Ints
from ottla.records.compression import Buffer
from ottla.records.errors import InvalidRecord
from ottla.records.varint import read_varint

LANES_MIN: Final = 32
"""Records per step from which steps in numpy beat steps in Python."""


def _hop_of_words() -> Ints:
    """Return, for each two bytes a record may begin with, how far the next record is.

    0 = its length takes three bytes or more.
    """
    words = np.arange(1 << 16, dtype=np.int64)
    low, high = words & 255, words >> 8
    two_bytes = np.where(high < 128, 2 + (low >> 1 & 63 | high << 6), 0)
    return np.where(low < 128, 1 + (low >> 1), two_bytes)


_HOPS = _hop_of_words()
_LOW_HOPS = tuple(2 + (low >> 1 & 63) for low in range(256))
"""What the first byte of a two-byte length contributes to the hop."""


def find_records(
    data: Buffer, raw: Bytes, starts: list[int], ends: list[int], counts: Ints
) -> Ints:
    """Return where each record's length stands, for batches of `counts` records each.

    `data` and `raw` are the same bytes. Lengths are read, not checked: whoever reads them again
    must check that they are not negative and lead to the next record.

    Raises: InvalidRecord where a batch's records do not end where the batch does.
    """
    if int(counts.sum()) >= LANES_MIN * int(counts.max()):
        return _side_by_side(data, raw, starts, ends, counts)
    return np.array(_one_by_one(data, starts, ends, counts.tolist()), np.int64)


def _one_by_one(data: Buffer, starts: list[int], ends: list[int], counts: list[int]) -> list[int]:
    found: list[int] = []
    append = found.append
    try:
        for cursor, end, count in zip(starts, ends, counts, strict=True):
            for _ in repeat(None, count):
                append(cursor)
                if (low := data[cursor]) < 128:
                    cursor += 1 + (low >> 1)
                elif (high := data[cursor + 1]) < 128:
                    cursor += _LOW_HOPS[low] + (high << 6)
                else:
                    cursor += _long_hop(data, cursor)
            if cursor != end:
                raise InvalidRecord(f"a batch ends at {end}, its records end at {cursor}")
    except IndexError:
        raise InvalidRecord("a batch's records are cut") from None
    return found


def _long_hop(data: Buffer, cursor: int) -> int:
    """Return how far it is from a record whose length takes 3 bytes or more to the next."""
    length, size = read_varint(bytes(data[cursor : cursor + 5]), 0)
    if length < 0:
        raise InvalidRecord(f"a record has length {length}")
    return size + length


def _side_by_side(
    data: Buffer, raw: Bytes, starts: list[int], ends: list[int], counts: Ints
) -> Ints:
    # The two bytes at every place; reading a word costs less than reading two bytes.
    words = np.ndarray((len(raw) - 1,), np.dtype("<u2"), raw, 0, (1,))
    order = np.argsort(-counts, kind="stable")  # So that the lanes still running come first.
    cursors = np.array(starts, np.int64)[order]
    slots = (np.cumsum(counts) - counts)[order]
    found = np.empty(int(counts.sum()), np.int64)
    # How many lanes have a record number 0, 1, 2, ...
    steps = np.arange(int(counts.max()))
    running = len(counts) - np.searchsorted(counts[order[::-1]], steps, side="right")
    try:
        for lanes in running.tolist():
            at, slot = cursors[:lanes], slots[:lanes]
            found[slot] = at
            slot += 1
            at += _HOPS[words[at]]
    except IndexError:
        raise InvalidRecord("a batch's records are cut") from None
    # A lane that met a long record stands still since, and is hopped again on its own.
    astray = order[cursors != np.array(ends, np.int64)[order]]
    firsts = np.cumsum(counts) - counts
    for lane in astray.tolist():
        count = int(counts[lane])
        again = _one_by_one(data, [starts[lane]], [ends[lane]], [count])
        found[int(firsts[lane]) : int(firsts[lane]) + count] = again
    return found
