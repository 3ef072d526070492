"""CreateTopics (key 19): make topics, placed by the cluster or by hand.

Behaviour: each topic stands or falls by itself; those that stand are made in one step. The
           answer comes when they are committed; brokers hear of them a moment later.
           timeout_ms ends the wait for the controller's attention, not for the disk.
           REQUEST_TIMED_OUT where its answer was lost: they may have been made, and deleted since.
Versions:  v1 validate_only and error messages; v4 -1 for the node's defaults (KIP-464);
           v5 flexible, with configurations and counts (KIP-525); v6 THROTTLING_QUOTA_EXCEEDED;
           v7 topic ids.
Not done:  mutation quotas (KIP-599); policy classes; authorization.
"""

from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context, Listener, RunsOn
from ottla.controller.topics import CreatedTopic, NewTopic, create_topics
from ottla.wire.messages import create_topics as wire

API = Api(
    key=19,
    versions=range(8),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    once=True,
    acl="cluster:create",
)


def handle(ctx: Context, request: wire.CreateTopicsRequest) -> Answer:
    """Decide on the controller; translate."""
    wanted = [_wanted(topic) for topic in request.topics]
    context = ctx.controller.context
    decided = ctx.controller.run(
        lambda image: create_topics(
            image, wanted, validate_only=request.validate_only, context=context
        ),
    )
    return decided.map(lambda reply: _answer(wanted, reply))


def _wanted(topic: wire.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((each.partition_index, each.broker_ids) for each in topic.assignments),
        configs=tuple((each.name, each.value) for each in topic.configs),
    )


def _answer(
    wanted: list[NewTopic], reply: tuple[CreatedTopic, ...] | ApiError
) -> wire.CreateTopicsResponse:
    if isinstance(reply, ApiError):
        names = dict.fromkeys(topic.name for topic in wanted)
        reply = tuple(CreatedTopic(name, reply.error, reply.message) for name in names)
    return wire.CreateTopicsResponse(topics=tuple(_result(topic) for topic in reply))


def _result(topic: CreatedTopic) -> wire.CreatableTopicResult:
    if topic.error is not Error.NONE:
        return wire.CreatableTopicResult(
            name=topic.name, error_code=topic.error, error_message=topic.message, configs=()
        )
    return wire.CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=Error.NONE,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=tuple(
            wire.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic.configs
        ),
    )
