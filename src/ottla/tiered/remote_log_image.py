"""The bytes of a `RemoteLog` in the checkpoint of whoever reads `__remote_log_metadata`.

A byte with the format's version, the CRC32C of the rest, then one flexible message. Topic and
partition are written once; segments are in the order of their offsets. Version 1 says which of the
segments that are deleted had been copied; of version 0 that is not known.
"""

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.base.ids import NO_UUID, Uuid
from ottla.tiered.segment_metadata import (
    Fence,
    SegmentMetadata,
    SegmentState,
    check_fence,
    check_segment,
)
from ottla.wire import codec
from ottla.wire.errors import WireError
from ottla.wire.primitives import Buffer
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
    message,
    struct_of,
)

VERSION: Final = 1
_HEADER: Final = Struct(">BI")


@struct_of
class ImageEpoch:
    epoch: int = field(INT32)
    offset: int = field(INT64)


@struct_of
class ImageSegment:
    segment_id: Uuid = field(UUID)
    start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    broker_id: int = field(INT32)
    event_timestamp_ms: int = field(INT64)
    size_bytes: int = field(INT32)
    epochs: tuple[ImageEpoch, ...] = field(array(ImageEpoch))
    state: int = field(INT8)
    leader_epoch: int = field(INT32)
    tiered_epoch: int = field(INT32)
    txn_index_empty: bool = field(BOOL)
    custom_metadata: bytes | None = field(BYTES, nullable="0+")


@struct_of
class ImageFence:
    broker_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    tiered_epoch: int = field(INT32)
    state: int = field(INT8)
    floor: int = field(INT32)
    event_timestamp_ms: int = field(INT64)


@message(versions="0-1", flexible="0+")
class RemoteLogImage:
    topic: str = field(STRING)
    topic_id: Uuid = field(UUID)
    partition: int = field(INT32)
    refused: int = field(INT64)
    fence: ImageFence | None = field(ImageFence, nullable="0+")
    segments: tuple[ImageSegment, ...] = field(array(ImageSegment))
    ended: tuple[Uuid, ...] = field(array(UUID), versions="1+", default=())
    """The segments that are deleted after their copies were finished."""


class DecodedImage(NamedTuple):
    """What an image holds. `ended`: the deleted segments whose copies were finished."""

    segments: list[SegmentMetadata]
    ended: Collection[Uuid]
    fence: Fence | None
    refused: int


def encode_image(
    segments: Sequence[SegmentMetadata],
    ended: Collection[Uuid],
    *,
    fence: Fence | None,
    refused: int,
) -> bytes:
    """Return the image of a remote log."""
    some: SegmentMetadata | Fence | None = fence or (segments[0] if segments else None)
    body = codec.encode(
        RemoteLogImage(
            topic=some.topic if some else "",
            topic_id=some.topic_id if some else NO_UUID,
            partition=some.partition if some else -1,
            refused=refused,
            fence=_from_fence(fence),
            segments=tuple(map(_from_segment, segments)),
            ended=tuple(sorted(ended)),
        ),
        VERSION,
    )
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_image(data: Buffer) -> DecodedImage:
    """Return what an image holds. Raises: ValueError."""
    if len(data) < _HEADER.size:
        raise ValueError("an image of a remote log is too short")
    version, crc = _HEADER.unpack_from(data)
    if version > VERSION:
        raise ValueError(f"an image of a remote log of version {version}")
    body = bytes(memoryview(data)[_HEADER.size :])
    if crc32c(body) != crc:
        raise ValueError("an image of a remote log fails its checksum")
    try:
        image = codec.decode(RemoteLogImage, body, version)
    except WireError as error:
        raise ValueError(f"an image of a remote log: {error}") from None
    segments = [_to_segment(image, each) for each in image.segments]
    for segment in segments:
        check_segment(segment)
    fence = _to_fence(image)
    if fence is not None:
        check_fence(fence)
    return DecodedImage(segments, tuple(map(Uuid, image.ended)), fence, image.refused)


def _from_segment(segment: SegmentMetadata) -> ImageSegment:
    return ImageSegment(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        max_timestamp_ms=segment.max_timestamp_ms,
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        size_bytes=segment.size_bytes,
        epochs=tuple(ImageEpoch(epoch=epoch, offset=offset) for epoch, offset in segment.epochs),
        state=segment.state,
        leader_epoch=segment.leader_epoch,
        tiered_epoch=segment.tiered_epoch,
        txn_index_empty=segment.txn_index_empty,
        custom_metadata=segment.custom_metadata,
    )


def _to_segment(image: RemoteLogImage, segment: ImageSegment) -> SegmentMetadata:
    return SegmentMetadata(
        topic=image.topic,
        topic_id=image.topic_id,
        partition=image.partition,
        segment_id=Uuid(segment.segment_id),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        max_timestamp_ms=segment.max_timestamp_ms,
        broker_id=segment.broker_id,
        event_timestamp_ms=segment.event_timestamp_ms,
        size_bytes=segment.size_bytes,
        epochs=tuple((each.epoch, each.offset) for each in segment.epochs),
        state=SegmentState(segment.state),
        leader_epoch=segment.leader_epoch,
        tiered_epoch=segment.tiered_epoch,
        txn_index_empty=segment.txn_index_empty,
        custom_metadata=segment.custom_metadata,
    )


def _from_fence(fence: Fence | None) -> ImageFence | None:
    if fence is None:
        return None
    return ImageFence(
        broker_id=fence.broker_id,
        leader_epoch=fence.leader_epoch,
        tiered_epoch=fence.tiered_epoch,
        state=fence.state,
        floor=fence.floor,
        event_timestamp_ms=fence.event_timestamp_ms,
    )


def _to_fence(image: RemoteLogImage) -> Fence | None:
    fence = image.fence
    if fence is None:
        return None
    return Fence(
        topic=image.topic,
        topic_id=Uuid(image.topic_id),
        partition=image.partition,
        broker_id=fence.broker_id,
        leader_epoch=fence.leader_epoch,
        tiered_epoch=fence.tiered_epoch,
        state=fence.state,
        floor=fence.floor,
        event_timestamp_ms=fence.event_timestamp_ms,
    )
