"""DeleteTopics (key 20): delete topics by name or, from v6, by id.

Behaviour: the name is free again with the answer; brokers drop the logs as they hear of it. A
           topic named twice, or by name and by id, is refused and kept. Internal topics are
           refused (INVALID_REQUEST), which Kafka's Admin API does not do.
Versions:  v3 TOPIC_DELETION_DISABLED, INVALID_REQUEST before; v4 flexible; v5 messages;
           v6 topic ids (KIP-516).
Not done:  mutation quotas (KIP-599); authorization; the deletion ledger.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.broker.api.deadlines import deadline_of
from ottla.controller.deletion import DeletedTopic, TopicReference, delete_topics
from ottla.wire.messages import delete_topics as wire

API = Api(
    key=20,
    versions=range(7),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    acl="topic:delete",
)


def handle(ctx: Context, request: wire.DeleteTopicsRequest) -> Answer:
    """Decide on the controller; translate."""
    version = ctx.version
    if version >= 6:
        wanted = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [TopicReference(name) for name in request.topic_names]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: delete_topics(image, wanted, context=context),
        deadline_ms=deadline_of(ctx, request.timeout_ms),
    )
    return decided.map(lambda reply: _answer(wanted, reply, version))


def _answer(
    wanted: list[TopicReference], reply: tuple[DeletedTopic, ...] | ApiError, version: int
) -> wire.DeleteTopicsResponse:
    if isinstance(reply, ApiError):
        error = reply.error
        if error is Error.TOPIC_DELETION_DISABLED and version < 3:
            error = Error.INVALID_REQUEST
        reply = tuple(
            DeletedTopic(each.name, each.topic_id, error, reply.message)
            for each in dict.fromkeys(wanted)
        )
    return wire.DeleteTopicsResponse(
        responses=tuple(
            wire.DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id if version >= 6 else NO_UUID,
                error_code=topic.error,
                error_message=topic.message,
            )
            for topic in reply
        )
    )
