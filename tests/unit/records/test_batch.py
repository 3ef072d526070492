"""A batch's header must be read, checked and stamped as Kafka does, and nothing odd may pass.

Method: golden bytes written by hand, one batch for each codec; edits of single fields; a clock
that is a number.
"""

import struct

import pytest

from ottla.records.batch import (
    BATCH_LENGTH_MIN,
    HEADER,
    HEADER_SIZE,
    BatchHeader,
    check_crc,
    check_produced,
    iter_headers,
    parse_header,
    restamp,
    stamp_append_time,
)
from ottla.records.builder import encode_batch
from ottla.records.compression import Codec
from ottla.records.errors import CorruptBatch, InvalidRecord, RecordsError, UnsupportedMagic
from ottla.records.record import Record, iter_records

# Base offset 5, leader epoch 3, one record k=v at 1,700,000,000,000 ms, no producer id.
# Columns: offset and length; leader epoch and magic; CRC; the rest of the header; the records.
REST = "0000000000000000018bcfe568000000018bcfe56800ffffffffffffffffffffffffffff00000001"
RECORD = "10000000026b027600"
GOLDEN = {
    "none": f"00000000000000050000003a 0000000302 e99b8dd8 {REST} {RECORD}",
    "gzip": (
        f"000000000000000500000051 0000000302 a5975776 0001{REST[4:]}"
        f" 1f8b08000000000000ff 010900f6ff {RECORD} a37fcfa609000000"
    ),
    "snappy": (
        f"000000000000000500000050 0000000302 08ee4869 0002{REST[4:]}"
        f" 82534e41505059000000000100000001 0000000b 0920 {RECORD}"
    ),
    "raw snappy": (f"00000000000000050000003c 0000000302 8e0e422c 0002{REST[4:]} 0920 {RECORD}"),
    "lz4": (
        f"000000000000000500000049 0000000302 924fa790 0003{REST[4:]}"
        f" 04224d18604082 09000080 {RECORD} 00000000"
    ),
    "zstd": (
        f"000000000000000500000043 0000000302 9d379593 0004{REST[4:]} 28b52ffd2009 490000 {RECORD}"
    ),
}
PLAIN = bytes.fromhex(GOLDEN["none"])


def edited(**fields: int) -> bytes:
    """Return the plain golden batch with header fields replaced, its checksum left alone."""
    return HEADER.pack(*parse_header(PLAIN)._replace(**fields)) + PLAIN[HEADER_SIZE:]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_golden_batches_are_read(name: str, kind: type[bytes]) -> None:
    batch = kind(bytes.fromhex(GOLDEN[name]))
    header = parse_header(batch)
    check_crc(batch, 0, header)
    assert header.compression is Codec[name.split()[-1].upper()]
    assert header.size_in_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (5, 5, 6)
    assert (header.partition_leader_epoch, header.record_count) == (3, 1)
    assert list(iter_records(batch)) == [Record(5, 1_700_000_000_000, b"k", b"v")]


def test_the_plain_golden_batch_is_written() -> None:
    row = (b"k", b"v", (), 1_700_000_000_000)
    assert encode_batch([row], base_offset=5, leader_epoch=3) == PLAIN


def test_attributes() -> None:
    header = parse_header(PLAIN)
    assert (header.timestamp_type, header.is_control, header.is_transactional) == (0, False, False)
    assert not header.has_delete_horizon
    marked = parse_header(edited(attributes=0x78))
    assert (marked.timestamp_type, marked.is_control, marked.is_transactional) == (1, True, True)
    assert marked.has_delete_horizon
    assert marked.compression is Codec.NONE
    assert parse_header(edited(attributes=-8)).compression is Codec.NONE  # Bits yet unused.


def test_sequences_wrap() -> None:
    header = parse_header(edited(base_sequence=2**31 - 2, last_offset_delta=3, producer_id=9))
    assert header.has_producer_id
    assert header.last_sequence == 1
    assert parse_header(PLAIN).last_sequence == -1
    assert not parse_header(PLAIN).has_producer_id


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_length": -1},
        {"batch_length": BATCH_LENGTH_MIN - 1},
        {"batch_length": 2**31 - 1},
        {"batch_length": 59},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"last_offset_delta": -1},
        {"record_count": -1},
        {"magic": 3},
        {"magic": -1},
        {"attributes": 5},
        {"attributes": 7},
    ],
)
def test_absurd_fields_are_corrupt(fields: dict[str, int]) -> None:
    batch = edited(**fields)
    with pytest.raises(CorruptBatch):
        parse_header(batch)
    with pytest.raises(CorruptBatch):
        list(iter_headers(batch))


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_an_error_of_their_own(magic: int) -> None:
    message = struct.pack(">qiIbb", 0, 22, 0, magic, 0) + bytes(16)
    for batch in (edited(magic=magic), message):
        with pytest.raises(UnsupportedMagic):
            parse_header(batch)
        with pytest.raises(UnsupportedMagic):
            list(iter_headers(batch, allow_partial=True))
    assert not issubclass(UnsupportedMagic, CorruptBatch)


