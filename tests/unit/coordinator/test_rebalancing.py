"""From one generation to the next: delays, timeouts, who leads, which protocol, whose session.

Method: scripts of events over virtual time, one for each rule of the classic protocol.
"""

from ottla.base.errors import Error
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.values import GroupConfig, LeavingMember

from .harness import GROUP, Harness, durable

DELAY_MS = 3_000


def beat(harness: Harness, member_id: str, generation: int = 1) -> Error:
    return heartbeat(
        harness.shard,
        group_id=GROUP,
        member_id=member_id,
        instance_id=None,
        generation=generation,
    )


# --- the first rebalance (KIP-134) ----------------------------------------------------------


def test_the_first_rebalance_waits_for_its_delay() -> None:
    harness = Harness()
    answer = harness.join(harness.new_id())
    harness.advance(DELAY_MS - 1)
    assert not answer.done
    harness.advance(1)
    assert answer.value.generation == 1


def test_every_newcomer_prolongs_the_first_delay() -> None:
    harness = Harness()
    first = harness.join(harness.new_id())
    harness.advance(DELAY_MS - 1)
    second = harness.join(harness.new_id())
    harness.advance(DELAY_MS)
    assert not first.done
    harness.advance(1)
    assert first.value.generation == second.value.generation == 1


def test_the_first_delay_ends_with_the_rebalance_timeout() -> None:
    harness = Harness()
    first = harness.join(harness.new_id(), rebalance_timeout_ms=7_000)
    for _ in range(7):
        harness.join(harness.new_id(), rebalance_timeout_ms=7_000)
        assert not first.done
        harness.advance(1_000)
    assert first.value.generation == 1


def test_an_id_that_is_never_used_does_not_end_the_first_delay() -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=30_000))
    joined = harness.join(harness.new_id())
    harness.new_id(session_timeout_ms=10_000)
    harness.advance(29_999)
    assert not joined.done
    later = harness.join(harness.new_id())
    harness.advance(30_001)
    assert joined.value.generation == later.value.generation == 1


def test_a_dead_member_does_not_end_the_first_delay() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=30_000, new_member_join_ms=10_000)
    harness = Harness(config)
    gone = harness.join(harness.new_id())
    harness.advance(5_000)
    joined = harness.join(harness.new_id())
    harness.advance(5_000)
    assert gone.value.error is Error.UNKNOWN_MEMBER_ID
    assert not joined.done


def test_without_a_delay_the_first_member_is_alone_at_once() -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=0))
    answer = harness.join(harness.new_id())
    assert answer.value.generation == 1


def test_if_all_leave_during_the_first_delay_the_group_is_empty() -> None:
    harness = Harness()
    member_id = harness.new_id()
    answer = harness.join(member_id)
    leave(harness.shard, GROUP, [LeavingMember(member_id)])
    harness.settle()
    assert answer.value.error is Error.UNKNOWN_MEMBER_ID
    harness.advance(DELAY_MS)
    assert (harness.group.state, harness.group.generation) == (State.EMPTY, 1)


# --- later rebalances -----------------------------------------------------------------------


def test_a_later_rebalance_ends_when_all_have_joined() -> None:
    harness = Harness()
    response = harness.stable_group(2)
    newcomer = harness.join(harness.new_id())
    assert harness.group.state is State.PREPARING
    assert all(beat(harness, each.member_id) is Error.REBALANCE_IN_PROGRESS for each in response)
    again = [harness.join(each.member_id) for each in response]
    assert {answer.value.generation for answer in (newcomer, *again)} == {2}


def test_whoever_does_not_join_in_time_is_out() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2, rebalance_timeout_ms=20_000)
    answer = harness.join(
        follower.member_id, protocols=(("range", b"new"),), rebalance_timeout_ms=20_000
    )
    for _ in range(19):
        harness.advance(1_000)
        beat(harness, leader.member_id)  # It lives, but does not join.
    assert not answer.done
    harness.advance(1_000)
    assert answer.value.leader == follower.member_id
    assert set(harness.group.members) == {follower.member_id}
    assert beat(harness, leader.member_id, 2) is Error.UNKNOWN_MEMBER_ID


def test_an_absent_static_leader_stays_but_another_leads() -> None:
    harness = Harness()
    options = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 30_000}
    leader, follower = harness.stable_group(instances=["a", "b"], **options)
    instance_id = harness.group.members[follower.member_id].instance_id
    answer = harness.join(
        follower.member_id,
        instance_id=instance_id,
        protocols=(("range", b"new"),),
        rebalance_timeout_ms=8_000,
        session_timeout_ms=30_000,
    )
    harness.advance(8_000)
    assert answer.value.leader == follower.member_id
    assert set(harness.group.members) == {leader.member_id, follower.member_id}


def test_if_only_absent_static_members_are_left_the_rebalance_waits_for_their_sessions() -> None:
    harness = Harness()
    options = {"rebalance_timeout_ms": 7_000, "session_timeout_ms": 20_000}
    response = harness.stable_group(instances=["a", "b"], **options)
    leave(harness.shard, GROUP, [LeavingMember(response[1].member_id)])
    harness.advance(15_000)
    assert harness.group.state is State.PREPARING
    harness.advance(10_000)
    assert harness.group.state is State.EMPTY
    assert harness.group.generation == 2


def test_a_leaving_member_ends_a_join_phase_that_waited_for_it() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    answer = harness.join(leader.member_id)
    leave(harness.shard, GROUP, [LeavingMember(follower.member_id)])
    harness.settle()
    assert answer.value.generation == 2


