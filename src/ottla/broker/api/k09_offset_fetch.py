"""OffsetFetch (key 9): how far groups have read.

Behaviour: named partitions, or with null topics all that have an offset; -1 where there is none,
           whether the group, the topic or the commit is missing. The response waits for commits
           that are being replicated. With require_stable a partition with offsets in an open
           transaction gets UNSTABLE_OFFSET_COMMIT (KIP-447).
           Up to v7 an error of the group (as a loading coordinator's) is also that of each named
           partition. Kafka's brokers return it for the group alone from v2 on.
Versions:  v1 has no error of the group's own; v2 null topics; v5 leader epochs; v6 flexible; v7
           require_stable; v8 several groups (KIP-709); v9 member epochs; v10 topic ids.
Not done:  v0 (ZooKeeper); member epochs of the consumer protocol (KIP-848) are ignored.
"""

from collections.abc import Iterable, Sequence, Set
from itertools import groupby

from ottla.base.authorizer import ALLOW_ALL, Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.base.pending import Pending, completed, gather
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.coordinator.offsets import fetch
from ottla.coordinator.values import FetchedOffset, PartitionKey
from ottla.wire.messages import offset_fetch as wire

DESCRIBE_GROUP = Access(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)

API = Api(
    key=9,
    versions=range(1, 11),
    large_answers=True,
    access=(DESCRIBE_GROUP, DESCRIBE_TOPIC),
)

FIRST_VERSION_WITH_SEVERAL_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10

Fetched = tuple[Error, list[FetchedOffset]]


@InSteps
def handle(ctx: Context, request: wire.OffsetFetchRequest) -> Steps[Answer]:
    """Respond from the coordinators' shards of this broker."""
    if ctx.version < FIRST_VERSION_WITH_SEVERAL_GROUPS:
        return _one(ctx, request)
    answers: list[Pending[wire.OffsetFetchResponseGroup]] = []
    # All offsets of a group are returned once, however often it is named.
    groups = {each.group_id if each.topics is None else each: each for each in request.groups}
    for group in groups.values():
        answers.append(_group(ctx, group, request.require_stable))
        yield
    return gather(answers).map(lambda groups: wire.OffsetFetchResponse(groups=tuple(groups)))


def _fetch(
    ctx: Context, group_id: str, wanted: Sequence[PartitionKey] | None, require_stable: bool
) -> Pending[Fetched]:
    try:
        ctx.require(DESCRIBE_GROUP, group_id)
        shard = ctx.broker.groups.shard_of(group_id, may_be_empty=True)
    except ApiError as refusal:
        return completed((refusal.error, []))
    refused = ctx.refused(DESCRIBE_TOPIC, (topic for topic, _ in wanted or ()))
    visible = [key for key in wanted if key[0] not in refused] if refused and wanted else wanted
    fetched = fetch(shard, group_id, visible, require_stable=require_stable)
    if ctx.authorizer is ALLOW_ALL:
        return fetched
    return fetched.map(lambda found: _authorized(ctx, wanted, refused, found))


def _authorized(
    ctx: Context, wanted: Sequence[PartitionKey] | None, refused: Set[str], fetched: Fetched
) -> Fetched:
    """Refuse the offsets of topics that were named; leave those out that were not."""
    error, offsets = fetched
    if error:
        return fetched
    if wanted is None:
        hidden = ctx.refused(DESCRIBE_TOPIC, (each.topic for each in offsets))
        return error, [each for each in offsets if each.topic not in hidden]
    topic_id_of = ctx.broker.groups.topic_id_of
    denied = [
        FetchedOffset(*key, error=DESCRIBE_TOPIC.error, topic_id=topic_id_of(key[0]))
        for key in wanted
        if key[0] in refused
    ]
    return error, [*offsets, *denied]


# --- one group, up to v7 --------------------------------------------------------------------


def _one(ctx: Context, request: wire.OffsetFetchRequest) -> Answer:
    wanted = (
        None
        if request.topics is None
        else [
            (topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        ]
    )

    def answer(fetched: Fetched) -> wire.OffsetFetchResponse:
        error, offsets = fetched
        if error:
            # In every version: aiokafka 0.14 reads the errors of partitions alone; without them it
            # would take a loading coordinator for one without offsets, and reset its position.
            offsets = [FetchedOffset(*key, error=error) for key in wanted or ()]
        return wire.OffsetFetchResponse(error_code=error, topics=_topics(offsets))

    return _fetch(ctx, request.group_id, wanted, request.require_stable).map(answer)


def _topics(offsets: Sequence[FetchedOffset]) -> tuple[wire.OffsetFetchResponseTopic, ...]:
    return tuple(
        wire.OffsetFetchResponseTopic(
            name=name,
            partitions=tuple(
                wire.OffsetFetchResponsePartition(
                    partition_index=each.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    error_code=each.error,
                )
                for each in of_topic
            ),
        )
        for name, of_topic in groupby(offsets, key=lambda each: each.topic)
    )


# --- several groups, from v8 ----------------------------------------------------------------


def _group(
    ctx: Context, group: wire.OffsetFetchRequestGroup, require_stable: bool
) -> Pending[wire.OffsetFetchResponseGroup]:
    wanted, unknown = _wanted(ctx, group)
    by_id = ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS

    def answer(fetched: Fetched) -> wire.OffsetFetchResponseGroup:
        error, offsets = fetched
        known = () if error else _group_topics(offsets, by_id=by_id)
        return wire.OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=known + (() if error else unknown),
            error_code=error,
        )

    return _fetch(ctx, group.group_id, wanted, require_stable).map(answer)


def _wanted(
    ctx: Context, group: wire.OffsetFetchRequestGroup
) -> tuple[list[PartitionKey] | None, tuple[wire.OffsetFetchResponseTopics, ...]]:
    """Return the requested partitions, and the response for unknown topic ids."""
    if group.topics is None:
        return None, ()
    wanted: list[PartitionKey] = []
    unknown: list[wire.OffsetFetchResponseTopics] = []
    for topic in group.topics:
        name: str | None = topic.name
        if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            found = ctx.broker.groups.topic_by_id(topic.topic_id)
            name = None if found is None else found.name
        if name is not None:
            wanted += [(name, partition) for partition in topic.partition_indexes]
            continue
        missing = [
            FetchedOffset("", partition, error=Error.UNKNOWN_TOPIC_ID)
            for partition in topic.partition_indexes
        ]
        unknown.append(
            wire.OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=_parts(missing))
        )
    return wanted, tuple(unknown)


def _group_topics(
    offsets: Sequence[FetchedOffset], *, by_id: bool
) -> tuple[wire.OffsetFetchResponseTopics, ...]:
    found: list[wire.OffsetFetchResponseTopics] = []
    for (name, topic_id), of_topic in groupby(
        offsets, key=lambda each: (each.topic, each.topic_id)
    ):
        if not by_id:
            found.append(wire.OffsetFetchResponseTopics(name=name, partitions=_parts(of_topic)))
        elif topic_id != NO_UUID:
            # Offsets of a topic that was just deleted have no id, and are left out.
            found.append(
                wire.OffsetFetchResponseTopics(topic_id=topic_id, partitions=_parts(of_topic))
            )
    return tuple(found)


def _parts(
    offsets: Iterable[FetchedOffset],
) -> tuple[wire.OffsetFetchResponsePartitions, ...]:
    return tuple(
        wire.OffsetFetchResponsePartitions(
            partition_index=each.partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            error_code=each.error,
        )
        for each in offsets
    )