def test_every_cut_is_corrupt() -> None:
    for length in range(len(PLAIN)):
        with pytest.raises(CorruptBatch):
            parse_header(PLAIN[:length])
    assert parse_header(PLAIN[:HEADER_SIZE], whole=False) == parse_header(PLAIN)
    with pytest.raises(CorruptBatch):
        parse_header(PLAIN[: HEADER_SIZE - 1], whole=False)


def test_iterating_over_batches() -> None:
    buffer = b"".join(bytes.fromhex(text) for text in GOLDEN.values())
    found = list(iter_headers(buffer))
    assert [header.compression for _, header in found] == [0, 1, 2, 2, 3, 4]
    assert found == [(at, parse_header(buffer, at)) for at, _ in found]
    assert list(iter_headers(buffer, found[2][0])) == found[2:]
    assert list(iter_headers(b"")) == []


def test_a_cut_batch_at_the_end() -> None:
    for length in range(1, len(PLAIN)):
        buffer = PLAIN + PLAIN[:length]
        assert [at for at, _ in iter_headers(buffer, allow_partial=True)] == [0]
        with pytest.raises(CorruptBatch):
            list(iter_headers(buffer))


def test_nonsense_at_the_end_is_not_taken_for_a_cut() -> None:
    nonsense = edited(batch_length=-1)
    with pytest.raises(CorruptBatch):
        list(iter_headers(PLAIN + nonsense[:20], allow_partial=True))


def test_any_flipped_bit_is_noticed_or_outside_the_checksum() -> None:
    harmless = {*range(8), *range(12, 16)}  # Base offset and leader epoch.
    for at in range(len(PLAIN)):
        for bit in range(8):
            batch = bytearray(PLAIN)
            batch[at] ^= 1 << bit
            try:
                check_crc(batch, 0, parse_header(batch))
            except RecordsError:
                continue
            assert at in harmless


def test_restamping_leaves_the_checksum_sound() -> None:
    buffer = bytearray(PLAIN + PLAIN)
    with memoryview(buffer) as view:
        restamp(view, len(PLAIN), base_offset=7_000_000_000, leader_epoch=12)
    assert buffer[: len(PLAIN)] == PLAIN
    header = parse_header(buffer, len(PLAIN))
    check_crc(buffer, len(PLAIN), header)
    assert (header.base_offset, header.partition_leader_epoch) == (7_000_000_000, 12)
    assert next(iter(iter_records(buffer[len(PLAIN) :]))).offset == 7_000_000_000


@pytest.mark.parametrize("codec", Codec)
def test_stamping_append_time(codec: Codec) -> None:
    rows = [(b"k", b"v", (), 1000 + i) for i in range(3)]
    buffer = bytearray(PLAIN + encode_batch(rows, codec=codec))
    stamped = stamp_append_time(memoryview(buffer), len(PLAIN), 77)
    header = parse_header(buffer, len(PLAIN))
    assert header == stamped
    check_crc(buffer, len(PLAIN), header)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, 77, 1000)
    assert header.compression is codec
    assert [r.timestamp for r in iter_records(buffer[len(PLAIN) :])] == [77, 77, 77]


def test_what_producers_may_send() -> None:
    good = parse_header(encode_batch([(b"k", b"v", (), 1)] * 3))
    check_produced(good)
    check_produced(good._replace(producer_id=4, producer_epoch=0, base_sequence=0))
    # Compressed records may be more than their bytes.
    check_produced(good._replace(attributes=Codec.ZSTD, record_count=100, last_offset_delta=99))
    smallest = [(None, None, (), 1)] * 50
    check_produced(parse_header(encode_batch(smallest)))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"record_count": 0, "last_offset_delta": 0},
        {"record_count": 2},
        {"last_offset_delta": 3},
        {"attributes": 0x20},
        {"attributes": 0x10},
        {"producer_id": 4},
        {"record_count": 4, "last_offset_delta": 3},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": Codec.ZSTD, "record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    ],
)
def test_what_producers_may_not_send(fields: dict[str, int]) -> None:
    header: BatchHeader = parse_header(encode_batch([(b"k", b"v", (), 1)] * 3))
    with pytest.raises(InvalidRecord):
        check_produced(header._replace(**fields))
