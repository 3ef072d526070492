"""Both ways of hopping must find the same records, and stop at damage.

Method: batches of mixed counts and sizes, some with lengths of 3 bytes, through each way;
sections whose records miss the batch's end.
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


WAYS = pytest.mark.parametrize("hop", [one_by_one, side_by_side])


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


def test_the_way_depends_on_the_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(hops, "_side_by_side", lambda *_: taken.append("side"))
    monkeypatch.setattr(hops, "_one_by_one", lambda *_: taken.append("one") or [])
    for counts in ([5] * 100, [5] * 3, [1000] + [1] * 100):
        hops.find_records(b"", np.array([], np.uint8), [], [], np.array(counts))
    assert taken == ["side", "one", "one"]
