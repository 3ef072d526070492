"""The records of `__consumer_offsets`, byte for byte as Kafka's coordinator writes them.

A key is an int16 with the record's type, then the key's fields; a value is an int16 with its
own version, then the value's fields; a null value is a tombstone. Types 0 and 1 are an offset
commit, 2 is a classic group. Higher types belong to the newer group protocols (KIP-848,
KIP-932), which this coordinator does not run: their records are skipped.

An offset has its topic's id, in a tagged field that Kafka has since 4.3 and that earlier
readers skip (Kafka's own, from 3.5 on): by the name alone, a coordinator elected after
a topic was deleted and created again could not tell which topic the offset is of.

Sources: OffsetCommit{Key,Value}.json, GroupMetadata{Key,Value}.json of Kafka's group
coordinator; KIP-915 (versions from 4 on are flexible, so that later fields can be skipped).
"""

import struct
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from ottla.base.ids import NO_EPOCH, NO_UUID, Uuid
from ottla.wire.codec import decode, encode
from ottla.wire.errors import WireError
from ottla.wire.schema import (
    BYTES,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
    versions_of,
)

NO_TIMESTAMP: Final = -1
TOPIC_ID_TAG: Final = 0
"""As Kafka 4.3 has it."""
FORMER_TOPIC_ID_TAG: Final = 5_000
"""What Ottla wrote before Kafka had a tag for it; read only."""


@message(versions="0-1")
class OffsetCommitKey:
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, versions="3+", default=NO_EPOCH, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, versions="1", default=NO_TIMESTAMP, ignorable=True)
    """Where the client asked for a retention of its own, as clients before 2.1 could."""
    topic_id: Uuid = field(UUID, versions="4+", tag=TOPIC_ID_TAG, default=NO_UUID, ignorable=True)
    """Zero = not written."""
    former_topic_id: Uuid = field(
        UUID, versions="4+", tag=FORMER_TOPIC_ID_TAG, default=NO_UUID, ignorable=True
    )
    """Never set in what is decoded: `decode_fact` takes it for `topic_id`."""


@message(versions="2")
class GroupMetadataKey:
    group: str = field(STRING)


@struct_of
class MemberMetadata:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="3+", nullable="3+", default=None, ignorable=True
    )
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, versions="1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, versions="2+", default=NO_TIMESTAMP, ignorable=True)
    members: tuple[MemberMetadata, ...] = field(array(MemberMetadata))


OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
OFFSET_VALUE_VERSION_WITH_TOPIC_ID: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
"""The only version with the time when the offset expires; it has no leader epoch."""
GROUP_VALUE_VERSION: Final = 3
"""What Kafka writes too: version 4 is only read, so that a downgrade stays possible."""

STRING_BYTES_MAX: Final = 2**15 - 1
"""Of a string in these records, and in requests before their flexible versions."""

RecordPair = tuple[bytes, bytes | None]
"""Key and value of a record, as they are in the log."""


@dataclass(frozen=True, slots=True)
class OffsetFact:
    """A group's offset in a partition; `value` None = deleted."""

    group_id: str
    topic: str
    partition: int
    value: OffsetCommitValue | None


@dataclass(frozen=True, slots=True)
class GroupFact:
    """A group's last stable or empty generation; `value` None = deleted."""

    group_id: str
    value: GroupMetadataValue | None


Fact = OffsetFact | GroupFact
FactKey = OffsetCommitKey | GroupMetadataKey

_int16 = struct.Struct(">h")
_OFFSET_KEY_VERSIONS = versions_of(OffsetCommitKey)
_VALUE_VERSIONS: dict[type, range] = {
    each: versions_of(each) for each in (OffsetCommitValue, GroupMetadataValue)
}
V = TypeVar("V")


class BadRecord(Exception):
    """A record of a known type that does not decode, or without a key."""


def fits(text: str) -> bool:
    """Tell whether a record can hold the string; flexible requests may have longer ones."""
    return len(text.encode()) <= STRING_BYTES_MAX


def encode_fact(fact: Fact) -> RecordPair:
    """Return the fact as a record.

    Raises: EncodeError for a string that does not fit.
    """
    if isinstance(fact, GroupFact):
        key = _versioned(GroupMetadataKey(group=fact.group_id), GROUP_KEY_VERSION)
        if fact.value is None:
            return key, None
        return key, _versioned(fact.value, GROUP_VALUE_VERSION)
    key = _versioned(
        OffsetCommitKey(group=fact.group_id, topic=fact.topic, partition=fact.partition),
        OFFSET_KEY_VERSION,
    )
    if fact.value is None:
        return key, None
    version = OFFSET_VALUE_VERSION
    if fact.value.expire_timestamp != NO_TIMESTAMP:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
    elif fact.value.topic_id != NO_UUID:
        version = OFFSET_VALUE_VERSION_WITH_TOPIC_ID
    return key, _versioned(fact.value, version)


def decode_key(key: bytes | None) -> FactKey | None:
    """Return the key of a record; None = a type that this coordinator skips.

    Raises: BadRecord.
    """
    if key is None or len(key) < _int16.size:
        raise BadRecord("a record's key is missing or too short")
    (version,) = _int16.unpack_from(key)
    if version in _OFFSET_KEY_VERSIONS:
        return _decode(OffsetCommitKey, key, version)
    if version == GROUP_KEY_VERSION:
        return _decode(GroupMetadataKey, key, version)
    return None


def decode_fact(key: FactKey, value: bytes | None) -> Fact:
    """Return the fact of a record whose key was decoded before.

    Raises: BadRecord.
    """
    if isinstance(key, OffsetCommitKey):
        decoded = None if value is None else _decode_value(OffsetCommitValue, value)
        if decoded is not None and decoded.former_topic_id != NO_UUID:
            topic_id = decoded.topic_id if decoded.topic_id != NO_UUID else decoded.former_topic_id
            decoded = replace(decoded, topic_id=topic_id, former_topic_id=NO_UUID)
        return OffsetFact(key.group, key.topic, key.partition, decoded)
    return GroupFact(key.group, None if value is None else _decode_value(GroupMetadataValue, value))


def _versioned(data: object, version: int) -> bytes:
    return _int16.pack(version) + encode(data, version)


def _decode_value(cls: type[V], value: bytes) -> V:
    if len(value) < _int16.size:
        raise BadRecord(f"a {cls.__name__} is too short")
    (version,) = _int16.unpack_from(value)
    if version not in _VALUE_VERSIONS[cls]:
        raise BadRecord(f"{cls.__name__} has no version {version} here")
    return _decode(cls, value, version)


def _decode(cls: type[V], data: bytes, version: int) -> V:
    try:
        return decode(cls, data, version, _int16.size)
    except WireError as error:
        raise BadRecord(str(error)) from None
