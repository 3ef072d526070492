"""DeleteTopics (key 20): delete topics by name or, from v6, by id.

Behaviour: KRaft: the name is free with the response; brokers delete the logs when they receive it.
           ZooKeeper: the topic is queued, as by a marker under /admin/delete_topics. The response
           comes when the controller's broker has removed it from its metadata, which may be before
           the name is free; REQUEST_TIMED_OUT where that takes longer than timeout_ms, or where
           that is not positive: the deletion goes on all the same. A repeated request joins the
           wait.
           Each topic is deleted as a whole. Many topics are deleted in parts, with other requests
           served in between; names are resolved to topics once, at the start. Where a later part
           fails (NOT_CONTROLLER, REQUEST_TIMED_OUT), its topics and all later ones get that error,
           and the earlier ones are deleted.
           Where a controller fails before it responds, the broker that forwarded the request
           retries it by ids, for the topics that had these names when the request came; see
           `ottla.broker.forwarding.delete_topics_retry`.
           More than DELETED_TOPICS_PER_REQUEST_MAX topics are refused (INVALID_REQUEST).
           A topic named twice, or by name and by id, is refused and kept. Internal topics are
           refused (INVALID_REQUEST), which Kafka's Admin API does not do.
Versions:  v3 TOPIC_DELETION_DISABLED, INVALID_REQUEST before; v4 flexible; v5 messages;
           v6 topic ids (KIP-516).
Not done:  mutation quotas (KIP-599).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from ottla.base.authorizer import ALLOW_ALL, Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.limits import DELETED_TOPICS_PER_REQUEST_MAX
from ottla.base.pending import Pending
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.deletion.delete_topics import (
    DeletedTopic,
    TopicReference,
    delete_first,
    find_topics,
)
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import delete_topics as wire

DELETE_CLUSTER = Access(Operation.DELETE, ResourceType.CLUSTER)
DESCRIBE_TOPIC = Access(Operation.DESCRIBE, ResourceType.TOPIC)
DELETE_TOPIC = Access(Operation.DELETE, ResourceType.TOPIC)

API = Api(
    key=20,
    versions=range(7),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    access=(DELETE_CLUSTER, DESCRIBE_TOPIC, DELETE_TOPIC),
)

BY_ID_VERSION = 6
"""From this version on topics may be named by id, and results have ids."""

TOO_MANY = f"The request names more than {DELETED_TOPICS_PER_REQUEST_MAX} topics."

Topics = tuple[DeletedTopic, ...]
Reply = Topics | ApiError


@InSteps
def handle(ctx: Context, request: wire.DeleteTopicsRequest) -> Steps[Answer]:
    """Decide on the controller; translate."""
    version = ctx.version
    if len(request.topics) + len(request.topic_names) > DELETED_TOPICS_PER_REQUEST_MAX:
        return (yield from _too_many(request, version))
    wanted = references(request, version)
    is_queued = ctx.controller.context.mode.deletions_are_queued
    decided = _delete_all(ctx, wanted, queue=is_queued)
    if not is_queued:
        return decided.map(lambda reply: _answer(wanted, reply, version))
    ended: Pending[Reply] = Pending()
    decided.then(lambda reply: _await_end(ctx, reply, request.timeout_ms, ended))
    return ended.map(lambda reply: _answer(wanted, reply, version))


def _too_many(request: wire.DeleteTopicsRequest, version: int) -> Steps[wire.DeleteTopicsResponse]:
    """Refuse each topic, by the name or id in the request."""
    refused: list[wire.DeletableTopicResult] = []
    by_id = version >= BY_ID_VERSION
    named = (
        [(each.name, each.topic_id) for each in request.topics]
        if by_id
        else [(name, NO_UUID) for name in request.topic_names]
    )
    for name, topic_id in named:
        refused.append(result(name, topic_id, Error.INVALID_REQUEST, TOO_MANY, version))
        yield
    return wire.DeleteTopicsResponse(responses=tuple(refused))


def references(request: wire.DeleteTopicsRequest, version: int) -> list[TopicReference]:
    """Return the topics of the request, by name or id."""
    if version >= BY_ID_VERSION:
        return [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicReference(name) for name in request.topic_names]


def result(
    name: str | None, topic_id: Uuid, code: int, message: str | None, version: int
) -> wire.DeletableTopicResult:
    """Return a topic's result in the form of a version."""
    if code == Error.TOPIC_DELETION_DISABLED and version < 3:
        code = Error.INVALID_REQUEST
    return wire.DeletableTopicResult(
        name=name,
        topic_id=topic_id if version >= BY_ID_VERSION else NO_UUID,
        error_code=code,
        error_message=message,
    )


