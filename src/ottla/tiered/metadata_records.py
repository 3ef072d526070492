"""The values of `__remote_log_metadata`, byte for byte as Kafka's brokers write them.

A value is three unsigned varints (frame version 1, api key, version), then a flexible message. The
leader epoch and the tiered epoch of the copier are tagged fields of Ottla's own, which Kafka's
readers skip. Fences, and the starts of restores, have api keys of Ottla's own.

Version 1 of Kafka's messages differs from version 0 in tagged fields only, among them the leader
epoch; it is read, and not written. The records of a partition's deletion and of snapshots, which
no Kafka writes, are skipped.

Source: RemoteLogSegmentMetadataRecord.json, RemoteLogSegmentMetadataUpdateRecord.json,
RemotePartitionDeleteMetadataRecord.json, RemoteLogSegmentMetadataSnapshotRecord.json,
RemoteLogMetadataSerde, AbstractApiMessageSerde; KIP-405.
"""

from typing import Any, Final

from ottla.base.ids import NO_EPOCH, NO_OFFSET, Uuid
from ottla.tiered.segment_metadata import (
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
    check_fence,
    check_segment,
)
from ottla.wire import codec
from ottla.wire.errors import WireError
from ottla.wire.primitives import Buffer, decode_uvarint, encode_uvarint
from ottla.wire.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    record,
    spec_of,
    struct_of,
)

LEADER_EPOCH_TAG: Final = 10_000
TIERED_EPOCH_TAG: Final = 10_001
FENCE_KEY: Final = 5_000
RESTORE_STARTED_KEY: Final = 5_001


@struct_of
class TopicIdPartition:
    name: str = field(STRING)
    id: Uuid = field(UUID)
    partition: int = field(INT32)


@struct_of
class RemoteLogSegmentId:
    topic_id_partition: TopicIdPartition = field(TopicIdPartition)
    id: Uuid = field(UUID)


@struct_of
class SegmentLeaderEpoch:
    leader_epoch: int = field(INT32)
    offset: int = field(INT64)


@record(type=0, versions="0-1")
class RemoteLogSegmentMetadataRecord:
    remote_log_segment_id: RemoteLogSegmentId = field(RemoteLogSegmentId)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    broker_id: int = field(INT32)
    max_timestamp_ms: int = field(INT64)
    event_timestamp_ms: int = field(INT64)
    segment_leader_epochs: tuple[SegmentLeaderEpoch, ...] = field(array(SegmentLeaderEpoch))
    segment_size_in_bytes: int = field(INT32)
    custom_metadata: bytes | None = field(BYTES, nullable="0+", default=None)
    remote_log_segment_state: int = field(INT8)
    txn_index_empty: bool = field(BOOL, tag=0, default=False)
    broker_leader_epoch: int = field(INT32, versions="1+", tag=1, default=0)
    leader_epoch: int = field(INT32, tag=LEADER_EPOCH_TAG, default=NO_EPOCH)
    tiered_epoch: int = field(INT32, tag=TIERED_EPOCH_TAG, default=NO_EPOCH)


@record(type=1, versions="0-1")
class RemoteLogSegmentMetadataUpdateRecord:
    remote_log_segment_id: RemoteLogSegmentId = field(RemoteLogSegmentId)
    broker_id: int = field(INT32)
    event_timestamp_ms: int = field(INT64)
    custom_metadata: bytes | None = field(BYTES, nullable="0+", default=None)
    remote_log_segment_state: int = field(INT8)
    broker_leader_epoch: int = field(INT32, versions="1+", tag=0, default=NO_EPOCH)
    end_offset: int = field(INT64, versions="1+", tag=1, default=NO_OFFSET)
    leader_epoch: int = field(INT32, tag=LEADER_EPOCH_TAG, default=NO_EPOCH)
    tiered_epoch: int = field(INT32, tag=TIERED_EPOCH_TAG, default=NO_EPOCH)


@record(type=2, versions="0-1")
class RemotePartitionDeleteMetadataRecord:
    topic_id_partition: TopicIdPartition = field(TopicIdPartition)
    broker_id: int = field(INT32)
    event_timestamp_ms: int = field(INT64)
    remote_partition_delete_state: int = field(INT8)
    broker_leader_epoch: int = field(INT32, versions="1+", tag=0, default=0)
    end_offset: int = field(INT64, versions="1+", tag=1, default=0)


