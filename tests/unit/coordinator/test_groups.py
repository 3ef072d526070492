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

from .harness import GROUP, Harness, durable
from .test_offsets import SIMPLE, read, send
from .test_subscription import subscription

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS


# --- views ----------------------------------------------------------------------------------


def test_a_stable_group_shows_its_protocol_and_members() -> None:
    harness = Harness()
    response = harness.stable_group(instances=["i"], client_id="app")
    view = describe(harness.shard, GROUP)
    assert view is not None
    assert (view.state, view.protocol_type, view.protocol_name) == ("Stable", "consumer", "range")
    (member,) = view.members
    assert (member.member_id, member.instance_id) == (response[0].member_id, "i")
    assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
    assert (member.metadata, member.assignment) == (b"meta", response[0].member_id.encode())


def test_only_a_stable_group_shows_protocol_and_metadata() -> None:
    harness = Harness()
    leader, _ = harness.stable_group(2)
    harness.join(leader.member_id)
    view = describe(harness.shard, GROUP)
    assert view is not None
    assert (view.state, view.protocol_name) == ("PreparingRebalance", "")
    assert {member.metadata for member in view.members} == {b""}
    assert describe(harness.shard, "other") is None


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
    harness = Harness()
    harness.stable_group(1)
    for group_id in ("b", "a"):
        send(harness, group_id=group_id)
    assert [view.group_id for view in list_groups(harness.shard, states, types)] == found


# --- deleting -------------------------------------------------------------------------------


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    harness = Harness()
    send(harness)
    assert delete_group(harness.shard, GROUP).value is Error.NONE
    assert not harness.shard.groups
    assert read(harness) == []
    assert durable(harness.replayed().shard) == durable(harness.shard)
    assert delete_group(harness.shard, GROUP).value is Error.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted() -> None:
    harness = Harness()
    harness.stable_group(1)
    assert delete_group(harness.shard, GROUP).value is Error.NON_EMPTY_GROUP


def test_a_refused_deletion_leaves_the_group() -> None:
    harness = Harness()
    send(harness)
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    assert delete_group(harness.shard, GROUP).value is Error.COORDINATOR_NOT_AVAILABLE
    assert describe(harness.shard, GROUP) is not None
    assert read(harness)[0].offset == 42


def test_an_id_given_out_by_a_deleted_group_is_unknown() -> None:
    harness = Harness()
    member_id = harness.new_id()
    assert delete_group(harness.shard, GROUP).value is Error.NONE
    assert harness.join(member_id).value.error is Error.UNKNOWN_MEMBER_ID
    assert len(harness.timers) == 0  # Nothing of the dead group happens any more.


def test_a_group_larger_than_a_write_is_deleted_in_parts() -> None:
    harness = Harness()
    count = TOMBSTONES_PER_WRITE * 2 + 1
    send(harness, *(OffsetToCommit("t", number, 1) for number in range(count)))
    batches = len(harness.journal.batches)
    assert delete_group(harness.shard, GROUP).value is Error.NONE
    assert len(harness.journal.batches) - batches == 3
    assert harness.shard.offsets.count == 0
    assert not harness.replayed().shard.groups


def test_a_group_whose_long_id_makes_a_write_too_large_is_deleted() -> None:
    harness, long = Harness(), "g" * 30_000
    for number in range(100):
        send(harness, OffsetToCommit("t", number, 1), group_id=long)
    assert delete_group(harness.shard, long).value is Error.NONE
    assert harness.shard.offsets.count == 0
    assert not harness.replayed().shard.groups


def test_a_group_with_a_long_id_does_not_keep_others_from_expiring() -> None:
    harness, long = Harness(), "a" * 30_000
    for number in range(100):
        send(harness, OffsetToCommit("t", number, 1), group_id=long)
    send(harness, SIMPLE, group_id="b")
    harness.advance(RETENTION_MS)
    assert expire(harness.shard).value is Error.NONE
    assert not harness.shard.groups


def test_a_tombstone_that_is_too_large_alone_ends_a_deletion() -> None:
    harness = Harness()
    send(harness, OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1))
    harness.journal.bytes_max = 50
    assert delete_group(harness.shard, GROUP).value is Error.UNKNOWN_SERVER_ERROR
    assert harness.shard.offsets.count == 2


def test_a_deleted_topics_offsets_are_gone_in_all_groups() -> None:
    harness = Harness()
    for group_id in ("a", "b"):
        send(harness, SIMPLE, OffsetToCommit("kept", 0, 1), group_id=group_id)
    assert topics_deleted(harness.shard, {OLD_ID: "t", NEW_ID: "other"}).value is Error.NONE
    assert {*harness.shard.offsets.of_group("a"), *harness.shard.offsets.of_group("b")} == {"kept"}
    assert durable(harness.replayed().shard) == durable(harness.shard)


