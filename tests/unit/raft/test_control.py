"""KRaft's control records, byte for byte as Kafka's message generator lays them out.

Method: the values are written out by hand from the schemas' flexible version 0.
"""

import pytest

from ottla.raft.control import (
    decode_leader_change,
    decode_snapshot_header,
    leader_change_batch,
    snapshot_footer_batch,
    snapshot_header_batch,
)
from ottla.records.batch import check_crc, parse_header
from ottla.records.record import Record, read_records
from ottla.wire.errors import WireError

VOTER_1 = "00000001 00"
"""Id, no tagged fields."""

LEADER_CHANGE = bytes.fromhex(f"0000 00000001 02 {VOTER_1} 02 {VOTER_1} 00")


def only_record(batch: bytes) -> Record:
    header = parse_header(batch)
    check_crc(batch, 0, header)
    assert header.is_control
    assert not header.is_transactional
    assert header.producer_id == -1
    (record,) = read_records(batch, 0, header)
    return record


def test_leader_change() -> None:
    batch = leader_change_batch(
        base_offset=7, epoch=3, leader_id=1, voters=(1,), granting_voters=(1,), timestamp=99
    )
    record = only_record(batch)
    assert (record.key, record.value) == (b"\0\0\0\2", LEADER_CHANGE)
    assert (record.offset, record.timestamp) == (7, 99)
    assert parse_header(batch).partition_leader_epoch == 3
    message = decode_leader_change(LEADER_CHANGE)
    assert (message.leader_id, [voter.voter_id for voter in message.voters]) == (1, [1])


def test_leader_change_of_version_1_names_directories() -> None:
    directory_id = bytes(range(16))
    voter = b"\0\0\0\1" + directory_id + b"\0"
    message = decode_leader_change(b"\0\1\0\0\0\1\2" + voter + b"\1\0")
    assert message.voters[0].voter_directory_id == directory_id


def test_snapshot_header_and_footer() -> None:
    header = only_record(snapshot_header_batch(epoch=4, timestamp=50, last_contained_ms=40))
    assert (header.key, header.value) == (b"\0\0\0\3", bytes.fromhex("0000 0000000000000028 00"))
    assert decode_snapshot_header(header.value or b"").last_contained_log_timestamp == 40
    footer = only_record(snapshot_footer_batch(base_offset=9, epoch=4, timestamp=50))
    assert (footer.key, footer.value, footer.offset) == (b"\0\0\0\4", b"\0\0\0", 9)


@pytest.mark.parametrize("size", range(len(LEADER_CHANGE)))
def test_cut_values_are_refused(size: int) -> None:
    with pytest.raises(WireError):
        decode_leader_change(LEADER_CHANGE[:size])