@record(type=3, versions="0-1")
class RemoteLogSegmentMetadataSnapshotRecord:
    segment_id: Uuid = field(UUID)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    broker_id: int = field(INT32)
    max_timestamp_ms: int = field(INT64)
    event_timestamp_ms: int = field(INT64)
    segment_leader_epochs: tuple[SegmentLeaderEpoch, ...] = field(array(SegmentLeaderEpoch))
    segment_size_in_bytes: int = field(INT32)
    custom_metadata: bytes | None = field(BYTES, nullable="0+", default=None)
    remote_log_segment_state: int = field(INT8)
    txn_index_empty: bool = field(BOOL, tag=0, default=False)
    broker_leader_epoch: int = field(INT32, versions="1+", tag=1, default=0)


@record(type=FENCE_KEY, versions="0")
class FenceRecord:
    """Ottla's own: see `segment_metadata.Fence`."""

    topic_id_partition: TopicIdPartition = field(TopicIdPartition)
    broker_id: int = field(INT32)
    event_timestamp_ms: int = field(INT64)
    leader_epoch: int = field(INT32)
    tiered_epoch: int = field(INT32)
    tiering_state: int = field(INT8)
    remote_floor_epoch: int = field(INT32)


@record(type=RESTORE_STARTED_KEY, versions="0")
class RestoreStartedRecord:
    """Ottla's own: see `segment_metadata.RestoreStarted`."""

    topic_id_partition: TopicIdPartition = field(TopicIdPartition)
    broker_id: int = field(INT32)
    event_timestamp_ms: int = field(INT64)
    leader_epoch: int = field(INT32)


FRAME_VERSION: Final = 1
WRITTEN_VERSION: Final = 0

_TYPES: Final[dict[int, type[Any]]] = {
    cls_key: cls
    for cls in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
        FenceRecord,
        RestoreStartedRecord,
    )
    if (cls_key := spec_of(cls).key) is not None
}
assert len(_TYPES) == 6


def encode_message(message: object, version: int = WRITTEN_VERSION) -> bytes:
    """Return the frame and the body of one of the messages above."""
    key = spec_of(type(message)).key
    assert key is not None
    head = b"".join(map(encode_uvarint, (FRAME_VERSION, key, version)))
    return head + codec.encode(message, version)


def encode(record: MetadataRecord) -> bytes:
    """Return the value of a record. Raises: EncodeError for what does not fit its field."""
    if isinstance(record, SegmentMetadata):
        return encode_message(
            RemoteLogSegmentMetadataRecord(
                remote_log_segment_id=_segment_id(record),
                start_offset=record.start_offset,
                end_offset=record.end_offset,
                broker_id=record.broker_id,
                max_timestamp_ms=record.max_timestamp_ms,
                event_timestamp_ms=record.event_timestamp_ms,
                segment_leader_epochs=tuple(
                    SegmentLeaderEpoch(leader_epoch=epoch, offset=offset)
                    for epoch, offset in record.epochs
                ),
                segment_size_in_bytes=record.size_bytes,
                custom_metadata=record.custom_metadata,
                remote_log_segment_state=record.state,
                txn_index_empty=record.txn_index_empty,
                leader_epoch=record.leader_epoch,
                tiered_epoch=record.tiered_epoch,
            )
        )
    if isinstance(record, SegmentUpdate):
        return encode_message(
            RemoteLogSegmentMetadataUpdateRecord(
                remote_log_segment_id=_segment_id(record),
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp_ms,
                custom_metadata=record.custom_metadata,
                remote_log_segment_state=record.state,
                leader_epoch=record.leader_epoch,
                tiered_epoch=record.tiered_epoch,
            )
        )
    if isinstance(record, RestoreStarted):
        return encode_message(
            RestoreStartedRecord(
                topic_id_partition=_topic_id_partition(record),
                broker_id=record.broker_id,
                event_timestamp_ms=record.event_timestamp_ms,
                leader_epoch=record.leader_epoch,
            )
        )
    return encode_message(
        FenceRecord(
            topic_id_partition=_topic_id_partition(record),
            broker_id=record.broker_id,
            event_timestamp_ms=record.event_timestamp_ms,
            leader_epoch=record.leader_epoch,
            tiered_epoch=record.tiered_epoch,
            tiering_state=record.state,
            remote_floor_epoch=record.floor,
        )
    )


