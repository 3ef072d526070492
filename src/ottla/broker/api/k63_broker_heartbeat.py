"""BrokerHeartbeat (key 63): a broker's liveness, metadata offset and wanted state (KIP-631).

Behaviour: unfences, fences, and controls a controlled shutdown; replicas in log directories that
           failed lose their leadership.
Versions:  v1 offline log directories (KIP-858). v2 (cordoned directories) is newer than 4.0.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context, RunsOn
from ottla.controller.brokers.brokers import Heartbeat, HeartbeatReply, heartbeat
from ottla.controller.context import next_offset
from ottla.wire.messages import broker_heartbeat as wire

API = Api(
    key=63,
    versions=range(2),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.BrokerHeartbeatRequest) -> Answer:
    """Decide on the controller; translate."""
    report = Heartbeat(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=request.offline_log_dirs,
    )
    context = ctx.controller.context
    return ctx.controller.run(
        lambda image: heartbeat(
            image,
            report,
            next_offset=next_offset(image),
            context=context,
            now_ms=ctx.monotonic_ms,
        )
    ).map(_answer)


def _answer(reply: HeartbeatReply | ApiError) -> wire.BrokerHeartbeatResponse:
    if isinstance(reply, ApiError):
        return wire.BrokerHeartbeatResponse(error_code=reply.error, should_shut_down=False)
    return wire.BrokerHeartbeatResponse(
        error_code=Error.NONE,
        is_caught_up=reply.is_caught_up,
        is_fenced=reply.is_fenced,
        should_shut_down=reply.should_shut_down,
    )
