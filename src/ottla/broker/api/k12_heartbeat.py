"""Heartbeat (key 12): a member shows that it is alive.

Behaviour: REBALANCE_IN_PROGRESS makes the member join again. While the coordinator loads every
           heartbeat succeeds: sessions start when it has loaded.
Versions:  v3 group instance ids (KIP-345); v4 flexible.
Not done:  groups of the consumer protocol (KIP-848).
"""

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.leaving import heartbeat
from ottla.wire.messages import heartbeat as wire

READ_GROUP = Access(Operation.READ, ResourceType.GROUP)

API = Api(key=12, versions=range(5), access=(READ_GROUP,))


def handle(ctx: Context, request: wire.HeartbeatRequest) -> Answer:
    """Answer at once."""
    return wire.HeartbeatResponse(error_code=_heartbeat(ctx, request))


def _heartbeat(ctx: Context, request: wire.HeartbeatRequest) -> Error:
    try:
        ctx.require(READ_GROUP, request.group_id)
        shard = ctx.broker.groups.shard_of(request.group_id)
    except ApiError as refusal:
        loading = refusal.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        return Error.NONE if loading else refusal.error
    return heartbeat(
        shard,
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
