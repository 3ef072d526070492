"""Segments, updates and fences of one partition, with only what a test is about."""

from ottla.base.ids import Uuid
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import (
    Epochs,
    Fence,
    MetadataRecord,
    RestoreStarted,
    SegmentMetadata,
    SegmentState,
    SegmentUpdate,
)

TOPIC = "orders"
TOPIC_ID = Uuid(bytes(range(1, 17)))
PARTITION = 3

STARTED = SegmentState.COPY_STARTED
FINISHED = SegmentState.COPY_FINISHED
DELETING = SegmentState.DELETE_STARTED
DELETED = SegmentState.DELETE_FINISHED


def segment_id(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def number_of(each: SegmentMetadata) -> int:
    return int.from_bytes(each.segment_id, "big")


def segment(
    number: int,
    start: int,
    end: int,
    epochs: Epochs | None = None,
    *,
    state: SegmentState = STARTED,
    leader_epoch: int = 1,
    tiered_epoch: int = 1,
    max_timestamp_ms: int = 1_000,
    size_bytes: int = 100,
    txn_index_empty: bool = True,
    custom_metadata: bytes | None = None,
) -> SegmentMetadata:
    return SegmentMetadata(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        segment_id=segment_id(number),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=7,
        event_timestamp_ms=2_000,
        size_bytes=size_bytes,
        epochs=((1, start),) if epochs is None else epochs,
        state=state,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
        txn_index_empty=txn_index_empty,
        custom_metadata=custom_metadata,
    )


def update(
    number: int,
    state: SegmentState,
    *,
    leader_epoch: int = 1,
    tiered_epoch: int = 1,
    custom_metadata: bytes | None = None,
) -> SegmentUpdate:
    return SegmentUpdate(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        segment_id=segment_id(number),
        state=state,
        broker_id=8,
        event_timestamp_ms=3_000,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
        custom_metadata=custom_metadata,
    )


def restore_started(leader_epoch: int = 6) -> RestoreStarted:
    return RestoreStarted(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        broker_id=9,
        leader_epoch=leader_epoch,
        event_timestamp_ms=4_000,
    )


def fence(leader_epoch: int, tiered_epoch: int = 1, floor: int = 0, state: int = 1) -> Fence:
    return Fence(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        broker_id=7,
        leader_epoch=leader_epoch,
        tiered_epoch=tiered_epoch,
        state=state,
        floor=floor,
        event_timestamp_ms=4_000,
    )


def replayed(*records: MetadataRecord) -> RemoteLog:
    log = RemoteLog()
    for record in records:
        log.replay(record)
    return log


def copied(*segments: SegmentMetadata) -> RemoteLog:
    """Return the log after each segment was copied."""
    log = RemoteLog()
    for each in segments:
        log.replay(each)
        epochs = {"leader_epoch": each.leader_epoch, "tiered_epoch": each.tiered_epoch}
        log.replay(update(number_of(each), FINISHED, **epochs))
    return log


def numbers(log: RemoteLog) -> dict[int, SegmentState]:
    """Return the states of a log's segments by their numbers."""
    return {number_of(each): each.state for each in log.segments()}
