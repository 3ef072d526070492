"""Vote (key 52): a candidate for the metadata quorum's leadership asks a voter for its vote.

Behaviour: a vote is durable before the response, and given once in an epoch.
Versions:  v0; v1 directory ids and the voter's id (KIP-853); v2 pre-vote (KIP-996).
Not done:  directory ids, which go with kraft.version 1; endpoints of the leader.
"""

from ottla.base.authorizer import Operation
from ottla.broker.api.base import CONTROLLERS, NOWHERE, Answer, Api, Context
from ottla.wire.messages.vote import VoteRequest

API = Api(
    key=52,
    versions=range(3),
    listeners=CONTROLLERS,
    zookeeper=NOWHERE,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: VoteRequest) -> Answer:
    """Pass the request to the quorum."""
    return ctx.quorum.vote(ctx, request)
