"""The offsets of a deleted topic go, wherever their coordinator was when it was deleted.

Method: broker 1 coordinates with real logs on a disk in memory; another broker coordinates
meanwhile where a test says so, and what it would have written is left out.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.base.turns import at_once
from ottla.broker.api import k08_offset_commit
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.coordinator.records import OffsetCommitValue, OffsetFact, encode_fact
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.records.builder import encode_batch
from ottla.wire.messages import offset_commit, offset_fetch
from tests.unit.broker.group_harness import (
    OFFSETS_ID,
    GroupHarness,
    LateWorkers,
    commit_request,
    fetch_all,
)
from tests.unit.broker.groups.test_group_service import begin_loading, offsets_of
from tests.unit.broker.harness import TOPIC_ID, config_record

NEW_ID = Uuid(b"n" * 16)
PARTITION = 1
"""Of three, the one that group g hashes to."""


@pytest.fixture
def harness() -> GroupHarness:
    harness = GroupHarness()
    harness.add_topic("t", partitions=4)
    harness.add_topic("other", Uuid(b"x" * 16))
    harness.add_offsets_topic()
    harness.later(commit_request({("t", 0): 5, ("t", 3): 8, ("other", 0): 1}), 9)
    return harness


KEPT = {("other", 0): 1}


def made_again() -> Iterator[Any]:
    """Yield the records of the old topic's end and the beginning of a new one of its name."""
    yield RemoveTopicRecord(topic_id=TOPIC_ID)
    yield TopicRecord(name="t", topic_id=NEW_ID)
    yield PartitionRecord(
        partition_id=0,
        topic_id=NEW_ID,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


def away(harness: GroupHarness, *records: Any) -> None:
    """Let something happen while another broker coordinates, and dies before it writes."""
    harness.elect(PARTITION, 2)
    harness.commit(*records)
    harness.elect(PARTITION, 1)


def test_a_deletion_while_the_shard_loads(harness: GroupHarness) -> None:
    late = begin_loading(harness)
    harness.remove_topic(TOPIC_ID)
    late.run()
    assert offsets_of(harness) == KEPT


def test_a_deletion_while_another_broker_coordinates(harness: GroupHarness) -> None:
    away(harness, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert offsets_of(harness) == KEPT


def test_a_new_topic_of_the_name_begins_without_the_old_one_s_offsets(
    harness: GroupHarness,
) -> None:
    """A consumer went on behind the end of the new topic, and was sent to its very end."""
    away(harness, *made_again())
    assert offsets_of(harness) == KEPT
    harness.later(commit_request({("t", 0): 2}), 9)
    begin_loading(harness).run()
    assert offsets_of(harness) == {("t", 0): 2, **KEPT}


def test_the_offsets_are_written_off_not_only_hidden(harness: GroupHarness) -> None:
    """Who loads the partition next may not know the topic's end any more."""
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, PARTITION).log
    assert log is not None
    away(harness, *made_again())
    end = log.log_end_offset
    away(harness)
    assert log.log_end_offset == end
    assert offsets_of(harness) == KEPT


def legacy(harness: GroupHarness, offset: int) -> None:
    """Write an offset of group g in t-0 as one who does not know of ids."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=harness.clock.now_ms())
    key, data = encode_fact(OffsetFact("g", "t", 0, value))
    harness.broker.replicas.append(
        OFFSETS_TOPIC,
        PARTITION,
        bytearray(encode_batch([(key, data, (), harness.clock.now_ms())])),
        origin="coordinator",
    )


def test_an_offset_without_an_id_goes_with_a_deletion_while_it_loads(harness: GroupHarness) -> None:
    legacy(harness, 7)
    late = begin_loading(harness)
    harness.commit(*made_again())
    late.run()
    assert offsets_of(harness) == KEPT


def test_the_next_topic_s_offsets_stay_that_another_coordinator_has_written(
    harness: GroupHarness,
) -> None:
    """Its end, its successor and this broker's election come in one change of the metadata."""
    harness.elect(PARTITION, 2)
    log = harness.broker.replicas.partition(OFFSETS_TOPIC, PARTITION).log
    assert log is not None
    now_ms = harness.clock.now_ms()
    value = OffsetCommitValue(offset=42, metadata="", commit_timestamp=now_ms, topic_id=NEW_ID)
    key, data = encode_fact(OffsetFact("g", "t", 0, value))
    copied = encode_batch([(key, data, (), now_ms)], base_offset=log.log_end_offset)
    log.append_as_follower(bytearray(copied), now_ms=now_ms)
    elected = PartitionChangeRecord(partition_id=PARTITION, topic_id=OFFSETS_ID, leader=1)
    harness.commit(*made_again(), elected)
    assert offsets_of(harness) == {("t", 0): 42, **KEPT}


def test_an_offset_without_a_topic_id_stays_while_its_topic_exists(harness: GroupHarness) -> None:
    legacy(harness, 7)
    away(harness)
    assert offsets_of(harness) == {("t", 0): 7, ("t", 3): 8, **KEPT}


def test_what_cannot_be_written_off_at_once_is_written_off_later() -> None:
    """Too few replicas are in sync when the shard is loaded."""
    harness = GroupHarness({"offsets.retention.check.interval.ms": "10000"})
    harness.add_broker(2)
    harness.add_topic("t")
    harness.add_offsets_topic(replicas=(1, 2), isr=(1,), min_insync_replicas="1")
    harness.later(commit_request({("t", 0): 5}), 9)
    harness.commit(config_record(OFFSETS_TOPIC, "min.insync.replicas", "2"))
    harness.elect(PARTITION, 2)
    harness.remove_topic(TOPIC_ID)
    harness.elect(PARTITION, 1)
    assert offsets_of(harness) == {("t", 0): 5}
    harness.add_topic("t", NEW_ID)
    assert offsets_of(harness) == {}, "it is another topic's"
    assert harness.service.shard_of("g").offsets.count == 1
    harness.commit(config_record(OFFSETS_TOPIC, "min.insync.replicas", "1"))
    harness.clock.advance(20_000)
    assert harness.service.shard_of("g").offsets.count == 0


def use_zk_metadata(harness: GroupHarness, *gone: Uuid) -> None:
    """Put the broker into ZooKeeper mode."""
    facts = ZkMetadata(
        harness.broker.node_id, deleted_ids=dict.fromkeys(gone, 1), has_full_metadata=True
    )
    harness.broker.zk_metadata = SimpleNamespace(facts=facts)  # type: ignore[assignment]


def test_over_zookeeper_offsets_of_unknown_topics_stay(
    harness: GroupHarness,
) -> None:
    """Its request may not have come yet, or a znode of the topic could not be read."""
    begin = LateWorkers()
    harness.broker.workers = begin
    harness.elect(PARTITION, 2)
    harness.remove_topic(TOPIC_ID)
    use_zk_metadata(harness)
    harness.elect(PARTITION, 1)
    begin.run()
    assert offsets_of(harness) == {("t", 0): 5, ("t", 3): 8, **KEPT}


def test_over_zookeeper_offsets_of_deleted_topics_are_deleted(
    harness: GroupHarness,
) -> None:
    harness.elect(PARTITION, 2)
    harness.remove_topic(TOPIC_ID)
    use_zk_metadata(harness, TOPIC_ID)
    harness.elect(PARTITION, 1)
    assert offsets_of(harness) == KEPT


def test_over_zookeeper_a_new_topic_of_the_name_is_distinguished_by_its_id(
    harness: GroupHarness,
) -> None:
    harness.elect(PARTITION, 2)
    harness.commit(*made_again())
    use_zk_metadata(harness)
    harness.elect(PARTITION, 1)
    assert offsets_of(harness) == KEPT
    assert harness.broker.image.topics.by_id(OFFSETS_ID) is not None
    assert kept_ids(harness) == set()


def kept_ids(harness: GroupHarness) -> set[Uuid]:
    """Return the ids of the offsets of topics called t that the coordinator keeps."""
    offsets = harness.service.shard_of("g").offsets
    return {each for number in range(4) for each in offsets.topic_ids("g", "t", number)}


def test_over_zookeeper_no_topic_counts_as_deleted_before_the_full_metadata(
    harness: GroupHarness,
) -> None:
    use_zk_metadata(harness)
    facts = harness.broker.zk_metadata.facts  # type: ignore[union-attr]
    facts.inconsistent_ids["t"] = NEW_ID
    facts.has_full_metadata = False
    harness.service.tick()
    assert kept_ids(harness) == {TOPIC_ID}
    facts.has_full_metadata = True
    harness.service.tick()
    assert kept_ids(harness) == set()


def test_over_zookeeper_a_rejected_successor_of_a_topic_is_known(harness: GroupHarness) -> None:
    """A replica of the former one is here still: groups are those of the next one already."""
    use_zk_metadata(harness)
    harness.broker.zk_metadata.facts.inconsistent_ids["t"] = NEW_ID  # type: ignore[union-attr]
    assert offsets_of(harness) == KEPT
    harness.later(commit_request({("t", 0): 2}), 9)
    harness.elect(PARTITION, 2)
    harness.elect(PARTITION, 1)
    harness.remove_topic(TOPIC_ID)
    assert offsets_of(harness) == {("t", 0): 2, **KEPT}
    assert kept_ids(harness) == {NEW_ID}


def test_a_topic_id_does_not_match_the_next_topics_offsets(harness: GroupHarness) -> None:
    """A commit that named the former topic was stored as one of the topic that has its name."""
    use_zk_metadata(harness)
    harness.broker.zk_metadata.facts.inconsistent_ids["t"] = NEW_ID  # type: ignore[union-attr]
    harness.later(commit_request({("t", 0): 2}), 9)
    (topic,) = harness.later(commit_by_id(TOPIC_ID, 5_000), 10).topics
    assert topic.partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
    assert offsets_of(harness) == {("t", 0): 2, **KEPT}
    asked = offset_fetch.OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=(0,))
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=(asked,))
    (found,) = harness.later(offset_fetch.OffsetFetchRequest(groups=(group,)), 10).groups[0].topics
    assert (found.topic_id, found.partitions[0].error_code) == (TOPIC_ID, Error.UNKNOWN_TOPIC_ID)
    everything = harness.later(fetch_all(), 10).groups[0].topics
    assert {each.topic_id: each.partitions[0].committed_offset for each in everything} == {
        NEW_ID: 2,
        Uuid(b"x" * 16): 1,
    }