def decode(value: Buffer) -> MetadataRecord | None:
    """Return the record in a value; None = of a type that is skipped.

    Raises: ValueError for bytes that are no such record, or one that contradicts itself.
    """
    try:
        message = decode_message(value)
    except WireError as error:
        raise ValueError(f"remote log metadata: {error}") from None
    if isinstance(message, RemoteLogSegmentMetadataRecord):
        segment = _segment(message)
        check_segment(segment)
        return segment
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return _update(message)
    if isinstance(message, FenceRecord):
        fence = _fence(message)
        check_fence(fence)
        return fence
    if isinstance(message, RestoreStartedRecord):
        return _restore_started(message)
    return None


def decode_message(value: Buffer) -> object | None:
    """Return the message in a value; None = its api key is not known. Raises: WireError."""
    data = bytes(value)
    frame_version, position = decode_uvarint(data, 0)
    if frame_version != FRAME_VERSION:
        raise WireError(f"a record of frame version {frame_version}, expected 1")
    key, position = decode_uvarint(data, position)
    version, position = decode_uvarint(data, position)
    cls = _TYPES.get(key)
    if cls is None:
        return None
    if version not in spec_of(cls).versions:
        raise WireError(f"{cls.__name__} of version {version}, which Ottla does not know")
    message: object = codec.decode(cls, data, version, position)
    return message


def _topic_id_partition(record: MetadataRecord) -> TopicIdPartition:
    return TopicIdPartition(name=record.topic, id=record.topic_id, partition=record.partition)


def _segment_id(record: SegmentMetadata | SegmentUpdate) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(topic_id_partition=_topic_id_partition(record), id=record.segment_id)


def _copier_epoch(message: Any) -> int:
    """The leader epoch of the copier: in Ottla's field, or in Kafka's of version 1."""
    known: int = message.leader_epoch
    if known != NO_EPOCH:
        return known
    of_kafka: int = message.broker_leader_epoch
    return of_kafka or NO_EPOCH


def _segment(message: RemoteLogSegmentMetadataRecord) -> SegmentMetadata:
    partition = message.remote_log_segment_id.topic_id_partition
    return SegmentMetadata(
        topic=partition.name,
        topic_id=Uuid(partition.id),
        partition=partition.partition,
        segment_id=Uuid(message.remote_log_segment_id.id),
        start_offset=message.start_offset,
        end_offset=message.end_offset,
        max_timestamp_ms=message.max_timestamp_ms,
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        size_bytes=message.segment_size_in_bytes,
        epochs=tuple((each.leader_epoch, each.offset) for each in message.segment_leader_epochs),
        state=SegmentState(message.remote_log_segment_state),
        leader_epoch=_copier_epoch(message),
        tiered_epoch=message.tiered_epoch,
        txn_index_empty=message.txn_index_empty,
        custom_metadata=message.custom_metadata,
    )


def _update(message: RemoteLogSegmentMetadataUpdateRecord) -> SegmentUpdate:
    partition = message.remote_log_segment_id.topic_id_partition
    return SegmentUpdate(
        topic=partition.name,
        topic_id=Uuid(partition.id),
        partition=partition.partition,
        segment_id=Uuid(message.remote_log_segment_id.id),
        state=SegmentState(message.remote_log_segment_state),
        broker_id=message.broker_id,
        event_timestamp_ms=message.event_timestamp_ms,
        leader_epoch=_copier_epoch(message),
        tiered_epoch=message.tiered_epoch,
        custom_metadata=message.custom_metadata,
    )


def _fence(message: FenceRecord) -> Fence:
    partition = message.topic_id_partition
    return Fence(
        topic=partition.name,
        topic_id=Uuid(partition.id),
        partition=partition.partition,
        broker_id=message.broker_id,
        leader_epoch=message.leader_epoch,
        tiered_epoch=message.tiered_epoch,
        state=message.tiering_state,
        floor=message.remote_floor_epoch,
        event_timestamp_ms=message.event_timestamp_ms,
    )


def _restore_started(message: RestoreStartedRecord) -> RestoreStarted:
    partition = message.topic_id_partition
    return RestoreStarted(
        topic=partition.name,
        topic_id=Uuid(partition.id),
        partition=partition.partition,
        broker_id=message.broker_id,
        leader_epoch=message.leader_epoch,
        event_timestamp_ms=message.event_timestamp_ms,
    )
