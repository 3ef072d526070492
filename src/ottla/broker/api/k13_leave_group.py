"""LeaveGroup (key 13): members leave, or are removed by an admin.

Behaviour: the rest of the group rebalances at once. From v3 several members, each by member id,
           by group instance id or by both; one result for each.
Versions:  v3 several members (KIP-345); v4 flexible; v5 a reason (KIP-800).
Not done:  groups of the consumer protocol (KIP-848).
"""

from collections.abc import Sequence

from ottla.base.authorizer import Access, Operation, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.broker.api.base import Answer, Api, Context
from ottla.coordinator.leaving import leave
from ottla.coordinator.values import LeavingMember
from ottla.wire.messages import leave_group as wire

READ_GROUP = Access(Operation.READ, ResourceType.GROUP)

API = Api(key=13, versions=range(6), access=(READ_GROUP,))

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def handle(ctx: Context, request: wire.LeaveGroupRequest) -> Answer:
    """Answer at once."""
    if ctx.version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        error, errors = _leave(ctx, request.group_id, [LeavingMember(request.member_id)])
        return wire.LeaveGroupResponse(error_code=error or errors[0])
    leavers = [
        LeavingMember(each.member_id, each.group_instance_id, each.reason)
        for each in request.members
    ]
    error, errors = _leave(ctx, request.group_id, leavers)
    return wire.LeaveGroupResponse(
        error_code=error,
        members=tuple(
            wire.MemberResponse(
                member_id=leaver.member_id,
                group_instance_id=leaver.instance_id,
                error_code=each,
            )
            for leaver, each in zip(leavers, errors, strict=not error)
        ),
    )


def _leave(
    ctx: Context, group_id: str, leavers: Sequence[LeavingMember]
) -> tuple[Error, list[Error]]:
    try:
        ctx.require(READ_GROUP, group_id)
        shard = ctx.broker.groups.shard_of(group_id)
    except ApiError as refusal:
        return refusal.error, []
    return leave(shard, group_id, leavers)
