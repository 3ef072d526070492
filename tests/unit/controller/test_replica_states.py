"""The table of replica states says what Kafka's does, and KRaft's states follow from the image.

Method: the table row by row; images made from records.
"""

from dataclasses import replace

import pytest

from ottla.controller.replica_states import PREVIOUS, ReplicaState, is_legal, replica_state_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_UNASSIGNED

from .world import THREE, advance, broker, uuid

S = ReplicaState
LEGAL = {
    (S.NON_EXISTENT, S.NEW),
    (S.NEW, S.ONLINE),
    (S.NEW, S.OFFLINE),
    (S.ONLINE, S.ONLINE),
    (S.ONLINE, S.OFFLINE),
    (S.OFFLINE, S.ONLINE),
    (S.OFFLINE, S.OFFLINE),
    (S.OFFLINE, S.DELETION_STARTED),
    (S.OFFLINE, S.DELETION_INELIGIBLE),
    (S.DELETION_STARTED, S.DELETION_SUCCESSFUL),
    (S.DELETION_STARTED, S.DELETION_INELIGIBLE),
    (S.DELETION_INELIGIBLE, S.ONLINE),
    (S.DELETION_INELIGIBLE, S.OFFLINE),
    (S.DELETION_SUCCESSFUL, S.NON_EXISTENT),
}


def test_the_table_has_these_transitions_and_no_others() -> None:
    assert {(a, b) for a in S for b in S if is_legal(a, b)} == LEGAL
    assert set(PREVIOUS) == set(S)


def test_ids_are_those_of_kafka_s_metrics() -> None:
    assert [(each.kafka_name, each.value) for each in S] == [
        ("NewReplica", 1),
        ("OnlineReplica", 2),
        ("OfflineReplica", 3),
        ("ReplicaDeletionStarted", 4),
        ("ReplicaDeletionSuccessful", 5),
        ("ReplicaDeletionIneligible", 6),
        ("NonExistentReplica", 7),
    ]


ID = uuid("t")


def image_of(
    replicas: tuple[int, ...], isr: tuple[int, ...], adding: tuple[int, ...] = ()
) -> ClusterImage:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=ID,
        replicas=replicas,
        isr=isr,
        adding_replicas=adding,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(uuid(f"dir-{each}") for each in replicas),
    )
    return advance(THREE, [TopicRecord(name="t", topic_id=ID), partition])


def test_the_state_of_a_replica_in_an_image() -> None:
    image = image_of((1, 2), (1,))
    assert replica_state_of(image, ID, 0, 1) is S.ONLINE
    assert replica_state_of(image, ID, 0, 2) is S.ONLINE  # It lags, and lives.
    assert replica_state_of(image, ID, 0, 3) is S.NON_EXISTENT
    assert replica_state_of(image, ID, 1, 1) is S.NON_EXISTENT
    assert replica_state_of(image, uuid("u"), 0, 1) is S.NON_EXISTENT


def test_a_replica_is_new_until_the_reassignment_has_it_in_sync() -> None:
    assert replica_state_of(image_of((1, 2), (1,), (2,)), ID, 0, 2) is S.NEW
    assert replica_state_of(image_of((1, 2), (1, 2), (2,)), ID, 0, 2) is S.ONLINE


@pytest.mark.parametrize("change", [{"fenced": True}, {"in_controlled_shutdown": True}])
def test_a_replica_on_a_broker_that_is_not_active_is_offline(change: dict[str, bool]) -> None:
    image = image_of((1, 2), (1,), (2,))
    image = replace(image, brokers=image.brokers.set(2, broker(2, **change)))
    assert replica_state_of(image, ID, 0, 2) is S.OFFLINE
    image = replace(image, brokers=image.brokers.delete(2))
    assert replica_state_of(image, ID, 0, 2) is S.OFFLINE


@pytest.mark.parametrize(
    ("directory", "state"),
    [
        (uuid("dir-2"), S.ONLINE),
        (DIRECTORY_UNASSIGNED, S.ONLINE),
        (DIRECTORY_LOST, S.OFFLINE),
        (uuid("another"), S.OFFLINE),
    ],
)
def test_a_replica_on_a_failed_folder_is_offline(directory: bytes, state: S) -> None:
    image = image_of((1, 2), (1,))
    topic = image.topics.by_id(ID)
    assert topic is not None
    moved = replace(topic.partitions[0], directories=(uuid("dir-1"), directory))  # type: ignore[arg-type]
    image = replace(image, topics=image.topics.with_topic(topic.with_partition(0, moved)))
    assert replica_state_of(image, ID, 0, 2) is state
