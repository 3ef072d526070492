"""Many varints at once: numpy's twin of `ottla.records.varint`.

Reading takes an array of cursors into one buffer and moves each past its varint. Cursors may run
wild on damaged data: reads are clipped to the buffer, and the caller finds out by comparing where
the cursors end with where the records do. Cursors only ever grow.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from ottla.records.errors import InvalidRecord
from ottla.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_SEVEN: Final = np.uint64(7)
_ONE: Final = np.uint64(1)


def read_varints(raw: Bytes, cursors: Ints) -> Ints:
    """Return the int32 at each cursor, and move the cursors, in place."""
    first = raw.take(cursors, mode="clip")
    cursors += 1
    more = np.flatnonzero(first > 127)
    if not more.size:
        return _small(first)
    values = (first & 127).astype(np.int64)
    for shift in range(7, 7 * VARINT_BYTES_MAX, 7):
        # Often all or none go on; then whole arrays spare the indirection.
        everywhere = more.size == values.size
        byte = raw.take(cursors if everywhere else cursors[more], mode="clip")
        part = (byte & 127).astype(np.int64) << shift
        if everywhere:
            cursors += 1
            values |= part
        else:
            cursors[more] += 1
            values[more] |= part
        more = more[byte > 127]
        if not more.size:
            break
    else:
        raise InvalidRecord(f"a varint is longer than {VARINT_BYTES_MAX} bytes")
    if shift == 28 and int(values.max()) >> 32:
        raise InvalidRecord("a varint exceeds 32 bits")
    return (values >> 1) ^ -(values & 1)


def _small(first: Bytes) -> Ints:
    """Return the values of one-byte varints."""
    values = first.astype(np.int64)
    return (values >> 1) ^ -(values & 1)


def read_varlongs(raw: Bytes, cursors: Ints) -> Ints:
    """Return the int64 at each cursor, and move the cursors, in place."""
    first = raw.take(cursors, mode="clip")
    cursors += 1
    more = np.flatnonzero(first > 127)
    if not more.size:
        return _small(first)
    values: Words = (first & 127).astype(np.uint64)
    for shift in range(7, 7 * VARLONG_BYTES_MAX, 7):
        everywhere = more.size == values.size
        byte = raw.take(cursors if everywhere else cursors[more], mode="clip")
        part = (byte & 127).astype(np.uint64) << np.uint64(shift)
        if everywhere:
            cursors += 1
            values |= part
        else:
            cursors[more] += 1
            values[more] |= part
        if shift == 63 and int(byte.max()) > 1:
            raise InvalidRecord("a varint exceeds 64 bits")
        more = more[byte > 127]
        if not more.size:
            break
    return ((values >> _ONE) ^ (np.uint64(0) - (values & _ONE))).view(np.int64)


def varint_bytes(values: Ints) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """Return the varints of `values` as a matrix, a row each, and which of its cells count."""
    words = ((values << 1) ^ (values >> 63)).view(np.uint64)
    bits = int(words.max()).bit_length() if words.size else 1
    width = max(1, (bits + 6) // 7)
    cells = np.empty((words.size, width), np.uint8)
    used = np.empty((words.size, width), np.bool_)
    used[:, 0] = True
    for column in range(width):
        rest = words >> _SEVEN
        more = rest > 0
        cells[:, column] = (words & np.uint64(127)).astype(np.uint8) | (more.view(np.uint8) << 7)
        if column + 1 < width:
            used[:, column + 1] = more
        words = rest
    return cells, used