OLD_ID, NEW_ID = Uuid(b"a" * 16), Uuid(b"b" * 16)


def test_a_deleted_topics_end_ends_no_offset_of_the_next_one_of_its_name() -> None:
    """Another coordinator, which knew the new one, has written it before this one loaded it."""
    harness = Harness()
    for number, topic_id in enumerate((OLD_ID, NEW_ID)):
        harness.shard.topic_id_of = lambda _, topic_id=topic_id: topic_id  # type: ignore[misc]
        send(harness, OffsetToCommit("t", number, 42))
    send(harness, SIMPLE, group_id="of the old one alone")
    harness.shard.offsets.replay(committed(NEW_ID, 7), record_offset=9)
    topics_deleted(harness.shard, {OLD_ID: "t"})
    assert harness.shard.offsets.keys(GROUP) == [("t", 1), ("t", 7)]
    assert harness.shard.offsets.keys("of the old one alone") == [("t", 0)], "it names the new one"
    topics_deleted(harness.shard, {NEW_ID: "t"})
    assert harness.shard.offsets.count == 0


def committed(topic_id: Uuid, partition: int) -> OffsetFact:
    value = OffsetCommitValue(offset=1, metadata="", commit_timestamp=0, topic_id=topic_id)
    return OffsetFact(GROUP, "t", partition, value)


def test_pending_offsets_are_matched_by_topic_id_too() -> None:
    harness = Harness()
    offsets = harness.shard.offsets
    harness.shard.ensure_group(GROUP)
    offsets.replay(committed(OLD_ID, 0), record_offset=0)
    offsets.replay(committed(NEW_ID, 0), record_offset=1, producer_id=5)
    offsets.replay(committed(OLD_ID, 1), record_offset=2, producer_id=5)
    topics_deleted(harness.shard, {OLD_ID: "t"})
    assert not offsets.is_pending(GROUP, "t", 1)
    offsets.end_transaction(5, committed=True)
    assert offsets.keys(GROUP) == [("t", 0)]
    assert offsets.topic_ids(GROUP, "t", 0) == {NEW_ID}


def test_a_topic_that_nobody_committed_for_costs_nothing_to_delete() -> None:
    """A coordinator of a hundred thousand offsets looked at each of them, for each topic."""
    harness = Harness()
    send(harness)
    looked_at: list[str] = []
    forget_offsets(harness.shard, lambda topic, _: bool(looked_at.append(topic)), {"other"})
    assert looked_at == []
    forget_offsets(harness.shard, lambda topic, _: bool(looked_at.append(topic)), {"t"})
    assert looked_at == ["t"]


# --- expiry (KIP-211) -----------------------------------------------------------------------


def test_an_empty_groups_offsets_expire_after_it_became_empty_not_after_the_commit() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    send(harness, member_id=response.member_id, generation=1)
    harness.advance(9_000)
    leave(harness.shard, GROUP, [LeavingMember(response.member_id)])
    harness.advance(RETENTION_MS - 1)
    expire(harness.shard)
    assert read(harness)[0].offset == 42
    harness.advance(1)
    expire(harness.shard)
    assert not harness.shard.groups
    assert durable(harness.replayed().shard) == durable(harness.shard)


def test_a_simple_groups_offsets_expire_each_after_its_commit() -> None:
    harness = Harness()
    send(harness)
    harness.advance(RETENTION_MS - 1)
    send(harness, OffsetToCommit("t", 1, 1))
    expire(harness.shard)
    assert len(read(harness)) == 2
    harness.advance(1)
    expire(harness.shard)
    assert [each.partition for each in read(harness)] == [1]
    harness.advance(RETENTION_MS)
    expire(harness.shard)
    assert not harness.shard.groups


def test_a_stable_group_loses_only_offsets_of_topics_it_does_not_read() -> None:
    harness = Harness()
    (response,) = harness.stable_group(
        1, protocols=(("range", subscription("t")),), session_timeout_ms=1_800_000
    )
    send(harness, SIMPLE, OffsetToCommit("old", 0, 1), member_id=response.member_id, generation=1)
    steps = RETENTION_MS // 1_800_000
    for _ in range(steps):
        harness.advance(1_799_000)
        send(harness, OffsetToCommit("t", 1, 1), member_id=response.member_id, generation=1)
    expire(harness.shard)
    assert {each.topic for each in read(harness)} == {"t", "old"}
    harness.advance(1_000_000)
    expire(harness.shard)
    assert [(each.topic, each.partition) for each in read(harness)] == [("t", 0), ("t", 1)]
    assert harness.group.state is State.STABLE


