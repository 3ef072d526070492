"""The table of partition states says what Kafka's does, and states follow from the image.

Method: the table row by row, under the names of Kafka's PartitionStateMachineTest; images made from
records, as a KRaft cluster's and as one's over ZooKeeper.
"""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.controller.partitions.partition_states import (
    PREVIOUS,
    PartitionState,
    is_legal,
    partition_state_of,
)
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

from ..builders import THREE, advance, uuid
from ..model_brokers import change, cluster_image, led, never_led, topic, topic_id

S = PartitionState
LEGAL = {
    "test_nonexistent_partition_to_new_partition_transition": (S.NON_EXISTENT, S.NEW),
    "test_new_partition_to_online_partition_transition": (S.NEW, S.ONLINE),
    "test_new_partition_to_offline_partition_transition": (S.NEW, S.OFFLINE),
    "test_online_partition_to_online_transition": (S.ONLINE, S.ONLINE),
    "test_online_partition_to_offline_transition": (S.ONLINE, S.OFFLINE),
    "test_offline_partition_to_online_partition_transition": (S.OFFLINE, S.ONLINE),
    "test_offline_partition_to_offline_partition_transition": (S.OFFLINE, S.OFFLINE),
    "test_offline_partition_to_nonexistent_partition_transition": (S.OFFLINE, S.NON_EXISTENT),
}
INVALID = {
    "test_invalid_nonexistent_partition_to_online_partition_transition": (S.NON_EXISTENT, S.ONLINE),
    "test_invalid_nonexistent_partition_to_offline_partition_transition": (
        S.NON_EXISTENT,
        S.OFFLINE,
    ),
    "test_invalid_new_partition_to_nonexistent_partition_transition": (S.NEW, S.NON_EXISTENT),
    "test_invalid_online_partition_to_nonexistent_partition_transition": (S.ONLINE, S.NON_EXISTENT),
    "test_invalid_online_partition_to_new_partition_transition": (S.ONLINE, S.NEW),
    "test_invalid_offline_partition_to_new_partition_transition": (S.OFFLINE, S.NEW),
}
"""Kafka's tests; what is neither here nor there repeats a state that cannot be repeated."""


@pytest.mark.parametrize(("source", "target"), LEGAL.values(), ids=LEGAL)
def test_legal_transitions(source: S, target: S) -> None:
    assert is_legal(source, target)


@pytest.mark.parametrize(("source", "target"), INVALID.values(), ids=INVALID)
def test_invalid_transitions(source: S, target: S) -> None:
    assert not is_legal(source, target)


def test_the_table_has_these_transitions_and_no_others() -> None:
    assert {(a, b) for a in S for b in S if is_legal(a, b)} == set(LEGAL.values())
    assert set(PREVIOUS) == set(S)
    repeated = {(S.NEW, S.NEW), (S.NON_EXISTENT, S.NON_EXISTENT)}
    assert len({*LEGAL.values(), *INVALID.values(), *repeated}) == len(S) ** 2


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


# -- over ZooKeeper ----------------------------------------------------------------------------

T = topic_id("t")


def begun(image: ClusterImage) -> ClusterImage:
    """Return the image once the deletion of "t" has begun."""
    return change(queued(image), [replicas_record(T, 1, STARTED, [0])]).image


def queued(image: ClusterImage) -> ClusterImage:
    asked = DeletionImage(topic_id=T, name="t", policy=Policy.CLASSIC, asked_ms=1)
    return change(image, [header_record(asked)]).image


def test_a_partition_that_nobody_ever_led_is_new() -> None:
    image = cluster_image(
        [1, 2], topic("t", never_led(1, 2), led([1, 2]), led([1, 2], leader=NO_LEADER))
    )
    found = [partition_state_of(image, T, number) for number in range(4)]
    assert found == [S.NEW, S.ONLINE, S.OFFLINE, S.NON_EXISTENT]


def test_a_partition_whose_deletion_has_begun_exists_no_more() -> None:
    image = cluster_image([1, 2], topic("t", led([1, 2])), topic("u", led([1, 2])))
    assert partition_state_of(queued(image), T, 0) is S.ONLINE
    assert partition_state_of(begun(image), T, 0) is S.NON_EXISTENT
    assert partition_state_of(begun(image), topic_id("u"), 0) is S.ONLINE


def offline_count(image: ClusterImage) -> int:
    return sum(
        partition_state_of(image, each.id, number) is S.OFFLINE
        for each in image.topics
        for number in each.partitions
    )


FOUR_OFFLINE = cluster_image([2], topic("t", *[led([1], leader=NO_LEADER)] * 4))


def test_updating_offline_partitions_count() -> None:
    assert offline_count(FOUR_OFFLINE) == 4
    found = [PartitionChangeRecord(partition_id=each, topic_id=T, leader=1) for each in range(4)]
    assert offline_count(change(FOUR_OFFLINE, found).image) == 0


def test_no_offline_partitions_change_for_topics_being_deleted() -> None:
    image = begun(cluster_image([1], topic("t", *[led([1])] * 4)))
    lost = [
        PartitionChangeRecord(partition_id=each, topic_id=T, leader=NO_LEADER) for each in range(4)
    ]
    assert offline_count(change(image, lost).image) == 0


def test_updating_offline_partitions_count_during_topic_deletion() -> None:
    assert offline_count(queued(FOUR_OFFLINE)) == 4
    assert offline_count(begun(FOUR_OFFLINE)) == 0
    assert offline_count(change(begun(FOUR_OFFLINE), [RemoveTopicRecord(topic_id=T)]).image) == 0
