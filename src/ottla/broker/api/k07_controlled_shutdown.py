"""ControlledShutdown (key 7): a broker of a ZooKeeper cluster asks for its controlled shutdown.

Behaviour: the controller moves the partitions that it leads to other in-sync replicas, removes it
           from ISRs with other members, and stops its followers. The response names the partitions
           that it still leads, though they have other replicas; the broker retries, and shuts down
           in the end.
Epochs:    v2 an older broker epoch than the registered one is STALE_BROKER_EPOCH, a newer one is
           accepted, -1 = any. A broker that is not registered: BROKER_NOT_AVAILABLE.
Versions:  v2 broker epoch (KIP-380); v3 flexible. In KRaft brokers ask with heartbeats.
Not done:  nothing.
"""

from ottla.base.authorizer import Operation
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context, RunsOn
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.controlled_shutdown import controlled_shutdown
from ottla.wire.messages import controlled_shutdown as wire

API = Api(
    key=7,
    versions=range(4),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.ControlledShutdownRequest) -> Answer:
    """Decide on the controller; translate."""
    config = ctx.controller.context.config
    return ctx.controller.run(
        lambda image: controlled_shutdown(image, config, request.broker_id, request.broker_epoch)
    ).map(_answer)


def _answer(reply: tuple[PartitionKey, ...] | ApiError) -> wire.ControlledShutdownResponse:
    if isinstance(reply, ApiError):
        return wire.ControlledShutdownResponse(error_code=reply.error, remaining_partitions=())
    return wire.ControlledShutdownResponse(
        error_code=Error.NONE,
        remaining_partitions=tuple(
            wire.RemainingPartition(topic_name=key.topic, partition_index=key.partition)
            for key in reply
        ),
    )
