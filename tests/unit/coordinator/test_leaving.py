"""Heartbeat and LeaveGroup: what members and admins are told, and what becomes of the group.

Method: scripts over virtual time; the errors are those of GroupMetadataManager.
"""

from ottla.base.errors import Error
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.values import LeavingMember

from .harness import GROUP, World


def beat(world: World, member_id: str, *, generation: int = 1, group_id: str = GROUP) -> Error:
    return heartbeat(
        world.shard,
        group_id=group_id,
        member_id=member_id,
        instance_id=None,
        generation=generation,
    )


def test_heartbeats_of_strangers() -> None:
    world = World()
    (told,) = world.stable_group(1)
    assert beat(world, told.member_id) is Error.NONE
    assert beat(world, told.member_id, group_id="") is Error.INVALID_GROUP_ID
    assert beat(world, told.member_id, group_id="other") is Error.UNKNOWN_MEMBER_ID
    assert beat(world, "nobody") is Error.UNKNOWN_MEMBER_ID
    assert beat(world, told.member_id, generation=0) is Error.ILLEGAL_GENERATION


def test_heartbeats_while_the_leader_assigns_are_normal() -> None:
    world = World()
    answer = world.join(world.new_id())
    world.advance(3_000)
    assert world.group.state is State.COMPLETING
    assert beat(world, answer.value.member_id) is Error.NONE


def test_the_last_member_leaves_an_empty_group() -> None:
    world = World()
    (told,) = world.stable_group(1)
    assert leave(world.shard, GROUP, [LeavingMember(told.member_id)]) == (Error.NONE, [Error.NONE])
    assert (world.group.state, world.group.generation) == (State.EMPTY, 2)
    assert beat(world, told.member_id) is Error.UNKNOWN_MEMBER_ID


def test_several_leave_with_one_rebalance() -> None:
    world = World()
    told = world.stable_group(4)
    error, errors = leave(
        world.shard,
        GROUP,
        [
            LeavingMember(told[0].member_id),
            LeavingMember("nobody"),
            LeavingMember(told[1].member_id, None, "tired"),
        ],
    )
    assert (error, errors) == (Error.NONE, [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE])
    assert world.group.state is State.PREPARING
    assert set(world.group.members) == {told[2].member_id, told[3].member_id}


def test_an_admin_removes_static_members_by_instance_id() -> None:
    world = World()
    told = world.stable_group(instances=["a", "b"])
    _, errors = leave(
        world.shard, GROUP, [LeavingMember("", "a"), LeavingMember("", "zzz"), LeavingMember("")]
    )
    assert errors == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID]
    assert set(world.group.static_members) == {"b"}
    b_id = world.group.static_members["b"]
    _, errors = leave(world.shard, GROUP, [LeavingMember(b_id, "a"), LeavingMember(b_id, "b")])
    assert errors == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
    assert len(told) == 2


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    world = World()
    world.stable_group(1)
    member_id = world.new_id()
    assert leave(world.shard, GROUP, [LeavingMember(member_id)]) == (Error.NONE, [Error.NONE])
    assert world.group.state is State.STABLE
    assert not world.group.pending_members
    assert leave(world.shard, GROUP, [LeavingMember(member_id)])[1] == [Error.UNKNOWN_MEMBER_ID]


def test_the_last_pending_member_to_leave_ends_a_join_phase() -> None:
    world = World()
    (told,) = world.stable_group(1)
    member_id = world.new_id()
    answer = world.join(told.member_id)
    assert not answer.done
    leave(world.shard, GROUP, [LeavingMember(member_id)])
    world.settle()
    assert answer.value.generation == 2


def test_leaving_no_group() -> None:
    world = World()
    assert leave(world.shard, "", [LeavingMember("m")]) == (Error.INVALID_GROUP_ID, [])
    assert leave(world.shard, "other", [LeavingMember("m"), LeavingMember("n")]) == (
        Error.NONE,
        [Error.UNKNOWN_MEMBER_ID] * 2,
    )
