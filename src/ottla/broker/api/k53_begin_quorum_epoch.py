"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum tells voters that it leads.

Behaviour: sent again to those who do not fetch; a leader of an older epoch is told the newer one.
Versions:  v0; v1 the voter meant, the leader's endpoints (KIP-853), which are not needed here.
Not done:  directory ids, which go with kraft.version 1.
"""

from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest

API = Api(
    key=53,
    versions=range(2),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    acl="cluster:cluster-action",
)


def handle(ctx: Context, request: BeginQuorumEpochRequest) -> Answer:
    """Ask the quorum."""
    return ctx.quorum.begin_epoch(ctx, request)
