"""The values of `__remote_log_metadata`: Kafka's bytes, ours in their tagged fields, and garbage.

The golden bytes of Kafka's records are what RemoteLogMetadataSerde of Kafka 4.3.1 wrote for the
same values; it read the ones with Ottla's tagged fields as if they were not there. Those of the
fence are written out field by field.
"""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_EPOCH, Uuid
from ottla.tiered.metadata_records import (
    RemoteLogSegmentMetadataSnapshotRecord,
    RemotePartitionDeleteMetadataRecord,
    decode,
    decode_message,
    encode,
    encode_message,
)
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

# Topic "orders", id 01..10, partition 3, of a segment with the id 11..20.
TOPIC = "076f72646572730102030405060708090a0b0c0d0e0f1000000003"
SEGMENT_ID = TOPIC + "00" + "1112131415161718191a1b1c1d1e1f20" + "00"
SEGMENT_FIELDS = (
    "0000000000000064"  # Start offset.
    "00000000000000c7"  # End offset.
    "00000007"  # Broker.
    "0000018bcfe5687b"  # Newest timestamp.
    "0000018bcfe56be8"  # Time of the event.
    "03"  # Two leader epochs.
    "00000002000000000000006400"
    "00000005000000000000009600"
    "00100000"  # Size.
)
OUR_TAGS = "904e0400000005" + "914e0400000002"  # Tags 10000 and 10001, of four bytes each.

