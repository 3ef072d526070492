"""Records keep Kafka's frame, ids and versions, and nothing is lost on the way to bytes and back.

Method: a tripwire table of every record's fields; known bytes written out by hand; round trips.
"""

import dataclasses

import pytest
from hypothesis import given, settings

from ottla.metadata.records import (
    RECORD_TYPES,
    TYPES_BY_ID,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_entry,
    decode_record,
    encode_record,
    without_aborted,
)
from ottla.wire.errors import WireError
from ottla.wire.schema import spec_of
from tests.drawn import examples

from ..images import ID, clusters

# A field that is added to a record must reach the image, or every snapshot loses it. Before
# you extend this table: the noun's `..._of(record)`, its way back into a record, its change
# function, and the hypothesis strategy in `tests/unit/metadata/images.py`.
FIELDS = {
    0: (
        "broker_id is_migrating_zk_broker incarnation_id broker_epoch end_points features rack"
        " fenced in_controlled_shutdown log_dirs"
    ),
    1: "broker_id broker_epoch",
    2: "name topic_id",
    3: (
        "partition_id topic_id replicas isr removing_replicas adding_replicas leader"
        " leader_recovery_state leader_epoch partition_epoch directories"
        " eligible_leader_replicas last_known_elr"
    ),
    4: "resource_type resource_name name value",
    5: (
        "partition_id topic_id isr leader replicas removing_replicas adding_replicas"
        " leader_recovery_state directories eligible_leader_replicas last_known_elr"
    ),
    7: "id epoch",
    8: "id epoch",
    9: "topic_id",
    12: "name feature_level",
    15: "broker_id broker_epoch next_producer_id",
    17: "broker_id broker_epoch fenced in_controlled_shutdown log_dirs",
    20: "",
    23: "name",
    24: "",
    25: "reason",
    27: "controller_id incarnation_id zk_migration_ready end_points features",
    28: "topic_name",
    5000: "topic_id name policy asked_ms halted remote finished_ms leader_epoch"
    " segments_left bytes_left",
    5001: "topic_id broker_id state reason error partitions",
    5002: "topic_id",
    5003: "topic_id state tiered_epoch policy remote_floor_epoch purge_pending restored",
}

NEWEST = {
    0: 3, 1: 0, 2: 0, 3: 2, 4: 0, 5: 2, 7: 0, 8: 0, 9: 0, 12: 0, 15: 0, 17: 2, 20: 0, 23: 0, 24: 0,
    25: 0, 27: 0, 28: 0, 5000: 0, 5001: 0, 5002: 0, 5003: 0,
}  # fmt: skip


def test_every_field_of_every_record_is_known_to_this_test() -> None:
    found = {
        type_id: " ".join(field.name for field in dataclasses.fields(cls))
        for type_id, cls in TYPES_BY_ID.items()
    }
    assert found == FIELDS


def test_versions_are_those_of_metadata_version_4_0() -> None:
    assert {key: spec_of(cls).versions.last for key, cls in TYPES_BY_ID.items()} == NEWEST
    assert all(
        1 in spec_of(cls).flexible or spec_of(cls).flexible.first == 0 for cls in RECORD_TYPES
    )


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (NoOpRecord(), "011400" + "00"),
        (TopicRecord(name="foo", topic_id=ID), "010200" + "04666f6f" + ID.hex() + "00"),
        (RemoveTopicRecord(topic_id=ID), "010900" + ID.hex() + "00"),
        (ClearElrRecord(topic_name="foo"), "011c00" + "04666f6f" + "00"),
        (FenceBrokerRecord(id=1, epoch=2), "010700" + "00000001" + "0000000000000002" + "00"),
        (
            ConfigRecord(resource_type=2, resource_name="foo", name="a", value=None),
            "010400" + "02" + "04666f6f" + "0261" + "00" + "00",
        ),
        (
            PartitionChangeRecord(partition_id=1, topic_id=ID, isr=(2,), leader=-1),
            "010502" + "00000001" + ID.hex() + "02" + "0005" + "0200000002" + "0104" + "ffffffff",
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=-1),
            "011102" + "00000001" + "0000000000000002" + "01" + "0001" + "ff",
        ),
    ],
)
def test_bytes_are_those_of_kafka(record: object, encoded: str) -> None:
    assert encode_record(record).hex() == encoded  # type: ignore[arg-type]
    assert decode_record(bytes.fromhex(encoded)) == record


@settings(max_examples=examples(30))
@given(clusters())
def test_records_survive_the_way_to_bytes_and_back(image: object) -> None:
    records = list(image.to_records())  # type: ignore[attr-defined]
    assert [decode_record(encode_record(record)) for record in records] == records


def test_partition_change_without_changes_writes_no_tags() -> None:
    record = PartitionChangeRecord(partition_id=0, topic_id=ID)
    assert encode_record(record).endswith(ID + b"\x00")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x00\x14\x00\x00", "frame version 0"),
        (b"\x01\x12\x00\x00", "type 18"),
        (b"\x01\x14\x01\x00", "NoOpRecord of version 1"),
        (b"", "varint"),
        (b"\x01\x02\x00\x04fo", None),
    ],
)
def test_what_is_no_record_of_ours_is_refused(data: bytes, text: str | None) -> None:
    with pytest.raises(WireError, match=text):
        decode_record(data)


BEGIN = b"\x01\x17\x00\x01\x00\x12\x12Bootstrap records"


def test_marks_of_transactions_are_kafkas() -> None:
    assert decode_entry(BEGIN) == BeginTransactionRecord(name="Bootstrap records")
    assert decode_entry(b"\x01\x18\x00\x00") == EndTransactionRecord()
    assert decode_entry(b"\x01\x19\x00\x00") == AbortTransactionRecord()
    with pytest.raises(WireError, match="BeginTransactionRecord where only facts may be"):
        decode_record(BEGIN)


def test_a_transaction_counts_as_a_whole_or_not_at_all() -> None:
    one, two, three = (
        NoOpRecord(),
        FenceBrokerRecord(id=1, epoch=2),
        RemoveTopicRecord(topic_id=ID),
    )
    begin, end, abort = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()
    assert without_aborted([one, begin, two, end, three]) == [one, two, three]
    assert without_aborted([one, begin, two, three, abort, begin, three, end]) == [one, three]
    assert without_aborted([begin, end]) == []


@pytest.mark.parametrize("marks", ["b", "e", "a", "bb", "bee", "bab"])
def test_a_transaction_of_several_batches_is_refused(marks: str) -> None:
    kinds = {"b": BeginTransactionRecord, "e": EndTransactionRecord, "a": AbortTransactionRecord}
    with pytest.raises(WireError, match="several batches"):
        without_aborted(kinds[mark]() for mark in marks)
