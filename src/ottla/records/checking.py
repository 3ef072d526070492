"""Checking every record of a batch before it is stored, in as few steps of Python as that takes.

Records of one producer are often similar: the same length, no headers, a slightly later timestamp,
the next offset delta. Such a run is checked by columns: the bytes at the same position of all its
records, as one slice with a stride. A column is compared in one call, so a record costs a few
nanoseconds. Any other record is parsed field by field, about 0.5 us.

A check can be limited to a number of steps, where it holds up others: parsing a record or a header
is one, `_RUN_RECORDS_PER_STEP` records of a run are one.

The rules are those of `ottla.records.record`; in addition the offset deltas must be 0, 1, 2, ...
"""

from typing import Final, NamedTuple

from ottla.records.compression import Expanded
from ottla.records.errors import InvalidRecord
from ottla.records.varint import ZIGZAG, read_varint, read_varlong

UNBOUNDED: Final = 2**62
"""Steps without an end."""

_RUN_RECORDS_MAX = 4096
"""Records of a run that are checked together: one call must not hold the GIL for long."""
_RUN_RECORDS_MIN = 8
"""A shorter run costs more than it saves."""
_RUN_RECORDS_PER_STEP = 16
_WALK_MAX = 512
"""Records that are parsed before the next search for a run, after one without success."""

_ONE_BYTE_END = 64
_TWO_BYTES_END = 64 << 7
"""From these offset deltas on, their varints take a byte more."""

