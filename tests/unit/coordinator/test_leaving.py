"""Heartbeat and LeaveGroup: the responses to members and admins, and the state of the group.

Method: scripts over virtual time; the errors are those of GroupMetadataManager.
"""

from ottla.base.errors import Error
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.values import LeavingMember

from .harness import GROUP, Harness


def beat(harness: Harness, member_id: str, *, generation: int = 1, group_id: str = GROUP) -> Error:
    return heartbeat(
        harness.shard,
        group_id=group_id,
        member_id=member_id,
        instance_id=None,
        generation=generation,
    )


def test_heartbeats_of_strangers() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    assert beat(harness, response.member_id) is Error.NONE
    assert beat(harness, response.member_id, group_id="") is Error.INVALID_GROUP_ID
    assert beat(harness, response.member_id, group_id="other") is Error.UNKNOWN_MEMBER_ID
    assert beat(harness, "nobody") is Error.UNKNOWN_MEMBER_ID
    assert beat(harness, response.member_id, generation=0) is Error.ILLEGAL_GENERATION


def test_heartbeats_while_the_leader_assigns_are_normal() -> None:
    harness = Harness()
    answer = harness.join(harness.new_id())
    harness.advance(3_000)
    assert harness.group.state is State.COMPLETING
    assert beat(harness, answer.value.member_id) is Error.NONE


def test_the_last_member_leaves_an_empty_group() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    assert leave(harness.shard, GROUP, [LeavingMember(response.member_id)]) == (
        Error.NONE,
        [Error.NONE],
    )
    assert (harness.group.state, harness.group.generation) == (State.EMPTY, 2)
    assert beat(harness, response.member_id) is Error.UNKNOWN_MEMBER_ID


def test_several_leave_with_one_rebalance() -> None:
    harness = Harness()
    response = harness.stable_group(4)
    error, errors = leave(
        harness.shard,
        GROUP,
        [
            LeavingMember(response[0].member_id),
            LeavingMember("nobody"),
            LeavingMember(response[1].member_id, None, "tired"),
        ],
    )
    assert (error, errors) == (Error.NONE, [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.NONE])
    assert harness.group.state is State.PREPARING
    assert set(harness.group.members) == {response[2].member_id, response[3].member_id}


def test_an_admin_removes_static_members_by_instance_id() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["a", "b"])
    _, errors = leave(
        harness.shard, GROUP, [LeavingMember("", "a"), LeavingMember("", "zzz"), LeavingMember("")]
    )
    assert errors == [Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.UNKNOWN_MEMBER_ID]
    assert set(harness.group.static_members) == {"b"}
    b_id = harness.group.static_members["b"]
    _, errors = leave(harness.shard, GROUP, [LeavingMember(b_id, "a"), LeavingMember(b_id, "b")])
    assert errors == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
    assert len(response) == 2


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    harness = Harness()
    harness.stable_group(1)
    member_id = harness.new_id()
    assert leave(harness.shard, GROUP, [LeavingMember(member_id)]) == (Error.NONE, [Error.NONE])
    assert harness.group.state is State.STABLE
    assert not harness.group.pending_members
    assert leave(harness.shard, GROUP, [LeavingMember(member_id)])[1] == [Error.UNKNOWN_MEMBER_ID]


def test_the_last_pending_member_to_leave_ends_a_join_phase() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    member_id = harness.new_id()
    answer = harness.join(response.member_id)
    assert not answer.done
    leave(harness.shard, GROUP, [LeavingMember(member_id)])
    harness.settle()
    assert answer.value.generation == 2


def test_leaving_no_group() -> None:
    harness = Harness()
    assert leave(harness.shard, "", [LeavingMember("m")]) == (Error.INVALID_GROUP_ID, [])
    assert leave(harness.shard, "other", [LeavingMember("m"), LeavingMember("n")]) == (
        Error.NONE,
        [Error.UNKNOWN_MEMBER_ID] * 2,
    )
