"""All ways of hopping must find the same records, and stop at damage.

Method: batches of mixed counts and sizes, some with lengths of 3 bytes, some with many records of
one length in a row, through each way; sections whose records miss the batch's end.
"""

import random
from collections.abc import Callable

import numpy as np
import pytest

from ottla.records.columnar import hops
from ottla.records.columnar.varints import Ints
from ottla.records.errors import InvalidRecord
from ottla.records.varint import encode_varint

Hop = Callable[[bytes, list[int], list[int], list[int]], Ints]


def one_by_one(data: bytes, starts: list[int], ends: list[int], counts: list[int]) -> Ints:
    return np.array(hops._one_by_one(data, starts, ends, counts))


def side_by_side(data: bytes, starts: list[int], ends: list[int], counts: list[int]) -> Ints:
    raw = np.frombuffer(data, np.uint8)
    return hops._side_by_side(data, raw, starts, ends, np.array(counts))


def in_runs(data: bytes, starts: list[int], ends: list[int], counts: list[int]) -> Ints:
    return hops._in_runs(data, np.frombuffer(data, np.uint8), starts, ends, counts)


WAYS = pytest.mark.parametrize("hop", [one_by_one, side_by_side, in_runs])


def laid_out(batches: list[list[int]]) -> tuple[bytes, list[int], list[int], list[int]]:
    """Return bytes of records of these lengths, batch bounds, and where each record starts."""
    data = bytearray()
    starts, ends, records = [], [], []
    for lengths in batches:
        data += b"junk"
        starts.append(len(data))
        for length in lengths:
            records.append(len(data))
            data += encode_varint(length) + b"\xff" * length
        ends.append(len(data))
    return bytes(data), starts, ends, records


@WAYS
@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_found(hop: Hop, seed: int) -> None:
    rng = random.Random(seed)
    sizes = (6, 7, 63, 64, 100, 8191, 8192, 70_000) if seed else (6, 63)
    batches = [[rng.choice(sizes) for _ in range(rng.choice((1, 2, 30)))] for _ in range(20)]
    data, starts, ends, records = laid_out(batches)
    assert hop(data, starts, ends, list(map(len, batches))).tolist() == records


@WAYS
@pytest.mark.parametrize("seed", range(5))
def test_runs_of_equal_lengths(hop: Hop, seed: int) -> None:
    rng = random.Random(seed)
    batches = []
    for _ in range(6):
        runs = [(rng.choice((0, 6, 63, 64, 100, 8192)), rng.choice((1, 31, 32, 90, 300)))] * 2
        runs += [(rng.randrange(50, 200), 1) for _ in range(rng.choice((0, 5, 100)))]
        rng.shuffle(runs)
        batches.append([length for length, count in runs for _ in range(count)])
    batches.append([70] * (hops.RUN_MAX + hops.RUN_MIN + 1))
    batches.append([70] * 100 + [70 + 64] * 100)  # Only the second bytes of the lengths differ.
    data, starts, ends, records = laid_out(batches)
    assert hop(data, starts, ends, list(map(len, batches))).tolist() == records


@WAYS
@pytest.mark.parametrize("shift", [-1, 1, 71])
def test_a_run_must_end_with_its_batch(hop: Hop, shift: int) -> None:
    data, starts, ends, _ = laid_out([[70] * 100])
    with pytest.raises(InvalidRecord):
        hop(data + data, starts, [ends[0] + shift], [100])


@WAYS
def test_a_run_that_is_cut(hop: Hop) -> None:
    data, starts, ends, _ = laid_out([[70] * 100])
    with pytest.raises(InvalidRecord):
        hop(data[:-500], starts, ends, [100])


def test_a_run_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    hop = hops._hop

    def counted(data: bytes, cursor: int, count: int, found: list[int]) -> int:
        walked.append(count)
        return hop(data, cursor, count, found)

    monkeypatch.setattr(hops, "_hop", counted)
    lengths = [70] * 1000 + [71] * 1000
    data, starts, ends, records = laid_out([lengths])
    assert in_runs(data, starts, ends, [2000]).tolist() == records
    assert sum(walked) == 0
    rng = random.Random(1)
    mixed = [rng.randrange(50, 200) for _ in range(2000)]
    data, starts, ends, records = laid_out([mixed])
    assert in_runs(data, starts, ends, [2000]).tolist() == records
    assert sum(walked) == 2000
    assert len(walked) < 10


@WAYS
@pytest.mark.parametrize("shift", [-1, 1])
def test_records_must_end_with_their_batch(hop: Hop, shift: int) -> None:
    data, starts, ends, _ = laid_out([[10, 20], [30, 40]])
    with pytest.raises(InvalidRecord):
        hop(data, starts, [ends[0] + shift, ends[1]], [2, 2])


@WAYS
@pytest.mark.parametrize("length", [2**31 - 1, 9000, 100, -1, -9000])
def test_a_wild_length_is_invalid(hop: Hop, length: int) -> None:
    data = encode_varint(length) + bytes(20)
    with pytest.raises(InvalidRecord):
        hop(data, [0], [len(data)], [2])


@WAYS
def test_a_length_cut_by_the_end(hop: Hop) -> None:
    with pytest.raises(InvalidRecord):
        hop(b"\x00\xff", [0], [2], [2])


@pytest.mark.parametrize(
    ("counts", "length", "way"),
    [
        ([5] * 100, 70, "side"),
        ([5] * 3, 70, "runs"),
        ([1000] + [1] * 100, 70, "runs"),
        ([1000] * 40, 70, "runs"),
        ([1000] * 40, None, "side"),
        ([999] * 40, 70, "side"),
    ],
)
def test_the_way_depends_on_batches_and_lengths(
    monkeypatch: pytest.MonkeyPatch, counts: list[int], length: int | None, way: str
) -> None:
    taken = []
    monkeypatch.setattr(hops, "_side_by_side", lambda *_: taken.append("side"))
    monkeypatch.setattr(hops, "_in_runs", lambda *_: taken.append("runs"))
    batches = [[length or 60 + number % 50 for number in range(count)] for count in counts]
    data, starts, ends, _ = laid_out(batches)
    hops.find_records(data, np.frombuffer(data, np.uint8), starts, ends, np.array(counts))
    assert taken == [way]
