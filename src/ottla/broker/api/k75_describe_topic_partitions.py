"""DescribeTopicPartitions (key 75): topics page by page, with eligible leader replicas (KIP-966).

Behaviour: topics in order of their names; no topics = all. A page holds at most the smaller of
           response_partition_limit and max.request.partition.size.limit partitions, at least
           one; the cursor is the start of the next page. With a cursor outside of the requested
           topics, or a negative one, each requested topic gets INVALID_REQUEST. A topic that has or
           had remote storage comes with its tiered epoch and state (tags 10001 and 10002).
Versions:  v0.
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import Error
from ottla.base.ids import INTERNAL_TOPICS
from ottla.broker.api.base import Answer, Api, Context
from ottla.broker.nodes import leader_of, offline_replicas
from ottla.metadata.image import ClusterImage
from ottla.metadata.topic_names import fault_of
from ottla.metadata.topics import PartitionImage, TopicImage
from ottla.wire.messages import describe_topic_partitions as wire

DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)

API = Api(key=75, versions=range(1), access=(DESCRIBE_TOPIC,))


def handle(ctx: Context, request: wire.DescribeTopicPartitionsRequest) -> Answer:
    """Fill one page from the broker's image."""
    image, cursor = ctx.broker.client_image, request.cursor
    requested = {topic.name for topic in request.topics}
    if cursor is not None and (
        cursor.partition_index < 0 or (requested and cursor.topic_name not in requested)
    ):
        return _refusal(request)
    first = "" if cursor is None else cursor.topic_name
    names = [name for name in sorted(requested or image.topics.names()) if name >= first]
    refused = ctx.refused(DESCRIBE_TOPIC, names)
    if refused:
        names = [name for name in names if name not in refused]
    left = min(
        request.response_partition_limit, ctx.broker.config["max.request.partition.size.limit"]
    )
    left = max(left, 1)
    topics: list[wire.DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    for name in names:
        if left == 0:
            next_cursor = wire.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name(name)
        if topic is None:
            # Only a requested topic can be missing.
            topics.append(_missing(ctx, name))
            continue
        start = cursor.partition_index if cursor is not None and name == first else 0
        page = topic.in_order()[start : start + left]
        topics.append(_topic(ctx, image, topic, page))
        left -= len(page)
        if start + len(page) < len(topic.partitions):
            next_cursor = wire.Cursor(topic_name=name, partition_index=start + len(page))
            break
    if requested:  # Else they are left out.
        topics += map(_refused, sorted(refused))
    return wire.DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=next_cursor)


def _topic(
    ctx: Context, image: ClusterImage, topic: TopicImage, page: list[tuple[int, PartitionImage]]
) -> wire.DescribeTopicPartitionsResponseTopic:
    listener = ctx.connection.listener_name
    tiering = image.tiering.get(topic.id)
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=Error.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            wire.DescribeTopicPartitionsResponsePartition(
                error_code=Error.NONE,
                partition_index=partition_id,
                leader_id=leader_of(image, state, listener),
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                eligible_leader_replicas=state.elr,
                last_known_elr=state.last_known_elr,
                offline_replicas=offline_replicas(image, state, listener),
            )
            for partition_id, state in page
        ),
        topic_authorized_operations=ctx.authorized_topic_operations(topic.name),
        tiered_epoch=0 if tiering is None else tiering.tiered_epoch,
        tiering_state=0 if tiering is None else tiering.state,
    )


def _refusal(
    request: wire.DescribeTopicPartitionsRequest,
) -> wire.DescribeTopicPartitionsResponse:
    """Refuse each requested topic: the response has no top-level error."""
    return wire.DescribeTopicPartitionsResponse(
        topics=tuple(
            wire.DescribeTopicPartitionsResponseTopic(
                error_code=Error.INVALID_REQUEST, name=topic.name, partitions=()
            )
            for topic in request.topics
        )
    )


def _refused(name: str) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=DESCRIBE_TOPIC.error, name=name, partitions=()
    )


def _missing(ctx: Context, name: str) -> wire.DescribeTopicPartitionsResponseTopic:
    legal = fault_of(name) is None
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION if legal else Error.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=ctx.authorized_topic_operations(name),
    )