_LOWEST = bytes(128 | (delta & 63) << 1 for delta in range(64)) * (_RUN_RECORDS_MAX // 64 + 2)
"""The first byte of the varint of 64 i, 64 i + 1, ... where more follow."""
_ONLY = bytes(delta << 1 for delta in range(_ONE_BYTE_END))
_SECOND = bytes(delta >> 6 & 127 for delta in range(_TWO_BYTES_END + _RUN_RECORDS_MAX))
_SECOND_OF_THREE = bytes(128 | byte for byte in _SECOND)

_SHIFTED = bytes(64 + (byte >> 1 ^ -(byte & 1)) if byte < 128 else 0 for byte in range(256))
"""By a one-byte varint: its value plus 64."""
_HIGH_AND_EVEN = bytes(range(128, 256, 2))
"""First bytes of varints that are longer and not negative."""


class StepsExhausted(Exception):
    """The check would take more steps than it was given; it says nothing about the records."""


class RecordsFound(NamedTuple):
    """The result of a check: the range of timestamp deltas, and whether a key is null.

    Fields: `steps`: what is left of those given.
    """

    delta_min: int
    delta_max: int
    has_null_key: bool
    steps: int


Column = bytes | bytearray


class _Walked(NamedTuple):
    """The end and the results of a walk, and the positions of the last record's fields.

    Fields: `key_min`: the smallest length of a key, or 0; `headers`: of all its records.
    """

    delta_min: int
    delta_max: int
    key_min: int
    headers: int
    start: int
    times_at: int
    deltas_at: int
    keys_at: int
    values_at: int
    value: int
    end: int


class _Run(NamedTuple):
    length: int
    delta_min: int
    delta_max: int


def check_sequence(
    data: Expanded, count: int, steps: int = UNBOUNDED, *, size: int | None = None
) -> RecordsFound:
    """Check that `data` is `count` records with offset deltas 0, 1, 2, ... and nothing else.

    `size`: how many bytes of it count, None = all.

    Raises: InvalidRecord; StepsExhausted where it would take more than `steps`.
    """
    if count > steps * _RUN_RECORDS_PER_STEP:
        raise StepsExhausted
    try:
        return _check(data, len(data) if size is None else size, count, steps)
    except IndexError:
        raise InvalidRecord(f"the bytes end within a record of {count}") from None


def _check(data: Expanded, size: int, count: int, steps: int) -> RecordsFound:
    """Parse records until one is followed by similar ones, check these as a run, and so on."""
    delta_min, delta_max, key_min = 2**63, -(2**63), 0
    cursor = index = 0
    walk = 1
    while index < count:
        walk = min(walk, count - index)
        walked = _walk(data, cursor, index, walk, steps)
        index += walk
        cursor = walked.end
        steps -= walk + walked.headers
        delta_min = min(delta_min, walked.delta_min)
        delta_max = max(delta_max, walked.delta_max)
        key_min = min(key_min, walked.key_min)
        if steps < 0:
            raise StepsExhausted
        if index == count:
            break
        run = None if walked.headers else _run_of(data, size, walked, index, count - index)
        if run is not None:
            index += run.length
            cursor += run.length * (cursor - walked.start)
            steps -= run.length // _RUN_RECORDS_PER_STEP
            delta_min = min(delta_min, run.delta_min)
            delta_max = max(delta_max, run.delta_max)
        is_worth_it = run is not None and run.length >= _RUN_RECORDS_MIN
        walk = 1 if is_worth_it else min(2 * walk, _WALK_MAX)
    if cursor != size:
        raise InvalidRecord(f"{size - cursor} bytes follow the batch's last record")
    return RecordsFound(delta_min, delta_max, key_min < 0, steps)


def _walk(data: Expanded, cursor: int, index: int, count: int, headers_max: int) -> _Walked:
    """Check `count` records from the one with that offset delta at `cursor` on, field by field.

    Most varints have one or two bytes; the branches below spare a call for each of these. A
    record's attributes, before its timestamp, are unused; some readers take them for a varint.
    """
    zigzag = ZIGZAG
    delta_min, delta_max, key_min, all_headers, time_before = 2**63, -(2**63), 0, 0, -1
    for offset_delta in range(index, index + count):
        start = cursor
        if (low := data[cursor]) < 128:
            cursor += 1
            length = zigzag[low]
        elif (high := data[cursor + 1]) < 128 and not low & 1:
            cursor += 2
            length = low >> 1 & 63 | high << 6
        else:
            length, cursor = read_varint(data, cursor)
        end = cursor + length
        times_at = cursor + 1
        if (low := data[times_at]) == time_before:
            deltas_at = times_at + 1
        else:
            timestamp, deltas_at = read_varlong(data, times_at)
            delta_min, delta_max = min(delta_min, timestamp), max(delta_max, timestamp)
            time_before = low if low < 128 else -1
        if (low := data[deltas_at]) < 128:
            keys_at = deltas_at + 1
            delta = zigzag[low]
        elif (high := data[deltas_at + 1]) < 128 and not low & 1:
            keys_at = deltas_at + 2
            delta = low >> 1 & 63 | high << 6
        else:
            delta, keys_at = read_varint(data, deltas_at)
        if (low := data[keys_at]) < 128:
            values_at = keys_at + 1
            key = zigzag[low]
        else:
            key, values_at = read_varint(data, keys_at)
        if key > 0:
            values_at += key
        elif key < key_min:
            key_min = key
        if (low := data[values_at]) < 128:
            cursor = values_at + 1
            value = zigzag[low]
        elif (high := data[values_at + 1]) < 128 and not low & 1:
            cursor = values_at + 2
            value = low >> 1 & 63 | high << 6
        else:
            value, cursor = read_varint(data, values_at)
        if value > 0:
            cursor += value
        if data[cursor]:
            headers, cursor = _check_headers(data, cursor, end, headers_max - all_headers)
            all_headers += headers
        else:
            cursor += 1
        is_odd = data[times_at - 1] or key_min < -1 or value < -1
        if is_odd or cursor != end or delta != offset_delta:
            raise _misfit(offset_delta, end, cursor, (delta, key, value))
    places = start, times_at, deltas_at, keys_at, values_at, value, end
    return _Walked(delta_min, delta_max, key_min, all_headers, *places)


def _misfit(number: int, end: int, cursor: int, said: tuple[int, int, int]) -> InvalidRecord:
    delta, key, value = said
    return InvalidRecord(
        f"record {number} ends at byte {end}, its fields at {cursor}; "
        f"it has offset delta {delta}, lengths {key} and {value}"
    )


def _check_headers(data: Expanded, cursor: int, end: int, count_max: int) -> tuple[int, int]:
    """Return how many headers a record has, and where they end."""
    count, cursor = read_varint(data, cursor)
    if not 0 <= 2 * count <= end - cursor:
        raise InvalidRecord(f"a record has a header count of {count}")
    if count > count_max:
        raise StepsExhausted
    for _ in range(count):
        if (length := data[cursor]) < 128:
            cursor += 1
            length = ZIGZAG[length]
        else:
            length, cursor = read_varint(data, cursor)
        if length < 0:
            raise InvalidRecord("a header has no key")
        if length:
            key = data[cursor : cursor + length]
            cursor += length
            if not key.isascii():
                try:
                    key.decode()
                except UnicodeDecodeError:
                    raise InvalidRecord("a header's key is not UTF-8") from None
        if (length := data[cursor]) < 128:
            cursor += 1
            length = ZIGZAG[length]
        else:
            length, cursor = read_varint(data, cursor)
        if length > 0:
            cursor += length
        elif length < -1:
            raise InvalidRecord(f"a field has length {length}")
    return count, cursor


def _run_of(data: Expanded, size: int, last: _Walked, index: int, left: int) -> _Run | None:
    """Return the run of records that are similar to a valid one without headers before them.

    `index`: of the first record behind it. None = there is no run, or it has an error, which
    parsing will report.
    """
    _, _, _, _, start, times_at, deltas_at, keys_at, values_at, value, end = last
    if not left or data[end : end + times_at - start] != data[start:times_at]:
        return None
    stride = end - start
    count = min(left, _RUN_RECORDS_MAX, (size - end) // stride)
    width = keys_at - deltas_at
    border = _borders(width, index)
    count = min(count, border - index)
    if count < 2:
        return None
    # Lengths, attributes and the number of headers are the same, byte for byte.
    value_width = end - 1 - max(value, 0) - values_at
    key_width = _varint_width(data, keys_at)
    same = (
        *range(start, times_at),
        *range(keys_at, keys_at + key_width),
        *range(values_at, values_at + value_width),
        end - 1,
    )
    for place in same:
        column = data[place + stride : place + count * stride + 1 : stride]
        byte = data[place : place + 1]
        if column.count(byte) != count:
            count -= len(column.lstrip(byte))
            if count < 2:
                return None
    times = [
        data[place + stride : place + count * stride + 1 : stride]
        for place in range(times_at, deltas_at)
    ]
    found = _timestamps(times)
    if found is None:
        return None
    deltas = [
        data[place + stride : place + count * stride + 1 : stride]
        for place in range(deltas_at, keys_at)
    ]
    if not _are_next(deltas, index, count):
        return None
    return _Run(count, *found)


def _borders(width: int, index: int) -> int:
    """Return before which offset delta a run ends whose varints have `width` bytes."""
    if width == 1:
        return _ONE_BYTE_END
    if width == 2:
        return _TWO_BYTES_END
    # The third byte stays the same.
    return (index // _TWO_BYTES_END + 1) * _TWO_BYTES_END if width == 3 else 0


def _varint_width(data: Expanded, position: int) -> int:
    width = 1
    while data[position] > 127:
        position += 1
        width += 1
    return width


def _timestamps(columns: list[Column]) -> tuple[int, int] | None:
    """Return the smallest and the largest timestamp delta; None = the records must be parsed."""
    lows = columns[0]
    if len(columns) == 1:
        if not lows.isascii():
            return None
        if lows.count(lows[:1]) == len(lows):
            only = ZIGZAG[lows[0]]
            return only, only
        shifted = lows.translate(_SHIFTED)
        return min(shifted) - 64, max(shifted) - 64
    if len(columns) > 2:
        return None
    highs = columns[1]
    if lows.translate(None, _HIGH_AND_EVEN) or not highs.isascii():
        return None
    if highs.count(highs[:1]) == len(highs):
        high = highs[0] << 6
        return high | min(lows) >> 1 & 63, high | max(lows) >> 1 & 63
    pairs = list(zip(highs, lows, strict=True))
    (least_high, least_low), (most_high, most_low) = min(pairs), max(pairs)
    return least_high << 6 | least_low >> 1 & 63, most_high << 6 | most_low >> 1 & 63


def _are_next(columns: list[Column], index: int, count: int) -> bool:
    """Tell whether the offset deltas are `index`, `index` + 1, ..."""
    end = index + count
    if len(columns) == 1:
        return columns[0] == _ONLY[index:end]
    first = index & 63
    if columns[0] != _LOWEST[first : first + count]:
        return False
    if len(columns) == 2:
        return columns[1] == _SECOND[index:end]
    second = index % _TWO_BYTES_END
    third = index // _TWO_BYTES_END
    return (
        columns[1] == _SECOND_OF_THREE[second : second + count]
        and columns[2] == bytes((third,)) * count
    )
