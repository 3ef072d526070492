"""The records of `__consumer_offsets` are Kafka's, byte for byte.

Method: golden bytes put together by hand from the JSON schemas with struct alone; hypothesis for
round trips; every version of the values that a log may hold.
"""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.coordinator.records import (
    BadRecord,
    Fact,
    GroupFact,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    OffsetFact,
    decode_fact,
    decode_key,
    encode_fact,
)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


NULL = struct.pack(">h", -1)

OFFSET_KEY = struct.pack(">h", 1) + text("group") + text("topic") + struct.pack(">i", 7)
OFFSET_VALUE_3 = struct.pack(">hqi", 3, 42, 5) + text("note") + struct.pack(">q", 1_000)
WITHOUT_TAGS_4 = struct.pack(">hqi", 4, 42, 5) + b"\x05note" + struct.pack(">q", 1_000)
# One tagged field: tag 0, 16 bytes; as Kafka 4.3.1 encodes it.
OFFSET_VALUE_4 = WITHOUT_TAGS_4 + b"\x01\x00\x10" + bytes(range(16))
# The tag 5000 as a varint, 16 bytes: as Ottla wrote it before.
FORMER_OFFSET_VALUE_4 = WITHOUT_TAGS_4 + b"\x01\x88\x27\x10" + bytes(range(16))
OFFSET_VALUE_1 = struct.pack(">hq", 1, 42) + text("note") + struct.pack(">qq", 1_000, 9_000)
GROUP_KEY = struct.pack(">h", 2) + text("group")
MEMBER_3 = (
    text("m-1")
    + text("i-1")
    + text("client")
    + text("/10.0.0.1")
    + struct.pack(">ii", 60_000, 45_000)
    + blob(b"sub")
    + blob(b"assignment")
)
GROUP_VALUE_3 = (
    struct.pack(">h", 3)
    + text("consumer")
    + struct.pack(">i", 12)
    + text("range")
    + text("m-1")
    + struct.pack(">q", 1_234)
    + struct.pack(">i", 1)
    + MEMBER_3
)
EMPTY_GROUP_VALUE_3 = (
    struct.pack(">h", 3)
    + text("consumer")
    + struct.pack(">i", 13)
    + NULL
    + NULL
    + struct.pack(">qi", 1_234, 0)
)

OFFSET = OffsetFact(
    "group",
    "topic",
    7,
    OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=1_000),
)
OFFSET_WITH_EXPIRY = OffsetFact(
    "group",
    "topic",
    7,
    OffsetCommitValue(offset=42, metadata="note", commit_timestamp=1_000, expire_timestamp=9_000),
)
OFFSET_WITH_TOPIC_ID = OffsetFact(
    "group",
    "topic",
    7,
    OffsetCommitValue(
        offset=42,
        leader_epoch=5,
        metadata="note",
        commit_timestamp=1_000,
        topic_id=Uuid(bytes(range(16))),
    ),
)
MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i-1",
    client_id="client",
    client_host="/10.0.0.1",
    rebalance_timeout=60_000,
    session_timeout=45_000,
    subscription=b"sub",
    assignment=b"assignment",
)
GROUP = GroupFact(
    "group",
    GroupMetadataValue(
        protocol_type="consumer",
        generation=12,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1_234,
        members=(MEMBER,),
    ),
)
EMPTY_GROUP = GroupFact(
    "group",
    GroupMetadataValue(
        protocol_type="consumer",
        generation=13,
        protocol=None,
        leader=None,
        current_state_timestamp=1_234,
        members=(),
    ),
)


def decode(key: bytes, value: bytes | None) -> Fact | None:
    decoded = decode_key(key)
    return None if decoded is None else decode_fact(decoded, value)


@pytest.mark.parametrize(
    ("fact", "key", "value"),
    [
        (OFFSET, OFFSET_KEY, OFFSET_VALUE_3),
        (OFFSET_WITH_EXPIRY, OFFSET_KEY, OFFSET_VALUE_1),
        (OFFSET_WITH_TOPIC_ID, OFFSET_KEY, OFFSET_VALUE_4),
        (OffsetFact("group", "topic", 7, None), OFFSET_KEY, None),
        (GROUP, GROUP_KEY, GROUP_VALUE_3),
        (EMPTY_GROUP, GROUP_KEY, EMPTY_GROUP_VALUE_3),
        (GroupFact("group", None), GROUP_KEY, None),
    ],
)
def test_golden_bytes(fact: Fact, key: bytes, value: bytes | None) -> None:
    assert encode_fact(fact) == (key, value)
    assert decode(key, value) == fact


def test_an_offset_key_of_version_0_is_the_same_offset() -> None:
    assert decode_key(struct.pack(">h", 0) + OFFSET_KEY[2:]) == decode_key(OFFSET_KEY)


