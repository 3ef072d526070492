"""DeleteRecords (key 21): move a partition's log start forward, so that what lies before goes.

Behaviour: offset -1 = up to the high watermark. Only leaders delete; topics whose cleanup.policy
           lacks delete refuse (POLICY_VIOLATION), internal topics too (INVALID_TOPIC_EXCEPTION).
           The answer comes once every replica's log start has passed the offset: with followers
           that do not report theirs yet, that is the leader's alone.
Versions:  v0 to v2 are alike; v2 flexible.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import INTERNAL_TOPICS
from ottla.broker.api.base import Answer, Api, Context
from ottla.wire.messages import delete_records as wire

API = Api(key=21, versions=range(3), acl="topic:delete")

NO_LOW_WATERMARK = -1


def handle(ctx: Context, request: wire.DeleteRecordsRequest) -> Answer:
    """Delete in each partition by itself."""
    return wire.DeleteRecordsResponse(
        topics=tuple(
            wire.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_partition(ctx, topic.name, each) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _partition(
    ctx: Context, topic: str, each: wire.DeleteRecordsPartition
) -> wire.DeleteRecordsPartitionResult:
    low_watermark, error = NO_LOW_WATERMARK, Error.NONE
    try:
        low_watermark = _delete(ctx, topic, each.partition_index, each.offset)
    except ApiError as refusal:
        error = refusal.error
    return wire.DeleteRecordsPartitionResult(
        partition_index=each.partition_index, low_watermark=low_watermark, error_code=error
    )


def _delete(ctx: Context, topic: str, index: int, offset: int) -> int:
    """Delete up to `offset`; return the low watermark. Raises ApiError."""
    replicas = ctx.broker.replicas
    partition = replicas.partition(topic, index)
    if topic in INTERNAL_TOPICS:
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION)
    log = partition.leader_log()
    if not log.config.deletes:
        raise ApiError(Error.POLICY_VIOLATION)
    try:
        return log.delete_records(offset)
    except OSError as failure:
        replicas.storage_failed(partition, failure)
        raise ApiError(Error.KAFKA_STORAGE_ERROR) from failure
