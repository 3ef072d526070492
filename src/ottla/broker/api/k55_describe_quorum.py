"""DescribeQuorum (key 55): leader, high watermark and replicas of the metadata quorum.

Behaviour: answered by the quorum's leader; brokers forward to it. Observers are listed for five
           minutes after their last fetch.
Versions:  v0; v1 fetch and caught-up times (KIP-836); v2 error messages, nodes (KIP-853).
Not done:  directory ids of replicas, which go with kraft.version 1.
"""

from ottla.base.authorizer import Operation
from ottla.broker.api.base import NOWHERE, Answer, Api, Context, RunsOn
from ottla.broker.ports import Listener
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest

API = Api(
    key=55,
    versions=range(3),
    listeners=frozenset({Listener.CLIENT, Listener.CONTROLLER}),
    zookeeper=NOWHERE,
    runs_on=RunsOn.CONTROLLER,
    cluster_operation=Operation.DESCRIBE,
)


def handle(ctx: Context, request: DescribeQuorumRequest) -> Answer:
    """Pass the request to the quorum."""
    return ctx.quorum.describe(ctx, request)