SEGMENT = SegmentMetadata(
    topic="orders",
    topic_id=Uuid(bytes(range(1, 17))),
    partition=3,
    segment_id=Uuid(bytes(range(17, 33))),
    start_offset=100,
    end_offset=199,
    max_timestamp_ms=1_700_000_000_123,
    broker_id=7,
    event_timestamp_ms=1_700_000_001_000,
    size_bytes=1 << 20,
    epochs=((2, 100), (5, 150)),
    state=SegmentState.COPY_STARTED,
    leader_epoch=NO_EPOCH,
    tiered_epoch=NO_EPOCH,
)
UPDATE = SegmentUpdate(
    topic="orders",
    topic_id=SEGMENT.topic_id,
    partition=3,
    segment_id=SEGMENT.segment_id,
    state=SegmentState.COPY_FINISHED,
    broker_id=7,
    event_timestamp_ms=1_700_000_002_000,
    leader_epoch=NO_EPOCH,
    tiered_epoch=NO_EPOCH,
)
FENCE = Fence(
    topic="orders",
    topic_id=SEGMENT.topic_id,
    partition=3,
    broker_id=7,
    leader_epoch=5,
    tiered_epoch=2,
    state=1,
    floor=1,
    event_timestamp_ms=1_700_000_004_000,
)
GOLDEN: dict[str, tuple[MetadataRecord, str]] = {
    "segment": (SEGMENT, "010000" + SEGMENT_ID + SEGMENT_FIELDS + "000000"),
    "segment, custom metadata, no transactions": (
        replace(SEGMENT, custom_metadata=b"\x01\x02\xff", txn_index_empty=True),
        "010000" + SEGMENT_ID + SEGMENT_FIELDS + "040102ff" + "00" + "01000101",
    ),
    "segment, epochs": (
        replace(SEGMENT, leader_epoch=5, tiered_epoch=2),
        "010000" + SEGMENT_ID + SEGMENT_FIELDS + "0000" + "02" + OUR_TAGS,
    ),
    "update": (UPDATE, "010100" + SEGMENT_ID + "000000070000018bcfe56fd0" + "000100"),
    "update, custom metadata": (
        replace(UPDATE, state=SegmentState.DELETE_STARTED, custom_metadata=b"\x01\x02\xff"),
        "010100" + SEGMENT_ID + "000000070000018bcfe56fd0" + "040102ff" + "0200",
    ),
    "update, epochs": (
        replace(UPDATE, leader_epoch=5, tiered_epoch=2),
        "010100" + SEGMENT_ID + "000000070000018bcfe56fd0" + "0001" + "02" + OUR_TAGS,
    ),
    "fence": (
        FENCE,
        "01882700" + TOPIC + "00" + "00000007" + "0000018bcfe577a0"
        "00000005" + "00000002" + "01" + "00000001" + "00",
    ),
    "start of a restore": (
        RestoreStarted(
            topic="orders",
            topic_id=SEGMENT.topic_id,
            partition=3,
            broker_id=7,
            leader_epoch=5,
            event_timestamp_ms=1_700_000_004_000,
        ),
        "01892700" + TOPIC + "00" + "00000007" + "0000018bcfe577a0" + "00000005" + "00",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes(name: str) -> None:
    record, expected = GOLDEN[name]
    assert encode(record).hex() == expected
    assert decode(bytes.fromhex(expected)) == record
    assert decode(memoryview(bytes.fromhex(expected))) == record


def test_record_types_that_are_skipped() -> None:
    deletion = bytes.fromhex("010200" + TOPIC + "00" + "00000007" + "0000018bcfe573b8" + "0000")
    message = decode_message(deletion)
    assert isinstance(message, RemotePartitionDeleteMetadataRecord)
    assert message.event_timestamp_ms == 1_700_000_003_000
    assert encode_message(message) == deletion
    assert decode(deletion) is None

    snapshot = bytes.fromhex(
        "010300" + "1112131415161718191a1b1c1d1e1f20" + SEGMENT_FIELDS + "00" + "01" + "01000101"
    )
    message = decode_message(snapshot)
    assert isinstance(message, RemoteLogSegmentMetadataSnapshotRecord)
    assert message.txn_index_empty
    assert encode_message(message) == snapshot
    assert decode(snapshot) is None

    assert decode(bytes.fromhex("01882800")) is None  # An api key that nobody has yet.


def test_version_1_has_kafkas_leader_epoch() -> None:
    head = "010001" + SEGMENT_ID + SEGMENT_FIELDS + "0000"
    segment = decode(bytes.fromhex(head + "01" + "010400000009"))
    assert segment == replace(SEGMENT, leader_epoch=9)
    update = "010101" + SEGMENT_ID + "000000070000018bcfe56fd0" + "0001"
    decoded = decode(bytes.fromhex(update + "02" + "000400000009" + "010800000000000000c7"))
    assert decoded == replace(UPDATE, leader_epoch=9)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "01",
        "000000" + SEGMENT_ID,  # Frame version 0.
        "020000" + SEGMENT_ID,  # Frame version 2.
        "010002" + SEGMENT_ID + SEGMENT_FIELDS + "000000",  # Version 2.
        "010000" + SEGMENT_ID + SEGMENT_FIELDS + "0000",  # Cut off.
        "010000" + SEGMENT_ID + SEGMENT_FIELDS + "00000000",  # A byte too many.
        "010000" + SEGMENT_ID + SEGMENT_FIELDS + "000400",  # No such state.
        "0101",
        "01882701",
    ],
)
def test_garbage(value: str) -> None:
    with pytest.raises(ValueError):
        decode(bytes.fromhex(value))


@pytest.mark.parametrize(
    "change",
    [
        {"start_offset": -1},
        {"end_offset": 99},
        {"size_bytes": -1},
        {"partition": -1},
        {"epochs": ()},
        {"epochs": ((2, 200),)},
        {"epochs": ((-1, 100),)},
        {"epochs": ((2, 100), (2, 150))},
        {"epochs": ((2, 100), (1, 150))},
        {"epochs": ((2, 100), (3, 99))},
    ],
)
def test_segments_that_contradict_themselves(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        decode(encode(replace(SEGMENT, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"leader_epoch": -1}, {"tiered_epoch": -1}, {"floor": -1}])
def test_fences_that_contradict_themselves(change: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        decode(encode(replace(FENCE, **change)))  # type: ignore[arg-type]


def test_a_size_that_does_not_fit() -> None:
    with pytest.raises(ValueError):
        encode(replace(SEGMENT, size_bytes=2**31))


@given(st.sampled_from(["", "010000", "010100", "01882700"]), st.binary(max_size=200))
def test_no_bytes_raise_anything_else(head: str, value: bytes) -> None:
    with suppress(ValueError):
        decode(bytes.fromhex(head) + value)
