"""Every record is checked before it is stored: runs of alike ones by columns, the rest one by one.

Method: the plain decoder is the judge. What it reads, with offset deltas 0, 1, 2, ..., must be
accepted with the same range of timestamps, and nothing else; on sound batches of many shapes, and
on the same with bytes changed, of all of which the check takes its own ways.
"""

from random import Random

import pytest

from ottla.records.batch import BatchHeader, parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.checking import StepsExhausted, check_sequence
from ottla.records.errors import InvalidRecord, RecordsError
from ottla.records.record import check_records, read_records
from ottla.records.varint import read_varint

T0 = 1_700_000_000_000

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def alike(count: int, size: int = 10, key: bytes | None = None, step: int = 1) -> list[Row]:
    return [(key, bytes(size), (), T0 + step * index // 4) for index in range(count)]


def drawn(random: Random, count: int) -> list[Row]:
    """Rows in stretches of alike ones, with others between them."""
    rows: list[Row] = []
    time = T0
    while len(rows) < count:
        key = random.choice([None, b"", b"k", b"key" * 40])
        value = random.choice(
            [None, b"", bytes(random.randrange(1, 9)), bytes(random.choice([63, 64, 300]))]
        )
        headers = random.choice([(), (), (), (("h", None),), (("é", b"x" * 70), ("", b""))])
        for _ in range(random.choice([1, 1, 2, 5, 30, 100])):
            time += random.choice([0, 0, 0, 1, 3, -1, 40, 2000])
            rows.append((key, value, headers, time))
    return rows[:count]


SHAPES: dict[str, list[Row]] = {
    "one": alike(1),
    "two": alike(2),
    "to the first border": alike(64),
    "beyond the first border": alike(70),
    "to the second border": alike(8192),
    "beyond the second border": alike(20_000, 0),
    "keys": alike(300, key=b"some key"),
    "long keys": alike(300, key=b"k" * 200),
    "null values": [(b"k", None, (), T0)] * 500,
    "times with two bytes": alike(500, step=400),
    "times with three bytes": alike(500, step=400_000),
    "times that go back": [(None, b"v", (), T0 - index % 7) for index in range(300)],
    "headers": [(b"k", b"v", (("a", b"b"),), T0 + index) for index in range(200)],
    "sizes that change": [(None, bytes(index % 97), (), T0) for index in range(700)],
    "two sizes in turn": [(None, bytes(index % 2), (), T0) for index in range(700)],
    "large values": alike(40, 20_000),
}
SHAPES |= {f"drawn {seed}": drawn(Random(seed), 400) for seed in range(20)}


def judged(section: bytes, header: BatchHeader) -> tuple[int, int, bool] | None:
    """Return what the plain decoder makes of it; None = it may not be stored."""
    try:
        records = read_records(seal(header, section), 0, header)
    except RecordsError:
        return None
    if [record.offset for record in records] != list(range(header.record_count)):
        return None
    cursor = 0
    for _ in records:
        length, cursor = read_varint(section, cursor)
        if section[cursor]:
            return None  # Attributes, which the decoder passes over.
        cursor += length
    times = [record.timestamp for record in records]
    return min(times), max(times), any(record.key is None for record in records)


def found(section: bytes, header: BatchHeader) -> tuple[int, int, bool] | None:
    try:
        return check_records(seal(header, section), 0, header)[:3]
    except RecordsError:
        return None


@pytest.mark.parametrize("shape", SHAPES)
def test_sound_batches_pass(shape: str) -> None:
    batch = encode_batch(SHAPES[shape])
    header = parse_header(batch)
    expected = judged(batch[61:], header)
    assert expected is not None
    assert found(batch[61:], header) == expected


@pytest.mark.forms(6)
@pytest.mark.parametrize("shape", SHAPES)
def test_changed_bytes_are_judged_as_the_decoder_does(shape: str) -> None:
    rows = SHAPES[shape]
    batch = encode_batch(rows[:200])
    header = parse_header(batch)
    random = Random(shape)
    refused = 0
    for _ in range(150):
        section = bytearray(batch[61:])
        for _ in range(random.choice([1, 1, 1, 2])):
            at = random.randrange(len(section))
            section[at] = random.choice(
                [0, 1, 2, 127, 128, 255, section[at] ^ 1, section[at] ^ 128]
            )
        expected = judged(bytes(section), header)
        refused += expected is None
        assert found(bytes(section), header) == expected, (shape, bytes(section).hex())
    if rows is not SHAPES["large values"]:
        assert refused > 0


@pytest.mark.parametrize("shape", SHAPES)
def test_other_counts_and_cuts_are_refused(shape: str) -> None:
    batch = encode_batch(SHAPES[shape])
    section, count = batch[61:], len(SHAPES[shape])
    for data, said in (
        (section, count - 1),
        (section, count + 1),
        (section + b"\0", count),
        (section[:-1], count),
        (section + section, 2 * count),
    ):
        with pytest.raises(InvalidRecord):
            check_sequence(data, said)


def test_a_run_costs_few_steps_and_walked_records_one_each() -> None:
    runs, mixed = encode_batch(alike(8000))[61:], encode_batch(SHAPES["sizes that change"])[61:]
    assert check_sequence(runs, 8000, 1000).steps >= 0
    with pytest.raises(StepsExhausted):
        check_sequence(mixed, 700, 400)
    assert 0 <= check_sequence(mixed, 700, 710).steps <= 20


def test_headers_are_steps_too() -> None:
    rows: list[Row] = [(b"k", b"v", (("", b""),) * 5000, T0)]
    section = encode_batch(rows)[61:]
    assert check_sequence(section, 1, 5001).steps >= 0
    with pytest.raises(StepsExhausted):
        check_sequence(section, 1, 4000)


def test_a_count_beyond_all_steps_is_not_begun() -> None:
    with pytest.raises(StepsExhausted):
        check_sequence(b"", 10**6, 1000)
