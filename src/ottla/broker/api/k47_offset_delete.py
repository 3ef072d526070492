"""OffsetDelete (key 47): delete a group's offsets of some partitions (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC where members subscribe to the topic; NON_EMPTY_GROUP where the
           group has members that are no consumers; UNKNOWN_TOPIC_OR_PARTITION where the
           partition does not exist. Deleting an offset that was never committed succeeds.
Versions:  v0.
Not done:  nothing.
"""

from collections.abc import Set

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.offsets import delete_offsets
from ottla.coordinator.values import PartitionKey
from ottla.wire.messages import offset_delete as wire

DELETE_GROUP = Access(Operation.DELETE, ResourceType.GROUP)
READ_TOPIC = Access(Operation.READ, ResourceType.TOPIC)

API = Api(key=47, versions=range(1), access=(DELETE_GROUP, READ_TOPIC))


def handle(ctx: Context, request: wire.OffsetDeleteRequest) -> Answer:
    """Respond when the offsets are deleted."""
    if not ctx.allows(DELETE_GROUP, request.group_id):
        return wire.OffsetDeleteResponse(error_code=DELETE_GROUP.error, topics=())
    refused = ctx.refused(READ_TOPIC, (topic.name for topic in request.topics))
    topics = ctx.broker.image.topics
    known: list[PartitionKey] = []
    for topic in request.topics:
        found = topics.by_name(topic.name)
        if found is not None and topic.name not in refused:
            partition_ids = (each.partition_index for each in topic.partitions)
            known += [
                (topic.name, partition_id)
                for partition_id in partition_ids
                if partition_id in found.partitions
            ]

    def answer(deleted: tuple[Error, list[Error]]) -> wire.OffsetDeleteResponse:
        error, errors = deleted
        if error:
            return wire.OffsetDeleteResponse(error_code=error, topics=())
        return _answer(request, dict(zip(known, errors, strict=True)), refused)

    return _delete(ctx, request.group_id, known).map(answer)


def _delete(
    ctx: Context, group_id: str, keys: list[PartitionKey]
) -> Pending[tuple[Error, list[Error]]]:
    try:
        shard = ctx.broker.groups.shard_of(group_id)
    except ApiError as refusal:
        return completed((refusal.error, []))
    return delete_offsets(shard, group_id, keys)


def _answer(
    request: wire.OffsetDeleteRequest, errors: dict[PartitionKey, Error], refused: Set[str]
) -> wire.OffsetDeleteResponse:
    errors_of_others = [
        READ_TOPIC.error if topic.name in refused else Error.UNKNOWN_TOPIC_OR_PARTITION
        for topic in request.topics
    ]
    return wire.OffsetDeleteResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    wire.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get((topic.name, each.partition_index), absent),
                    )
                    for each in topic.partitions
                ),
            )
            for topic, absent in zip(request.topics, errors_of_others, strict=True)
        ),
    )
