"""CreatePartitions (key 37): give topics more partitions (KIP-195).

Behaviour: `count` is the new total; the new partitions have as many replicas as the present ones.
Versions:  v2 flexible; v3 THROTTLING_QUOTA_EXCEEDED.
Not done:  mutation quotas (KIP-599); authorization.
"""

from ottla.base.errors import ApiError
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.create_partitions import CreatedPartitions, NewPartitions, create_partitions
from ottla.wire.messages import create_partitions as wire

API = Api(
    key=37,
    versions=range(4),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    acl="topic:alter",
)


def handle(ctx: Context, request: wire.CreatePartitionsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [_wanted(topic) for topic in request.topics]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: create_partitions(
            image, wanted, validate_only=request.validate_only, context=context
        ),
    )
    return decided.map(lambda reply: _answer(wanted, reply))


def _wanted(topic: wire.CreatePartitionsTopic) -> NewPartitions:
    if topic.assignments is None:
        return NewPartitions(topic.name, topic.count)
    return NewPartitions(
        topic.name, topic.count, tuple(each.broker_ids for each in topic.assignments)
    )


def _answer(
    wanted: list[NewPartitions], reply: tuple[CreatedPartitions, ...] | ApiError
) -> wire.CreatePartitionsResponse:
    if isinstance(reply, ApiError):
        names = dict.fromkeys(growth.name for growth in wanted)
        reply = tuple(CreatedPartitions(name, reply.error, reply.message) for name in names)
    return wire.CreatePartitionsResponse(
        results=tuple(
            wire.CreatePartitionsTopicResult(
                name=topic.name, error_code=topic.error, error_message=topic.message
            )
            for topic in reply
        )
    )
