"""The purger and the replicas read the same metadata partitions, each for its own reasons.

Method: a broker with remote storage; what it reads of the segment metadata is
looked at while a topic lives, is deleted and is purged.
"""

from typing import Any, cast

from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.object_store import ObjectStore
from ottla.metadata.deletions import SUCCESSFUL, DeletionImage, Policy, Remote, deletion_records
from ottla.metadata.records import (
    ForgetDeletionRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.tiering import TopicTiering, tiering_record
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness

METADATA_ID = Uuid(b"m" * 16)
NO_STORE = cast(ObjectStore, object())
"""No task begins before its metadata are read, and these never are."""
ENTRY = DeletionImage(
    topic_id=TOPIC_ID, name="t", policy=Policy.AT_ONCE, asked_ms=1, remote=Remote.PENDING
).with_status(1, SUCCESSFUL, [0])


def assigned(harness: BrokerHarness) -> set[tuple[Uuid, int]]:
    remote = harness.broker.remote
    assert remote is not None
    return set(remote.metadata._reader.assigned)


def started() -> BrokerHarness:
    harness = BrokerHarness(store=NO_STORE)
    harness.add_broker()
    return harness


def add_metadata_topic(harness: BrokerHarness) -> None:
    partition: dict[str, Any] = {"replicas": (1,), "isr": (1,), "leader": 1}
    harness.commit(
        TopicRecord(name=REMOTE_LOG_METADATA_TOPIC, topic_id=METADATA_ID),
        PartitionRecord(
            partition_id=0, topic_id=METADATA_ID, leader_epoch=0, partition_epoch=0, **partition
        ),
    )


def test_a_deleted_topic_is_read_until_it_is_purged() -> None:
    harness = started()
    add_metadata_topic(harness)
    harness.add_topic()
    harness.commit(tiering_record(TopicTiering(topic_id=TOPIC_ID)))
    assert assigned(harness) == {(TOPIC_ID, 0)}
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID), *deletion_records(ENTRY))
    assert assigned(harness) == {(TOPIC_ID, 0)}
    harness.commit(ForgetDeletionRecord(topic_id=TOPIC_ID))
    assert assigned(harness) == set()


def test_a_replica_that_is_deleted_after_the_purge_has_begun() -> None:
    harness = started()
    add_metadata_topic(harness)
    harness.add_topic()
    harness.commit(tiering_record(TopicTiering(topic_id=TOPIC_ID)))
    harness.commit(*deletion_records(ENTRY))
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert assigned(harness) == {(TOPIC_ID, 0)}
    harness.commit(ForgetDeletionRecord(topic_id=TOPIC_ID))
    assert assigned(harness) == set()


def test_a_topic_that_is_purged_before_its_replica_here_is_deleted() -> None:
    harness = started()
    add_metadata_topic(harness)
    harness.add_topic()
    harness.commit(tiering_record(TopicTiering(topic_id=TOPIC_ID)))
    harness.commit(*deletion_records(ENTRY))
    harness.commit(ForgetDeletionRecord(topic_id=TOPIC_ID))
    assert assigned(harness) == {(TOPIC_ID, 0)}


def test_the_metadata_topic_is_wanted_while_a_purge_is_pending() -> None:
    harness = started()
    remote = harness.broker.remote
    assert remote is not None
    assert not remote.purger.is_needed
    harness.commit(*deletion_records(ENTRY))
    assert remote.purger.is_needed
    assert remote.metadata._creation._wanted
    harness.commit(ForgetDeletionRecord(topic_id=TOPIC_ID))
    assert not remote.metadata._creation._wanted
