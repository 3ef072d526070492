"""The metadata log's batches: what is written is read, what is damaged is not.

Method: round trips; every byte of a batch changed; every cut.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.raft.batches import batch_bytes, read_batches, read_spans, records_batch
from ottla.raft.control import leader_change_batch
from ottla.raft.values import BatchSpan
from ottla.records.batch import parse_header
from ottla.records.builder import encode_batch
from ottla.records.errors import CorruptBatch


def two_batches() -> bytes:
    opened = leader_change_batch(
        base_offset=10, epoch=4, leader_id=1, voters=(1,), granting_voters=(1,), timestamp=5
    )
    return opened + records_batch([b"a", b"bb"], base_offset=11, epoch=4, timestamp=6)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 2**40))
def test_round_trip(values: list[bytes], base_offset: int) -> None:
    data = records_batch(values, base_offset=base_offset, epoch=9, timestamp=123)
    (batch,) = read_batches(data)
    assert batch.values == tuple(values)
    assert (batch.base_offset, batch.next_offset) == (base_offset, base_offset + len(values))
    assert (batch.epoch, batch.timestamp, batch.is_control) == (9, 123, False)
    assert batch.size_bytes == len(data)
    assert abs(batch_bytes(values) - len(data)) <= 2 * len(values)


def test_records_have_no_key_and_no_codec() -> None:
    header = parse_header(records_batch([b"x" * 5000], base_offset=0, epoch=0, timestamp=1))
    assert header.attributes == 0
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.base_timestamp == header.max_timestamp == 1


def test_control_batches_have_no_values() -> None:
    opened, data = read_batches(two_batches())
    assert (opened.is_control, opened.values) == (True, ())
    assert (data.is_control, data.values) == (False, (b"a", b"bb"))


def test_spans_leave_out_a_cut_batch() -> None:
    data = two_batches()
    spans = (BatchSpan(10, 11, 4), BatchSpan(11, 13, 4))
    assert read_spans(data) == (spans, len(data))
    first = parse_header(data).size_in_bytes
    for cut in range(first, len(data)):
        assert read_spans(data[:cut]) == (spans[:1], first)


@pytest.mark.parametrize("position", range(len(two_batches())))
def test_a_changed_byte_is_found_unless_it_is_offset_or_epoch(position: int) -> None:
    data = bytearray(two_batches())
    size = parse_header(data).size_in_bytes
    data[position] ^= 0x55
    within = position if position < size else position - size
    if within < 8 or 12 <= within < 16:
        # Base offset and epoch are not under the checksum: raft checks that they fit.
        return
    try:
        spans, _size = read_spans(data)
    except CorruptBatch:
        return
    assert within in range(8, 12), "only a length may still read well, as that of a cut batch"
    assert len(spans) < 2


def test_a_record_without_value_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="no value"):
        list(read_batches(encode_batch([(None, None, (), 0)])))
