"""DescribeCluster (key 60): the cluster's id and its nodes, brokers or controllers.

Behaviour: endpoint type 1 = brokers, on broker listeners, with any live broker as the controller
           (KIP-590); 2 = the quorum's voters, on controller listeners (KIP-919):
           this node's own listeners, and the others as controller.quorum.voters names them.
Versions:  v1 endpoint type; v2 fenced brokers (KIP-1073).
"""

from ottla.base.authorizer import CLUSTER, Access, Operation, ResourceType
from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.broker.api.base import (
    EVERYWHERE,
    OPERATIONS_NOT_REQUESTED,
    Answer,
    Api,
    Context,
)
from ottla.broker.ports import Listener
from ottla.metadata.brokers import BrokerImage
from ottla.wire.messages import describe_cluster as wire

DESCRIBE_CLUSTER = Access(Operation.DESCRIBE, ResourceType.CLUSTER)
"""Without it the response says that no operation is authorized."""
ALTER_CLUSTER = Access(Operation.ALTER, ResourceType.CLUSTER)
"""On a controller."""

API = Api(
    key=60,
    versions=range(3),
    listeners=EVERYWHERE,
    access=(DESCRIBE_CLUSTER, ALTER_CLUSTER),
)

BROKERS, CONTROLLERS = 1, 2


def handle(ctx: Context, request: wire.DescribeClusterRequest) -> Answer:
    """Respond from the image of this kind of node."""
    ours = CONTROLLERS if ctx.connection.listener is Listener.CONTROLLER else BROKERS
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return _refusal(
            ctx,
            Error.UNSUPPORTED_ENDPOINT_TYPE,
            f"there is no endpoint type {request.endpoint_type}",
        )
    if request.endpoint_type != ours:
        return _refusal(
            ctx,
            Error.MISMATCHED_ENDPOINT_TYPE,
            f"this listener is of endpoint type {ours}, not {request.endpoint_type}",
        )
    if ours == CONTROLLERS and not ctx.allows(ALTER_CLUSTER):
        return wire.DescribeClusterResponse(
            error_code=ALTER_CLUSTER.error, cluster_id="", brokers=(), endpoint_type=ours
        )
    nodes = _controllers(ctx) if ours == CONTROLLERS else _brokers(ctx, request)
    controller = _controller_id(ctx, ours)
    listed = any(node.broker_id == controller for node in nodes)
    return wire.DescribeClusterResponse(
        error_code=Error.NONE,
        endpoint_type=ours,
        cluster_id=ctx.node.cluster_id,
        controller_id=controller if listed else NO_LEADER,
        brokers=nodes,
        cluster_authorized_operations=_operations(ctx, request),
    )


def _operations(ctx: Context, request: wire.DescribeClusterRequest) -> int:
    if not request.include_cluster_authorized_operations:
        return OPERATIONS_NOT_REQUESTED
    return ctx.authorized_operations(CLUSTER) if ctx.allows(DESCRIBE_CLUSTER) else 0


def _controller_id(ctx: Context, endpoint_type: int) -> int:
    if endpoint_type == BROKERS:
        return ctx.broker.controller_id
    return ctx.quorum.leader_id


def _brokers(
    ctx: Context, request: wire.DescribeClusterRequest
) -> tuple[wire.DescribeClusterBroker, ...]:
    brokers = sorted(ctx.broker.image.brokers.items())
    return tuple(
        nodes
        for _, broker in brokers
        if not broker.fenced or request.include_fenced_brokers
        for nodes in _node(broker, ctx.connection.listener_name, ctx.version)
    )


def _controllers(ctx: Context) -> tuple[wire.DescribeClusterBroker, ...]:
    listener_name = ctx.connection.listener_name
    nodes = []
    for node_id, listeners in sorted(ctx.quorum.nodes.items()):
        # Of the other voters one listener is known: its address is used, whatever its name.
        _, host, port = next((each for each in listeners if each[0] == listener_name), listeners[0])
        nodes.append(wire.DescribeClusterBroker(broker_id=node_id, host=host, port=port))
    return tuple(nodes)


def _node(
    broker: BrokerImage, listener_name: str, version: int
) -> list[wire.DescribeClusterBroker]:
    """Return the broker in a list, which is empty where it lacks the listener."""
    return [
        wire.DescribeClusterBroker(
            broker_id=broker.id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.fenced and version >= 2,
        )
        for endpoint in broker.endpoints
        if endpoint.name == listener_name
    ]


def _refusal(ctx: Context, error: Error, message: str) -> wire.DescribeClusterResponse:
    # v0 knew no endpoint types, hence not their errors.
    return wire.DescribeClusterResponse(
        error_code=Error.INVALID_REQUEST if ctx.version == 0 else error,
        error_message=message,
        cluster_id="",
        brokers=(),
    )
