"""The records of the metadata log: one record type a fact, in Kafka's ids and schemas.

A record's frame is three unsigned varints (frame version 1, type, version), then its body, so
Kafka's dump tool reads the log. Types that Kafka has and Ottla never writes (ACLs, quotas, SCRAM
credentials, delegation tokens, ZooKeeper migration) are refused when they are read: a node that
skipped a fact would serve a state that differs from the log. Transaction markers are no facts;
`without_aborted` removes them.
Source: MetadataRecordSerde, AbstractApiMessageSerde; KIP-631.
"""

from collections.abc import Iterable
from typing import Any, Final

from ottla.metadata.records.brokers import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.records.cluster import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
)
from ottla.metadata.records.controllers import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from ottla.metadata.records.deletions import (
    DeletionRecord,
    DeletionReplicasRecord,
    ForgetDeletionRecord,
)
from ottla.metadata.records.tiering import TopicTieringRecord
from ottla.metadata.records.topics import (
    LEADER_UNCHANGED,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.records.transactions import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.wire.codec import decode, encode
from ottla.wire.errors import WireError
from ottla.wire.primitives import decode_uvarint, encode_uvarint
from ottla.wire.schema import spec_of

Record = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | NoOpRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | DeletionRecord
    | DeletionReplicasRecord
    | ForgetDeletionRecord
    | TopicTieringRecord
)

Marker = BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord

FRAME_VERSION: Final = 1

RECORD_TYPES: Final[tuple[type[Any], ...]] = Record.__args__
MARKER_TYPES: Final[tuple[type[Any], ...]] = Marker.__args__


def _type_id(cls: type[Any]) -> int:
    key = spec_of(cls).key
    assert key is not None
    return key


TYPES_BY_ID: Final[dict[int, type[Any]]] = {
    _type_id(cls): cls for cls in RECORD_TYPES + MARKER_TYPES
}
assert len(TYPES_BY_ID) == len(RECORD_TYPES) + len(MARKER_TYPES)


def _prefix(cls: type[Any]) -> tuple[bytes, int]:
    """Return the frame that opens every record of a class, and the version written: the newest."""
    version = spec_of(cls).versions.last
    head = (FRAME_VERSION, _type_id(cls), version)
    return b"".join(encode_uvarint(number) for number in head), version


_PREFIXES: Final = {cls: _prefix(cls) for cls in RECORD_TYPES}


OWN_FROM: Final = 5_000
"""Types from here on are Ottla's; Kafka's readers skip them."""


def with_no_op(values: list[bytes]) -> list[bytes]:
    """Return the encoded records of one batch, with one that Kafka knows among them.

    A batch of Ottla's own records alone is empty to Kafka's readers, and kafka-metadata-shell
    reads such a batch forever. A NoOpRecord changes nothing.
    """
    if all(_type_of(value) >= OWN_FROM for value in values):
        return [encode_record(NoOpRecord()), *values]
    return values


def _type_of(value: bytes) -> int:
    _, position = decode_uvarint(value, 0)
    return decode_uvarint(value, position)[0]


def encode_record(record: Record) -> bytes:
    """Return a record's frame and body, as the value of a record of the metadata log."""
    prefix, version = _PREFIXES[type(record)]
    return prefix + encode(record, version)


def decode_record(data: bytes | bytearray | memoryview) -> Record:
    """Return the record in `data`; raise WireError for unknown ones."""
    entry = decode_entry(data)
    if isinstance(entry, Marker):
        raise WireError(f"{type(entry).__name__} where only facts may be")
    return entry


def without_aborted(entries: Iterable[Record | Marker]) -> list[Record]:
    """Return the records of one batch, without those of aborted transactions.

    Raises: WireError where a transaction continues after the batch, as one of Kafka's migration
    from ZooKeeper did.
    """
    records: list[Record] = []
    began: int | None = None
    for entry in entries:
        if not isinstance(entry, Marker):
            records.append(entry)
            continue
        if isinstance(entry, BeginTransactionRecord) != (began is None):
            raise WireError(
                "a metadata transaction of several batches, which Ottla does not support"
            )
        if isinstance(entry, AbortTransactionRecord):
            del records[began:]
        began = len(records) if isinstance(entry, BeginTransactionRecord) else None
    if began is not None:
        raise WireError("a metadata transaction of several batches, which Ottla does not support")
    return records


def decode_entry(data: bytes | bytearray | memoryview) -> Record | Marker:
    """Return the record or the transaction marker in `data`. Raises: as `decode_record`."""
    frame_version, position = decode_uvarint(data, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"metadata record of frame version {frame_version}, expected 1")
    type_id, position = decode_uvarint(data, position)
    version, position = decode_uvarint(data, position)
    cls = TYPES_BY_ID.get(type_id)
    if cls is None:
        raise WireError(f"metadata record of type {type_id}, which Ottla does not support")
    if version not in spec_of(cls).versions:
        raise WireError(f"{cls.__name__} of version {version}, which Ottla does not know")
    entry: Record | Marker = decode(cls, memoryview(data)[position:], version)
    return entry


__all__ = [
    "FRAME_VERSION",
    "LEADER_UNCHANGED",
    "MARKER_TYPES",
    "RECORD_TYPES",
    "TYPES_BY_ID",
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClearElrRecord",
    "ConfigRecord",
    "ControllerEndpoint",
    "ControllerFeature",
    "DeletionRecord",
    "DeletionReplicasRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "ForgetDeletionRecord",
    "Marker",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "Record",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "TopicTieringRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "decode_entry",
    "decode_record",
    "encode_record",
    "with_no_op",
    "without_aborted",
]
