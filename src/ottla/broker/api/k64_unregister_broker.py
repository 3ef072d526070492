"""UnregisterBroker (key 64): remove a broker from the cluster for good (KIP-631).

Behaviour: as in Kafka, it stays in the replica lists of its partitions; a broker that still runs
           gets an error at its next heartbeat.
Versions:  v0.
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import NOWHERE, Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.controller.brokers.unregister import unregister_broker
from ottla.wire.messages import unregister_broker as wire

API = Api(
    key=64,
    versions=range(1),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    at_most_once=True,
    cluster_operation=Operation.ALTER,
)


def handle(ctx: Context, request: wire.UnregisterBrokerRequest) -> Answer:
    """Decide on the controller; translate."""
    context = ctx.controller.context
    return ctx.controller.run(
        lambda image: unregister_broker(image, request.broker_id, context=context)
    ).map(_answer)


def _answer(reply: ApiError | None) -> wire.UnregisterBrokerResponse:
    if isinstance(reply, ApiError):
        return wire.UnregisterBrokerResponse(error_code=reply.error, error_message=reply.message)
    return wire.UnregisterBrokerResponse(error_code=Error.NONE)
