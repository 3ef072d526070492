"""A shard's groups as a whole: views, filters, deletion, expiry (KIP-211), taking up, giving up.

Method: scripts over virtual time; expiry is asked for just before and just after each limit.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.coordinator.group_states import State
from ottla.coordinator.groups import (
    TOMBSTONES_PER_WRITE,
    delete_group,
    describe,
    expire,
    forget_offsets,
    list_groups,
    start,
    topics_deleted,
    unload,
)
from ottla.coordinator.leaving import LeavingMember, leave
from ottla.coordinator.offsets import commit
from ottla.coordinator.records import OffsetCommitValue, OffsetFact
from ottla.coordinator.values import Commit, GroupConfig, OffsetToCommit

from .harness import GROUP, World, durable
from .test_offsets import SIMPLE, read, send
from .test_subscription import subscription

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS


# --- views ----------------------------------------------------------------------------------


def test_a_stable_group_shows_its_protocol_and_members() -> None:
    world = World()
    told = world.stable_group(instances=["i"], client_id="app")
    view = describe(world.shard, GROUP)
    assert view is not None
    assert (view.state, view.protocol_type, view.protocol_name) == ("Stable", "consumer", "range")
    (member,) = view.members
    assert (member.member_id, member.instance_id) == (told[0].member_id, "i")
    assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
    assert (member.metadata, member.assignment) == (b"meta", told[0].member_id.encode())


def test_only_a_stable_group_shows_protocol_and_metadata() -> None:
    world = World()
    leader, _ = world.stable_group(2)
    world.join(leader.member_id)
    view = describe(world.shard, GROUP)
    assert view is not None
    assert (view.state, view.protocol_name) == ("PreparingRebalance", "")
    assert {member.metadata for member in view.members} == {b""}
    assert describe(world.shard, "other") is None


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), ["a", "b", "g"]),
        (("stable",), (), ["g"]),
        (("Empty", " STABLE "), (), ["a", "b", "g"]),
        (("Dead",), (), []),
        (("nonsense",), (), []),
        ((), ("classic",), ["a", "b", "g"]),
        ((), ("Classic", "consumer"), ["a", "b", "g"]),
        ((), ("consumer",), []),
        (("empty",), ("CLASSIC",), ["a", "b"]),
    ],
)
def test_filters(states: tuple[str, ...], types: tuple[str, ...], found: list[str]) -> None:
    world = World()
    world.stable_group(1)
    for group_id in ("b", "a"):
        send(world, group_id=group_id)
    assert [view.group_id for view in list_groups(world.shard, states, types)] == found


# --- deleting -------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    world = World()
    send(world)
    assert delete_group(world.shard, GROUP).value is Error.NONE
    assert not world.shard.groups
    assert read(world) == []
    assert durable(world.replayed().shard) == durable(world.shard)
    assert delete_group(world.shard, GROUP).value is Error.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted() -> None:
    world = World()
    world.stable_group(1)
    assert delete_group(world.shard, GROUP).value is Error.NON_EMPTY_GROUP


def test_a_refused_deletion_leaves_the_group() -> None:
    world = World()
    send(world)
    world.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    assert delete_group(world.shard, GROUP).value is Error.COORDINATOR_NOT_AVAILABLE
    assert describe(world.shard, GROUP) is not None
    assert read(world)[0].offset == 42


def test_an_id_given_out_by_a_deleted_group_is_unknown() -> None:
    world = World()
    member_id = world.new_id()
    assert delete_group(world.shard, GROUP).value is Error.NONE
    assert world.join(member_id).value.error is Error.UNKNOWN_MEMBER_ID
    assert len(world.timers) == 0  # Nothing of the dead group happens any more.


def test_a_group_larger_than_a_write_is_deleted_in_parts() -> None:
    world = World()
    count = TOMBSTONES_PER_WRITE * 2 + 1
    send(world, *(OffsetToCommit("t", number, 1) for number in range(count)))
    batches = len(world.journal.batches)
    assert delete_group(world.shard, GROUP).value is Error.NONE
    assert len(world.journal.batches) - batches == 3
    assert world.shard.offsets.count == 0
    assert not world.replayed().shard.groups


def test_a_deleted_topics_offsets_are_gone_in_all_groups() -> None:
    world = World()
    for group_id in ("a", "b"):
        send(world, SIMPLE, OffsetToCommit("kept", 0, 1), group_id=group_id)
    assert topics_deleted(world.shard, {OLD_ID: "t", NEW_ID: "other"}).value is Error.NONE
    assert {*world.shard.offsets.of_group("a"), *world.shard.offsets.of_group("b")} == {"kept"}
    assert durable(world.replayed().shard) == durable(world.shard)


OLD_ID, NEW_ID = Uuid(b"a" * 16), Uuid(b"b" * 16)


def test_a_deleted_topics_end_ends_no_offset_of_the_next_one_of_its_name() -> None:
    """Another coordinator, which knew the new one, has written it before this one loaded it."""
    world = World()
    for number, topic_id in enumerate((OLD_ID, NEW_ID)):
        world.shard.topic_id_of = lambda _, topic_id=topic_id: topic_id  # type: ignore[misc]
        send(world, OffsetToCommit("t", number, 42))
    send(world, SIMPLE, group_id="of the old one alone")
    world.shard.offsets.replay(committed(NEW_ID, 7), record_offset=9)
    topics_deleted(world.shard, {OLD_ID: "t"})
    assert world.shard.offsets.keys(GROUP) == [("t", 1), ("t", 7)]
    assert world.shard.offsets.keys("of the old one alone") == [("t", 0)], "it names the new one"
    topics_deleted(world.shard, {NEW_ID: "t"})
    assert world.shard.offsets.count == 0


def committed(topic_id: Uuid, partition: int) -> OffsetFact:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0, topic_id=topic_id)
    return OffsetFact(GROUP, "t", partition, value)


def test_what_an_open_transaction_holds_back_is_told_by_its_id_too() -> None:
    world = World()
    offsets = world.shard.offsets
    world.shard.ensure_group(GROUP)
    offsets.replay(committed(OLD_ID, 0), record_offset=0)
    offsets.replay(committed(NEW_ID, 0), record_offset=1, producer_id=5)
    offsets.replay(committed(OLD_ID, 1), record_offset=2, producer_id=5)
    topics_deleted(world.shard, {OLD_ID: "t"})
    assert not offsets.is_pending(GROUP, "t", 1)
    offsets.end_transaction(5, committed=True)
    assert offsets.keys(GROUP) == [("t", 0)]
    assert offsets.topic_ids(GROUP, "t", 0) == {NEW_ID}


def test_a_topic_that_nobody_committed_for_costs_nothing_to_delete() -> None:
    """A coordinator of a hundred thousand offsets looked at each of them, for each topic."""
    world = World()
    send(world)
    looked_at: list[str] = []
    forget_offsets(world.shard, lambda topic, _: bool(looked_at.append(topic)), {"other"})
    assert looked_at == []
    forget_offsets(world.shard, lambda topic, _: bool(looked_at.append(topic)), {"t"})
    assert looked_at == ["t"]


# --- expiry (KIP-211) -----------------------------------------------------------------------


def test_an_empty_groups_offsets_expire_after_it_became_empty_not_after_the_commit() -> None:
    world = World()
    (told,) = world.stable_group(1)
    send(world, member_id=told.member_id, generation=1)
    world.advance(9_000)
    leave(world.shard, GROUP, [LeavingMember(told.member_id)])
    world.advance(RETENTION_MS - 1)
    expire(world.shard)
    assert read(world)[0].offset == 42
    world.advance(1)
    expire(world.shard)
    assert not world.shard.groups
    assert durable(world.replayed().shard) == durable(world.shard)


def test_a_simple_groups_offsets_expire_each_after_its_commit() -> None:
    world = World()
    send(world)
    world.advance(RETENTION_MS - 1)
    send(world, OffsetToCommit("t", 1, 1))
    expire(world.shard)
    assert len(read(world)) == 2
    world.advance(1)
    expire(world.shard)
    assert [each.partition for each in read(world)] == [1]
    world.advance(RETENTION_MS)
    expire(world.shard)
    assert not world.shard.groups


def test_a_stable_group_loses_only_offsets_of_topics_it_does_not_read() -> None:
    world = World()
    (told,) = world.stable_group(
        1, protocols=(("range", subscription("t")),), session_timeout_ms=1_800_000
    )
    send(world, SIMPLE, OffsetToCommit("old", 0, 1), member_id=told.member_id, generation=1)
    steps = RETENTION_MS // 1_800_000
    for _ in range(steps):
        world.advance(1_799_000)
        send(world, OffsetToCommit("t", 1, 1), member_id=told.member_id, generation=1)
    expire(world.shard)
    assert {each.topic for each in read(world)} == {"t", "old"}
    world.advance(1_000_000)
    expire(world.shard)
    assert [(each.topic, each.partition) for each in read(world)] == [("t", 0), ("t", 1)]
    assert world.group.state is State.STABLE


def test_members_whose_subscription_is_unknown_keep_everything() -> None:
    world = World(GroupConfig(offsets_retention_ms=1_000))
    (told,) = world.stable_group(1, protocols=(("range", b"?"),))
    send(world, member_id=told.member_id, generation=1)
    world.advance(5_000)
    expire(world.shard)
    assert world.group.state is State.STABLE
    assert read(world)[0].offset == 42


def test_a_rebalancing_group_loses_nothing() -> None:
    world = World(GroupConfig(offsets_retention_ms=1_000))
    leader, _ = world.stable_group(2, protocols=(("range", subscription()),))
    send(world, member_id=leader.member_id, generation=1)
    world.join(leader.member_id, protocols=(("range", subscription()),))
    world.advance(2_000)
    expire(world.shard)
    assert world.group.state is State.PREPARING
    assert read(world)[0].offset == 42


def test_a_clients_own_retention_counts_from_its_commit() -> None:
    world = World()
    send(world, retention_ms=60_000)
    assert world.replayed().shard.offsets.state() == world.shard.offsets.state()
    world.advance(59_999)
    expire(world.shard)
    assert read(world)
    world.advance(1)
    expire(world.shard)
    assert not world.shard.groups


def test_an_open_transaction_keeps_offset_and_group() -> None:
    world = World()
    send(world)
    value = world.shard.offsets.of_group(GROUP)["t"][0].to_value()
    world.shard.offsets.replay(OffsetFact(GROUP, "t", 0, value), record_offset=9, producer_id=5)
    world.advance(RETENTION_MS)
    expire(world.shard)
    assert read(world, stable=False)[0].offset == 42
    world.shard.offsets.end_transaction(5, committed=False)
    expire(world.shard)
    assert not world.shard.groups


def test_a_group_whose_id_was_just_asked_for_is_not_expired() -> None:
    world = World()
    member_id = world.new_id()
    expire(world.shard)
    answer = world.join(member_id)
    world.advance(3_000)
    assert answer.value.generation == 1


def test_an_empty_group_without_offsets_expires_at_once() -> None:
    world = World()
    (told,) = world.stable_group(1)
    leave(world.shard, GROUP, [LeavingMember(told.member_id)])
    expire(world.shard)
    assert not world.shard.groups
    assert not world.replayed().shard.groups


# --- beginning and ending -------------------------------------------------------------------


def test_loaded_members_have_a_session_from_now_on() -> None:
    world = World()
    told = world.stable_group(2, session_timeout_ms=10_000)
    world.advance(9_000)
    loaded = world.replayed()
    start(loaded.shard)
    loaded.advance(9_999)
    assert set(loaded.group.members) == {each.member_id for each in told}
    loaded.advance(1)
    assert loaded.group.state is State.PREPARING or not loaded.group.members


def test_a_loaded_group_beyond_a_lowered_limit_rebalances() -> None:
    world = World()
    told = world.stable_group(3)
    loaded = world.replayed()
    loaded.shard.config = GroupConfig(members_max=2)
    start(loaded.shard)
    assert loaded.group.state is State.PREPARING
    answers = [loaded.join(each.member_id) for each in told]
    assert [answer.value.error for answer in answers].count(Error.GROUP_MAX_SIZE_REACHED) == 1
    assert loaded.group.generation == 2


def test_unloading_answers_everybody() -> None:
    world = World()
    leader, follower = world.stable_group(2)
    joining = world.join(leader.member_id)
    unload(world.shard)
    world.settle()
    assert joining.value.error is Error.NOT_COORDINATOR
    assert joining.value.member_id == leader.member_id
    assert len(world.timers) == 0
    assert not world.shard.groups
    assert follower.generation == 1


def test_unloading_answers_syncs_and_writes() -> None:
    world = World()
    answers = [world.join(world.new_id()) for _ in range(2)]
    world.advance(6_000)
    follower = next(answer.value for answer in answers if not answer.value.members)
    waiting = world.sync(follower)
    world.journal.hold = True
    writing: Pending[list[Error]] = commit(
        world.shard,
        Commit(group_id="x", member_id="", instance_id=None, generation=-1, offsets=(SIMPLE,)),
    )
    unload(world.shard)
    world.settle()
    assert waiting.value.error is Error.NOT_COORDINATOR
    assert writing.value == [Error.NOT_COORDINATOR]
    world.journal.release(Error.NOT_LEADER_OR_FOLLOWER)  # Heard by nobody, and harmless.
    assert len(world.timers) == 0