@pytest.mark.parametrize("names_topics", [False, True])
def test_offsets_that_are_read_before_a_deletion_keep_their_topic_s_id(names_topics: bool) -> None:
    """The response waits for a commit before it. Under the id of the next topic of the name, a
    consumer of that would begin there."""
    harness = GroupHarness()
    harness.add_topic("t")
    harness.add_offsets_topic(replicas=(1, 2), isr=(1, 2))
    harness.begin(commit_request({("t", 0): 5}), 9)
    asked = offset_fetch.OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=(0,))
    topics = (asked,) if names_topics else None
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    fetching = harness.begin(offset_fetch.OffsetFetchRequest(groups=(group,)), 10)
    harness.commit(*made_again())
    assert not fetching.done
    change = PartitionChangeRecord(partition_id=PARTITION, topic_id=OFFSETS_ID, isr=(1,))
    harness.commit(change)
    (found,) = fetching.value.groups[0].topics
    assert (found.topic_id, found.partitions[0].committed_offset) == (TOPIC_ID, 5)


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("version", [9, 10])
def test_a_topic_is_deleted_between_two_steps_of_a_commit(
    harness: GroupHarness, version: int, is_made_again: bool
) -> None:
    """The offset would be that of the next topic of the name, by its id or for want of one."""
    begun = commit_request({("other", 0): 2, ("t", 0): 5_000}), commit_by_id(TOPIC_ID, 5_000)
    steps = k08_offset_commit.handle.steps(harness.context(8, version), begun[version > 9])
    next(steps)
    harness.commit(*(made_again() if is_made_again else [RemoveTopicRecord(topic_id=TOPIC_ID)]))
    answer: Any = at_once(steps)
    if isinstance(answer, Pending):
        harness.settle(answer)
        answer = answer.value
    error = Error.UNKNOWN_TOPIC_ID if version > 9 else Error.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[-1].partitions[0].error_code == error
    if not is_made_again:
        harness.add_topic("t", NEW_ID)
    assert offsets_of(harness) == {("other", 0): 2 if version == 9 else 1}
    assert kept_ids(harness) == set()


def commit_by_id(topic_id: Uuid, offset: int) -> offset_commit.OffsetCommitRequest:
    """Return an OffsetCommit of group g for partition 0 of a topic."""
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    topic = offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=(part,))
    return offset_commit.OffsetCommitRequest(group_id="g", topics=(topic,))
