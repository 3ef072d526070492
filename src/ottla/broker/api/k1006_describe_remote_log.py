"""DescribeRemoteLog (key 1006): the tiers of the partitions that this broker leads.

Behaviour: per partition the bounds of both tiers, sizes, the lag of copies and the last failure;
           the segments that can be read, if asked for. A topic that was never tiered has state 0
           and its local log. Not the leader: NOT_LEADER_OR_FOLLOWER. Each partition is described as
           it is in one turn of the loop; its segments are listed over several.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  nothing.
"""

from dataclasses import replace

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_OFFSET
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.partition import Partition
from ottla.tiered.lineage import Lineage, Visible, visible_in_steps
from ottla.wire.messages import describe_remote_log as wire

DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)

API = Api(
    key=1006,
    versions=range(1),
    is_public=False,
    large_answers=True,
    access=(DESCRIBE_TOPIC,),
)

SEGMENTS_PER_STEP = 500
"""Segments that are listed before the loop may turn to other requests, about a millisecond."""


@InSteps
def handle(ctx: Context, request: wire.DescribeRemoteLogRequest) -> Steps[Answer]:
    """Describe each partition by itself."""
    wanted = _wanted(ctx, request)
    refused = ctx.refused(DESCRIBE_TOPIC, wanted)
    topics: list[wire.RemoteLogTopic] = []
    for name, partitions in wanted.items():
        rows: list[wire.RemoteLogPartition] = []
        for each in partitions:
            if name in refused:
                rows.append(_refusal(each, ApiError(DESCRIBE_TOPIC.error)))
            else:
                rows.append((yield from _describe(ctx, name, each, request.include_segments)))
            yield
        topics.append(_topic(ctx, name, tuple(rows), is_refused=name in refused))
    return wire.DescribeRemoteLogResponse(error_code=Error.NONE, topics=tuple(topics))


def _wanted(ctx: Context, request: wire.DescribeRemoteLogRequest) -> dict[str, list[int]]:
    """Return the partitions that are asked for, by topic; without topics all that are led here."""
    wanted: dict[str, list[int]] = {}
    if request.topics is not None:
        for topic in request.topics:
            wanted.setdefault(topic.name, []).extend(topic.partitions)
        return wanted
    tiering = ctx.broker.image.tiering
    for partition in ctx.broker.replicas.hosted():
        if partition.is_leader and partition.topic_id in tiering:
            wanted.setdefault(partition.topic, []).append(partition.partition_id)
    return {name: sorted(wanted[name]) for name in sorted(wanted)}


def _topic(
    ctx: Context, name: str, rows: tuple[wire.RemoteLogPartition, ...], *, is_refused: bool
) -> wire.RemoteLogTopic:
    image = ctx.broker.image
    topic = None if is_refused else image.topics.by_name(name)
    tiering = None if topic is None else image.tiering.get(topic.id)
    if topic is None:
        return wire.RemoteLogTopic(name=name, partitions=rows)
    if tiering is None:
        return wire.RemoteLogTopic(name=name, topic_id=topic.id, partitions=rows)
    return wire.RemoteLogTopic(
        name=name,
        topic_id=topic.id,
        state=tiering.state,
        tiered_epoch=tiering.tiered_epoch,
        policy=tiering.policy,
        remote_floor_epoch=tiering.remote_floor_epoch,
        purge_pending=tiering.purge_pending,
        partitions=rows,
    )


def _describe(
    ctx: Context, name: str, partition_id: int, include_segments: bool
) -> Steps[wire.RemoteLogPartition]:
    try:
        partition = ctx.broker.replicas.partition(name, partition_id)
        row = _row(ctx, partition)
        if not include_segments:
            return row
        partition.metrics.is_used = True
        if ctx.broker.remote is None or partition.topic_id not in ctx.broker.image.tiering:
            return row  # Of a topic that was never tiered there is nothing to wait for.
        return replace(row, segments=(yield from _segments(ctx, partition)))
    except ApiError as refusal:
        return _refusal(partition_id, refusal)


def _row(ctx: Context, partition: Partition) -> wire.RemoteLogPartition:
    log, remote = partition.leader_log(), ctx.broker.remote
    status = None
    if remote is not None:
        status = remote.manager.status(partition.topic_id, partition.partition_id)
    purge = None if status is None else status.purge
    return wire.RemoteLogPartition(
        partition=partition.partition_id,
        error_code=Error.NONE,
        leader_epoch=partition.leader_epoch,
        log_start_offset=log.log_start_offset,
        remote_end_offset=(
            NO_OFFSET
            if status is None or status.remote_end_offset < 0
            else status.remote_end_offset - 1
        ),
        local_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        remote_bytes=-1 if status is None else status.remote_bytes,
        remote_segments=-1 if status is None else status.remote_segments,
        local_bytes=log.size_bytes,
        lag_bytes=-1 if status is None else status.copy_lag_bytes,
        lag_segments=-1 if status is None else status.copy_lag_segments,
        last_error=None if status is None else status.last_error,
        deleting_segments=(
            status.deleting_segments if status is not None and status.is_ready else -1
        ),
        purge_segments_left=-1 if purge is None else purge.segments,
        purge_segments_deleted=-1 if purge is None else purge.segments_deleted,
        purge_late_writes_ms=-1 if purge is None else purge.late_writes_ms,
    )


def _segments(ctx: Context, partition: Partition) -> Steps[tuple[wire.RemoteLogSegment, ...]]:
    """Return the segments of this moment: what changes in later steps is left out."""
    log, remote = partition.leader_log(), ctx.broker.remote
    assert remote is not None
    known = remote.metadata.remote_log(partition.topic_id, partition.partition_id)
    if known is None:
        raise ApiError(Error.REPLICA_NOT_AVAILABLE, "The segment metadata are being read.")
    lineage = Lineage(log.epochs.entries, log.log_end_offset)
    visible = yield from visible_in_steps(known.segments(), lineage, SEGMENTS_PER_STEP)
    rows: list[wire.RemoteLogSegment] = []
    for begin in range(0, len(visible), SEGMENTS_PER_STEP):
        rows += map(_segment, visible[begin : begin + SEGMENTS_PER_STEP])
        yield
    return tuple(rows)


def _segment(each: Visible) -> wire.RemoteLogSegment:
    return wire.RemoteLogSegment(
        segment_id=each.segment.segment_id,
        start_offset=each.segment.start_offset,
        end_offset=each.end_offset,
        leader_epoch=each.segment.leader_epoch,
        tiered_epoch=each.segment.tiered_epoch,
        max_timestamp_ms=each.segment.max_timestamp_ms,
        size_bytes=each.segment.size_bytes,
        txn_index_empty=each.segment.txn_index_empty,
    )


def _refusal(partition_id: int, refusal: ApiError) -> wire.RemoteLogPartition:
    return wire.RemoteLogPartition(
        partition=partition_id, error_code=refusal.error, error_message=refusal.message
    )
