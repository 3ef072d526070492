"""ReportPurges (key 1007): a broker reports how far it has purged dead remote segments.

Behaviour: the report is kept; where it completes a deleted topic, the deletion ledger's remote part
           becomes PURGED; where it completes an existing one, the purge of its tiering state is not
           pending any more, or its remote tier is known to be empty. The response comes when that
           is committed. A topic of which nothing is awaited is UNKNOWN_TOPIC_ID. A process that is
           not registered now is refused: STALE_BROKER_EPOCH.
Versions:  v0. Ottla's own; between nodes only.
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.broker.api.base import BROKERS, CONTROLLERS, NOBODY, Answer, Api, Context, RunsOn
from ottla.controller.deletion.purge_reports import PartitionPurge, PurgeReport, take_report
from ottla.controller.step import Decision
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import report_purges as wire

API = Api(
    key=1007,
    versions=range(1),
    advertised=NOBODY,
    listeners=CONTROLLERS,
    zookeeper=BROKERS,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.ReportPurgesRequest) -> Answer:
    """Decide on the controller; translate."""
    reports = ctx.controller.context.purges
    report = PurgeReport(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics={
            topic.topic_id: tuple(map(_partition, topic.partitions)) for topic in request.topics
        },
    )

    def decide(image: ClusterImage) -> Decision[dict[Uuid, Error]]:
        return take_report(image, reports, report)

    return ctx.controller.run(decide).map(_answer)


def _partition(reported: wire.PurgedPartition) -> PartitionPurge:
    return PartitionPurge(
        partition=reported.partition,
        floor=reported.floor,
        is_purged=reported.is_purged,
        segments_left=reported.segments_left,
        bytes_left=reported.bytes_left,
        error=reported.last_error,
    )


def _answer(reply: dict[Uuid, Error] | ApiError) -> wire.ReportPurgesResponse:
    if isinstance(reply, ApiError):
        return wire.ReportPurgesResponse(error_code=reply.error)
    return wire.ReportPurgesResponse(
        error_code=Error.NONE,
        topics=tuple(
            wire.PurgedTopicResult(topic_id=topic_id, error_code=error)
            for topic_id, error in reply.items()
        ),
    )
