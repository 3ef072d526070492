"""DescribeIdleTopics (key 1005): topics with an idle limit, and when they will be deleted.

Behaviour: the controller responds from the brokers' reports; brokers forward the request. A new
           controller has no reports yet. UNSUPPORTED_VERSION where topics cannot have a limit
           (`ottla.version` below 1).
Versions:  v0. Ottla's own; ApiVersions lists it to Ottla's clients only.
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.idle import IdleStatus, describe_idle
from ottla.controller.step import Decision, Step
from ottla.metadata.features import LEDGER, OTTLA_VERSION
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import describe_idle_topics as wire

API = Api(
    key=1005,
    versions=range(1),
    is_public=False,
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.DESCRIBE,
)


def handle(ctx: Context, request: wire.DescribeIdleTopicsRequest) -> Answer:
    """Read the controller's image and the brokers' reports; translate."""
    context, now_ms = ctx.controller.context, ctx.monotonic_ms
    config = context.config

    def read(image: ClusterImage) -> Decision[tuple[IdleStatus, ...]]:
        if not context.mode.has_ledger(image.features):
            raise ApiError(
                Error.UNSUPPORTED_VERSION,
                "Topics of this cluster do not go by themselves: expected the feature "
                f"{OTTLA_VERSION} at level {LEDGER}.",
            )
        found = describe_idle(image, context.idle, config, request.topics, now_ms=now_ms)
        return Decision(Step(), found)

    return ctx.controller.run(read).map(_answer)


def _answer(reply: tuple[IdleStatus, ...] | ApiError) -> wire.DescribeIdleTopicsResponse:
    if isinstance(reply, ApiError):
        return wire.DescribeIdleTopicsResponse(error_code=reply.error, error_message=reply.message)
    return wire.DescribeIdleTopicsResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.DescribedIdleTopic(
                name=each.name,
                topic_id=each.topic_id,
                ttl_ms=each.ttl_ms,
                idle_ms=each.idle_ms,
                reason=each.reason,
                brokers=each.brokers,
            )
            for each in reply
        ),
    )
