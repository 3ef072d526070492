"""JoinGroup: every rule on who is let in, and under which id.

Method: one script of events for each rule, over virtual time; the rule's KIP is in its name or
beside it. What Kafka answers was read off GroupMetadataManager and its tests.
"""

import re
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.values import GroupConfig, LeavingMember

from .harness import GROUP, Harness, durable

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
DELAY_MS = 3_000


# --- requests that are refused --------------------------------------------------------------


def test_an_empty_group_id_is_invalid() -> None:
    assert Harness().join(group_id="").value.error is Error.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_the_session_timeout_must_be_within_bounds(session_ms: int) -> None:
    answer = Harness().join(session_timeout_ms=session_ms)
    assert answer.value.error is Error.INVALID_SESSION_TIMEOUT


def test_a_member_of_an_unknown_group_is_unknown() -> None:
    harness = Harness()
    answer = harness.join("somebody").value
    assert (answer.error, answer.member_id) == (Error.UNKNOWN_MEMBER_ID, "somebody")
    assert not harness.shard.groups


def test_no_protocol_is_inconsistent_and_makes_no_group() -> None:
    harness = Harness()
    assert harness.join(protocols=()).value.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocol_type="").value.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert not harness.shard.groups


def test_a_newcomer_must_share_type_and_a_protocol() -> None:
    harness = Harness()
    harness.stable_group(1, protocols=(("range", b""), ("sticky", b"")))
    for options in ({"protocol_type": "connect"}, {"protocols": (("other", b""),)}):
        answer = harness.join(**options)  # type: ignore[arg-type]
        assert answer.value.error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocols=(("sticky", b""),)).value.error is Error.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group_id": "g" * 32_767}, None),
        ({"group_id": "g" * 32_768}, Error.INVALID_GROUP_ID),
        ({"group_id": "ü" * 16_384}, Error.INVALID_GROUP_ID),
        ({"client_id": "c" * 32_730}, None),
        ({"client_id": "c" * 32_731}, Error.INVALID_REQUEST),
        ({"instance_id": "i" * 32_730}, None),
        ({"instance_id": "i" * 32_731}, Error.INVALID_REQUEST),
        ({"instance_id": "i", "client_id": "c" * 32_767}, None),
        ({"instance_id": "i", "client_id": "c" * 32_768}, Error.INVALID_REQUEST),
        ({"protocol_type": "p" * 32_767}, None),
        ({"protocol_type": "p" * 32_768}, Error.INVALID_REQUEST),
        ({"protocols": (("p" * 32_767, b""),)}, None),
        ({"protocols": (("range", b""), ("p" * 32_768, b""))}, Error.INVALID_REQUEST),
    ],
)
def test_only_what_a_record_can_hold_joins(
    options: dict[str, Any], error: Error | None, version: int
) -> None:
    """A longer string would keep all members of the group from being assigned."""
    harness = Harness()
    answer = harness.join(version=version, **options)
    if error is not None:
        assert answer.value.error is error
        assert not harness.shard.groups
        return
    if answer.done:
        answer = harness.join(answer.value.member_id, **options)
    harness.advance(2 * DELAY_MS)
    group_id = options.get("group_id", GROUP)
    synced = harness.sync(answer.value, group_id=group_id, instance_id=options.get("instance_id"))
    assert synced.value.error is Error.NONE
    assert durable(harness.replayed().shard) == durable(harness.shard)


# --- member ids (KIP-394) -------------------------------------------------------------------


def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    harness = Harness()
    member_id = harness.new_id(client_id="app")
    assert re.fullmatch(f"app-{UUID}", member_id)
    assert harness.group.state is State.EMPTY
    answer = harness.join(member_id)
    harness.advance(DELAY_MS)
    assert answer.value.member_id == answer.value.leader == member_id


def test_an_old_client_needs_no_second_join() -> None:
    harness = Harness()
    answer = harness.join(version=3)
    harness.advance(DELAY_MS)
    assert re.fullmatch(f"client-{UUID}", answer.value.member_id)
    assert answer.value.generation == 1


def test_an_id_never_used_is_forgotten_after_the_session_timeout() -> None:
    harness = Harness()
    member_id = harness.new_id(session_timeout_ms=10_000)
    harness.advance(9_999)
    assert member_id in harness.group.pending_members
    harness.advance(1)
    assert harness.join(member_id).value.error is Error.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_pending_member_but_not_longer_than_its_session() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    harness.new_id(session_timeout_ms=6_000)
    answer = harness.join(response.member_id)
    assert not answer.done
    harness.advance(6_000)
    assert answer.value.generation == 2


def test_a_pending_id_is_not_for_a_static_member() -> None:
    harness = Harness()
    member_id = harness.new_id()
    assert harness.join(member_id, instance_id="i").value.error is Error.UNKNOWN_MEMBER_ID


# --- members that join again ----------------------------------------------------------------


