"""OffsetCommit, OffsetFetch and OffsetDelete: who may, what is stored, and when it shows.

Method: scripts over virtual time; a journal that refuses or holds writes back; hypothesis for
the agreement of a live shard with one loaded from its log.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.coordinator.group_states import State
from ottla.coordinator.groups import delete_group, expire, topics_deleted
from ottla.coordinator.offsets import commit, delete_offsets, fetch
from ottla.coordinator.records import OffsetFact
from ottla.coordinator.values import Commit, FetchedOffset, GroupConfig, OffsetToCommit
from tests.drawn import examples

from .harness import GROUP, Harness, durable
from .test_subscription import subscription

SIMPLE = OffsetToCommit("t", 0, 42, 3, "note")


def send(
    harness: Harness,
    *offsets: OffsetToCommit,
    member_id: str = "",
    generation: int = -1,
    instance_id: str | None = None,
    group_id: str = GROUP,
    retention_ms: int | None = None,
    version: int = 9,
) -> list[Error]:
    answer = commit(
        harness.shard,
        Commit(
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            offsets=offsets or (SIMPLE,),
            retention_ms=retention_ms,
            knows_group_id_not_found=version >= 9,
        ),
    )
    return answer.value


def read(harness: Harness, *keys: tuple[str, int], stable: bool = True) -> list[FetchedOffset]:
    error, found = fetch(harness.shard, GROUP, keys or None, require_stable=stable).value
    assert not error
    return found


# --- committing -----------------------------------------------------------------------------


def test_a_consumer_without_a_group_makes_a_simple_one() -> None:
    harness = Harness()
    assert send(harness) == [Error.NONE]
    assert (harness.group.state, harness.group.protocol_type) == (State.EMPTY, None)
    assert read(harness) == [FetchedOffset("t", 0, 42, 3, "note")]
    assert durable(harness.replayed().shard) == durable(harness.shard)


@pytest.mark.parametrize(
    ("version", "error"), [(9, Error.GROUP_ID_NOT_FOUND), (8, Error.ILLEGAL_GENERATION)]
)
def test_a_member_of_no_group(version: int, error: Error) -> None:
    assert send(Harness(), member_id="m", generation=1, version=version) == [error]


def test_members_commit_with_id_and_generation() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1)
    mine = response.member_id
    assert send(harness, member_id=mine, generation=1) == [Error.NONE]
    assert send(harness, member_id=mine, generation=0) == [Error.ILLEGAL_GENERATION]
    assert send(harness, member_id="other", generation=1) == [Error.UNKNOWN_MEMBER_ID]
    assert send(harness, member_id=mine, generation=-1) == [Error.ILLEGAL_GENERATION]
    assert send(harness) == [Error.UNKNOWN_MEMBER_ID]  # Others may not, while there are members.
    assert send(harness, member_id=mine, generation=1, instance_id="i") == [Error.UNKNOWN_MEMBER_ID]


def test_a_fenced_static_member_cannot_commit() -> None:
    harness = Harness()
    (response,) = harness.stable_group(instances=["i"])
    harness.join(instance_id="i")
    errors = send(harness, member_id=response.member_id, generation=1, instance_id="i")
    assert errors == [Error.FENCED_INSTANCE_ID]


def test_commits_by_state_of_the_group() -> None:
    harness = Harness()
    leader, follower = harness.stable_group(2)
    newcomer = harness.join(harness.new_id())
    assert harness.group.state is State.PREPARING
    assert send(harness, member_id=leader.member_id, generation=1) == [Error.NONE]
    again = [harness.join(each.member_id) for each in (leader, follower)]
    assert harness.group.state is State.COMPLETING
    assert newcomer.done
    errors = send(harness, member_id=again[0].value.member_id, generation=2)
    assert errors == [Error.REBALANCE_IN_PROGRESS]


def test_a_commit_stands_for_a_heartbeat() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1, session_timeout_ms=10_000)
    for _ in range(5):
        harness.advance(9_000)
        assert send(harness, member_id=response.member_id, generation=1) == [Error.NONE]
    harness.advance(10_000)
    assert not harness.group.members


@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"), [(2**63 - 1, 2**63 - 1), (-(2**63), 0), (-2, None), (5, None)]
)
def test_any_retention_of_a_client_is_stored(retention_ms: int, expire_ms: int | None) -> None:
    harness = Harness()
    expected = harness.clock.now_ms() + retention_ms if expire_ms is None else expire_ms
    assert send(harness, retention_ms=retention_ms) == [Error.NONE]
    stored = harness.shard.offsets.get(GROUP, "t", 0)
    assert stored is not None
    assert stored.expire_ms == expected
    assert durable(harness.replayed().shard) == durable(harness.shard)


def test_metadata_beyond_the_limit_fails_alone() -> None:
    harness = Harness(GroupConfig(offset_metadata_bytes_max=5))
    errors = send(
        harness,
        OffsetToCommit("t", 0, 1, metadata="12345"),
        OffsetToCommit("t", 1, 1, metadata="123456"),
        OffsetToCommit("t", 2, 1, metadata=None),
    )
    assert errors == [Error.NONE, Error.OFFSET_METADATA_TOO_LARGE, Error.NONE]
    assert [each.partition for each in read(harness)] == [0, 2]
    refused = send(Harness(), OffsetToCommit("t", 0, 1, metadata="x" * 5_000))
    assert refused == [Error.OFFSET_METADATA_TOO_LARGE]


def test_of_several_offsets_of_a_partition_the_last_that_is_accepted_is_stored() -> None:
    harness = Harness()
    errors = send(
        harness,
        OffsetToCommit("t", 0, 1),
        OffsetToCommit("t", 1, 2),
        OffsetToCommit("t", 0, 3),
        OffsetToCommit("t", 0, 4, metadata="x" * 5_000),
    )
    assert errors == [Error.NONE, Error.NONE, Error.NONE, Error.OFFSET_METADATA_TOO_LARGE]
    assert [(each.partition, each.offset) for each in read(harness)] == [(0, 3), (1, 2)]
    assert harness.journal.end_offset == 2
    assert durable(harness.replayed().shard) == durable(harness.shard)


@pytest.mark.parametrize("metadata", ["x" * 32_768, "ü" * 16_384])
def test_metadata_that_a_record_cannot_hold_fails_alone_whatever_the_limit(metadata: str) -> None:
    harness = Harness(GroupConfig(offset_metadata_bytes_max=100_000))
    longest = OffsetToCommit("t", 1, 1, metadata="x" * 32_767)
    errors = send(harness, OffsetToCommit("t", 0, 1, metadata=metadata), longest)
    assert errors == [Error.OFFSET_METADATA_TOO_LARGE, Error.NONE]


@pytest.mark.parametrize("group_id", ["g" * 32_768, "ü" * 16_384])
def test_a_group_id_that_a_record_cannot_hold_is_invalid(group_id: str) -> None:
    harness = Harness()
    assert send(harness, SIMPLE, SIMPLE, group_id=group_id) == [Error.INVALID_GROUP_ID] * 2
    assert not harness.shard.groups
    assert send(harness, group_id="g" * 32_767) == [Error.NONE]


@pytest.mark.parametrize(
    ("log_error", "expected"),
    [
        (Error.NOT_ENOUGH_REPLICAS, Error.COORDINATOR_NOT_AVAILABLE),
        (Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_COORDINATOR),
        (Error.KAFKA_STORAGE_ERROR, Error.NOT_COORDINATOR),
        (Error.MESSAGE_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR),
        (Error.INVALID_TIMESTAMP, Error.INVALID_TIMESTAMP),
    ],
)
def test_a_refused_commit_changes_nothing(log_error: Error, expected: Error) -> None:
    harness = Harness()
    send(harness)
    harness.journal.refuse = log_error
    assert send(harness, OffsetToCommit("t", 0, 43)) == [expected]
    assert read(harness)[0].offset == 42
    other = Harness()
    other.journal.refuse = log_error
    assert send(other) == [expected]
    assert not other.shard.groups


def test_a_commit_is_answered_when_it_is_replicated_or_late() -> None:
    harness = Harness()
    harness.journal.hold = True
    request = Commit(
        group_id=GROUP, member_id="", instance_id=None, generation=-1, offsets=(SIMPLE,)
    )
    first, second = commit(harness.shard, request), commit(harness.shard, request)
    assert not first.done
    harness.journal.held.pop(0).complete(Error.NONE)
    assert first.value == [Error.NONE]
    harness.advance(5_000)
    assert second.value == [Error.COORDINATOR_NOT_AVAILABLE]
    harness.journal.release()  # It was in the log all the time.
    assert read(harness)[0].offset == 42


# --- fetching -------------------------------------------------------------------------------


def test_what_was_never_committed_is_minus_one() -> None:
    harness = Harness()
    assert read(harness, ("t", 0)) == [FetchedOffset("t", 0, -1, -1, "")]
    assert read(harness) == []
    send(harness)
    assert [each.offset for each in read(harness, ("t", 0), ("t", 1), ("u", 0))] == [42, -1, -1]


def test_a_fetch_waits_for_the_commits_before_it() -> None:
    harness = Harness()
    harness.journal.hold = True
    request = Commit(
        group_id=GROUP, member_id="", instance_id=None, generation=-1, offsets=(SIMPLE,)
    )
    commit(harness.shard, request)
    fetched = fetch(harness.shard, GROUP, None, require_stable=False)
    assert not fetched.done
    harness.journal.release()
    assert [each.offset for each in fetched.value[1]] == [42]


def test_a_fetch_does_not_name_a_commit_that_came_while_it_waited() -> None:
    """The later one may be lost yet: a coordinator that was deposed and does not know it answers
    as soon as what was there before is replicated."""
    harness = Harness()
    harness.journal.hold = True
    for offset in (SIMPLE, OffsetToCommit("t", 0, 50)):
        request = Commit(
            group_id=GROUP, member_id="", instance_id=None, generation=-1, offsets=(offset,)
        )
        commit(harness.shard, request)
        if offset is SIMPLE:
            fetched = fetch(harness.shard, GROUP, None, require_stable=False)
    harness.journal.held.pop(0).complete(Error.NONE)
    assert [each.offset for each in fetched.value[1]] == [42]


def test_a_fetch_behind_a_stuck_commit_looks_for_the_coordinator_again() -> None:
    harness = Harness()
    harness.journal.hold = True
    request = Commit(
        group_id=GROUP, member_id="", instance_id=None, generation=-1, offsets=(SIMPLE,)
    )
    commit(harness.shard, request)
    fetched = fetch(harness.shard, GROUP, None, require_stable=False)
    harness.advance(5_000)
    assert fetched.value == (Error.NOT_COORDINATOR, [])


def test_an_open_transaction_makes_a_stable_fetch_wait_kip_447() -> None:
    harness = Harness()
    send(harness)
    pending = OffsetFact(GROUP, "t", 0, harness.shard.offsets.of_group(GROUP)["t"][0].to_value())
    harness.shard.offsets.replay(pending, record_offset=9, producer_id=5)
    assert read(harness, stable=True) == [FetchedOffset("t", 0, error=Error.UNSTABLE_OFFSET_COMMIT)]
    assert read(harness, stable=False)[0].offset == 42
    harness.shard.offsets.end_transaction(5, committed=True)
    assert read(harness, stable=True)[0].error is Error.NONE


# --- deleting (KIP-496) ---------------------------------------------------------------------


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    harness = Harness()
    send(harness, SIMPLE, OffsetToCommit("t", 1, 5))
    keys = [("t", 0), ("t", 7), ("t", 0)]
    assert delete_offsets(harness.shard, GROUP, keys).value == (Error.NONE, [Error.NONE] * 3)
    assert [each.partition for each in read(harness)] == [1]
    assert durable(harness.replayed().shard) == durable(harness.shard)


def test_offsets_of_topics_that_members_read_are_kept() -> None:
    harness = Harness()
    (response,) = harness.stable_group(1, protocols=(("range", subscription("t", "u")),))
    offsets = [OffsetToCommit(topic, 0, 1) for topic in ("t", "u", "old")]
    send(harness, *offsets, member_id=response.member_id, generation=1)
    error, errors = delete_offsets(harness.shard, GROUP, [("t", 0), ("old", 0)]).value
    assert (error, errors) == (Error.NONE, [Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.NONE])
    assert [each.topic for each in read(harness)] == ["t", "u"]


def test_members_that_are_no_consumers_protect_all_offsets() -> None:
    harness = Harness()
    harness.stable_group(1, protocol_type="connect")
    assert delete_offsets(harness.shard, GROUP, [("t", 0)]).value[0] is Error.NON_EMPTY_GROUP
    assert delete_offsets(harness.shard, "other", []).value[0] is Error.GROUP_ID_NOT_FOUND
    assert delete_offsets(harness.shard, "", []).value[0] is Error.INVALID_GROUP_ID


def test_a_refused_deletion_deletes_nothing() -> None:
    harness = Harness()
    send(harness)
    harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS
    answer = delete_offsets(harness.shard, GROUP, [("t", 0)]).value
    assert answer == (Error.COORDINATOR_NOT_AVAILABLE, [])
    assert read(harness)[0].offset == 42


# --- replay ---------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(
        st.just("commit"),
        st.sampled_from(["g", "h"]),
        st.sampled_from(["t", "u"]),
        st.integers(0, 2),
        st.sampled_from([None, None, 1_000]),
    ),
    st.tuples(st.just("delete"), st.sampled_from(["g", "h"]), st.sampled_from(["t", "u"])),
    st.tuples(st.just("delete group"), st.sampled_from(["g", "h"])),
    st.tuples(st.just("topic gone"), st.sampled_from(["t", "u"])),
    st.tuples(st.just("expire"), st.sampled_from([100, 2_000, 700_000_000])),
    st.tuples(st.just("refuse"), st.booleans()),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_a_loaded_shard_is_the_live_one(steps: list[tuple[object, ...]]) -> None:
    harness = Harness()
    for number, step in enumerate(steps):
        match step:
            case ("commit", str(group), str(topic), int(partition), retention):
                offset = OffsetToCommit(topic, partition, number, number % 3, str(number))
                send(harness, offset, group_id=group, retention_ms=retention)  # type: ignore[arg-type]
            case ("delete", str(group), str(topic)):
                delete_offsets(harness.shard, group, [(topic, 0), (topic, 1)])
            case ("delete group", str(group)):
                delete_group(harness.shard, group)
            case ("topic gone", str(topic)):
                topics_deleted(harness.shard, {Uuid(b"i" * 16): topic})
            case ("expire", int(ms)):
                harness.advance(ms)
                expire(harness.shard)
            case ("refuse", refuse):
                harness.journal.refuse = Error.NOT_ENOUGH_REPLICAS if refuse else None
    loaded = harness.replayed().shard
    # A simple group is in the log by its offsets alone.
    for group_id in [each for each in harness.shard.groups if each not in loaded.groups]:
        assert not harness.shard.offsets.of_group(group_id)
        del harness.shard.groups[group_id]
    assert durable(loaded) == durable(harness.shard)
    assert loaded.offsets.count == harness.shard.offsets.count
