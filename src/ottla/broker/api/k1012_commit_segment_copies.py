"""CommitSegmentCopies (key 1012): finish copies that GrantSegmentCopies has granted.

Behaviour: per copy NONE once its objects are in this broker's store in their sizes: finished, with
           COPY_FINISHED replayed; or kept, until the segments before it are copied.
           A copy that is committed again is answered alike. INVALID_REQUEST: it is not granted, as
           its lease has ended or it was given up. RESOURCE_NOT_FOUND: objects are missing, or are
           of another size, which gives it up.
           REQUEST_TIMED_OUT: the store does not answer; commit it again.
           Per partition FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or FENCED_STATE_EPOCH where the
           grants are of another leader epoch or tiered epoch; else as GrantSegmentCopies.
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
    CommitRequest,
    CommitResult,
    Commits,
    CommittedCopy,
)
from ottla.wire.messages import commit_segment_copies as wire

API = Api(
    key=1012,
    versions=range(1),
    is_public=False,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.CommitSegmentCopiesRequest) -> Answer:
    """Ask each partition's grant task; translate."""
    rows = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
    answers = answered_in_time(ctx, [partial(_ask, ctx, *row) for row in rows])
    return answers.map(lambda found: _response(request, found))


def _ask(
    ctx: Context, topic_id: Uuid, row: wire.CommitSegmentCopiesPartition
) -> Pending[Commits | ApiError]:
    manager = leading_manager(ctx, topic_id, row.partition)
    return manager.commit_copies(
        topic_id,
        row.partition,
        CommitRequest(
            leader_epoch=row.leader_epoch,
            tiered_epoch=row.tiered_epoch,
            copies=tuple(
                CommittedCopy(
                    segment_id=each.segment_id,
                    offset_index_bytes=each.offset_index_bytes,
                    time_index_bytes=each.time_index_bytes,
                    failure=each.failure,
                )
                for each in row.copies
            ),
        ),
    )


def _response(
    request: wire.CommitSegmentCopiesRequest, answers: list[Commits | ApiError]
) -> wire.CommitSegmentCopiesResponse:
    left = iter(answers)
    return wire.CommitSegmentCopiesResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.SegmentCopiesTopicResult(
                topic_id=topic.topic_id,
                partitions=tuple(_row(each.partition, next(left)) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _row(partition: int, answer: Commits | ApiError) -> wire.SegmentCopiesPartitionResult:
    if isinstance(answer, ApiError):
        return wire.SegmentCopiesPartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        )
    return wire.SegmentCopiesPartitionResult(
        partition=partition, error_code=Error.NONE, copies=tuple(map(_result, answer))
    )


def _result(result: CommitResult) -> wire.SegmentCopyResult:
    error = result.error
    return wire.SegmentCopyResult(
        segment_id=result.segment_id,
        error_code=Error.NONE if error is None else error.error,
        error_message=None if error is None else error.message,
        is_finished=result.is_finished,
    )
