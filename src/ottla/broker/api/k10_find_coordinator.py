"""FindCoordinator (key 10): which broker coordinates a group.

Behaviour: the leader of the offsets partition that the group's id hashes to, with its address on
           the request's listener. The first request creates the offsets topic; until it has a
           leader the result is COORDINATOR_NOT_AVAILABLE, which clients retry.
Versions:  v1 key types and messages; v3 flexible; v4 several keys (KIP-699); v6 share groups.
Not done:  transactions. A transactional id gets CLUSTER_AUTHORIZATION_FAILED, with the reason as
           message: of the codes that librdkafka does not retry until a timeout, it is the one for
           which Java's client shows the broker's message.
           Share groups (KIP-932) and unknown key types get INVALID_REQUEST, as from a Kafka broker
           without a share coordinator.
"""

from enum import IntEnum

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.nodes import Node, leader_of, node_of
from ottla.wire.messages import find_coordinator as wire

DESCRIBE_GROUP = Access(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TRANSACTIONAL_ID = Access(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

API = Api(
    key=10,
    versions=range(7),
    access=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
)

FIRST_VERSION_WITH_SEVERAL_KEYS = 4
NO_NODE = Node(-1, "", -1, None)


class KeyType(IntEnum):
    """What a key names."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@InSteps
def handle(ctx: Context, request: wire.FindCoordinatorRequest) -> Steps[Answer]:
    """Respond from the broker's image."""
    if ctx.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        coordinators: list[wire.Coordinator] = []
        for key in request.coordinator_keys:
            coordinators.append(_coordinator(ctx, request.key_type, key))
            yield
        return wire.FindCoordinatorResponse(coordinators=tuple(coordinators))
    found = _coordinator(ctx, request.key_type, request.key)
    return wire.FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(ctx: Context, key_type: int, key: str) -> wire.Coordinator:
    node, error, message = NO_NODE, Error.NONE, None
    try:
        node = _node(ctx, key_type, key)
    except ApiError as refusal:
        error, message = refusal.error, refusal.message
    return wire.Coordinator(
        key=key,
        node_id=node.id,
        host=node.host,
        port=node.port,
        error_code=error,
        error_message=message,
    )


def _node(ctx: Context, key_type: int, group_id: str) -> Node:
    if key_type == KeyType.TRANSACTION:
        ctx.require(DESCRIBE_TRANSACTIONAL_ID, group_id)
        raise ApiError(
            Error.CLUSTER_AUTHORIZATION_FAILED,
            "This cluster does not support transactions.",
        )
    if key_type != KeyType.GROUP:
        raise ApiError(Error.INVALID_REQUEST, f"Coordinator key type {key_type} is not supported.")
    ctx.require(DESCRIBE_GROUP, group_id)
    broker = ctx.broker
    topic = broker.image.topics.by_name(OFFSETS_TOPIC)
    if topic is None:
        broker.auto_create.create([OFFSETS_TOPIC])
        raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
    partition = topic.partitions[broker.groups.partition_of(group_id)]
    listener = ctx.connection.listener_name
    node = node_of(broker.image, leader_of(broker.image, partition, listener), listener)
    if node is None:
        raise ApiError(Error.COORDINATOR_NOT_AVAILABLE)
    return node
