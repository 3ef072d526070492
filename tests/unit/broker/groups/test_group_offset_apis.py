"""The APIs of offsets, in every version, as clients' bytes ask for them.

Method: requests and responses pass the codec of their version; broker 1 runs the real group
service over real logs.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.wire.messages import offset_commit, offset_delete, offset_fetch
from tests.unit.broker.group_harness import GroupHarness, commit_request, fetch_all
from tests.unit.broker.harness import TOPIC_ID

NOBODY = Uuid(b"n" * 16)


@pytest.fixture
def harness() -> GroupHarness:
    harness = GroupHarness()
    harness.add_topic("t", partitions=4)
    harness.add_offsets_topic()
    return harness


def by_id(topic_id: Uuid, offset: int = 5, partition: int = 0) -> offset_commit.OffsetCommitRequest:
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=None
    )
    topic = offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(part,))
    return offset_commit.OffsetCommitRequest(group_id="g", topics=(topic,))


# --- OffsetCommit ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_in_every_version(harness: GroupHarness, version: int) -> None:
    answer = harness.later(commit_request({("t", 0): 5, ("t", 9): 6, ("u", 0): 7}), version)
    codes = [
        (topic.name, each.partition_index, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [("t", 0, 0), ("t", 9, unknown), ("u", 0, unknown)]
    stored = harness.service.shard_of("g").offsets.get("g", "t", 0)
    assert stored is not None
    assert (stored.offset, stored.metadata, stored.expire_ms) == (5, "m", -1)


def test_commit_by_topic_id(harness: GroupHarness) -> None:
    assert harness.later(by_id(TOPIC_ID), 10).topics[0].partitions[0].error_code == 0
    assert harness.service.shard_of("g").offsets.get("g", "t", 0).offset == 5  # type: ignore[union-attr]
    answer = harness.later(by_id(NOBODY), 10)
    assert answer.topics[0].topic_id == NOBODY
    assert answer.topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
    beyond = harness.later(by_id(TOPIC_ID, partition=9), 10)
    assert beyond.topics[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("version", "expires"), [(2, True), (4, True), (5, False)])
def test_a_retention_of_the_clients_own(harness: GroupHarness, version: int, expires: bool) -> None:
    how = {"retention_time_ms": 60_000} if expires else {}
    harness.later(commit_request({("t", 0): 5}, **how), version)
    stored = harness.service.shard_of("g").offsets.get("g", "t", 0)
    assert stored is not None
    assert stored.expire_ms - stored.commit_ms == 60_000 if expires else stored.expire_ms == -1


def test_errors_of_the_group_are_every_partitions(harness: GroupHarness) -> None:
    request = commit_request(
        {("t", 0): 5, ("t", 1): 5}, generation_id_or_member_epoch=3, member_id="m"
    )
    for version, error in ((8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)):
        answer = harness.later(request, version)
        codes = {each.error_code for topic in answer.topics for each in topic.partitions}
        assert codes == {error}


def test_an_empty_commit_needs_no_coordinator(harness: GroupHarness) -> None:
    assert harness.ask(commit_request({}), 9).topics == ()


def test_the_empty_group_id_keeps_offsets(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5}, group_id=""), 2)
    request = offset_fetch.OffsetFetchRequest(group_id="", topics=None)
    (topic,) = harness.later(request, 2).topics
    assert topic.partitions[0].committed_offset == 5


# --- OffsetFetch ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group(harness: GroupHarness, version: int) -> None:
    harness.later(commit_request({("t", 0): 5}), 9)
    topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
    other = offset_fetch.OffsetFetchRequestTopic(name="u", partition_indexes=(0,))
    request = offset_fetch.OffsetFetchRequest(group_id="g", topics=(topic, other))
    answer = harness.later(request, version)
    assert answer.error_code == 0
    assert [
        (found.name, each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for found in answer.topics
        for each in found.partitions
    ] == [("t", 0, 5, "m", 0), ("t", 1, -1, "", 0), ("u", 0, -1, "", 0)]


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group_returns_its_error(harness: GroupHarness, version: int) -> None:
    """Each partition has it, too: aiokafka reads nothing else, and would reset its position."""
    harness.elect(harness.service.partition_of("g"), 2)
    topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
    answer = harness.ask(offset_fetch.OffsetFetchRequest(group_id="g", topics=(topic,)), version)
    assert answer.error_code == (Error.NONE if version == 1 else Error.NOT_COORDINATOR)
    (joined,) = answer.topics
    assert [(each.partition_index, each.error_code) for each in joined.partitions] == [
        (0, Error.NOT_COORDINATOR),
        (1, Error.NOT_COORDINATOR),
    ]
    assert {each.committed_offset for each in joined.partitions} == {-1}


def test_fetch_of_all_offsets_of_a_group_returns_its_error(harness: GroupHarness) -> None:
    harness.elect(harness.service.partition_of("g"), 2)
    answer = harness.ask(offset_fetch.OffsetFetchRequest(group_id="g", topics=None), 2)
    assert (answer.error_code, answer.topics) == (Error.NOT_COORDINATOR, ())


@pytest.mark.parametrize("version", [8, 9])
def test_fetch_of_several_groups(harness: GroupHarness, version: int) -> None:
    harness.later(commit_request({("t", 0): 5}), 9)
    harness.later(commit_request({("t", 1): 6}, group_id="h"), 9)
    harness.elect(harness.service.partition_of("i"), 2)
    named = offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=(1, 2))
    request = offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None),
            offset_fetch.OffsetFetchRequestGroup(group_id="h", topics=(named,)),
            offset_fetch.OffsetFetchRequestGroup(group_id="i", topics=None),
            offset_fetch.OffsetFetchRequestGroup(group_id="j", topics=None),
        ),
        require_stable=True,
    )
    answer = harness.later(request, version)
    assert [
        (
            group.group_id,
            group.error_code,
            [
                (topic.name, each.partition_index, each.committed_offset)
                for topic in group.topics
                for each in topic.partitions
            ],
        )
        for group in answer.groups
    ] == [
        ("g", 0, [("t", 0, 5)]),
        ("h", 0, [("t", 1, 6), ("t", 2, -1)]),
        ("i", Error.NOT_COORDINATOR, []),
        ("j", 0, []),
    ]


def test_fetch_by_topic_id(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5}), 9)
    topics = tuple(
        offset_fetch.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(0,))
        for each in (NOBODY, TOPIC_ID)
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    answer = harness.later(offset_fetch.OffsetFetchRequest(groups=(group,)), 10)
    assert {
        topic.topic_id: (each.committed_offset, each.error_code)
        for topic in answer.groups[0].topics
        for each in topic.partitions
    } == {TOPIC_ID: (5, 0), NOBODY: (-1, Error.UNKNOWN_TOPIC_ID)}
    everything = harness.later(fetch_all(), 10).groups[0].topics
    assert [topic.topic_id for topic in everything] == [TOPIC_ID]


# --- OffsetDelete ---------------------------------------------------------------------------


def delete(group_id: str, *keys: tuple[str, int]) -> offset_delete.OffsetDeleteRequest:
    return offset_delete.OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            offset_delete.OffsetDeleteRequestTopic(
                name=topic,
                partitions=(offset_delete.OffsetDeleteRequestPartition(partition_index=index),),
            )
            for topic, index in keys
        ),
    )


def test_delete_offsets(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5, ("t", 1): 6}), 9)
    answer = harness.later(delete("g", ("t", 0), ("t", 9), ("u", 0), ("t", 2)), 0)
    assert answer.error_code == 0
    assert [
        (topic.name, each.partition_index, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ] == [
        ("t", 0, 0),
        ("t", 9, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, 0),
    ]
    (topic,) = harness.later(fetch_all(), 9).groups[0].topics
    assert [each.partition_index for each in topic.partitions] == [1]


@pytest.mark.parametrize(
    ("group_id", "error"), [("", Error.INVALID_GROUP_ID), ("nope", Error.GROUP_ID_NOT_FOUND)]
)
def test_delete_offsets_of_no_group(harness: GroupHarness, group_id: str, error: Error) -> None:
    answer = harness.later(delete(group_id, ("t", 0)), 0)
    assert (answer.error_code, answer.topics) == (error, ())


def test_all_offsets_of_a_group_are_returned_once(harness: GroupHarness) -> None:
    harness.later(commit_request({("t", 0): 5}), 8)
    group = fetch_all().groups[0]
    answer = harness.later(offset_fetch.OffsetFetchRequest(groups=(group,) * 500), 9)
    assert [each.group_id for each in answer.groups] == ["g"]
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5