@pytest.mark.parametrize(
    ("value", "epoch", "expires"),
    [
        (struct.pack(">hq", 0, 42) + text("n") + struct.pack(">q", 1), -1, -1),
        (struct.pack(">hq", 1, 42) + text("n") + struct.pack(">qq", 1, 2), -1, 2),
        (struct.pack(">hq", 2, 42) + text("n") + struct.pack(">q", 1), -1, -1),
        (struct.pack(">hqi", 3, 42, 6) + text("n") + struct.pack(">q", 1), 6, -1),
        # Version 4 is flexible: a compact string, tagged fields; one unknown tag (KIP-915).
        (
            struct.pack(">hqi", 4, 42, 6) + b"\x02n" + struct.pack(">q", 1) + b"\x01\x07\x02hi",
            6,
            -1,
        ),
    ],
)
def test_every_version_of_an_offset(value: bytes, epoch: int, expires: int) -> None:
    assert decode(OFFSET_KEY, value) == OffsetFact(
        "group",
        "topic",
        7,
        OffsetCommitValue(
            offset=42,
            leader_epoch=epoch,
            metadata="n",
            commit_timestamp=1,
            expire_timestamp=expires,
        ),
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_group(version: int) -> None:
    member = (
        text("m-1")
        + (text("i-1") if version >= 3 else b"")
        + text("client")
        + text("/10.0.0.1")
        + (struct.pack(">i", 60_000) if version >= 1 else b"")
        + struct.pack(">i", 45_000)
        + blob(b"sub")
        + blob(b"assignment")
    )
    value = (
        struct.pack(">h", version)
        + text("consumer")
        + struct.pack(">i", 12)
        + text("range")
        + text("m-1")
        + (struct.pack(">q", 1_234) if version >= 2 else b"")
        + struct.pack(">i", 1)
        + member
    )
    fact = decode(GROUP_KEY, value)
    assert isinstance(fact, GroupFact)
    assert fact.value is not None
    (found,) = fact.value.members
    assert fact.value.current_state_timestamp == (1_234 if version >= 2 else -1)
    assert found.rebalance_timeout == (60_000 if version >= 1 else -1)
    assert found.group_instance_id == ("i-1" if version >= 3 else None)


@pytest.mark.parametrize("version", [3, 5, 8, 14, 500, -3])
def test_other_types_are_passed_over(version: int) -> None:
    # KIP-848 and KIP-932 write such records; what follows the type is theirs.
    assert decode_key(struct.pack(">h", version) + b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"", b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY + b"\0", None),
        (OFFSET_KEY, b"\0"),
        (OFFSET_KEY, OFFSET_VALUE_3[:-1]),
        (OFFSET_KEY, struct.pack(">h", 5) + OFFSET_VALUE_3[2:]),
        (OFFSET_KEY, struct.pack(">h", -1) + OFFSET_VALUE_3[2:]),
        (GROUP_KEY, GROUP_VALUE_3[:-1]),
        (GROUP_KEY, struct.pack(">h", 9) + GROUP_VALUE_3[2:]),
    ],
)
def test_bad_records_differ_from_unknown_ones(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BadRecord):
        decode_fact(decode_key(key) or pytest.fail("taken for another type"), value)


words = st.text(max_size=12)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
offsets = st.builds(
    OffsetFact,
    words,
    words,
    int32,
    st.none()
    | st.builds(
        OffsetCommitValue, offset=int64, leader_epoch=int32, metadata=words, commit_timestamp=int64
    ),
)
members = st.builds(
    MemberMetadata,
    member_id=words,
    group_instance_id=st.none() | words,
    client_id=words,
    client_host=words,
    rebalance_timeout=int32,
    session_timeout=int32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
group_facts = st.builds(
    GroupFact,
    words,
    st.none()
    | st.builds(
        GroupMetadataValue,
        protocol_type=words,
        generation=int32,
        protocol=st.none() | words,
        leader=st.none() | words,
        current_state_timestamp=int64,
        members=st.lists(members, max_size=3).map(tuple),
    ),
)


@given(offsets | group_facts)
def test_round_trip(fact: Fact) -> None:
    assert decode(*encode_fact(fact)) == fact


def test_keys_are_their_declared_types() -> None:
    assert isinstance(decode_key(OFFSET_KEY), OffsetCommitKey)
    assert isinstance(decode_key(GROUP_KEY), GroupMetadataKey)


def test_the_topic_id_under_its_former_tag_is_read() -> None:
    key = decode_key(OFFSET_KEY)
    assert key is not None
    assert decode_fact(key, FORMER_OFFSET_VALUE_4) == OFFSET_WITH_TOPIC_ID
    both = WITHOUT_TAGS_4 + b"\x02\x00\x10" + bytes(range(16)) + b"\x88\x27\x10" + bytes(16 * [9])
    assert decode_fact(key, both) == OFFSET_WITH_TOPIC_ID


def test_what_kafka_encodes() -> None:
    """Bytes of Kafka 4.3.1's own class, with every field set."""
    value = bytes.fromhex(
        "0004000000000000000500000001026d000000000000000701001000000000000000010000000000000002"
    )
    key = decode_key(OFFSET_KEY)
    assert key is not None
    fact = decode_fact(key, value)
    assert isinstance(fact, OffsetFact)
    assert fact.value == OffsetCommitValue(
        offset=5,
        leader_epoch=1,
        metadata="m",
        commit_timestamp=7,
        topic_id=Uuid((1).to_bytes(8, "big") + (2).to_bytes(8, "big")),
    )
    assert encode_fact(fact) == (OFFSET_KEY, value)
