"""Finding where records start: the one thing that goes step by step.

Each record begins with its length, so the next one's place is known only once this one is. A
Python loop does a step in about 0.12 us. Two shortcuts:

- Records of equal length in a row are found by one comparison: at equal distances stand equal
  lengths. By induction the places are those that the loop finds.
- Where a chunk has many batches, these advance side by side: a step of all of them is five calls
  to numpy, about 4 us.
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
RUN_MIN: Final = 32
"""Records of equal length in a row from which to compare them beats steps in Python."""
RUN_MAX: Final = 4096
"""So many are compared at once: what is behind the end of a run is compared in vain."""
RUNS_COUNT_MIN: Final = 1000
"""Records of a batch. The first 64 have shorter offset deltas, hence a run of their own: in small
batches runs are short."""


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
    longest = int(counts.max())
    many = int(counts.sum()) >= LANES_MIN * longest
    if many and (longest < RUNS_COUNT_MIN or not _has_run(data, raw, starts[0], ends[0])):
        return _side_by_side(data, raw, starts, ends, counts)
    return _in_runs(data, raw, starts, ends, counts.tolist())


def _has_run(data: Buffer, raw: Bytes, start: int, end: int) -> bool:
    return start + 1 < end and _run(data, raw, start, end, RUN_MIN)[0] == RUN_MIN


def _in_runs(
    data: Buffer, raw: Bytes, starts: list[int], ends: list[int], counts: list[int]
) -> Ints:
    found = np.empty(sum(counts), np.int64)
    slot = 0
    pause = RUN_MIN  # Without runs, they are looked for ever less.
    try:
        for cursor, end, count in zip(starts, ends, counts, strict=True):
            stop = slot + count
            while slot < stop:
                some, step = _run(data, raw, cursor, end, min(stop - slot, RUN_MAX))
                if some >= RUN_MIN:
                    found[slot : slot + some] = np.arange(some) * step + cursor
                    cursor += some * step
                    pause = RUN_MIN
                else:
                    some = min(pause, stop - slot)
                    places: list[int] = []
                    cursor = _hop(data, cursor, some, places)
                    found[slot : slot + some] = places
                    pause *= 2
                slot += some
            if cursor != end:
                raise InvalidRecord(f"a batch ends at {end}, its records end at {cursor}")
    except IndexError:
        raise InvalidRecord("a batch's records are cut") from None
    return found


def _run(data: Buffer, raw: Bytes, cursor: int, end: int, count: int) -> tuple[int, int]:
    """Return how many records from here on have the length of the first, and how far each goes.

    `count`: at most so many. Those whose length takes 3 bytes or more are in no run.
    """
    low, high = data[cursor], 0
    if low < 128:
        step = 1 + (low >> 1)
    elif (high := data[cursor + 1]) < 128:
        step = _LOW_HOPS[low] + (high << 6)
    else:
        return 0, 0
    count = min(count, (min(end, len(raw)) - cursor) // step)
    if count < RUN_MIN:
        return 0, step
    bound = cursor + count * step
    same = raw[cursor:bound:step] == low
    if low > 127:
        same &= raw[cursor + 1 : bound : step] == high
    return count if same.all() else int(same.argmin()), step


def _one_by_one(data: Buffer, starts: list[int], ends: list[int], counts: list[int]) -> list[int]:
    found: list[int] = []
    try:
        for start, end, count in zip(starts, ends, counts, strict=True):
            cursor = _hop(data, start, count, found)
            if cursor != end:
                raise InvalidRecord(f"a batch ends at {end}, its records end at {cursor}")
    except IndexError:
        raise InvalidRecord("a batch's records are cut") from None
    return found


def _hop(data: Buffer, cursor: int, count: int, found: list[int]) -> int:
    """Append where `count` records start; return where the last one ends. Raises: IndexError."""
    append = found.append
    for _ in repeat(None, count):
        append(cursor)
        if (low := data[cursor]) < 128:
            cursor += 1 + (low >> 1)
        elif (high := data[cursor + 1]) < 128:
            cursor += _LOW_HOPS[low] + (high << 6)
        else:
            cursor += _long_hop(data, cursor)
    return cursor


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
