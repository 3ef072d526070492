"""The table of replica states says what Kafka's does, and states follow from the image.

Method: the table row by row, under the names of Kafka's ReplicaStateMachineTest; images made from
records, as a KRaft cluster's and as one's over ZooKeeper.
"""

import re
from dataclasses import replace

import pytest

from ottla.controller.partitions.replica_states import (
    PREVIOUS,
    ReplicaState,
    is_legal,
    replica_state_of,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_UNASSIGNED

from ..builders import THREE, advance, broker, uuid
from ..model_brokers import cluster_image, led, never_led, topic, topic_id

S = ReplicaState
NAMES = {each.kafka_name.lower(): each for each in S}


def pair(name: str) -> tuple[S, S]:
    """Return source and target of the transition that a test of Kafka's is about."""
    found = re.fullmatch(r"test_(?:invalid_)?(\w+)_to_(\w+)_transition", name)
    assert found is not None
    source, target = (NAMES[each.replace("_", "")] for each in found.groups())
    return source, target


LEGAL = [
    "test_nonexistent_replica_to_new_replica_transition",
    "test_new_replica_to_online_replica_transition",
    "test_new_replica_to_offline_replica_transition",
    "test_online_replica_to_online_replica_transition",
    "test_online_replica_to_offline_replica_transition",
    "test_offline_replica_to_online_replica_transition",
    "test_offline_replica_to_offline_replica_transition",
    "test_offline_replica_to_replica_deletion_started_transition",
    "test_offline_replica_to_replica_deletion_ineligible_transition",
    "test_replica_deletion_started_to_replica_deletion_successful_transition",
    "test_replica_deletion_started_to_replica_deletion_ineligible_transition",
    "test_replica_deletion_ineligible_to_online_replica_transition",
    "test_replica_deletion_ineligible_to_offline_replica_transition",
    "test_replica_deletion_successful_to_nonexistent_replica_transition",
]
INVALID = [
    "test_invalid_nonexistent_replica_to_online_replica_transition",
    "test_invalid_nonexistent_replica_to_offline_replica_transition",
    "test_invalid_nonexistent_replica_to_replica_deletion_started_transition",
    "test_invalid_nonexistent_replica_to_replica_deletion_ineligible_transition",
    "test_invalid_nonexistent_replica_to_replica_deletion_successful_transition",
    "test_invalid_new_replica_to_nonexistent_replica_transition",
    "test_invalid_new_replica_to_replica_deletion_started_transition",
    "test_invalid_new_replica_to_replica_deletion_ineligible_transition",
    "test_invalid_new_replica_to_replica_deletion_successful_transition",
    "test_invalid_online_replica_to_nonexistent_replica_transition",
    "test_invalid_online_replica_to_new_replica_transition",
    "test_invalid_online_replica_to_replica_deletion_started_transition",
    "test_invalid_online_replica_to_replica_deletion_ineligible_transition",
    "test_invalid_online_replica_to_replica_deletion_successful_transition",
    "test_invalid_offline_replica_to_nonexistent_replica_transition",
    "test_invalid_offline_replica_to_new_replica_transition",
    "test_invalid_offline_replica_to_replica_deletion_successful_transition",
    "test_invalid_replica_deletion_started_to_nonexistent_replica_transition",
    "test_invalid_replica_deletion_started_to_new_replica_transition",
    "test_invalid_replica_deletion_started_to_online_replica_transition",
    "test_invalid_replica_deletion_started_to_offline_replica_transition",
    "test_invalid_replica_deletion_successful_to_new_replica_transition",
    "test_invalid_replica_deletion_successful_to_online_replica_transition",
    "test_invalid_replica_deletion_successful_to_offline_replica_transition",
    "test_invalid_replica_deletion_successful_to_replica_deletion_started_transition",
    "test_invalid_replica_deletion_successful_to_replica_deletion_ineligible_transition",
    "test_invalid_replica_deletion_ineligible_to_nonexistent_replica_transition",
    "test_invalid_replica_deletion_ineligible_to_new_replica_transition",
    "test_invalid_replica_deletion_ineligible_to_replica_deletion_started_transition",
    "test_invalid_replica_deletion_ineligible_to_replica_deletion_successful_transition",
]
"""Kafka's thirty tests; what is neither here nor there repeats a state that cannot be repeated."""


@pytest.mark.parametrize("name", LEGAL)
def test_legal_transitions(name: str) -> None:
    assert is_legal(*pair(name))


@pytest.mark.parametrize("name", INVALID)
def test_invalid_transitions(name: str) -> None:
    assert not is_legal(*pair(name))


def test_the_table_has_these_transitions_and_no_others() -> None:
    legal, invalid = {pair(each) for each in LEGAL}, {pair(each) for each in INVALID}
    assert {(a, b) for a in S for b in S if is_legal(a, b)} == legal
    assert set(PREVIOUS) == set(S)
    assert len(invalid) == 30
    repeated = {(each, each) for each in S if each not in (S.ONLINE, S.OFFLINE)}
    assert len(legal | invalid | repeated) == len(S) ** 2


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
def test_a_replica_in_a_failed_log_dir_is_offline(directory: bytes, state: S) -> None:
    image = image_of((1, 2), (1,))
    topic = image.topics.by_id(ID)
    assert topic is not None
    moved = replace(topic.partitions[0], directories=(uuid("dir-1"), directory))  # type: ignore[arg-type]
    image = replace(image, topics=image.topics.with_topic(topic.with_partition(0, moved)))
    assert replica_state_of(image, ID, 0, 2) is state


# -- a new controller over ZooKeeper -----------------------------------------------------------

T = topic_id("t")


def test_startup_online_partition() -> None:
    assert replica_state_of(cluster_image([1, 2], topic("t", led([1, 2]))), T, 0, 1) is S.ONLINE


def test_startup_offline_partition() -> None:
    image = cluster_image([2], topic("t", led([1, 2])))
    assert replica_state_of(image, T, 0, 1) is S.OFFLINE
    assert replica_state_of(image, T, 0, 2) is S.ONLINE


def test_startup_with_replica_without_leader() -> None:
    assert replica_state_of(cluster_image([2], topic("t", never_led(1))), T, 0, 1) is S.OFFLINE
