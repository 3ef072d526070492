"""ReportIdleTopics (key 1004): a broker reports the idle times of topics.

Behaviour: the report is kept; topics that are due by all brokers' reports are deleted as by a
           client's DeleteTopics. The response comes when that is committed. A process that is not
           registered now is refused: STALE_BROKER_EPOCH.
Versions:  v0. Ottla's own; between nodes only.
Not done:  nothing.
"""

import logging

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import BROKERS, CONTROLLERS, NOBODY, Answer, Api, Context, RunsOn
from ottla.controller.deletion.delete_topics import DeletedTopic, TopicReference, delete_topics
from ottla.controller.idle import IdleReport, IdleRow, IdleStatus, due_topics
from ottla.controller.step import Decision, Step
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import report_idle_topics as wire

API = Api(
    key=1004,
    versions=range(1),
    advertised=NOBODY,
    listeners=CONTROLLERS,
    zookeeper=BROKERS,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)

log = logging.getLogger(__name__)

Taken = tuple[int, list[IdleStatus], tuple[DeletedTopic, ...]]
"""The response's token; the topics that are due, and the result of each deletion."""


def handle(ctx: Context, request: wire.ReportIdleTopicsRequest) -> Answer:
    """Decide on the controller; translate."""
    context, now_ms, wall_ms = ctx.controller.context, ctx.monotonic_ms, ctx.now_ms
    queue = context.mode.deletions_are_queued
    report = IdleReport(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        coordinators=request.coordinators,
        rows=tuple(IdleRow(each.topic_id, each.replicas, each.idle_ms) for each in request.topics),
        token=request.token,
    )

    def decide(image: ClusterImage) -> Decision[Taken]:
        due, token = due_topics(image, context.idle, report, context.config, now_ms=now_ms)
        if not due:
            return Decision(Step(), (token, [], ()))
        wanted = [TopicReference(topic_id=each.topic_id) for each in due]
        deleted = delete_topics(image, wanted, context=context, wall_ms=wall_ms, queue=queue)
        return Decision(deleted.step, (token, due, deleted.reply))

    return ctx.controller.run(decide).map(_answer)


def _answer(reply: Taken | ApiError) -> wire.ReportIdleTopicsResponse:
    if isinstance(reply, ApiError):
        return wire.ReportIdleTopicsResponse(error_code=reply.error)
    token, due, deleted = reply
    for verdict, each in zip(due, deleted, strict=True):
        if each.error is Error.NONE:
            log.info(
                "deleting idle topic %s: not used for %d ms, limit %d ms",
                verdict.name,
                verdict.idle_ms,
                verdict.ttl_ms,
            )
        else:
            log.warning(
                "deletion of idle topic %s failed: %s", verdict.name, each.message or each.error
            )
    return wire.ReportIdleTopicsResponse(error_code=Error.NONE, token=token)
