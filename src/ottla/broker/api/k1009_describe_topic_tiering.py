"""DescribeTopicTiering (key 1009): topics' tiering states, and what they wait for.

Behaviour: the controller responds; brokers forward the request. While a topic is DISABLING it says
           which brokers have not acknowledged, for which partitions and why; while a purge is
           pending, how far it is. A new controller asks all brokers again, and has the purgers'
           reports some seconds later.
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  a deposed controller that does not know it yet responds from old state.
"""

from collections.abc import Iterable, Iterator

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.context import DecisionContext
from ottla.controller.deletion.purge_reports import NOT_PENDING
from ottla.controller.disabling.acknowledgements import Missing, disabling_state
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.wire.messages import describe_topic_tiering as wire

API = Api(
    key=1009,
    versions=range(1),
    is_public=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.DESCRIBE,
)


def handle(ctx: Context, request: wire.DescribeTopicTieringRequest) -> Answer:
    """Read the controller's image and what brokers have answered; translate."""
    context = ctx.controller.context

    def read(image: ClusterImage) -> Decision[tuple[wire.DescribedTopicTiering, ...]]:
        found = _topics(image, request)
        return Decision(Step(), tuple(_described(image, context, each) for each in found))

    return ctx.controller.run(read).map(_answer)


def _answer(
    reply: tuple[wire.DescribedTopicTiering, ...] | ApiError,
) -> wire.DescribeTopicTieringResponse:
    if isinstance(reply, ApiError):
        return wire.DescribeTopicTieringResponse(
            error_code=reply.error, error_message=reply.message
        )
    return wire.DescribeTopicTieringResponse(error_code=Error.NONE, topics=reply)


def _topics(image: ClusterImage, request: wire.DescribeTopicTieringRequest) -> Iterator[TopicImage]:
    """Yield the topics of a request, by name."""
    if request.topics is None:
        tiered = (image.topics.by_id(each) for each in image.tiering)
        yield from sorted((each for each in tiered if each is not None), key=lambda t: t.name)
        return
    for name in sorted(set(request.topics)):
        topic = image.topics.by_name(name)
        if topic is not None:
            yield topic


def _described(
    image: ClusterImage, context: DecisionContext, topic: TopicImage
) -> wire.DescribedTopicTiering:
    tiering = image.tiering.get(topic.id)
    if tiering is None:
        return wire.DescribedTopicTiering(name=topic.name, topic_id=topic.id, state=0)
    disabling = disabling_state(image, topic.id)
    missing = () if disabling is None else context.acknowledgements.missing(image, disabling)
    purge = NOT_PENDING
    if tiering.purge_pending:
        purge = context.purges.progress_of_existing(topic, tiering)
    return wire.DescribedTopicTiering(
        name=topic.name,
        topic_id=topic.id,
        state=tiering.state,
        tiered_epoch=tiering.tiered_epoch,
        policy=tiering.policy,
        remote_floor_epoch=tiering.remote_floor_epoch,
        purge_pending=tiering.purge_pending,
        missing=_by_broker(missing),
        purge_partitions=purge.partitions,
        purge_partitions_left=purge.partitions_left,
        purge_segments_left=purge.segments_left,
        purge_bytes_left=purge.bytes_left,
        purge_error=purge.error,
        purge_leaderless=purge.leaderless,
    )


def _by_broker(missing: Iterable[Missing]) -> tuple[wire.MissingAcknowledgement, ...]:
    """Collect the partitions of a broker that wait for the same."""
    found: dict[tuple[int, bool, int, int], list[int]] = {}
    for each in missing:
        alike = each.broker_id, not each.is_leader, int(each.reason), int(each.error)
        found.setdefault(alike, []).append(each.partition)
    return tuple(
        wire.MissingAcknowledgement(
            broker_id=broker_id,
            is_leader=not is_follower,
            reason=reason,
            error=error,
            partitions=tuple(partitions),
        )
        for (broker_id, is_follower, reason, error), partitions in sorted(found.items())
    )
