"""GrantSegmentCopies (key 1011): this leader has the sender copy segments to remote storage.

Behaviour: per partition the next segments that nobody copies, at most as many as asked for, with
           what the sender needs to write their objects; COPY_STARTED is replayed by then. None
           where the sender only asks what is left, or others copy all that is left. A repeated
           request of the same holder renews its grants, and returns them again.
           INVALID_REQUEST: the topic is not tiered, its tiered storage is DISABLED, or too many
           copies have failed. TIERED_STORAGE_DISABLEMENT_IN_PROGRESS. NOT_LEADER_OR_FOLLOWER, also
           where a newer leader has fenced this one. REPLICA_NOT_AVAILABLE: the segment metadata
           are being read. REQUEST_TIMED_OUT: the grants come too late, and a repeated request
           returns them.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  nothing.
"""

from functools import partial

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.api.segment_copies import answered_in_time, leading_manager
from ottla.broker.remote.tasks.grant_values import (
    GrantedSegment,
    GrantRequest,
    Grants,
)
from ottla.wire.messages import grant_segment_copies as wire

API = Api(
    key=1011,
    versions=range(1),
    is_public=False,
    large_answers=True,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.GrantSegmentCopiesRequest) -> Answer:
    """Ask each partition's grant task; translate."""
    rows = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    answers = answered_in_time(ctx, [partial(_ask, ctx, request, *row) for row in rows])
    return answers.map(lambda found: _response(request, found))


def _ask(
    ctx: Context,
    request: wire.GrantSegmentCopiesRequest,
    topic_id: Uuid,
    row: wire.GrantSegmentCopiesPartition,
) -> Pending[Grants | ApiError]:
    manager = leading_manager(ctx, topic_id, row.partition)
    if request.lease_ms <= 0 or row.segments_max < 0:
        raise ApiError(Error.INVALID_REQUEST, "the lease or the number of segments is negative")
    return manager.grant_copies(
        topic_id,
        row.partition,
        GrantRequest(
            holder=request.holder,
            lease_ms=request.lease_ms,
            segments_max=row.segments_max,
            until_offset=row.until_offset,
        ),
    )


def _response(
    request: wire.GrantSegmentCopiesRequest, answers: list[Grants | ApiError]
) -> wire.GrantSegmentCopiesResponse:
    left = iter(answers)
    return wire.GrantSegmentCopiesResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.GrantedTopic(
                topic_id=topic.topic_id,
                partitions=tuple(_row(each.partition, next(left)) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _row(partition: int, answer: Grants | ApiError) -> wire.GrantedPartition:
    if isinstance(answer, ApiError):
        return wire.GrantedPartition(
            partition=partition, error_code=answer.error, error_message=answer.message
        )
    return wire.GrantedPartition(
        partition=partition,
        error_code=Error.NONE,
        leader_epoch=answer.leader_epoch,
        tiered_epoch=answer.tiered_epoch,
        end_offset=answer.end_offset,
        segments_left=answer.segments_left,
        bytes_left=answer.bytes_left,
        segments=tuple(map(_segment, answer.granted)),
    )


def _segment(granted: GrantedSegment) -> wire.GrantedSegment:
    segment = granted.segment
    return wire.GrantedSegment(
        segment_id=segment.segment_id,
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        size_bytes=segment.size_bytes,
        max_timestamp_ms=segment.max_timestamp_ms,
        lease_ms=granted.lease_ms,
        epochs=tuple(
            wire.GrantedEpoch(epoch=epoch, start_offset=start) for epoch, start in segment.epochs
        ),
        leader_epochs=granted.leader_epochs,
        producer_snapshot=granted.producer_snapshot,
        transaction_index=granted.transaction_index,
    )