def test_members_whose_subscription_is_unknown_keep_everything() -> None:
    harness = Harness(GroupConfig(offsets_retention_ms=1_000))
    (response,) = harness.stable_group(1, protocols=(("range", b"?"),))
    send(harness, member_id=response.member_id, generation=1)
    harness.advance(5_000)
    expire(harness.shard)
    assert harness.group.state is State.STABLE
    assert read(harness)[0].offset == 42


def test_a_rebalancing_group_loses_nothing() -> None:
    harness = Harness(GroupConfig(offsets_retention_ms=1_000))
    leader, _ = harness.stable_group(2, protocols=(("range", subscription()),))
    send(harness, member_id=leader.member_id, generation=1)
    harness.join(leader.member_id, protocols=(("range", subscription()),))
    harness.advance(2_000)
    expire(harness.shard)
    assert harness.group.state is State.PREPARING
    assert read(harness)[0].offset == 42


def test_a_clients_own_retention_counts_from_its_commit() -> None:
    harness = Harness()
    send(harness, retention_ms=60_000)
    assert harness.replayed().shard.offsets.state() == harness.shard.offsets.state()
    harness.advance(59_999)
    expire(harness.shard)
    assert read(harness)
    harness.advance(1)
    expire(harness.shard)
    assert not harness.shard.groups


def test_an_open_transaction_keeps_offset_and_group() -> None:
    harness = Harness()
    send(harness)
    value = harness.shard.offsets.of_group(GROUP)["t"][0].to_value()
    harness.shard.offsets.replay(OffsetFact(GROUP, "t", 0, value), record_offset=9, producer_id=5)
    harness.advance(RETENTION_MS)
    expire(harness.shard)
    assert read(harness, stable=False)[0].offset == 42
    harness.shard.offsets.end_transaction(5, committed=False)
    expire(harness.shard)
    assert not harness.shard.groups


def test_a_group_with_a_pending_member_is_not_expired() -> None:
    harness = Harness()
    member_id = harness.new_id()
    expire(harness.shard)
    answer = harness.join(member_id)
    harness.advance(3_000)
    assert answer.value.generation == 1


def test_an_empty_group_without_offsets_expires_at_once() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    leave(harness.shard, GROUP, [LeavingMember(response.member_id)])
    expire(harness.shard)
    assert not harness.shard.groups
    assert not harness.replayed().shard.groups


# --- beginning and ending -------------------------------------------------------------------


def test_loaded_members_have_a_session_from_now_on() -> None:
    harness = Harness()
    response = harness.stable_group(2, session_timeout_ms=10_000)
    harness.advance(9_000)
    loaded = harness.replayed()
    start(loaded.shard)
    loaded.advance(9_999)
    assert set(loaded.group.members) == {each.member_id for each in response}
    loaded.advance(1)
    assert loaded.group.state is State.PREPARING or not loaded.group.members


def test_a_loaded_group_beyond_a_lowered_limit_rebalances() -> None:
    harness = Harness()
    response = harness.stable_group(3)
    loaded = harness.replayed()
    loaded.shard.config = GroupConfig(members_max=2)
    start(loaded.shard)
    assert loaded.group.state is State.PREPARING
    answers = [loaded.join(each.member_id) for each in response]
    assert [answer.value.error for answer in answers].count(Error.GROUP_MAX_SIZE_REACHED) == 1
    assert loaded.group.generation == 2


def test_unloading_answers_everybody() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    joining = harness.join(leader.member_id)
    unload(harness.shard)
    harness.settle()
    assert joining.value.error is Error.NOT_COORDINATOR
    assert joining.value.member_id == leader.member_id
    assert len(harness.timers) == 0
    assert not harness.shard.groups
    assert follower.generation == 1


def test_unloading_answers_syncs_and_writes() -> None:
    harness = Harness()
    answers = [harness.join(harness.new_id()) for _ in range(2)]
    harness.advance(6_000)
    follower = next(answer.value for answer in answers if not answer.value.members)
    waiting = harness.sync(follower)
    harness.journal.hold = True
    writing: Pending[list[Error]] = commit(
        harness.shard,
        Commit(group_id="x", member_id="", instance_id=None, generation=-1, offsets=(SIMPLE,)),
    )
    unload(harness.shard)
    harness.settle()
    assert waiting.value.error is Error.NOT_COORDINATOR
    assert writing.value == [Error.NOT_COORDINATOR]
    harness.journal.release(Error.NOT_LEADER_OR_FOLLOWER)  # Heard by nobody, and harmless.
    assert len(harness.timers) == 0
