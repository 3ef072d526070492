"""Control batches: one record each, for Kafka's clients and brokers, not for applications.

The key is a version and a type; the value depends on the type. Transaction markers are encoded
here; the values of KRaft's control records are wire messages and pass through as bytes.

Sources: KIP-98 (markers), KIP-595 and KIP-630 (KRaft), KIP-853; Kafka's ControlRecordType,
EndTransactionMarker, ControlRecordUtils.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.records.builder import encode_batch
from ottla.records.errors import InvalidRecord
from ottla.records.record import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """The type of a control record, the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


MARKERS = frozenset({ControlType.ABORT, ControlType.COMMIT})
_TYPES = {int(kind): kind for kind in ControlType}


class Marker(NamedTuple):
    """The end of a producer's transaction in this partition."""

    committed: bool
    coordinator_epoch: int


def encode_key(kind: ControlType) -> bytes:
    return _KEY.pack(_VERSION, kind)


def decode_key(key: bytes | None) -> ControlType | None:
    """Return the type; None = unknown, to be ignored.

    Raises: InvalidRecord where the key is none of a control record.
    """
    # Later versions may append fields; they must not shorten what version 0 has.
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record's key is too short")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key has version {version}")
    return _TYPES.get(number)


def decode_marker(record: Record) -> Marker | None:
    """Return the marker that a control batch's record holds; None = it is no marker.

    Raises: InvalidRecord where it claims to be one and is malformed.
    """
    kind = decode_key(record.key)
    if kind not in MARKERS:
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecord("a transaction marker's value is too short")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker has version {version}")
    return Marker(kind is ControlType.COMMIT, coordinator_epoch)


def build_marker(
    *,
    committed: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the batch that ends a producer's transaction in a partition."""
    kind = ControlType.COMMIT if committed else ControlType.ABORT
    value = _MARKER.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [(encode_key(kind), value, (), timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )


def build_control(
    kind: ControlType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the batch of one KRaft control record, whose value is an encoded wire message."""
    assert kind not in MARKERS, "markers name their producer: build_marker"
    return encode_batch(
        [(encode_key(kind), value, (), timestamp)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        control=True,
    )