def test_the_leader_joining_a_stable_group_begins_a_rebalance() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    answer = harness.join(leader.member_id)
    assert harness.group.state is State.PREPARING
    assert not answer.done
    harness.join(follower.member_id)
    assert answer.value.generation == 2


def test_a_rejoining_follower_without_changes_gets_the_generation_again() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    answer = harness.join(follower.member_id).value
    assert (answer.error, answer.generation, answer.members) == (Error.NONE, 1, ())
    assert answer.leader == leader.member_id
    assert harness.group.state is State.STABLE


def test_a_follower_with_new_metadata_begins_a_rebalance() -> None:
    harness = Harness()
    _, follower = harness.stable_group(2)
    assert not harness.join(follower.member_id, protocols=(("range", b"new"),)).done
    assert harness.group.state is State.PREPARING


def test_a_lost_join_response_is_repeated_while_the_leader_assigns() -> None:
    harness = Harness()
    ids = [harness.new_id(), harness.new_id()]
    first = [harness.join(member_id) for member_id in ids]
    harness.advance(2 * DELAY_MS)
    assert harness.group.state is State.COMPLETING
    again = [harness.join(member_id).value for member_id in ids]
    assert again == [answer.value for answer in first]
    assert len(again[0].members) == 2
    assert not harness.join(ids[1], protocols=(("range", b"new"),)).done
    assert harness.group.state is State.PREPARING


def test_a_second_join_of_a_member_frees_the_first() -> None:
    # Its client gave up waiting; the connection must not stay blocked behind the old request.
    harness = Harness()
    member_id = harness.new_id()
    first = harness.join(member_id)
    second = harness.join(member_id)
    assert first.value.error is Error.REBALANCE_IN_PROGRESS
    harness.advance(2 * DELAY_MS)
    assert second.value.generation == 1
    assert harness.group.awaiting_join_count == 0


# --- group.max.size -------------------------------------------------------------------------


def test_a_full_group_takes_nobody_but_its_members() -> None:
    harness = Harness(GroupConfig(members_max=2))
    response = harness.stable_group(2)
    assert harness.join().value.error is Error.GROUP_MAX_SIZE_REACHED
    assert harness.join(response[1].member_id).value.error is Error.NONE


def test_members_pending_beyond_the_limit_are_turned_away_when_they_join() -> None:
    harness = Harness(GroupConfig(members_max=1))
    ids = [harness.new_id(), harness.new_id()]
    first, second = (harness.join(member_id) for member_id in ids)
    assert second.value.error is Error.GROUP_MAX_SIZE_REACHED
    assert second.value.member_id == ""
    harness.advance(DELAY_MS)
    assert first.value.generation == 1


def test_a_static_member_takes_its_own_place_in_a_full_group() -> None:
    harness = Harness(GroupConfig(members_max=2))
    harness.stable_group(instances=["a", "b"])
    assert harness.join(instance_id="a").value.error is Error.NONE
    assert harness.join(instance_id="c").value.error is Error.GROUP_MAX_SIZE_REACHED


# --- static members (KIP-345) ---------------------------------------------------------------


def test_a_static_member_gets_an_id_of_its_instance_and_no_second_join() -> None:
    harness = Harness()
    answer = harness.join(instance_id="pod-1")
    harness.advance(DELAY_MS)
    assert re.fullmatch(f"pod-1-{UUID}", answer.value.member_id)
    assert answer.value.members[0].instance_id == "pod-1"


def test_a_restarted_static_follower_takes_its_place_without_a_rebalance() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["a", "b"])
    follower = harness.group.members[response[1].member_id]
    answer = harness.join(instance_id=follower.instance_id).value
    assert (answer.error, answer.generation) == (Error.NONE, 1)
    assert answer.member_id != follower.member_id
    assert harness.group.state is State.STABLE
    synced = harness.sync(answer, instance_id=follower.instance_id).value
    assert synced.assignment == follower.member_id.encode()  # What its old self was assigned.


def test_the_old_id_of_a_static_member_is_fenced() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["a", "b"])
    old = harness.group.members[response[1].member_id]
    harness.join(instance_id=old.instance_id)
    shard, generation = harness.shard, response[1].generation
    beat = heartbeat(
        shard,
        group_id=GROUP,
        member_id=old.member_id,
        instance_id=old.instance_id,
        generation=generation,
    )
    assert beat is Error.FENCED_INSTANCE_ID
    again = harness.join(old.member_id, instance_id=old.instance_id).value
    assert again.error is Error.FENCED_INSTANCE_ID
    synced = harness.sync(response[1], instance_id=old.instance_id).value
    assert synced.error is Error.FENCED_INSTANCE_ID
    _, errors = leave(shard, GROUP, [LeavingMember(old.member_id, old.instance_id)])
    assert errors == [Error.FENCED_INSTANCE_ID]


