"""OffsetCommit (key 8): store how far a group has read.

Behaviour: partitions that do not exist get UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID where
           the topic is named by id, also where its name belongs to another topic by now; the others
           go to the group's coordinator, and an error of the group is that of all of them. A commit
           without member and generation creates, or belongs to, a group without members.
           A group id or metadata of more than 32 KB fits into no record: INVALID_GROUP_ID,
           OFFSET_METADATA_TOO_LARGE.
Versions:  v2 to v4 have a retention time in the request; v6 leader epochs (KIP-320); v7 group
           instance ids (KIP-345); v8 flexible; v9 GROUP_ID_NOT_FOUND; v10 topic ids.
Not done:  member epochs of the consumer protocol (KIP-848).
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.turns import Steps, at_once
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.coordinator.offsets import commit
from ottla.coordinator.values import Commit, OffsetToCommit
from ottla.metadata.topics import TopicImage
from ottla.wire.messages import offset_commit as wire

READ_GROUP = Access(Operation.READ, ResourceType.GROUP)
READ_TOPIC = Access(Operation.READ, ResourceType.TOPIC)

API = Api(key=8, versions=range(2, 11), access=(READ_GROUP, READ_TOPIC))

NO_RETENTION = -1
FIRST_VERSION_WITH_TOPIC_IDS = 10
FIRST_VERSION_WITH_MISSING_GROUP = 9


@InSteps
def handle(ctx: Context, request: wire.OffsetCommitRequest) -> Steps[Answer]:
    """Respond when the offsets are stored."""
    if not ctx.allows(READ_GROUP, request.group_id):
        errors = [[READ_GROUP.error] * len(topic.partitions) for topic in request.topics]
        return (yield from _answer(request, errors, []))
    topics = [_find(ctx, topic) for topic in request.topics]
    refused = ctx.refused(READ_TOPIC, _names(request, topics))
    offsets: list[list[OffsetToCommit]] = []
    errors = []
    for topic, found in zip(request.topics, topics, strict=True):
        offsets.append([])
        if (topic.name if found is None else found.name) in refused:
            errors.append([READ_TOPIC.error] * len(topic.partitions))
            continue
        if found is not None:
            ctx.broker.idle.committed(found.id)
        errors.append([])
        for each in topic.partitions:
            error = _check(ctx, found, each.partition_index)
            errors[-1].append(error)
            if found is not None and not error:
                offset = OffsetToCommit(
                    found.name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                )
                offsets[-1].append(offset)
            yield
    for number, (topic, found) in enumerate(zip(request.topics, topics, strict=True)):
        if offsets[number] and not _is_still_found(ctx, topic, found):
            # Deleted between two steps: what is stored for its name now is the next topic's.
            errors[number] = [error or _unknown(ctx) for error in errors[number]]
            offsets[number] = []
    accepted = list(chain.from_iterable(offsets))
    if not accepted:
        return (yield from _answer(request, errors, []))
    stored = _commit(ctx, request, accepted)
    if stored.done:
        return (yield from _answer(request, errors, stored.value))
    return stored.map(lambda late: at_once(_answer(request, errors, late)))


def _names(request: wire.OffsetCommitRequest, topics: Sequence[TopicImage | None]) -> Iterator[str]:
    """Yield the names to authorize: one that does not exist too, but no unknown topic id."""
    for topic, found in zip(request.topics, topics, strict=True):
        if found is not None or topic.name:
            yield topic.name if found is None else found.name


def _find(ctx: Context, topic: wire.OffsetCommitRequestTopic) -> TopicImage | None:
    if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return ctx.broker.groups.topic_by_id(topic.topic_id)
    return ctx.broker.image.topics.by_name(topic.name)


def _is_still_found(
    ctx: Context, topic: wire.OffsetCommitRequestTopic, found: TopicImage | None
) -> bool:
    now = _find(ctx, topic)
    return now is not None and found is not None and now.id == found.id


def _check(ctx: Context, topic: TopicImage | None, partition: int) -> Error:
    if topic is None:
        return _unknown(ctx)
    return Error.NONE if partition in topic.partitions else Error.UNKNOWN_TOPIC_OR_PARTITION


def _unknown(ctx: Context) -> Error:
    by_id = ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS
    return Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION


def _commit(
    ctx: Context, request: wire.OffsetCommitRequest, offsets: Sequence[OffsetToCommit]
) -> Pending[list[Error]]:
    try:
        shard = ctx.broker.groups.shard_of(request.group_id, may_be_empty=True)
    except ApiError as refusal:
        return completed([refusal.error] * len(offsets))
    retention_ms = request.retention_time_ms
    return commit(
        shard,
        Commit(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id_or_member_epoch,
            offsets=tuple(offsets),
            retention_ms=None if retention_ms == NO_RETENTION else retention_ms,
            knows_group_id_not_found=ctx.version >= FIRST_VERSION_WITH_MISSING_GROUP,
        ),
    )


def _answer(
    request: wire.OffsetCommitRequest, errors: list[list[Error]], stored: Sequence[Error]
) -> Steps[wire.OffsetCommitResponse]:
    outcomes = iter(stored)
    topics: list[wire.OffsetCommitResponseTopic] = []
    for topic, refused in zip(request.topics, errors, strict=True):
        partitions: list[wire.OffsetCommitResponsePartition] = []
        for each, error in zip(topic.partitions, refused, strict=True):
            partitions.append(
                wire.OffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=error or next(outcomes)
                )
            )
            yield
        topics.append(
            wire.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=tuple(partitions)
            )
        )
    return wire.OffsetCommitResponse(topics=tuple(topics))
