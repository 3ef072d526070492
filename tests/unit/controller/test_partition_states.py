"""The table of partition states says what Kafka's does, and KRaft's states follow from the image.

Method: the table row by row; images made from records.
"""

from dataclasses import replace

from ottla.base.ids import NO_LEADER
from ottla.controller.partition_states import PREVIOUS, PartitionState, is_legal, partition_state_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

from .world import THREE, advance, uuid

S = PartitionState
LEGAL = {
    (S.NON_EXISTENT, S.NEW),
    (S.NEW, S.ONLINE),
    (S.NEW, S.OFFLINE),
    (S.ONLINE, S.ONLINE),
    (S.ONLINE, S.OFFLINE),
    (S.OFFLINE, S.ONLINE),
    (S.OFFLINE, S.OFFLINE),
    (S.OFFLINE, S.NON_EXISTENT),
}


def test_the_table_has_these_transitions_and_no_others() -> None:
    assert {(a, b) for a in S for b in S if is_legal(a, b)} == LEGAL
    assert set(PREVIOUS) == set(S)


def test_ids_are_those_of_kafka_s_metrics() -> None:
    assert [(each.kafka_name, each.value) for each in S] == [
        ("NewPartition", 0),
        ("OnlinePartition", 1),
        ("OfflinePartition", 2),
        ("NonExistentPartition", 3),
    ]


ID = uuid("t")


def with_topic() -> ClusterImage:
    return advance(
        THREE,
        [
            TopicRecord(name="t", topic_id=ID),
            PartitionRecord(
                partition_id=0,
                topic_id=ID,
                replicas=(1, 2),
                isr=(1, 2),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(uuid("dir-1"), uuid("dir-2")),
            ),
        ],
    )


def test_the_state_of_a_partition_in_an_image() -> None:
    image = with_topic()
    assert partition_state_of(image, ID, 0) is S.ONLINE
    assert partition_state_of(image, ID, 1) is S.NON_EXISTENT
    gone = PartitionChangeRecord(partition_id=0, topic_id=ID, isr=(1,), leader=NO_LEADER)
    assert partition_state_of(advance(image, [gone]), ID, 0) is S.OFFLINE
    removed = advance(image, [RemoveTopicRecord(topic_id=ID)])
    assert partition_state_of(removed, ID, 0) is S.NON_EXISTENT


def test_a_topic_of_the_same_name_has_states_of_its_own() -> None:
    image = advance(with_topic(), [RemoveTopicRecord(topic_id=ID)])
    again = replace(with_topic().topics.by_name("t"), id=uuid("t2"))  # type: ignore[type-var]
    assert again is not None
    image = replace(image, topics=image.topics.with_topic(again))
    assert partition_state_of(image, ID, 0) is S.NON_EXISTENT
    assert partition_state_of(image, uuid("t2"), 0) is S.ONLINE
