"""From one generation to the next: delays, timeouts, who leads, which protocol, whose session.

Method: scripts of events over virtual time, one for each rule of the classic protocol.
"""

from ottla.base.errors import Error
from ottla.coordinator.group_states import State
from ottla.coordinator.leaving import heartbeat, leave
from ottla.coordinator.values import GroupConfig, LeavingMember

from .harness import GROUP, World, durable

DELAY_MS = 3_000


def beat(world: World, member_id: str, generation: int = 1) -> Error:
    return heartbeat(
        world.shard,
        group_id=GROUP,
        member_id=member_id,
        instance_id=None,
        generation=generation,
    )


# --- the first rebalance (KIP-134) ----------------------------------------------------------


def test_the_first_rebalance_waits_for_its_delay() -> None:
    world = World()
    answer = world.join(world.new_id())
    world.advance(DELAY_MS - 1)
    assert not answer.done
    world.advance(1)
    assert answer.value.generation == 1


def test_every_newcomer_prolongs_the_first_delay() -> None:
    world = World()
    first = world.join(world.new_id())
    world.advance(DELAY_MS - 1)
    second = world.join(world.new_id())
    world.advance(DELAY_MS)
    assert not first.done
    world.advance(1)
    assert first.value.generation == second.value.generation == 1


def test_the_first_delay_ends_with_the_rebalance_timeout() -> None:
    world = World()
    first = world.join(world.new_id(), rebalance_timeout_ms=7_000)
    for _ in range(7):
        world.join(world.new_id(), rebalance_timeout_ms=7_000)
        assert not first.done
        world.advance(1_000)
    assert first.value.generation == 1


def test_without_a_delay_the_first_member_is_alone_at_once() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=0))
    answer = world.join(world.new_id())
    assert answer.value.generation == 1


def test_if_all_leave_during_the_first_delay_the_group_is_empty() -> None:
    world = World()
    member_id = world.new_id()
    answer = world.join(member_id)
    leave(world.shard, GROUP, [LeavingMember(member_id)])
    world.settle()
    assert answer.value.error is Error.UNKNOWN_MEMBER_ID
    world.advance(DELAY_MS)
    assert (world.group.state, world.group.generation) == (State.EMPTY, 1)


# --- later rebalances -----------------------------------------------------------------------


def test_a_later_rebalance_ends_when_all_have_joined() -> None:
    world = World()
    told = world.stable_group(2)
    newcomer = world.join(world.new_id())
    assert world.group.state is State.PREPARING
    assert all(beat(world, each.member_id) is Error.REBALANCE_IN_PROGRESS for each in told)
    again = [world.join(each.member_id) for each in told]
    assert {answer.value.generation for answer in (newcomer, *again)} == {2}


def test_whoever_does_not_join_in_time_is_out() -> None:
    world = World()
    leader, follower = world.stable_group(2, rebalance_timeout_ms=20_000)
    answer = world.join(
        follower.member_id, protocols=(("range", b"new"),), rebalance_timeout_ms=20_000
    )
    for _ in range(19):
        world.advance(1_000)
        beat(world, leader.member_id)  # It lives, but does not join.
    assert not answer.done
    world.advance(1_000)
    assert answer.value.leader == follower.member_id
    assert set(world.group.members) == {follower.member_id}
    assert beat(world, leader.member_id, 2) is Error.UNKNOWN_MEMBER_ID


def test_an_absent_static_leader_stays_but_another_leads() -> None:
    world = World()
    options = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 30_000}
    leader, follower = world.stable_group(instances=["a", "b"], **options)
    instance_id = world.group.members[follower.member_id].instance_id
    answer = world.join(
        follower.member_id,
        instance_id=instance_id,
        protocols=(("range", b"new"),),
        rebalance_timeout_ms=8_000,
        session_timeout_ms=30_000,
    )
    world.advance(8_000)
    assert answer.value.leader == follower.member_id
    assert set(world.group.members) == {leader.member_id, follower.member_id}


def test_if_only_absent_static_members_are_left_the_rebalance_waits_for_their_sessions() -> None:
    world = World()
    options = {"rebalance_timeout_ms": 7_000, "session_timeout_ms": 20_000}
    told = world.stable_group(instances=["a", "b"], **options)
    leave(world.shard, GROUP, [LeavingMember(told[1].member_id)])
    world.advance(15_000)
    assert world.group.state is State.PREPARING
    world.advance(10_000)
    assert world.group.state is State.EMPTY
    assert world.group.generation == 2


def test_a_leaving_member_ends_a_join_phase_that_waited_for_it() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    answer = world.join(leader.member_id)
    leave(world.shard, GROUP, [LeavingMember(follower.member_id)])
    world.settle()
    assert answer.value.generation == 2


def test_the_leaders_departure_makes_the_oldest_member_leader() -> None:
    world = World()
    leader, second, third = world.stable_group(3)
    leave(world.shard, GROUP, [LeavingMember(leader.member_id)])
    third_answer = world.join(third.member_id)
    second_answer = world.join(second.member_id)
    assert second_answer.value.leader == third_answer.value.leader == second.member_id


# --- protocols ------------------------------------------------------------------------------


