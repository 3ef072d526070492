"""DescribeGroups (key 15): a group's state and members.

Behaviour: protocol and members' metadata show while the group is stable only. A group that does
           not exist is "Dead"; from v6 it is GROUP_ID_NOT_FOUND too (KIP-1043).
Versions:  v3 authorized operations (KIP-430); v4 group instance ids; v5 flexible; v6 messages.
Not done:  authorization: all operations are reported as allowed.
"""

from ottla.base.errors import ApiError, Error
from ottla.base.turns import Steps
from ottla.broker.api.base import Answer, Api, Context, InSteps
from ottla.broker.nodes import GROUP_OPERATIONS, OPERATIONS_NOT_REQUESTED, operations
from ottla.coordinator.group_states import NAMES, State
from ottla.coordinator.groups import describe
from ottla.coordinator.values import GroupView, MemberView
from ottla.wire.messages import describe_groups as wire

API = Api(key=15, versions=range(7), large_answers=True, acl="group:describe")

FIRST_VERSION_WITH_MISSING_GROUP = 6


@InSteps
def handle(ctx: Context, request: wire.DescribeGroupsRequest) -> Steps[Answer]:
    """Describe each group by itself."""
    wants_operations = request.include_authorized_operations
    allowed = operations(GROUP_OPERATIONS) if wants_operations else OPERATIONS_NOT_REQUESTED
    groups: list[wire.DescribedGroup] = []
    for group_id in dict.fromkeys(request.groups):
        groups.append(_group(ctx, group_id, allowed))
        yield
    return wire.DescribeGroupsResponse(groups=tuple(groups))


def _group(ctx: Context, group_id: str, allowed: int) -> wire.DescribedGroup:
    try:
        view = describe(ctx.broker.groups.shard_of(group_id, may_be_empty=True), group_id)
    except ApiError as refusal:
        return _refused(ctx, GroupView(group_id=group_id, state="", protocol_type=""), refusal)
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
