"""DescribeProducers (key 61): the producer state of partitions (KIP-664).

Behaviour: followers answer, too, from what they have replicated: kafka-transactions.sh may be given
           any broker. Producers in order of their ids. A partition that is named twice is described
           once: it may have thousands of producers.
Versions:  v0.
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.metadata.topic_names import fault_of
from ottla.wire.messages import describe_producers as wire

READ_TOPIC = Access(Operation.READ, ResourceType.TOPIC)

API = Api(key=61, versions=range(1), large_answers=True, access=(READ_TOPIC,))


@InSteps
def handle(ctx: Context, request: wire.DescribeProducersRequest) -> Steps[Answer]:
    """Describe each partition by itself."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    refused = ctx.refused(READ_TOPIC, wanted)
    topics: list[wire.TopicResponse] = []
    for name, partition_ids in wanted.items():
        partitions: list[wire.PartitionResponse] = []
        for partition_id in partition_ids:
            if name in refused:
                partitions.append(_refusal(partition_id, ApiError(READ_TOPIC.error)))
            else:
                partitions.append(_partition(ctx, name, partition_id))
            yield
        topics.append(wire.TopicResponse(name=name, partitions=tuple(partitions)))
    return wire.DescribeProducersResponse(topics=tuple(topics))


def _partition(ctx: Context, topic: str, partition_id: int) -> wire.PartitionResponse:
    try:
        fault = fault_of(topic)
        if fault is not None:
            raise ApiError(Error.INVALID_TOPIC_EXCEPTION, fault)
        log = ctx.broker.replicas.partition(topic, partition_id).any_log()
    except ApiError as refusal:
        return _refusal(partition_id, refusal)
    return wire.PartitionResponse(
        partition_index=partition_id,
        error_code=Error.NONE,
        active_producers=tuple(
            wire.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
            for producer in log.producer_states()
        ),
    )


def _refusal(partition_id: int, refusal: ApiError) -> wire.PartitionResponse:
    return wire.PartitionResponse(
        partition_index=partition_id,
        error_code=refusal.error,
        error_message=refusal.message,
        active_producers=(),
    )