def _delete_all(ctx: Context, wanted: list[TopicReference], *, queue: bool) -> Pending[Reply]:
    """Delete in several decisions, the next one when the previous one is committed."""
    controller, wall_ms = ctx.controller, ctx.now_ms
    ended: Pending[Reply] = Pending()

    def go_on(done: Topics, left: Topics, find: Callable[[ClusterImage], Topics]) -> None:
        def decide(image: ClusterImage) -> Decision[tuple[Topics, Topics]]:
            found = find(image)
            decision = delete_first(image, found, wall_ms=wall_ms, queue=queue)
            return Decision(decision.step, (decision.reply, found[len(decision.reply) :]))

        def decided(reply: tuple[Topics, Topics] | ApiError) -> None:
            if isinstance(reply, ApiError):
                ended.complete((*done, *_failed(left, reply)) if done else reply)
                return
            answers, rest = reply
            if rest:
                go_on(done + answers, rest, lambda _image: rest)
            else:
                ended.complete(done + answers)

        controller.run(decide).then(decided)

    def find(image: ClusterImage) -> Topics:
        found = find_topics(image, wanted, context=controller.context)
        return found if ctx.authorizer is ALLOW_ALL else _authorized(ctx, image, wanted, found)

    go_on((), (), find)
    return ended


def _authorized(
    ctx: Context, image: ClusterImage, wanted: list[TopicReference], found: Topics
) -> Topics:
    """Refuse the topics that the principal may not delete.

    What it may not describe is refused alike whether it exists or not; by its id, without its name.
    """
    if ctx.allows(DELETE_CLUSTER):
        return found
    names: dict[TopicReference, str] = {}
    counts = Counter(wanted)
    for reference, count in counts.items():
        name = reference.name
        if name is None:
            topic = image.topics.by_id(reference.topic_id)
            name = None if topic is None else topic.name
        elif reference.topic_id != NO_UUID:
            name = None  # Malformed: refused whoever asks.
        if name is not None and count == 1:
            names[reference] = name
    hidden = ctx.refused(DESCRIBE_TOPIC, names.values())
    refused = ctx.refused(DELETE_TOPIC, names.values())

    def checked(reference: TopicReference, result: DeletedTopic) -> DeletedTopic:
        name = names.get(reference)
        if reference.name is None:
            if name not in refused:
                return result
            return DeletedTopic(
                None if name in hidden else name, reference.topic_id, DELETE_TOPIC.error
            )
        if name in hidden or (name in refused and result.error is Error.NONE):
            return DeletedTopic(name, NO_UUID, DELETE_TOPIC.error)
        return result

    return tuple(map(checked, counts, found))


def _failed(left: Topics, failure: ApiError) -> Topics:
    return tuple(
        replace(each, error=failure.error, message=failure.message)
        if each.error is Error.NONE
        else each
        for each in left
    )


def _await_end(ctx: Context, reply: Reply, timeout_ms: int, ended: Pending[Reply]) -> None:
    """Complete `ended` once this broker's metadata has no queued topic, or at the timeout."""
    if isinstance(reply, ApiError):
        ended.complete(reply)
        return
    broker = ctx.broker
    queued = [each.topic_id for each in reply if each.error is Error.NONE]

    def attempt() -> bool:
        if any(broker.image.topics.by_id(each) is not None for each in queued):
            return False
        ended.complete(reply)
        return True

    def expire() -> None:
        ended.complete(tuple(map(timed_out, reply)))

    def timed_out(topic: DeletedTopic) -> DeletedTopic:
        goes = topic.error is Error.NONE and broker.image.topics.by_id(topic.topic_id) is not None
        return replace(topic, error=Error.REQUEST_TIMED_OUT) if goes else topic

    if attempt():
        return
    if timeout_ms <= 0:
        expire()
        return
    broker.topic_deletion_purgatory.add(
        queued,
        attempt=attempt,
        expire=expire,
        deadline_ms=ctx.monotonic_ms + timeout_ms,
        closed=ctx.connection.closed,
    )


def _answer(wanted: list[TopicReference], reply: Reply, version: int) -> wire.DeleteTopicsResponse:
    if isinstance(reply, ApiError):
        reply = tuple(
            DeletedTopic(each.name, each.topic_id, reply.error, reply.message)
            for each in dict.fromkeys(wanted)
        )
    return wire.DeleteTopicsResponse(
        responses=tuple(
            result(topic.name, topic.topic_id, topic.error, topic.message, version)
            for topic in reply
        )
    )
