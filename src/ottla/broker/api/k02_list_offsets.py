"""ListOffsets (key 2): the offset of a moment, of the first or the last record.

Behaviour: -1 = the end (high watermark, or last stable offset with read_committed); -2 = log
           start; -3 = the record with the largest timestamp (KIP-734); -4 = start of what is on
           local disk (KIP-405); -5 = end of the remote tier (KIP-1005), of which there is none
           yet, hence no offset; a time = the first record at or after it. Only leaders answer.
Versions:  v1 one offset; v2 isolation level; v4 leader epochs (KIP-320); v5 OFFSET_NOT_AVAILABLE
           (KIP-207); v6 flexible; v7 -3; v8 -4; v9 -5; v10 timeout for remote reads (KIP-1075).
Not done:  -6 (v11), the offset that will be tiered next: UNSUPPORTED_VERSION. Remote tier.
"""

from collections import Counter

from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.partition import Partition
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages import list_offsets as wire

API = Api(key=2, versions=range(1, 11), acl="topic:describe")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
SINCE_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

READ_COMMITTED = 1
CONSUMER = -1
NO_TIMESTAMP = -1

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch); all -1 where no record matches."""
NOTHING: Found = (-1, -1, -1)


def handle(ctx: Context, request: wire.ListOffsetsRequest) -> Answer:
    """Answer each partition by itself; one that is named twice is refused."""
    named = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    topics: list[wire.ListOffsetsTopicResponse] = []
    for topic in request.topics:
        partitions: list[wire.ListOffsetsPartitionResponse] = []
        for each in topic.partitions:
            if named[topic.name, each.partition_index] > 1:
                partitions.append(_response(ctx, each.partition_index, Error.INVALID_REQUEST))
            else:
                partitions.append(_partition(ctx, request, topic.name, each))
        topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return wire.ListOffsetsResponse(topics=tuple(topics))


def _partition(
    ctx: Context, request: wire.ListOffsetsRequest, topic: str, each: wire.ListOffsetsPartition
) -> wire.ListOffsetsPartitionResponse:
    index = each.partition_index
    if each.timestamp < 0 and ctx.version < SINCE_VERSION.get(each.timestamp, 2**15):
        return _response(ctx, index, Error.UNSUPPORTED_VERSION)
    try:
        partition = ctx.broker.replicas.partition(topic, index)
        log = partition.leader_log(each.current_leader_epoch)
    except ApiError as refusal:
        return _response(ctx, index, refusal.error)
    bound = log.high_watermark
    if request.replica_id != CONSUMER:
        bound = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        bound = log.last_stable_offset
    # Until the high watermark reaches where this leader's epoch began, an answer could lie
    # before one that a consumer got from the leader before (KIP-207).
    lagging = request.replica_id == CONSUMER and partition.epoch_start_offset > log.high_watermark
    try:
        found = _find(partition, log, each.timestamp, bound, lagging)
    except ApiError as refusal:
        error = refusal.error
        if error is Error.OFFSET_NOT_AVAILABLE and ctx.version < 5:
            error = Error.LEADER_NOT_AVAILABLE
        return _response(ctx, index, error)
    except OSError as failure:
        ctx.broker.replicas.storage_failed(partition, failure)
        return _response(ctx, index, Error.KAFKA_STORAGE_ERROR)
    return _response(ctx, index, Error.NONE, found)


def _find(
    partition: Partition, log: PartitionLog, timestamp: int, bound: int, lagging: bool
) -> Found:
    """Return the offset asked for; raise ApiError OFFSET_NOT_AVAILABLE where it is not known."""
    if timestamp == LATEST:
        if lagging:
            raise ApiError(Error.OFFSET_NOT_AVAILABLE)
        return NO_TIMESTAMP, bound, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return NO_TIMESTAMP, start, log.epoch_of(start)
    if timestamp == LATEST_TIERED:
        return NOTHING
    found = (
        log.max_timestamp_offset()
        if timestamp == MAX_TIMESTAMP
        else log.offset_for_timestamp(timestamp)
    )
    if found is not None and found.offset < bound:
        return found.timestamp, found.offset, found.leader_epoch
    if lagging:
        raise ApiError(Error.OFFSET_NOT_AVAILABLE)
    return NOTHING


def _response(
    ctx: Context, index: int, error: Error, found: Found = NOTHING
) -> wire.ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return wire.ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=error,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if ctx.version >= 4 else -1,
    )
