"""Heartbeat and LeaveGroup: the sessions of members, and their removal.

Source: the classic part of Kafka's GroupMetadataManager; KIP-345 (an admin removes static
members by instance id, several at a time).
"""

from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import State
from ottla.coordinator.rebalancing import complete_if_all_joined, prepare, touch
from ottla.coordinator.shard import Shard
from ottla.coordinator.values import NO_MEMBER, LeavingMember


def heartbeat(
    shard: Shard, *, group_id: str, member_id: str, instance_id: str | None, generation: int
) -> Error:
    """Prolong a member's session; REBALANCE_IN_PROGRESS makes it join again."""
    if group_id == "":
        return Error.INVALID_GROUP_ID
    group = shard.groups.get(group_id)
    if group is None:
        return Error.UNKNOWN_MEMBER_ID
    if error := group.check_member(member_id, instance_id):
        return error
    if generation != group.generation:
        return Error.ILLEGAL_GENERATION
    # While the leader assigns, heartbeats are normal: members may send them from the join on.
    touch(shard, group, group.members[member_id])
    return Error.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else Error.NONE


def leave(
    shard: Shard, group_id: str, members: Sequence[LeavingMember]
) -> tuple[Error, list[Error]]:
    """Remove members; return the error for all, then one for each."""
    if group_id == "":
        return Error.INVALID_GROUP_ID, []
    group = shard.groups.get(group_id)
    if group is None:
        return Error.NONE, [Error.UNKNOWN_MEMBER_ID] * len(members)
    members_before = len(group.members)
    errors = [_leave_one(group, member) for member in members]
    if len(group.members) < members_before and group.state in (State.STABLE, State.COMPLETING):
        prepare(shard, group, _reason(members))
    elif Error.NONE in errors:
        complete_if_all_joined(shard, group)
    return Error.NONE, errors


def _reason(members: Sequence[LeavingMember]) -> str:
    """Return who leaves, and why if they sent a reason (KIP-800)."""
    return "; ".join(
        f"{member.member_id or member.instance_id} leaves: {member.reason or 'no reason given'}"
        for member in members
    )


def _leave_one(group: Group, member: LeavingMember) -> Error:
    member_id = member.member_id
    if member_id == NO_MEMBER:
        if member.instance_id is None or member.instance_id not in group.static_members:
            return Error.UNKNOWN_MEMBER_ID
        group.remove(group.static_members[member.instance_id])
        return Error.NONE
    if member_id in group.pending_members:
        group.remove(member_id)
        return Error.NONE
    error = group.check_member(member_id, member.instance_id)
    if not error:
        group.remove(member_id)
    return error
