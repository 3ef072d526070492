"""AllocateProducerIds (key 67): a broker requests a block of producer ids (KIP-730).

Behaviour: blocks are consecutive; none is handed out twice, also across failovers, since the
           response waits for the record's commit.
Versions:  v0.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import BROKERS, CONTROLLERS, Answer, Api, Context, RunsOn
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.wire.messages import allocate_producer_ids as wire

API = Api(
    key=67,
    versions=range(1),
    listeners=CONTROLLERS,
    zookeeper=BROKERS,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.AllocateProducerIdsRequest) -> Answer:
    """Decide on the controller; translate."""
    return ctx.controller.run(
        lambda image: allocate_producer_ids(
            image, broker_id=request.broker_id, broker_epoch=request.broker_epoch
        )
    ).map(_answer)


def _answer(reply: tuple[int, int] | ApiError) -> wire.AllocateProducerIdsResponse:
    if isinstance(reply, ApiError):
        return wire.AllocateProducerIdsResponse(
            error_code=reply.error, producer_id_start=0, producer_id_len=0
        )
    first, length = reply
    return wire.AllocateProducerIdsResponse(
        error_code=Error.NONE, producer_id_start=first, producer_id_len=length
    )