def test_a_pending_request_of_the_old_id_is_fenced() -> None:
    harness = Harness()
    parked = harness.join(instance_id="a")
    taking_over = harness.join(instance_id="a")
    assert parked.value.error is Error.FENCED_INSTANCE_ID
    harness.advance(2 * DELAY_MS)
    assert taking_over.value.generation == 1
    assert len(harness.group.members) == 1


def test_the_new_id_is_in_the_log_before_the_response() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["a", "b"])
    instance_id = harness.group.members[response[1].member_id].instance_id
    harness.journal.hold = True
    answer = harness.join(instance_id=instance_id)
    assert not answer.done
    harness.journal.release()
    harness.settle()
    assert harness.replayed().group.static_members[instance_id or ""] == answer.value.member_id


def test_a_refused_write_leaves_the_old_id_in_place() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["a", "b"])
    old = harness.group.members[response[1].member_id]
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    answer = harness.join(instance_id=old.instance_id, protocols=(("range", b"new"),)).value
    assert answer.error is Error.COORDINATOR_NOT_AVAILABLE
    kept = harness.group.members[old.member_id]
    assert kept.protocols == old.protocols
    assert harness.group.static_members[old.instance_id or ""] == old.member_id
    assert kept.session_timer is not None


def test_a_static_member_whose_protocol_changes_the_choice_begins_a_rebalance() -> None:
    harness = Harness()
    both = (("range", b""), ("sticky", b""))
    response = harness.stable_group(instances=["a"], protocols=both)
    assert response[0].protocol_name == "range"
    answer = harness.join(instance_id="a", protocols=both[::-1]).value
    assert answer.generation == 2  # The group's one member has joined with this.
    assert harness.group.protocol_name == "sticky"


def test_a_static_member_replaced_while_the_leader_assigns_begins_a_rebalance() -> None:
    harness = Harness()
    answers = [harness.join(instance_id=name) for name in ("a", "b")]
    harness.advance(2 * DELAY_MS)
    assert harness.group.state is State.COMPLETING
    taking_over = harness.join(instance_id="b")
    assert harness.group.state is State.PREPARING
    rejoined = harness.join(answers[0].value.member_id, instance_id="a")
    assert rejoined.value.generation == taking_over.value.generation == 2


@pytest.mark.parametrize(
    ("version", "skips", "knows_itself_leader"), [(9, True, True), (8, False, False)]
)
def test_kip_814_a_restarted_static_leader_does_not_assign_again(
    version: int, skips: bool, knows_itself_leader: bool
) -> None:
    harness = Harness()
    leader, follower = harness.stable_group(instances=["a", "b"])
    instance_id = harness.group.members[leader.member_id].instance_id
    answer = harness.join(instance_id=instance_id, version=version).value
    assert answer.skip_assignment is skips
    assert (answer.leader == answer.member_id) is knows_itself_leader
    assert len(answer.members) == (2 if skips else 0)
    assert harness.group.leader_id == answer.member_id
    # The group's new leader can still call for a rebalance later.
    assert not harness.join(answer.member_id, instance_id=instance_id).done
    assert harness.join(follower.member_id, instance_id="x").value.error is Error.UNKNOWN_MEMBER_ID


# --- memory ---------------------------------------------------------------------------------

LARGE = (("range", bytes(20_000)),)


def test_a_member_beyond_the_memory_limit_gets_a_retriable_error() -> None:
    harness = Harness()
    harness.members_bytes_max = 100_000
    member_ids = [harness.new_id() for _ in range(5)]
    answers = [harness.join(each, protocols=LARGE) for each in member_ids]
    refused = [each for each in answers if each.done]
    assert [each.value.error for each in refused] == [Error.COORDINATOR_NOT_AVAILABLE]
    assert harness.join("", protocols=LARGE).value.error is Error.COORDINATOR_NOT_AVAILABLE
    harness.advance(DELAY_MS)
    assert len(harness.group.members) == 4
    # Who is a member stays one, as long as it does not say more than before.
    member_id = harness.group.leader_id
    assert member_id is not None
    assert not harness.join(member_id, protocols=LARGE).done
    larger = harness.join(member_id, protocols=(("range", bytes(40_000)),))
    assert larger.value.error is Error.COORDINATOR_NOT_AVAILABLE
    leave(harness.shard, GROUP, [LeavingMember(member_id)])
    assert not harness.join(member_ids[-1], protocols=LARGE).done


def test_ids_that_nobody_joins_with_take_memory_until_they_are_forgotten() -> None:
    harness = Harness()
    harness.members_bytes_max = 50_000
    answers = [harness.join("", group_id=f"g{number}").value.error for number in range(50)]
    assert 40 < answers.count(Error.MEMBER_ID_REQUIRED) < 50
    assert answers[-1] is Error.COORDINATOR_NOT_AVAILABLE
    harness.advance(60_000)
    assert harness.join("").value.error is Error.MEMBER_ID_REQUIRED
