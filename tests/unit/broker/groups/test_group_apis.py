"""The APIs of membership, in every version, as clients' bytes ask for them.

Method: requests and responses pass the codec of their version; broker 1 runs the real group
service over real logs.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.base.limits import JOIN_PROTOCOLS_MAX
from ottla.broker.api import k10_find_coordinator, k42_delete_groups
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.group_harness import (
    GroupHarness,
    beat_request,
    commit_request,
    find_request,
    join_request,
    leave_request,
)


@pytest.fixture
def harness() -> GroupHarness:
    harness = GroupHarness()
    harness.add_topic("t", partitions=4)
    harness.add_offsets_topic()
    return harness


def sync_request(joined: Any, version: int, **how: Any) -> SyncGroupRequest:
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    how.setdefault("group_id", "g")
    return SyncGroupRequest(
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=(SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a"),),
        **{**named, **how},
    )


# --- FindCoordinator ------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_find_coordinator_of_one_group(harness: GroupHarness, version: int) -> None:
    answer = harness.ask(FindCoordinatorRequest(key="g"), version)
    assert (answer.error_code, answer.node_id) == (Error.NONE, 1)
    assert (answer.host, answer.port) == ("host1", 9091)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_find_coordinator_of_several_groups(harness: GroupHarness, version: int) -> None:
    harness.add_broker(2)
    harness.elect(harness.service.partition_of("h"), 2)
    answer = harness.ask(find_request("g", "h"), version)
    assert [(each.key, each.node_id, each.error_code) for each in answer.coordinators] == [
        ("g", 1, 0),
        ("h", 2, 0),
    ]


def test_the_first_question_creates_the_offsets_topic() -> None:
    harness = GroupHarness({"offsets.topic.replication.factor": "1"})
    for _ in range(3):
        answer = harness.ask(FindCoordinatorRequest(key="g"), 1)
        assert answer.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert (answer.node_id, answer.host, answer.port) == (-1, "", -1)
    ((request, _),) = harness.controller.calls
    assert isinstance(request, CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (OFFSETS_TOPIC, 3, 1)
    configs = {each.name: each.value for each in topic.configs}
    assert configs["cleanup.policy"] == "compact"
    assert configs["compression.type"] == "producer"
    assert configs["segment.bytes"] == str(100 * 1024 * 1024)


def test_a_coordinator_that_cannot_be_reached_is_not_available(harness: GroupHarness) -> None:
    partition = harness.service.partition_of("g")
    harness.elect(partition, -1)
    assert harness.ask(FindCoordinatorRequest(key="g"), 1).error_code == 15
    harness.add_broker(2, fenced=True)
    harness.elect(partition, 2)
    assert harness.ask(FindCoordinatorRequest(key="g"), 1).error_code == 15
    harness.add_broker(3, listener="OTHER")
    harness.elect(partition, 3)
    assert harness.ask(FindCoordinatorRequest(key="g"), 1).error_code == 15


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (1, Error.CLUSTER_AUTHORIZATION_FAILED),
        (2, Error.INVALID_REQUEST),
        (9, Error.INVALID_REQUEST),
    ],
)
def test_other_coordinators_are_refused_with_a_reason(
    harness: GroupHarness, key_type: int, error: Error
) -> None:
    (found,) = harness.ask(find_request("x", key_type=key_type), 6).coordinators
    assert (found.error_code, found.node_id) == (error, -1)
    assert "support" in found.error_message
    one = harness.ask(FindCoordinatorRequest(key="x", key_type=key_type), 3)
    assert (one.error_code, one.error_message) == (error, found.error_message)
    assert "transactions" in (k10_find_coordinator.__doc__ or "")


# --- membership -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_join_in_every_version(harness: GroupHarness, version: int) -> None:
    first = harness.begin(join_request(version=version), version)
    harness.settle(first, 6_000)
    if version >= 4:
        assert first.value.error_code == Error.MEMBER_ID_REQUIRED
        assert first.value.protocol_name == (None if version >= 7 else "")
        assert first.value.generation_id == -1
    joined = harness.join(version=version) if version >= 4 else first.value
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("test-")
    assert joined.leader == joined.member_id
    assert (joined.protocol_type, joined.protocol_name) == (
        "consumer" if version >= 7 else None,
        "range",
    )
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, b"meta")
    ]
    member = harness.service.shard_of("g").groups["g"].members[joined.member_id]
    assert member.client_host == "/127.0.0.1"
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(harness: GroupHarness, version: int) -> None:
    joined = harness.join()
    answer = harness.later(sync_request(joined, version), version)
    assert (answer.error_code, answer.assignment) == (0, b"a")
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert (answer.protocol_type, answer.protocol_name) == expected


def test_sync_v5_must_name_its_protocol(harness: GroupHarness) -> None:
    joined = harness.join()
    for how in ({"protocol_name": None}, {"protocol_type": None}):
        answer = harness.ask(sync_request(joined, 5, **how), 5)
        assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeat_in_every_version(harness: GroupHarness, version: int) -> None:
    joined = harness.stable()
    assert harness.ask(beat_request(joined), version).error_code == 0
    stranger = HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    assert harness.ask(stranger, version).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3))
def test_leave_alone(harness: GroupHarness, version: int) -> None:
    joined = harness.stable()
    request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert harness.ask(request, version).error_code == 0
    assert harness.ask(request, version).error_code == Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_leave_together(harness: GroupHarness, version: int) -> None:
    joined = harness.stable(group_instance_id="i")
    request = LeaveGroupRequest(
        group_id="g",
        members=(
            MemberIdentity(member_id="x"),
            MemberIdentity(member_id="", group_instance_id="i"),
        ),
    )
    answer = harness.ask(request, version)
    assert answer.error_code == 0
    assert [
        (each.member_id, each.group_instance_id, each.error_code) for each in answer.members
    ] == [("x", None, Error.UNKNOWN_MEMBER_ID), ("", "i", 0)]
    again = harness.ask(leave_request(joined.member_id, group_id="nope"), version)
    assert [each.error_code for each in again.members] == [Error.UNKNOWN_MEMBER_ID]


def test_an_empty_group_id_is_invalid_for_members(harness: GroupHarness) -> None:
    joined = harness.stable()
    invalid = Error.INVALID_GROUP_ID
    assert harness.ask(join_request(""), 9).error_code == invalid
    assert harness.ask(sync_request(joined, 5, group_id=""), 5).error_code == invalid
    assert harness.ask(beat_request(joined, ""), 4).error_code == invalid
    answer = harness.ask(leave_request("m", group_id=""), 5)
    assert (answer.error_code, answer.members) == (invalid, ())
    assert harness.ask(LeaveGroupRequest(group_id="", member_id="m"), 1).error_code == invalid


def test_another_brokers_group_is_sent_away(harness: GroupHarness) -> None:
    joined = harness.stable()
    harness.elect(harness.service.partition_of("g"), 2)
    away = Error.NOT_COORDINATOR
    assert harness.ask(sync_request(joined, 5), 5).error_code == away
    assert harness.ask(beat_request(joined), 4).error_code == away
    assert harness.ask(leave_request(joined.member_id), 5).error_code == away
    (described,) = harness.ask(DescribeGroupsRequest(groups=("g",)), 5).groups
    assert (described.error_code, described.group_state) == (away, "")
    (deleted,) = harness.ask(DeleteGroupsRequest(groups_names=("g",)), 2).results
    assert deleted.error_code == away


# --- views ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_describe_in_every_version(harness: GroupHarness, version: int) -> None:
    joined = harness.stable(group_instance_id="i")
    request = DescribeGroupsRequest(
        groups=("g", "nope"), include_authorized_operations=version >= 3
    )
    group, missing = harness.ask(request, version).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "test")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (member.client_host, member.member_metadata) == ("/127.0.0.1", b"meta")
    assert member.member_assignment == b"mine"
    assert group.authorized_operations == (3400 if version >= 3 else -(2**31))
    assert (missing.group_state, missing.members) == ("Dead", ())
    assert missing.error_code == (Error.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert missing.error_message == ("Group nope not found." if version >= 6 else None)


@pytest.mark.parametrize("version", range(6))
def test_list_in_every_version(harness: GroupHarness, version: int) -> None:
    harness.stable()
    harness.later(commit_request({("t", 0): 1}, group_id="simple"), 9)
    answer = harness.ask(ListGroupsRequest(), version)
    assert answer.error_code == 0
    found = {each.group_id: each for each in answer.groups}
    assert {name: each.protocol_type for name, each in found.items()} == {
        "g": "consumer",
        "simple": "",
    }
    if version >= 4:
        assert {name: each.group_state for name, each in found.items()} == {
            "g": "Stable",
            "simple": "Empty",
        }
    if version >= 5:
        assert {each.group_type for each in answer.groups} == {"classic"}
        none = ListGroupsRequest(types_filter=("consumer",))
        assert harness.ask(none, version).groups == ()


@pytest.mark.parametrize("version", range(3))
def test_delete_in_every_version(harness: GroupHarness, version: int) -> None:
    harness.stable()
    harness.later(commit_request({("t", 0): 1}, group_id="simple"), 9)
    request = DeleteGroupsRequest(groups_names=("g", "simple", "nope", "simple"))
    answer = harness.later(request, version)
    assert {each.group_id: each.error_code for each in answer.results} == {
        "g": Error.NON_EMPTY_GROUP,
        "simple": 0,
        "nope": Error.GROUP_ID_NOT_FOUND,
    }


def test_groups_are_deleted_in_steps(harness: GroupHarness) -> None:
    """A request may name thousands, each of which is a write."""
    names = ("a", "b", "c")
    for name in names:
        harness.later(commit_request({("t", 0): 1}, group_id=name), 9)
    steps = k42_delete_groups.handle.steps(
        harness.context(42, 2), DeleteGroupsRequest(groups_names=names)
    )
    left = [
        [name for name in names if name in harness.service.shard_of(name).groups] for _ in steps
    ]
    assert left == [["b", "c"], ["c"], []]


@pytest.mark.parametrize("count", [JOIN_PROTOCOLS_MAX, JOIN_PROTOCOLS_MAX + 1])
def test_a_member_may_name_so_many_protocols(harness: GroupHarness, count: int) -> None:
    names = [f"p{number}" for number in range(count)]
    protocols = tuple(JoinGroupRequestProtocol(name=name, metadata=b"") for name in names)
    joined = harness.join(protocols=protocols)
    refused = count > JOIN_PROTOCOLS_MAX
    assert joined.error_code == (Error.INCONSISTENT_GROUP_PROTOCOL if refused else Error.NONE)
