"""FetchSnapshot (key 59): a piece of a snapshot of the metadata log.

Behaviour: the leader serves replicas whose Fetch returned a snapshot id; pieces need not end with a
           batch.
Versions:  v0; v1 directory id of the replica, leader's endpoint (KIP-853).
Not done:  the endpoints of v1: a quorum's voters are configured.
"""

from ottla.base.authorizer import Operation
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest

API = Api(
    key=59,
    versions=range(2),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: FetchSnapshotRequest) -> Answer:
    """Pass the request to the quorum."""
    return ctx.quorum.fetch_snapshot(ctx, request)
