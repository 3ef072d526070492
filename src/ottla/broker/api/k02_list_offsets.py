"""ListOffsets (key 2): the offset of a moment, of the first or the last record.

Behaviour: -1 = the end (high watermark, or last stable offset with read_committed); -2 = log
           start, over both tiers; -3 = the record with the largest timestamp (KIP-734), of those
           on local disk; -4 = start of what is on local disk (KIP-405); -5 = the last offset in
           the remote tier (KIP-1005), none where nothing is; -6 = the first offset that is not
           there yet (KIP-1023), none where the topic is not tiered; a time = the first record at
           or after it, in the remote tier, then on local disk. Only leaders answer. Workers search
           the records: see `timestamp_lookups`. Remote lookups of all partitions run at once.
Versions:  v1 one offset; v2 isolation level; v4 leader epochs (KIP-320); v5 OFFSET_NOT_AVAILABLE
           (KIP-207); v6 flexible; v7 -3; v8 -4; v9 -5; v10 timeout for remote lookups (KIP-1075):
           REQUEST_TIMED_OUT for partitions that take longer; v11 -6.
Not done:  nothing.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.fetch.remote_port import Found as RemoteFound
from ottla.broker.fetch.timestamp_lookups import look_up, look_up_in_tiers
from ottla.broker.partition import Partition
from ottla.log.partition_log import PartitionLog
from ottla.wire.messages import list_offsets as wire

if TYPE_CHECKING:
    from ottla.log.indexes.timestamp_search import TimestampMatch

DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)

API = Api(key=2, versions=range(1, 12), access=(DESCRIBE_TOPIC,))

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

READ_COMMITTED = 1
CONSUMER = -1
NO_TIMESTAMP = -1

Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch); all -1 where no record matches."""
NOTHING: Found = (-1, -1, -1)

Asker = tuple[int, int]
"""The client: its replica id (-1 = a consumer) and isolation level."""

Partly = wire.ListOffsetsPartitionResponse
NOT_YET = Partly(partition_index=-1, error_code=Error.NONE)

Lookup = Callable[[], Pending[Partly]]
"""Starts the lookup of a record by its timestamp."""


@InSteps
def handle(ctx: Context, request: wire.ListOffsetsRequest) -> Steps[Answer]:
    """Answer each partition by itself; one that is named twice is refused."""
    named = Counter(
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    )
    found: list[Partly] = []
    lookups: deque[tuple[int, Lookup]] = deque()
    asker = request.replica_id, request.isolation_level
    refused = ctx.refused(DESCRIBE_TOPIC, (topic.name for topic in request.topics))
    for topic in request.topics:
        for each in topic.partitions:
            part: Partly | Lookup
            if topic.name in refused:
                part = _response(ctx, each.partition_index, DESCRIBE_TOPIC.error)
            elif named[topic.name, each.partition_index] > 1:
                part = _response(ctx, each.partition_index, Error.INVALID_REQUEST)
            else:
                part = _partition(ctx, asker, topic.name, each, request.timeout_ms)
            if callable(part):
                lookups.append((len(found), part))
                part = NOT_YET
            found.append(part)
            yield
    # Nothing else of the request is kept while it waits.
    shape = [(topic.name, len(topic.partitions)) for topic in request.topics]
    if not lookups:
        return _answer(shape, found)
    answer: Pending[wire.ListOffsetsResponse] = Pending()

    def go_on() -> None:
        """Look up one partition after the other: a lookup holds a file open."""
        while lookups:
            slot, begin = lookups.popleft()
            late = begin()
            if not late.done:
                late.then(partial(keep, slot))
                return
            found[slot] = late.value
        answer.complete(_answer(shape, found))

    def keep(slot: int, part: Partly) -> None:
        found[slot] = part
        go_on()

    go_on()
    return answer.value if answer.done else answer


def _answer(shape: list[tuple[str, int]], found: list[Partly]) -> wire.ListOffsetsResponse:
    in_order = iter(found)
    return wire.ListOffsetsResponse(
        topics=tuple(
            wire.ListOffsetsTopicResponse(name=name, partitions=tuple(islice(in_order, count)))
            for name, count in shape
        )
    )


