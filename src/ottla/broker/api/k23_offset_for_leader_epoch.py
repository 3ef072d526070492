"""OffsetForLeaderEpoch (key 23): the end offset of an epoch, to detect log truncation.

Behaviour: the largest epoch up to the requested one, and the offset after its last record; -1
           where the leader has none. Only leaders answer.
Versions:  v2 current leader epoch (KIP-320), the first for consumers; v3 replica id; v4 flexible.
"""

from collections.abc import Set

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.wire.messages import offset_for_leader_epoch as wire

CLUSTER_ACTION = Access(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)

API = Api(key=23, versions=range(2, 5), access=(CLUSTER_ACTION, DESCRIBE_TOPIC))


@InSteps
def handle(ctx: Context, request: wire.OffsetForLeaderEpochRequest) -> Steps[Answer]:
    """Look up each partition by itself."""
    topics: list[wire.OffsetForLeaderTopicResult] = []
    refused: Set[str] = frozenset()
    if not ctx.allows(CLUSTER_ACTION):
        refused = ctx.refused(DESCRIBE_TOPIC, (topic.topic for topic in request.topics))
    for topic in request.topics:
        partitions: list[wire.EpochEndOffset] = []
        for each in topic.partitions:
            if topic.topic in refused:
                partitions.append(
                    wire.EpochEndOffset(error_code=DESCRIBE_TOPIC.error, partition=each.partition)
                )
            else:
                partitions.append(_partition(ctx, topic.topic, each))
            yield
        topics.append(
            wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(partitions))
        )
    return wire.OffsetForLeaderEpochResponse(topics=tuple(topics))


def _partition(
    ctx: Context, topic: str, each: wire.OffsetForLeaderPartition
) -> wire.EpochEndOffset:
    try:
        partition = ctx.broker.replicas.partition(topic, each.partition)
        log = partition.leader_log(each.current_leader_epoch)
    except ApiError as refusal:
        return wire.EpochEndOffset(error_code=refusal.error, partition=each.partition)
    epoch, end_offset = log.epoch_end_offset(each.leader_epoch)
    return wire.EpochEndOffset(
        error_code=Error.NONE, partition=each.partition, leader_epoch=epoch, end_offset=end_offset
    )
