"""Rows must go to the partitions to which Kafka's own producers send equal keys.

Method: hashes published with Kafka's tests, a plain Python hash as the oracle under hypothesis,
kafka-python's partitioner as a witness.
"""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_murmur2

from ottla.spark.writing.partitioner import by_key, in_runs, murmur2
from tests.drawn import examples

MASK = 0xFFFFFFFF


def plain_murmur2(data: bytes) -> int:
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & MASK
        word = (word ^ word >> 24) * 0x5BD1E995 & MASK
        hashed = hashed * 0x5BD1E995 & MASK ^ word
    if data[whole:]:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * 0x5BD1E995 & MASK
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & MASK
    return hashed ^ hashed >> 15


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_published_hashes(key: bytes, expected: int) -> None:
    assert murmur2(pa.array([key])).tolist() == [expected & MASK]


@settings(max_examples=examples(200))
@given(st.lists(st.none() | st.binary(max_size=70)), st.integers(0, 3))
def test_equal_to_the_plain_hash(keys: list[bytes | None], skipped: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    expected = [plain_murmur2(key or b"") for key in keys[skipped:]]
    assert murmur2(column).tolist() == expected


@given(st.lists(st.text(max_size=30), min_size=1), st.integers(1, 50))
def test_partitions_are_those_of_another_client(keys: list[str], partitions: int) -> None:
    expected = [(kafka_murmur2(key.encode()) & 0x7FFFFFFF) % partitions for key in keys]
    assert by_key(pa.array(keys), partitions).tolist() == expected


@given(st.integers(0, 500), st.integers(1, 20), st.integers(0, 40), st.integers(1, 40))
def test_runs_are_long_and_even(count: int, partitions: int, first: int, runs: int) -> None:
    targets = in_runs(count, partitions, first=first, runs=runs).tolist()
    assert len(targets) == count
    assert all(0 <= each < partitions for each in targets)
    if count:
        assert targets[0] == first % partitions
        sizes = [targets.count(each) for each in set(targets)]
        assert len(sizes) == min(runs, partitions, count)
        assert max(sizes) - min(sizes) <= 1
        changes = sum(one != other for one, other in pairwise(targets))
        assert changes == len(sizes) - 1
