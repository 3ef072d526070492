"""BrokerRegistration (key 62): a broker registers with the cluster (KIP-631).

Behaviour: the response has the broker's epoch, the offset of its registration. It starts fenced and
           is unfenced by heartbeats (key 63) once it has replayed the log so far. The response has
           no message, so the controller logs why a broker is refused.
Versions:  v1 ZooKeeper migration, refused; v2 log directories (KIP-858); v3 the epoch of the
           last clean shutdown (KIP-966): without it the broker is assumed to have lost unflushed
           records; v4 features of minimum level 0. In every version a tagged field of Ottla's own
           has the epoch of a registration whose process has ended for certain.
"""

import logging

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context, RunsOn
from ottla.controller.brokers.brokers import NO_BROKER_EPOCH, register_broker
from ottla.controller.context import next_offset
from ottla.metadata.brokers import BrokerImage, Endpoint, FeatureRange
from ottla.wire.messages import broker_registration as wire

log = logging.getLogger(__name__)

API = Api(
    key=62,
    versions=range(5),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.BrokerRegistrationRequest) -> Answer:
    """Decide on the controller; translate."""
    if request.is_migrating_zk_broker:
        return _answer(request.broker_id, ApiError(Error.BROKER_ID_NOT_REGISTERED))
    broker = BrokerImage(
        id=request.broker_id,
        epoch=NO_BROKER_EPOCH,
        incarnation_id=request.incarnation_id,
        endpoints=tuple(
            Endpoint(each.name, each.host, each.port, each.security_protocol)
            for each in request.listeners
        ),
        features=tuple(
            FeatureRange(each.name, each.min_supported_version, each.max_supported_version)
            for each in request.features
        ),
        rack=request.rack,
        log_dirs=request.log_dirs,
    )
    context = ctx.controller.context
    return ctx.controller.run(
        lambda image: register_broker(
            image,
            broker,
            cluster_id=request.cluster_id,
            next_offset=next_offset(image),
            context=context,
            now_ms=ctx.monotonic_ms,
            previous_epoch=request.previous_broker_epoch,
            superseded_epoch=request.superseded_broker_epoch,
        )
    ).map(lambda reply: _answer(request.broker_id, reply))


def _answer(broker_id: int, reply: int | ApiError) -> wire.BrokerRegistrationResponse:
    if isinstance(reply, ApiError):
        # A broker that looks for the controller tries every voter, many times a second.
        if reply.error is not Error.NOT_CONTROLLER:
            log.warning(
                "registration of broker %d rejected: %s: %s",
                *(broker_id, reply.error.name, reply.message),
            )
        return wire.BrokerRegistrationResponse(error_code=reply.error)
    return wire.BrokerRegistrationResponse(error_code=Error.NONE, broker_epoch=reply)
