"""The records of `__remote_log_metadata` as text, in the words of Kafka's own dump tool.

The epochs of the copier, fences and starts of restores are Ottla's own: they follow Kafka's fields,
or stand alone.
Source: KIP-1057; toString of RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate and
RemotePartitionDeleteMetadata.
"""

from typing import Final

from ottla.base.ids import NO_EPOCH, Uuid, uuid_text
from ottla.metadata.tiering import TieringState
from ottla.records.record import Record
from ottla.tiered import metadata_records as wire
from ottla.tiered.segment_metadata import SegmentState
from ottla.wire.errors import WireError

_SEGMENT_STATES: Final = {
    SegmentState.COPY_STARTED: "COPY_SEGMENT_STARTED",
    SegmentState.COPY_FINISHED: "COPY_SEGMENT_FINISHED",
    SegmentState.DELETE_STARTED: "DELETE_SEGMENT_STARTED",
    SegmentState.DELETE_FINISHED: "DELETE_SEGMENT_FINISHED",
}
assert set(_SEGMENT_STATES) == set(SegmentState)

_PARTITION_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_log_metadata(record: Record) -> tuple[None, str]:
    """Decode a record: a key that is not shown, and the text of the payload."""
    try:
        return None, _text(wire.decode_message(record.value or b""))
    except (WireError, ValueError, IndexError) as error:
        return None, f"Error at offset {record.offset}, skipping. {error}"


def _text(message: object) -> str:
    if isinstance(message, wire.RemoteLogSegmentMetadataRecord):
        return _segment(message)
    if isinstance(message, wire.RemoteLogSegmentMetadataUpdateRecord):
        return _update(message)
    if isinstance(message, wire.RemotePartitionDeleteMetadataRecord):
        return _partition_delete(message)
    if isinstance(message, wire.RemoteLogSegmentMetadataSnapshotRecord):
        return _snapshot(message)
    if isinstance(message, wire.FenceRecord):
        return _fence(message)
    if isinstance(message, wire.RestoreStartedRecord):
        return _restore_started(message)
    raise ValueError("Unknown record type")


def _segment(message: wire.RemoteLogSegmentMetadataRecord) -> str:
    return _java(
        "RemoteLogSegmentMetadata",
        remoteLogSegmentId=_segment_id(message.remote_log_segment_id),
        startOffset=message.start_offset,
        endOffset=message.end_offset,
        brokerId=message.broker_id,
        maxTimestampMs=message.max_timestamp_ms,
        eventTimestampMs=message.event_timestamp_ms,
        segmentLeaderEpochs=_epochs(message.segment_leader_epochs),
        segmentSizeInBytes=message.segment_size_in_bytes,
        customMetadata=_custom(message.custom_metadata),
        state=_SEGMENT_STATES[SegmentState(message.remote_log_segment_state)],
        txnIdxEmpty="true" if message.txn_index_empty else "false",
        **_copier(message),
    )


def _update(message: wire.RemoteLogSegmentMetadataUpdateRecord) -> str:
    return _java(
        "RemoteLogSegmentMetadataUpdate",
        remoteLogSegmentId=_segment_id(message.remote_log_segment_id),
        customMetadata=_custom(message.custom_metadata),
        state=_SEGMENT_STATES[SegmentState(message.remote_log_segment_state)],
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
        **_copier(message),
    )


def _partition_delete(message: wire.RemotePartitionDeleteMetadataRecord) -> str:
    state = message.remote_partition_delete_state
    if not 0 <= state < len(_PARTITION_STATES):
        raise ValueError(f"{state} is no state of a partition's deletion")
    return _java(
        "RemotePartitionDeleteMetadata",
        topicPartition=_partition(message.topic_id_partition),
        state=_PARTITION_STATES[state],
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
    )


def _snapshot(message: wire.RemoteLogSegmentMetadataSnapshotRecord) -> str:
    return _java(
        "RemoteLogSegmentMetadataSnapshot",
        segmentId=uuid_text(Uuid(message.segment_id)),
        startOffset=message.start_offset,
        endOffset=message.end_offset,
        maxTimestampMs=message.max_timestamp_ms,
        segmentLeaderEpochs=_epochs(message.segment_leader_epochs),
        segmentSizeInBytes=message.segment_size_in_bytes,
        customMetadata=_custom(message.custom_metadata),
        state=_SEGMENT_STATES[SegmentState(message.remote_log_segment_state)],
    )


def _fence(message: wire.FenceRecord) -> str:
    return _java(
        "Fence",
        topicPartition=_partition(message.topic_id_partition),
        state=TieringState(message.tiering_state).name,
        remoteFloorEpoch=message.remote_floor_epoch,
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
        leaderEpoch=message.leader_epoch,
        tieredEpoch=message.tiered_epoch,
    )


def _restore_started(message: wire.RestoreStartedRecord) -> str:
    return _java(
        "RestoreStarted",
        topicPartition=_partition(message.topic_id_partition),
        eventTimestampMs=message.event_timestamp_ms,
        brokerId=message.broker_id,
        leaderEpoch=message.leader_epoch,
    )


def _java(name: str, **fields: object) -> str:
    """Return an object as Java's toString methods show it."""
    return f"{name}{{{', '.join(f'{key}={value}' for key, value in fields.items())}}}"


def _segment_id(segment: wire.RemoteLogSegmentId) -> str:
    return _java(
        "RemoteLogSegmentId",
        topicIdPartition=_partition(segment.topic_id_partition),
        id=uuid_text(Uuid(segment.id)),
    )


def _partition(partition: wire.TopicIdPartition) -> str:
    return f"{uuid_text(Uuid(partition.id))}:{partition.name}-{partition.partition}"


def _epochs(epochs: tuple[wire.SegmentLeaderEpoch, ...]) -> str:
    return f"{{{', '.join(f'{each.leader_epoch}={each.offset}' for each in epochs)}}}"


def _custom(data: bytes | None) -> str:
    if data is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _copier(
    message: wire.RemoteLogSegmentMetadataRecord | wire.RemoteLogSegmentMetadataUpdateRecord,
) -> dict[str, object]:
    """Return the epochs of the copier, where the record has them."""
    epochs = {"leaderEpoch": message.leader_epoch, "tieredEpoch": message.tiered_epoch}
    return {name: epoch for name, epoch in epochs.items() if epoch != NO_EPOCH}
