"""SyncGroup: an assignment is the members' only once it is in the log.

Method: scripts over virtual time; the journal refuses writes or holds them back.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import LeavingMember, heartbeat, leave
from ottla.coordinator.values import JoinResponse, SyncResponse

from .harness import GROUP, Harness, durable

COMMIT_MS = 5_000


def completing(count: int = 2) -> tuple[Harness, list[JoinResponse]]:
    """Return a harness whose group waits for its leader's assignment; leader first."""
    harness = Harness()
    answers = [harness.join(harness.new_id()) for _ in range(count)]
    harness.advance(6_000)
    response = sorted((answer.value for answer in answers), key=lambda each: not each.members)
    return harness, response


def assignments(leader: JoinResponse) -> list[tuple[str, bytes]]:
    return [(each.member_id, b"a") for each in leader.members]


def assign(harness: Harness, leader: JoinResponse) -> Pending[SyncResponse]:
    return harness.sync(leader, assignments(leader))


def beat(harness: Harness, response: JoinResponse) -> Error:
    return heartbeat(
        harness.shard,
        group_id=GROUP,
        member_id=response.member_id,
        instance_id=None,
        generation=response.generation,
    )


def test_followers_wait_for_the_leader() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    assert not waiting.done
    assert assign(harness, leader).value.assignment == b"a"
    assert waiting.value == SyncResponse(
        protocol_type="consumer", protocol_name="range", assignment=b"a"
    )
    assert harness.group.state is State.STABLE


def test_what_is_stored_at_once_is_answered_without_a_timer() -> None:
    """Not the leader's request alone: the followers' that come later need none either."""
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower, deliver=False)
    answer = harness.sync(leader, assignments(leader), deliver=False)
    assert answer.done
    assert answer.value.assignment == b"a"
    assert not waiting.done, "what was parked leaves the coordinator by the outbox"
    assert harness.sync(follower, deliver=False).done


def test_what_is_refused_at_once_is_answered_without_a_timer() -> None:
    harness, (leader, _) = completing()
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    answer = harness.sync(leader, assignments(leader), deliver=False)
    assert answer.done
    assert answer.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert harness.group.state is State.PREPARING


def test_an_older_sync_of_the_leader_is_answered() -> None:
    """Its connection waits for it."""
    harness, (leader, _) = completing()
    harness.journal.hold = True
    older = assign(harness, leader)
    assert not older.done
    newer = assign(harness, leader)
    assert older.value.error is Error.REBALANCE_IN_PROGRESS
    assert not newer.done


@pytest.mark.parametrize("first_error", [Error.NONE, Error.REQUEST_TIMED_OUT])
def test_the_last_assignment_of_a_leader_counts_as_in_the_log(first_error: Error) -> None:
    """A topic had more partitions when the leader, whose connection was lost, assigned again."""
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.journal.hold = True
    assign(harness, leader)
    [first] = harness.journal.held
    again = harness.join(leader.member_id).value
    last = harness.sync(again, [(leader.member_id, b"b"), (follower.member_id, b"c")])
    first.complete(first_error)
    harness.settle()
    assert not waiting.done
    harness.journal.release()
    harness.settle()
    assert (last.value.assignment, waiting.value.assignment) == (b"b", b"c")
    assert harness.group.state is State.STABLE
    assert durable(harness.replayed().shard) == durable(harness.shard)


def test_a_last_assignment_that_is_refused_voids_the_one_in_write() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.journal.hold = True
    assign(harness, leader)
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    assert assign(harness, leader).value.error is Error.COORDINATOR_NOT_AVAILABLE
    harness.journal.release()
    harness.settle()
    assert waiting.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert harness.group.state is State.PREPARING


def test_a_late_follower_of_a_stable_group_is_answered_at_once() -> None:
    harness, (leader, follower) = completing()
    assign(harness, leader)
    assert harness.sync(follower).value.assignment == b"a"


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.sync(leader, [(leader.member_id, b"all"), ("nobody", b"none")])
    assert waiting.value == SyncResponse(protocol_type="consumer", protocol_name="range")