def test_the_leaders_departure_makes_the_oldest_member_leader() -> None:
    harness = Harness()
    leader, second, third = harness.stable_group(3)
    leave(harness.shard, GROUP, [LeavingMember(leader.member_id)])
    third_answer = harness.join(third.member_id)
    second_answer = harness.join(second.member_id)
    assert second_answer.value.leader == third_answer.value.leader == second.member_id


# --- protocols ------------------------------------------------------------------------------


def test_the_protocol_with_most_votes_among_those_that_all_support_wins() -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=1_000))
    preferences = [("a", "c", "b"), ("b", "c"), ("c", "b")]
    answers = [
        harness.join(
            harness.new_id(protocols=(("b", b""), ("c", b""))),
            protocols=tuple((name, b"") for name in names),
        )
        for names in preferences
    ]
    harness.advance(5_000)
    assert {answer.value.protocol_name for answer in answers} == {"c"}


def test_the_leader_gets_all_members_metadata_for_the_protocol() -> None:
    harness = Harness()
    answers = [
        harness.join(harness.new_id(), protocols=(("range", name), ("sticky", b"x")))
        for name in (b"one", b"two")
    ]
    harness.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    assert [each.metadata for each in leader.members] == [b"one", b"two"]
    assert [bool(answer.value.members) for answer in answers] == [True, False]


# --- sessions -------------------------------------------------------------------------------


def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    harness = Harness()
    leader, _follower = harness.stable_group(2)
    for _ in range(10):
        harness.advance(5_000)
        assert beat(harness, leader.member_id) in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    assert set(harness.group.members) == {leader.member_id}
    assert harness.group.state is State.PREPARING


def test_a_session_is_exact_to_the_millisecond() -> None:
    harness = Harness()
    leader, _ = harness.stable_group(2, session_timeout_ms=10_000)
    harness.advance(4_000)
    beat(harness, leader.member_id)
    harness.advance(9_999)
    assert leader.member_id in harness.group.members
    harness.advance(1)
    assert leader.member_id not in harness.group.members


def test_a_pending_join_outlives_its_session() -> None:
    harness = Harness()
    leader, _ = harness.stable_group(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    answer = harness.join(leader.member_id)
    harness.advance(5_999)
    assert leader.member_id in harness.group.members
    harness.advance(2)  # The follower's session ends; the leader's would have too.
    assert answer.value.generation == 2


def test_a_new_member_whose_client_is_gone_is_dropped_after_its_join_timeout() -> None:
    harness = Harness(GroupConfig(new_member_join_ms=20_000))
    (response,) = harness.stable_group(1, session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    gone = harness.join(harness.new_id())
    harness.advance(19_999)
    assert not gone.done
    harness.advance(1)
    assert gone.value.error is Error.UNKNOWN_MEMBER_ID
    assert set(harness.group.members) == {response.member_id}


def test_the_last_session_leaves_an_empty_group_in_the_log() -> None:
    harness = Harness()
    harness.stable_group(2)
    harness.advance(100_000)
    assert (harness.group.state, harness.group.protocol_type) == (State.EMPTY, "consumer")
    assert durable(harness.replayed().shard) == durable(harness.shard)
    assert len(harness.timers) == 0  # Nothing is left to happen.


def test_an_empty_group_that_could_not_be_written_is_written_later() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    leave(harness.shard, GROUP, [LeavingMember(response.member_id)])
    assert harness.replayed().group.state is State.STABLE
    harness.advance(5_000)
    harness.journal.refuse = None
    harness.advance(1_000)
    assert durable(harness.replayed().shard) == durable(harness.shard)


# --- members that never sync ----------------------------------------------------------------


def test_a_member_without_a_sync_is_removed() -> None:
    harness = Harness()
    answers = [harness.join(harness.new_id(), rebalance_timeout_ms=20_000) for _ in range(2)]
    harness.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    silent = next(answer.value for answer in answers if not answer.value.members)
    assert not harness.sync(leader, [(leader.member_id, b"all")]).value.error
    assert harness.group.state is State.STABLE
    for _ in range(20):
        beat(harness, leader.member_id)
        beat(harness, silent.member_id)
        harness.advance(1_000)
    assert set(harness.group.members) == {leader.member_id}
    assert harness.group.state is State.PREPARING


def test_a_static_member_replaced_before_it_synced_is_waited_for_under_its_new_id() -> None:
    harness = Harness()
    answers = [harness.join(instance_id=name, rebalance_timeout_ms=20_000) for name in ("a", "b")]
    harness.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    harness.sync(leader, [], instance_id=leader.members[0].instance_id)
    (late,) = harness.group.pending_sync
    instance_id = harness.group.members[late].instance_id
    taken_over = harness.join(instance_id=instance_id, rebalance_timeout_ms=20_000).value
    assert harness.group.pending_sync == {taken_over.member_id}
    assert not harness.sync(taken_over, instance_id=instance_id).value.error
    assert not harness.group.pending_sync
    assert harness.group.sync_timer is None


def test_a_generation_whose_members_all_sync_has_no_timer_but_sessions() -> None:
    harness = Harness()
    harness.stable_group(2)
    assert harness.group.sync_timer is None
    assert not harness.group.pending_sync


# --- log events (KIP-800) ------------------------------------------------------


def test_every_rebalance_logs_its_reason() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    harness.log_events.clear()
    harness.join(leader.member_id, reason="topics changed")
    leave(harness.shard, GROUP, [LeavingMember(follower.member_id, None, "shutting down")])
    harness.settle()
    assert harness.log_events == [
        "preparing to rebalance group g in state Stable, generation 1: "
        f"{leader.member_id} joins again: topics changed",
        "stabilized group g, generation 2, with 1 members",
    ]
    harness.log_events.clear()
    harness.advance(100_000)
    assert "expired" in harness.log_events[0] or "sent no SyncGroup" in harness.log_events[0]
