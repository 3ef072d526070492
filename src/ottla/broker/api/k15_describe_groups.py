"""DescribeGroups (key 15): a group's state and members.

Behaviour: protocol and members' metadata show while the group is stable only. A group that does
           not exist is "Dead"; from v6 it is GROUP_ID_NOT_FOUND too (KIP-1043).
Versions:  v3 authorized operations (KIP-430); v4 group instance ids; v5 flexible; v6 messages.
Not done:  nothing.
"""

from ottla.base.authorizer import Access, Operation, Resource, ResourceType
from ottla.base.errors import ApiError, Error
from ottla.base.turns import Steps
from ottla.broker.api.base import OPERATIONS_NOT_REQUESTED, Answer, Api, Context, InSteps
from ottla.coordinator.group_states import NAMES, State
from ottla.coordinator.groups import describe
from ottla.coordinator.values import GroupView, MemberView
from ottla.wire.messages import describe_groups as wire

DESCRIBE_GROUP = Access(Operation.DESCRIBE, ResourceType.GROUP)

API = Api(key=15, versions=range(7), large_answers=True, access=(DESCRIBE_GROUP,))

FIRST_VERSION_WITH_MISSING_GROUP = 6


@InSteps
def handle(ctx: Context, request: wire.DescribeGroupsRequest) -> Steps[Answer]:
    """Describe each group by itself."""
    refused = ctx.refused(DESCRIBE_GROUP, request.groups)
    groups: list[wire.DescribedGroup] = []
    for group_id in dict.fromkeys(request.groups):
        if group_id in refused:
            hidden = GroupView(group_id=group_id, state="", protocol_type="")
            groups.append(_refused(ctx, hidden, ApiError(DESCRIBE_GROUP.error)))
        else:
            groups.append(_group(ctx, request, group_id))
        yield
    return wire.DescribeGroupsResponse(groups=tuple(groups))


def _group(ctx: Context, request: wire.DescribeGroupsRequest, group_id: str) -> wire.DescribedGroup:
    try:
        view = describe(ctx.broker.groups.shard_of(group_id, may_be_empty=True), group_id)
    except ApiError as refusal:
        return _refused(ctx, GroupView(group_id=group_id, state="", protocol_type=""), refusal)
    allowed = OPERATIONS_NOT_REQUESTED
    if request.include_authorized_operations:
        allowed = ctx.authorized_operations(Resource(ResourceType.GROUP, group_id))
    if view is None:
        dead = GroupView(group_id=group_id, state=NAMES[State.DEAD], protocol_type="")
        if ctx.version < FIRST_VERSION_WITH_MISSING_GROUP:
            return _described(dead, allowed)
        missing = ApiError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return _refused(ctx, dead, missing)
    return _described(view, allowed)


def _refused(ctx: Context, view: GroupView, refusal: ApiError) -> wire.DescribedGroup:
    has_message = ctx.version >= FIRST_VERSION_WITH_MISSING_GROUP
    return wire.DescribedGroup(
        error_code=refusal.error,
        error_message=refusal.message if has_message else None,
        group_id=view.group_id,
        group_state=view.state,
        protocol_type="",
        protocol_data="",
        members=(),
    )


def _described(view: GroupView, allowed: int) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        error_code=Error.NONE,
        group_id=view.group_id,
        group_state=view.state,
        protocol_type=view.protocol_type,
        protocol_data=view.protocol_name,
        members=tuple(_member(member) for member in view.members),
        authorized_operations=allowed,
    )


def _member(member: MemberView) -> wire.DescribedGroupMember:
    return wire.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
