"""DeleteRecords (key 21): advance a partition's log start, which deletes earlier records.

Behaviour: offset -1 = up to the high watermark. Only leaders delete; topics whose cleanup.policy
           lacks delete refuse (POLICY_VIOLATION), internal topics too (INVALID_TOPIC_EXCEPTION).
           The response comes once the log start of every live replica has reached the offset, with
           the smallest of these, or REQUEST_TIMED_OUT: then the records are deleted all the same.
Versions:  v0 to v2 are alike; v2 flexible.
"""

from dataclasses import dataclass

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS, NO_OFFSET
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.partition import Partition
from ottla.wire.messages import delete_records as wire

DELETE_TOPIC = Access(Operation.DELETE, ResourceType.TOPIC)

API = Api(key=21, versions=range(3), access=(DELETE_TOPIC,))

NO_LOW_WATERMARK = -1


@dataclass(slots=True)
class _Deletion:
    """One partition of a request: `partition` is None once its result is there."""

    topic: str
    partition_id: int
    partition: Partition | None = None
    offset: int = NO_OFFSET
    low_watermark: int = NO_LOW_WATERMARK
    error: Error = Error.NONE

    def settle(self) -> None:
        """Check the replicas' log starts; end the wait where it is over."""
        partition = self.partition
        if partition is None:
            return
        try:
            if partition.deleted:
                raise ApiError(partition.gone)
            partition.leader_log()
        except ApiError as refusal:
            self.partition, self.error = None, refusal.error
            self.low_watermark = NO_LOW_WATERMARK
            return
        self.low_watermark = partition.low_watermark
        if self.low_watermark >= self.offset:
            self.partition = None


@InSteps
def handle(ctx: Context, request: wire.DeleteRecordsRequest) -> Steps[Answer]:
    """Delete in each partition by itself; respond when all of them are done."""
    deletions: list[_Deletion] = []
    refused = ctx.refused(DELETE_TOPIC, (topic.name for topic in request.topics))
    for topic in request.topics:
        for each in topic.partitions:
            if topic.name in refused:
                deletions.append(
                    _Deletion(topic.name, each.partition_index, error=DELETE_TOPIC.error)
                )
            else:
                deletions.append(_delete(ctx, topic.name, each))
            yield
    for deletion in deletions:
        # Followers, or the leadership, may have moved between two steps, which has woken nothing.
        deletion.settle()
    waiting = [each.partition for each in deletions if each.partition is not None]
    if not waiting:
        return _response(request, deletions)
    answer: Pending[wire.DeleteRecordsResponse] = Pending()

    def attempt() -> bool:
        for each in deletions:
            each.settle()
        if any(each.partition is not None for each in deletions):
            return False
        answer.complete(_response(request, deletions))
        return True

    def expire() -> None:
        for each in deletions:
            if each.partition is not None:
                each.error = Error.REQUEST_TIMED_OUT
        answer.complete(_response(request, deletions))

    ctx.broker.replicas.delete_records_purgatory.add(
        waiting,
        attempt=attempt,
        expire=expire,
        deadline_ms=ctx.monotonic_ms + max(request.timeout_ms, 0),
        closed=ctx.connection.closed,
    )
    return answer


def _response(
    request: wire.DeleteRecordsRequest, deletions: list[_Deletion]
) -> wire.DeleteRecordsResponse:
    in_order = iter(deletions)
    return wire.DeleteRecordsResponse(
        topics=tuple(
            wire.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_result(next(in_order)) for _ in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _result(deletion: _Deletion) -> wire.DeleteRecordsPartitionResult:
    return wire.DeleteRecordsPartitionResult(
        partition_index=deletion.partition_id,
        low_watermark=deletion.low_watermark,
        error_code=deletion.error,
    )


def _delete(ctx: Context, topic: str, each: wire.DeleteRecordsPartition) -> _Deletion:
    """Delete in this replica; the result may have to wait for the others."""
    deletion = _Deletion(topic, each.partition_index)
    try:
        partition = ctx.broker.replicas.partition(topic, each.partition_index)
        deletion.offset = _delete_here(ctx, partition, each.offset)
        deletion.partition = partition
    except ApiError as refusal:
        deletion.error = refusal.error
    deletion.settle()
    return deletion


def _delete_here(ctx: Context, partition: Partition, offset: int) -> int:
    """Move this leader's log start; return the offset that the followers must reach."""
    replicas = ctx.broker.replicas
    if partition.topic in INTERNAL_TOPICS:
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION)
    log = partition.leader_log()
    if not log.config.deletes:
        raise ApiError(Error.POLICY_VIOLATION)
    wanted = log.high_watermark if offset == NO_OFFSET else offset
    try:
        log.delete_records(wanted)
    except OSError as failure:
        replicas.storage_failed(partition, failure)
        raise ApiError(Error.KAFKA_STORAGE_ERROR) from failure
    replicas.fetch_reader.hasten_follower_fetches(partition)
    if ctx.broker.remote is not None:
        ctx.broker.remote.log_start_moved(partition)
    return wanted
