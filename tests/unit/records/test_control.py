"""Control batches must be those that Kafka's brokers write, byte for byte.

Method: golden bytes; kafka-python's and aiokafka's readers as witnesses; malformed keys.
"""

import aiokafka.record.default_records as aiokafka_records
import pytest

from ottla.records.batch import parse_header
from ottla.records.control import (
    ControlType,
    Marker,
    build_control,
    build_marker,
    decode_key,
    decode_marker,
    encode_key,
)
from ottla.records.errors import InvalidRecord
from ottla.records.record import Record, iter_records


def marker(committed: bool) -> bytes:
    return build_marker(
        committed=committed,
        producer_id=5,
        producer_epoch=1,
        coordinator_epoch=9,
        timestamp=5,
        base_offset=70,
        leader_epoch=2,
    )


@pytest.mark.parametrize(("committed", "kind"), [(True, "0001"), (False, "0000")])
def test_markers_are_kafkas(committed: bool, kind: str) -> None:
    batch = marker(committed)
    assert batch[12:17].hex() == "0000000202"
    assert batch[21:61].hex() == (
        "0030" "00000000" + "0000000000000005" * 3 + "0001" "ffffffff" "00000001"
    )  # fmt: skip
    assert batch[61:].hex() == f"20000000080000{kind}0c00000000000900"
    theirs = aiokafka_records.DefaultRecordBatch(bytearray(batch))
    assert theirs.validate_crc()
    assert theirs.is_control_batch


@pytest.mark.parametrize("committed", [True, False])
def test_markers_return(committed: bool) -> None:
    batch = marker(committed)
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, -1)
    (record,) = iter_records(batch, include_control=True)
    assert record.offset == 70
    assert decode_marker(record) == Marker(committed, 9)


@pytest.mark.parametrize("kind", sorted(set(ControlType) - {0, 1}))
def test_quorum_records_return(kind: ControlType) -> None:
    batch = build_control(kind, b"wire", timestamp=8, base_offset=3, leader_epoch=6)
    header = parse_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert (header.producer_id, header.partition_leader_epoch) == (-1, 6)
    (record,) = iter_records(batch, include_control=True)
    assert decode_key(record.key) is kind
    assert decode_marker(record) is None
    assert record == Record(3, 8, encode_key(kind), b"wire")


def test_keys() -> None:
    assert encode_key(ControlType.SNAPSHOT_FOOTER).hex() == "00000004"
    assert decode_key(bytes.fromhex("0007000100ff")) is ControlType.COMMIT  # A later version.
    assert decode_key(bytes.fromhex("00000063")) is None
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\1"):
        with pytest.raises(InvalidRecord):
            decode_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0\0\0", b"\xff\xff\0\0\0\0"])
def test_malformed_markers_are_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        decode_marker(Record(0, 0, encode_key(ControlType.COMMIT), value))