def _partition(
    ctx: Context, asker: Asker, topic: str, each: wire.ListOffsetsPartition, timeout_ms: int
) -> Partly | Lookup:
    """Return the result, or a function that starts its lookup, whose remote part is under way."""
    partition_id, timestamp, epoch = each.partition_index, each.timestamp, each.current_leader_epoch
    if timestamp < 0 and ctx.version < SINCE_VERSION.get(timestamp, 2**15):
        return _response(ctx, partition_id, Error.UNSUPPORTED_VERSION)
    try:
        partition = ctx.broker.replicas.partition(topic, partition_id)
        log = partition.leader_log(epoch)
        if timestamp == EARLIEST:
            _check_log_start(ctx, partition)
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            return _response(ctx, partition_id, Error.NONE, _find(partition, log, timestamp, asker))
    except ApiError as refusal:
        return _refusal(ctx, partition_id, refusal)

    def looked_up(found: "TimestampMatch | ApiError | OSError | None") -> Partly:
        try:
            if isinstance(found, ApiError):
                raise found
            if isinstance(found, OSError):
                ctx.broker.replicas.storage_failed(partition, found)
                raise ApiError(Error.KAFKA_STORAGE_ERROR)
            if partition.gone:
                raise ApiError(partition.gone)
            # The leader and the high watermark may have changed meanwhile.
            visible = _bounded(partition, partition.leader_log(epoch), found, asker)
            return _response(ctx, partition_id, Error.NONE, visible)
        except ApiError as refusal:
            return _refusal(ctx, partition_id, refusal)

    if timestamp == MAX_TIMESTAMP:
        return lambda: look_up(ctx.broker.replicas.batch_work, log, None).map(looked_up)
    go_on = look_up_in_tiers(
        log,
        partial(_remote_lookup, ctx, log, timestamp, timeout_ms),
        partial(look_up, ctx.broker.replicas.batch_work, log, timestamp),
    )
    return lambda: go_on().map(looked_up)


def _check_log_start(ctx: Context, partition: Partition) -> None:
    """Raise ApiError while a new leader's log start may be of a time before remote segments were
    given up: a consumer that began there would be out of range."""
    remote = ctx.broker.remote
    if remote is not None and not remote.manager.knows_log_start(
        partition.topic_id, partition.partition_id
    ):
        raise ApiError(Error.OFFSET_NOT_AVAILABLE)


def _remote_lookup(
    ctx: Context, log: PartitionLog, timestamp: int, timeout_ms: int
) -> Pending[RemoteFound] | None:
    """Begin to search below the local log start; None = nothing is there."""
    remote = ctx.broker.replicas.fetch_reader.remote
    if remote is None or log.local_log_start_offset <= log.log_start_offset:
        return None
    wait_ms = timeout_ms if timeout_ms > 0 else remote.list_offsets_timeout_ms
    return remote.find_timestamp(
        log,
        timestamp,
        work=ctx.broker.replicas.batch_work,
        deadline_ms=ctx.monotonic_ms + wait_ms,
        closed=ctx.connection.closed,
    )


def _bound(partition: Partition, log: PartitionLog, asker: Asker) -> tuple[int, bool]:
    """Return the bound of what the client may see, and whether it may still be too low.

    Until the high watermark reaches the start of this leader's epoch, the result could be lower
    than one that a consumer got from the previous leader (KIP-207).
    """
    replica_id, isolation_level = asker
    if replica_id != CONSUMER:
        return log.log_end_offset, False
    bound = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
    return bound, partition.epoch_start_offset > log.high_watermark


def _find(partition: Partition, log: PartitionLog, timestamp: int, asker: Asker) -> Found:
    """Return one of the log's bounds; raise ApiError OFFSET_NOT_AVAILABLE where it is unknown."""
    if timestamp == LATEST:
        bound, lagging = _bound(partition, log, asker)
        if lagging:
            raise ApiError(Error.OFFSET_NOT_AVAILABLE)
        return NO_TIMESTAMP, bound, partition.leader_epoch
    if timestamp == EARLIEST:
        offset = log.log_start_offset
    elif timestamp == EARLIEST_LOCAL:
        offset = log.local_log_start_offset
    elif timestamp == LATEST_TIERED:
        offset = log.highest_remote_offset
    else:
        assert timestamp == EARLIEST_PENDING_UPLOAD, "the others are in no version"
        offset = _earliest_pending_upload(log)
    return NOTHING if offset < 0 else (NO_TIMESTAMP, offset, log.epoch_of(offset))


def _earliest_pending_upload(log: PartitionLog) -> int:
    """Return the first offset that is not in the remote tier; -1 = unknown, or not tiered."""
    if not log.config.remote_storage:
        return -1
    if log.highest_remote_offset >= 0:
        return max(log.highest_remote_offset + 1, log.log_start_offset)
    # A new leader may not know yet what was copied.
    is_all_local = log.local_log_start_offset == log.log_start_offset
    return log.log_start_offset if is_all_local else -1


def _bounded(
    partition: Partition, log: PartitionLog, found: "TimestampMatch | None", asker: Asker
) -> Found:
    """Return the record that was found, if the client may see it; raises as `_find`."""
    bound, lagging = _bound(partition, log, asker)
    if found is not None and found.offset < bound:
        return found.timestamp, found.offset, found.leader_epoch
    if lagging:
        raise ApiError(Error.OFFSET_NOT_AVAILABLE)
    return NOTHING


def _refusal(ctx: Context, partition_id: int, refusal: ApiError) -> Partly:
    error = refusal.error
    if error is Error.OFFSET_NOT_AVAILABLE and ctx.version < 5:
        error = Error.LEADER_NOT_AVAILABLE
    return _response(ctx, partition_id, error)


def _response(
    ctx: Context, partition_id: int, error: Error, found: Found = NOTHING
) -> wire.ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return wire.ListOffsetsPartitionResponse(
        partition_index=partition_id,
        error_code=error,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if ctx.version >= 4 else -1,
    )