def test_a_pending_sync_counts_as_heartbeats_and_its_response_begins_a_new_session() -> None:
    harness, (leader, follower) = completing()  # Sessions of 10 seconds.
    waiting = harness.sync(follower)
    for _ in range(5):
        harness.advance(3_000)
        assert not beat(harness, leader)
    assert not waiting.done
    assert not assign(harness, leader).value.error
    for silent_ms, is_member in ((9_999, True), (1, False)):
        harness.advance(silent_ms)
        assert (follower.member_id in harness.group.members) is is_member


def test_responses_wait_until_the_assignment_is_replicated() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.journal.hold = True
    leading = assign(harness, leader)
    assert not waiting.done
    assert not leading.done
    assert harness.group.state is State.COMPLETING
    harness.journal.release()
    harness.settle()
    assert waiting.value.assignment == leading.value.assignment == b"a"


def test_a_refused_assignment_begins_the_rebalance_anew() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    assert assign(harness, leader).value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert waiting.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert harness.group.state is State.PREPARING


def test_a_refused_assignment_voids_the_one_before() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    again = [harness.join(each.member_id) for each in (leader, follower)]
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    assert assign(harness, again[0].value).value.assignment == b""
    assert not any(member.assignment for member in harness.group.members.values())


def test_an_assignment_not_replicated_in_time_is_given_up() -> None:
    harness, (leader, follower) = completing()
    waiting = harness.sync(follower)
    harness.journal.hold = True
    assign(harness, leader)
    harness.advance(COMMIT_MS)
    assert waiting.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert harness.group.state is State.PREPARING
    harness.journal.release()  # Too late: the group has moved on.
    assert harness.group.state is State.PREPARING


def test_an_assignment_that_is_overtaken_by_a_rebalance_counts_no_more() -> None:
    harness, (leader, follower) = completing()
    harness.journal.hold = True
    leading = assign(harness, leader)
    harness.join(follower.member_id, protocols=(("range", b"new"),))
    assert leading.value.error is Error.REBALANCE_IN_PROGRESS
    harness.journal.release()
    assert harness.group.state is State.PREPARING
    assert not any(member.assignment for member in harness.group.members.values())


def test_a_second_sync_of_a_member_frees_the_first() -> None:
    harness, (leader, follower) = completing()
    first, second = harness.sync(follower), harness.sync(follower)
    assert first.value.error is Error.REBALANCE_IN_PROGRESS
    assign(harness, leader)
    assert second.value.assignment == b"a"


def test_a_member_removed_while_it_waits_gets_an_error() -> None:
    harness, (_, follower) = completing()
    waiting = harness.sync(follower)
    leave(harness.shard, GROUP, [LeavingMember(follower.member_id)])
    harness.settle()
    assert waiting.value.error is Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"generation": 7}, Error.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None, "protocol_type": None}, None),
    ],
)
def test_who_may_not_sync(change: dict[str, object], error: Error | None) -> None:
    harness, (_, follower) = completing()
    answer = harness.sync(replace(follower, **change))  # type: ignore[arg-type]
    assert (answer.value.error if answer.done else None) == error


def test_sync_to_no_group_an_empty_one_and_one_that_rebalances() -> None:
    harness, (leader, follower) = completing()
    assert harness.sync(leader, group_id="").value.error is Error.INVALID_GROUP_ID
    assert harness.sync(leader, group_id="other").value.error is Error.UNKNOWN_MEMBER_ID
    harness.join(leader.member_id, protocols=(("range", b"new"),))
    assert harness.sync(follower).value.error is Error.REBALANCE_IN_PROGRESS
    leave(
        harness.shard, GROUP, [LeavingMember(leader.member_id), LeavingMember(follower.member_id)]
    )
    harness.advance(60_000)
    assert harness.group.state is State.EMPTY
    assert harness.sync(follower).value.error is Error.UNKNOWN_MEMBER_ID
