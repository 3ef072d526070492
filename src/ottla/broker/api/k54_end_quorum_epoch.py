"""EndQuorumEpoch (key 54): a leader of the metadata quorum resigns.

Behaviour: the first of the successors that it names starts an election at once.
Versions:  v0; v1 successors with directory ids (KIP-853).
Not done:  directory ids, which go with kraft.version 1.
"""

from ottla.base.authorizer import Operation
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest

API = Api(
    key=54,
    versions=range(2),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: EndQuorumEpochRequest) -> Answer:
    """Pass the request to the quorum."""
    return ctx.quorum.end_epoch(ctx, request)
