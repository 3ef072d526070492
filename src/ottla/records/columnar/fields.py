"""Where each record's fields are, for all records of a chunk at once."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ottla.records.columnar.varints import Bytes, Ints, read_varints, read_varlongs
from ottla.records.errors import InvalidRecord
from ottla.records.varint import read_varint

ROUND_LANES_MIN: Final = 16
"""Fewer records than that with ever more headers are walked one by one."""


@dataclass(frozen=True, slots=True)
class Headers:
    """All headers of a chunk, in the records' order; a value's length of -1 is null."""

    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


@dataclass(frozen=True, slots=True)
class Fields:
    """One element a record; a length of -1 is null."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    headers: Headers


def locate(raw: Bytes, starts: Ints, batch_ends: Ints, counts: Ints) -> Fields:
    """Return the fields of the records that start at `starts`, those of one batch in a row.

    Raises: InvalidRecord where a record's fields do not end where the record does, that is
            where the next record starts or the batch ends.
    """
    cursors = starts.copy()
    lengths = read_varints(raw, cursors)
    ends = cursors + lengths
    expected = np.empty_like(starts)
    expected[:-1] = starts[1:]
    expected[np.cumsum(counts) - 1] = batch_ends
    if (ends != expected).any():
        raise InvalidRecord("a record does not end where the next one starts")
    cursors += 1  # Attributes: unused so far.
    timestamp_deltas = read_varlongs(raw, cursors)
    offset_deltas = read_varints(raw, cursors)
    key_lengths = _lengths(raw, cursors, -1)
    key_starts = cursors.copy()
    cursors += np.maximum(key_lengths, 0)
    value_lengths = _lengths(raw, cursors, -1)
    value_starts = cursors.copy()
    cursors += np.maximum(value_lengths, 0)
    header_counts = _lengths(raw, cursors, 0)
    headers = _walk_headers(raw, cursors, ends, header_counts)
    if (cursors != ends).any():
        raise InvalidRecord("a record's fields do not end where the record does")
    return Fields(
        timestamp_deltas,
        offset_deltas,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_counts,
        headers,
    )


def _lengths(raw: Bytes, cursors: Ints, least: int) -> Ints:
    lengths = read_varints(raw, cursors)
    if int(lengths.min()) < least:
        raise InvalidRecord(f"a field has length or count {lengths.min()}")
    return lengths


def _walk_headers(raw: Bytes, cursors: Ints, ends: Ints, counts: Ints) -> Headers:
    """Locate all headers, a round for the first of every record, then for the second, ...

    Moves the cursors of records with headers, in place.
    """
    active = np.flatnonzero(counts)
    # Two bytes at least each: also bounds what the arrays below may take.
    if ((ends - cursors) < 2 * counts)[active].any():
        raise InvalidRecord("a record has fewer bytes than headers")
    total = int(counts.sum())
    found = Headers(*(np.empty(total, np.int64) for _ in range(4)))
    slots = (np.cumsum(counts) - counts)[active]
    left = counts[active]
    at = cursors[active]
    while len(active) >= ROUND_LANES_MIN:
        key_lengths = _lengths(raw, at, 0)
        found.key_starts[slots] = at
        found.key_lengths[slots] = key_lengths
        at += key_lengths
        value_lengths = _lengths(raw, at, -1)
        found.value_starts[slots] = at
        found.value_lengths[slots] = value_lengths
        at += np.maximum(value_lengths, 0)
        left -= 1
        slots += 1
        cursors[active] = at
        more = left > 0
        if not more.all():
            active, left, slots, at = active[more], left[more], slots[more], at[more]
    for lane, count, slot in zip(active.tolist(), left.tolist(), slots.tolist(), strict=True):
        cursors[lane] = _walk_one(raw, int(cursors[lane]), int(ends[lane]), count, slot, found)
    return found


def _walk_one(raw: Bytes, start: int, end: int, count: int, slot: int, found: Headers) -> int:
    """Locate `count` headers of one record; return where they end."""
    data = raw[start:end].tobytes()
    cursor = 0
    try:
        for index in range(slot, slot + count):
            length, cursor = read_varint(data, cursor)
            if length < 0:
                raise InvalidRecord("a header has no key")
            found.key_starts[index] = start + cursor
            found.key_lengths[index] = length
            length, cursor = read_varint(data, cursor + length)
            if length < -1:
                raise InvalidRecord(f"a field has length {length}")
            found.value_starts[index] = start + cursor
            found.value_lengths[index] = length
            cursor += max(length, 0)
    except IndexError:
        raise InvalidRecord("a record's headers are cut") from None
    return start + cursor
