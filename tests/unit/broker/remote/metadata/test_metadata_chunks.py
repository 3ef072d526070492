"""Fetched bytes become records; what cannot be decoded is skipped, and nothing else."""

import pytest

from ottla.broker.remote.metadata.metadata_chunks import Skipped, decode_chunk
from ottla.records.builder import concatenate, encode_batch
from ottla.records.errors import CorruptBatch
from ottla.tiered.metadata_records import encode
from tests.unit.broker.remote.metadata.metadata_cluster import started, user

RECORDS = [started(user(0), each) for each in range(4)]


def batch(*values: bytes | None) -> bytes:
    return encode_batch([(None, value, (), 1) for value in values])


DATA = concatenate(
    [batch(encode(RECORDS[0]), encode(RECORDS[1])), batch(encode(RECORDS[2]))],
    base_offset=10,
    leader_epoch=4,
)


def test_all_batches_are_decoded() -> None:
    chunk = decode_chunk(DATA, 10, -1)
    assert chunk.records == list(zip((10, 11, 12), RECORDS[:3], strict=True))
    assert (chunk.skipped, chunk.next_offset, chunk.last_epoch) == ([], 13, 4)


def test_records_below_the_offset_are_left_out() -> None:
    assert [offset for offset, _ in decode_chunk(DATA, 11, -1).records] == [11, 12]


def test_a_cut_batch_is_read_next_time() -> None:
    chunk = decode_chunk(DATA[:-1], 10, -1)
    assert [offset for offset, _ in chunk.records] == [10, 11]
    assert chunk.next_offset == 12


def test_nothing_whole_is_an_error() -> None:
    with pytest.raises(CorruptBatch):
        decode_chunk(DATA[:40], 10, -1)
    with pytest.raises(CorruptBatch):
        decode_chunk(b"\xff" * 100, 10, -1)


def test_garbage_and_null_values_are_passed_over() -> None:
    data = concatenate([batch(b"\x00\x00garbage", None, encode(RECORDS[0]))], base_offset=5)
    chunk = decode_chunk(data, 5, -1)
    assert chunk.records == [(7, RECORDS[0])]
    assert [each.offset for each in chunk.skipped] == [5]
    assert chunk.next_offset == 8


def test_a_batch_that_fails_its_checksum_is_passed_over() -> None:
    damaged = bytearray(DATA)
    damaged[70] ^= 1
    chunk = decode_chunk(bytes(damaged), 10, -1)
    assert chunk.records == [(12, RECORDS[2])]
    assert [each.offset for each in chunk.skipped] == [10]
    assert isinstance(chunk.skipped[0], Skipped)
    assert chunk.next_offset == 13
