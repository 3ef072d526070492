"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum announces itself to the voters.

Behaviour: resent to voters that do not fetch; a leader of an older epoch gets the newer one.
Versions:  v0; v1 the voter's id, the leader's endpoints (KIP-853), which are not needed here.
Not done:  directory ids, which go with kraft.version 1.
"""

from ottla.base.authorizer import Operation
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest

API = Api(
    key=53,
    versions=range(2),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: BeginQuorumEpochRequest) -> Answer:
    """Pass the request to the quorum."""
    return ctx.quorum.begin_epoch(ctx, request)
