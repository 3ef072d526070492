"""Goal: what ZooKeeper cannot hold is not replayed either. Method: records in, records out."""

from ottla.metadata.records import (
    ClearElrRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from ottla.metadata.znodes.normalise import normalised

from ...controller.builders import uuid

ID = uuid("t")


def test_directories_are_left_out_but_for_lost_ones() -> None:
    record = PartitionRecord(
        partition_id=0,
        topic_id=ID,
        replicas=(1, 2, 3),
        isr=(1,),
        directories=(uuid("d"), DIRECTORY_UNASSIGNED, DIRECTORY_LOST),
        eligible_leader_replicas=(2,),
        last_known_elr=(3,),
    )
    [kept] = normalised([record])
    assert isinstance(kept, PartitionRecord)
    assert kept.directories == (DIRECTORY_MIGRATING, DIRECTORY_MIGRATING, DIRECTORY_LOST)
    assert (kept.eligible_leader_replicas, kept.last_known_elr) == (None, None)
    assert list(normalised([kept])) == [kept]


def test_a_change_of_nothing_else_is_no_change() -> None:
    # Replayed, it would bump the partition's epoch, which is the znode's version.
    change = PartitionChangeRecord(
        partition_id=0, topic_id=ID, directories=(uuid("d"),), eligible_leader_replicas=()
    )
    assert list(normalised([change])) == []
    led = PartitionChangeRecord(
        partition_id=0, topic_id=ID, leader=2, directories=(uuid("d"),), last_known_elr=(1,)
    )
    assert list(normalised([led])) == [PartitionChangeRecord(partition_id=0, topic_id=ID, leader=2)]
    recovered = PartitionChangeRecord(partition_id=0, topic_id=ID, leader_recovery_state=0)
    assert list(normalised([recovered])) == [recovered]


def test_fencing_is_no_fact_where_brokers_are_there_or_not() -> None:
    removal = RemoveTopicRecord(topic_id=ID)
    records = [
        NoOpRecord(),
        FenceBrokerRecord(id=1, epoch=1),
        UnfenceBrokerRecord(id=1, epoch=1),
        ClearElrRecord(topic_name="t"),
        removal,
    ]
    assert list(normalised(records)) == [removal]