def test_the_protocol_with_most_votes_among_those_that_all_support_wins() -> None:
    world = World(GroupConfig(initial_rebalance_delay_ms=1_000))
    preferences = [("a", "c", "b"), ("b", "c"), ("c", "b")]
    answers = [
        world.join(
            world.new_id(protocols=(("b", b""), ("c", b""))),
            protocols=tuple((name, b"") for name in names),
        )
        for names in preferences
    ]
    world.advance(5_000)
    assert {answer.value.protocol_name for answer in answers} == {"c"}


def test_the_leader_is_told_everybodys_metadata_for_the_protocol() -> None:
    world = World()
    answers = [
        world.join(world.new_id(), protocols=(("range", name), ("sticky", b"x")))
        for name in (b"one", b"two")
    ]
    world.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    assert [each.metadata for each in leader.members] == [b"one", b"two"]
    assert [bool(answer.value.members) for answer in answers] == [True, False]


# --- sessions -------------------------------------------------------------------------------


def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    world = World()
    leader, _follower = world.stable_group(2)
    for _ in range(10):
        world.advance(5_000)
        assert beat(world, leader.member_id) in (Error.NONE, Error.REBALANCE_IN_PROGRESS)
    assert set(world.group.members) == {leader.member_id}
    assert world.group.state is State.PREPARING


def test_a_session_is_exact_to_the_millisecond() -> None:
    world = World()
    leader, _ = world.stable_group(2, session_timeout_ms=10_000)
    world.advance(4_000)
    beat(world, leader.member_id)
    world.advance(9_999)
    assert leader.member_id in world.group.members
    world.advance(1)
    assert leader.member_id not in world.group.members


def test_a_parked_join_outlives_its_session() -> None:
    world = World()
    leader, _ = world.stable_group(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    answer = world.join(leader.member_id)
    world.advance(5_999)
    assert leader.member_id in world.group.members
    world.advance(2)  # The follower's session ends; the leader's would have too.
    assert answer.value.generation == 2


def test_a_new_member_whose_client_is_gone_is_dropped_after_its_join_timeout() -> None:
    world = World(GroupConfig(new_member_join_ms=20_000))
    (told,) = world.stable_group(1, session_timeout_ms=600_000, rebalance_timeout_ms=600_000)
    gone = world.join(world.new_id())
    world.advance(19_999)
    assert not gone.done
    world.advance(1)
    assert gone.value.error is Error.UNKNOWN_MEMBER_ID
    assert set(world.group.members) == {told.member_id}


def test_the_last_session_leaves_an_empty_group_in_the_log() -> None:
    world = World()
    world.stable_group(2)
    world.advance(100_000)
    assert (world.group.state, world.group.protocol_type) == (State.EMPTY, "consumer")
    assert durable(world.replayed().shard) == durable(world.shard)
    assert len(world.timers) == 0  # Nothing is left to happen.


def test_an_empty_group_that_could_not_be_written_is_written_later() -> None:
    world = World()
    (told,) = world.stable_group(1)
    world.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    leave(world.shard, GROUP, [LeavingMember(told.member_id)])
    assert world.replayed().group.state is State.STABLE
    world.advance(5_000)
    world.journal.refuse = None
    world.advance(1_000)
    assert durable(world.replayed().shard) == durable(world.shard)


# --- members that never sync ----------------------------------------------------------------


def test_whoever_never_asks_for_its_assignment_is_dropped() -> None:
    world = World()
    answers = [world.join(world.new_id(), rebalance_timeout_ms=20_000) for _ in range(2)]
    world.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    silent = next(answer.value for answer in answers if not answer.value.members)
    assert not world.sync(leader, [(leader.member_id, b"all")]).value.error
    assert world.group.state is State.STABLE
    for _ in range(20):
        beat(world, leader.member_id)
        beat(world, silent.member_id)
        world.advance(1_000)
    assert set(world.group.members) == {leader.member_id}
    assert world.group.state is State.PREPARING


def test_a_static_member_replaced_before_it_synced_is_waited_for_under_its_new_id() -> None:
    world = World()
    answers = [world.join(instance_id=name, rebalance_timeout_ms=20_000) for name in ("a", "b")]
    world.advance(2 * DELAY_MS)
    leader = next(answer.value for answer in answers if answer.value.members)
    world.sync(leader, [], instance_id=leader.members[0].instance_id)
    (late,) = world.group.pending_sync
    instance_id = world.group.members[late].instance_id
    taken_over = world.join(instance_id=instance_id, rebalance_timeout_ms=20_000).value
    assert world.group.pending_sync == {taken_over.member_id}
    assert not world.sync(taken_over, instance_id=instance_id).value.error
    assert not world.group.pending_sync
    assert world.group.sync_timer is None


def test_a_generation_whose_members_all_sync_has_no_timer_but_sessions() -> None:
    world = World()
    world.stable_group(2)
    assert world.group.sync_timer is None
    assert not world.group.pending_sync


# --- what operators are told (KIP-800) ------------------------------------------------------


def test_every_rebalance_says_why() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    world.told.clear()
    world.join(leader.member_id, reason="topics changed")
    leave(world.shard, GROUP, [LeavingMember(follower.member_id, None, "shutting down")])
    world.settle()
    assert world.told == [
        f"group g rebalances, Stable in generation 1 before: {leader.member_id} joins again:"
        " topics changed",
        "group g has 1 members in generation 2",
    ]
    world.told.clear()
    world.advance(100_000)
    assert "was silent" in world.told[0] or "never asked" in world.told[0]
