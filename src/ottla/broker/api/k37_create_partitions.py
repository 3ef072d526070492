"""CreatePartitions (key 37): give topics more partitions (KIP-195).

Behaviour: `count` is the new total; the new partitions have as many replicas as the present ones.
Versions:  v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED.
Not done:  mutation quotas (KIP-599).
"""

from collections import Counter
from collections.abc import Sequence

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.topics.create_partitions import (
    CreatedPartitions,
    NewPartitions,
    create_partitions,
)
from ottla.wire.messages import create_partitions as wire

ALTER_TOPIC = Access(Operation.ALTER, ResourceType.TOPIC)

API = Api(
    key=37,
    versions=range(4),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    access=(ALTER_TOPIC,),
)


def handle(ctx: Context, request: wire.CreatePartitionsRequest) -> Answer:
    """Decide on the controller; translate."""
    counts = Counter(topic.name for topic in request.topics)
    # A name that is given twice is refused by the decision, whoever asks.
    refused = ctx.refused(ALTER_TOPIC, (name for name, count in counts.items() if count == 1))
    wanted = [_wanted(topic) for topic in request.topics if topic.name not in refused]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: create_partitions(
            image, wanted, validate_only=request.validate_only, context=context
        ),
    )
    return decided.map(lambda reply: _answer(wanted, sorted(refused), reply))


def _wanted(topic: wire.CreatePartitionsTopic) -> NewPartitions:
    if topic.assignments is None:
        return NewPartitions(topic.name, topic.count)
    return NewPartitions(
        topic.name, topic.count, tuple(each.broker_ids for each in topic.assignments)
    )


def _answer(
    wanted: list[NewPartitions],
    refused: Sequence[str],
    reply: tuple[CreatedPartitions, ...] | ApiError,
) -> wire.CreatePartitionsResponse:
    if isinstance(reply, ApiError):
        names = dict.fromkeys(growth.name for growth in wanted)
        reply = tuple(CreatedPartitions(name, reply.error, reply.message) for name in names)
    denied = (CreatedPartitions(name, ALTER_TOPIC.error) for name in refused)
    return wire.CreatePartitionsResponse(
        results=tuple(
            wire.CreatePartitionsTopicResult(
                name=topic.name, error_code=topic.error, error_message=topic.message
            )
            for topic in (*reply, *denied)
        )
    )
