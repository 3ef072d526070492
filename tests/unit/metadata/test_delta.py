"""A delta is exact: old image + delta = new image, and it names all that changed and no more.

Method: every record type against a small image; hypothesis compares two whole images; a large
topic shows that a change to one partition shares all the others.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from immutables import Map

from ottla.base.ids import Uuid
from ottla.metadata.brokers import BrokerImage, record_of
from ottla.metadata.delta import APPLY, delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    Record,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import tiering_of, tiering_record
from ottla.metadata.topics import DIRECTORY_MIGRATING, partition_record
from tests.drawn import examples

from .images import HERE, ID, OTHER, PARTITION, THERE, clusters

BROKER = BrokerImage(id=1, epoch=10, incarnation_id=ID, endpoints=())


def after(*records: Record, image: ClusterImage = EMPTY) -> ClusterImage:
    return replay(image, records, offset=20, epoch=2).image


def topic(name: str = "t", topic_id: Uuid = ID, count: int = 2) -> list[Record]:
    parts = [partition_record(topic_id, number, PARTITION) for number in range(count)]
    return [TopicRecord(name=name, topic_id=topic_id), *parts]


BASE = after(*topic(), record_of(BROKER))


def test_every_record_type_has_its_way_into_the_image() -> None:
    assert set(APPLY) == set(RECORD_TYPES)


def test_position_is_that_of_the_last_record() -> None:
    assert after(NoOpRecord()).position == (20, 2)
    assert replace(after(NoOpRecord(), image=BASE), position=BASE.position) == BASE


def test_a_topic_appears_with_its_partitions() -> None:
    delta = replay(EMPTY, topic(), offset=5, epoch=1)
    made = delta.image.topics.by_name("t")
    assert made is not None
    assert made.in_order() == [(0, PARTITION), (1, PARTITION)]
    assert list(delta.created_topics.values()) == [made]
    assert not delta.changed_topics
    assert not delta.deleted_topics


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"isr": (1,)}, {"isr": (1,)}),
        ({"leader": -1}, {"leader": -1, "leader_epoch": 5}),
        ({"leader": 1}, {"leader": 1, "leader_epoch": 5}),
        (
            {"replicas": (2, 3)},
            {"replicas": (2, 3), "directories": (THERE, DIRECTORY_MIGRATING)},
        ),
        (
            {"replicas": (2,), "directories": (HERE,)},
            {"replicas": (2,), "directories": (HERE,)},
        ),
        ({"directories": (THERE, HERE)}, {"directories": (THERE, HERE)}),
        ({"removing_replicas": (1,)}, {"removing_replicas": (1,)}),
        ({"adding_replicas": (3,)}, {"adding_replicas": (3,)}),
        ({"leader_recovery_state": 1}, {"leader_recovery_state": 1}),
        ({"eligible_leader_replicas": (2,)}, {"elr": (2,)}),
        ({"last_known_elr": (2,)}, {"last_known_elr": (2,)}),
        ({}, {}),
    ],
)
def test_a_partition_change_sets_its_fields_and_bumps_the_epoch(
    change: dict[str, object], expected: dict[str, object]
) -> None:
    record = PartitionChangeRecord(partition_id=1, topic_id=ID, **change)  # type: ignore[arg-type]
    delta = replay(BASE, [record], offset=30, epoch=2)
    found = delta.image.topics.by_name("t")
    assert found is not None
    assert found.partitions[1] == replace(PARTITION, partition_epoch=1, **expected)  # type: ignore[arg-type]
    assert found.partitions[0] == PARTITION
    assert [each.partitions for each in delta.changed_topics.values()] == [(1,)]


@pytest.mark.parametrize(("name", "cleared"), [("t", ["t"]), ("", ["t", "u"])])
def test_eligible_leaders_are_forgotten_of_one_topic_or_of_all(
    name: str, cleared: list[str]
) -> None:
    some = replace(PARTITION, elr=(3,), last_known_elr=(4,))
    none = replace(PARTITION, elr=(), last_known_elr=())
    image = after(
        TopicRecord(name="t", topic_id=ID),
        partition_record(ID, 0, some),
        partition_record(ID, 1, none),
        TopicRecord(name="u", topic_id=OTHER),
        partition_record(OTHER, 0, some),
    )
    changed = after(ClearElrRecord(topic_name=name), image=image)
    forgotten = replace(none, partition_epoch=some.partition_epoch + 1)
    for topic in changed.topics:
        expected = forgotten if topic.name in cleared else some
        assert topic.partitions[0] == expected
    kept = changed.topics.by_id(ID)
    assert kept is not None
    assert kept.partitions[1] == none


def test_a_topic_goes_with_its_configs() -> None:
    configured = after(
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        image=BASE,
    )
    delta = replay(configured, [RemoveTopicRecord(topic_id=ID)], offset=30, epoch=2)
    assert [each.name for each in delta.deleted_topics.values()] == ["t"]
    assert delta.changed_configs == {(2, "t")}
    assert not delta.image.configs.resources()
    assert not delta.image.topics.names()


def test_a_tiering_state_is_replaced_and_goes_with_its_topic() -> None:
    enabled = TopicTieringRecord(topic_id=ID, state=1, tiered_epoch=1)
    disabling = TopicTieringRecord(
        topic_id=ID,
        state=2,
        tiered_epoch=2,
        policy=2,
        remote_floor_epoch=1,
        purge_pending=True,
    )
    image = BASE
    for record in (enabled, disabling):
        delta = replay(image, [record], offset=30, epoch=2)
        assert delta.image.tiering == Map({ID: tiering_of(record)})
        assert tiering_record(tiering_of(record)) == record
        assert delta.changed_tiering == {ID}
        # Nothing else of the topic changed, by records and by comparison.
        assert not delta.changed_topics
        between = delta_between(image, delta.image)
        assert (between.changed_tiering, between.changed_topics) == ({ID}, {})
        image = delta.image
    delta = replay(image, [RemoveTopicRecord(topic_id=ID)], offset=31, epoch=2)
    assert delta.image.tiering == Map()
    assert delta.changed_tiering == {ID}
    with pytest.raises(AssertionError):
        after(enabled)


def test_a_name_that_was_deleted_and_made_again_is_in_both_lists() -> None:
    records = [RemoveTopicRecord(topic_id=ID), *topic(topic_id=OTHER)]
    delta = replay(BASE, records, offset=30, epoch=2)
    assert list(delta.deleted_topics) == [ID]
    assert list(delta.created_topics) == [OTHER]
    assert delta.image.topics.id_of("t") == OTHER


def test_a_topic_that_came_and_went_leaves_no_trace() -> None:
    records = [*topic("u", OTHER), RemoveTopicRecord(topic_id=OTHER)]
    delta = replay(BASE, records, offset=30, epoch=2)
    assert not delta.created_topics
    assert not delta.deleted_topics
    assert delta.image.topics == BASE.topics


def test_records_of_two_topics_may_alternate() -> None:
    image = after(*topic(), *topic("u", OTHER))
    image = after(
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1),
        PartitionChangeRecord(partition_id=0, topic_id=OTHER, leader=-1),
        PartitionChangeRecord(partition_id=1, topic_id=ID, leader=-1),
        image=image,
    )
    leaders = [[part.leader for _, part in each.in_order()] for each in image.topics]
    assert leaders == [[-1, -1], [-1, 1]]


def test_a_topic_may_be_removed_between_records_of_another() -> None:
    image = after(*topic(), *topic("u", OTHER))
    image = after(
        PartitionChangeRecord(partition_id=0, topic_id=ID, leader=-1),
        PartitionChangeRecord(partition_id=0, topic_id=OTHER, leader=-1),
        RemoveTopicRecord(topic_id=OTHER),
        PartitionChangeRecord(partition_id=1, topic_id=ID, leader=-1),
        *topic("u", OTHER),
        image=image,
    )
    leaders = {each.name: [part.leader for _, part in each.in_order()] for each in image.topics}
    assert leaders == {"t": [-1, -1], "u": [1, 1]}


def test_brokers_register_change_and_go() -> None:
    steps: list[tuple[Record, BrokerImage | None]] = [
        (UnfenceBrokerRecord(id=1, epoch=10), replace(BROKER, fenced=False)),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, in_controlled_shutdown=1),
            replace(BROKER, fenced=False, in_controlled_shutdown=True),
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, log_dirs=(HERE,)),
            replace(BROKER, fenced=False, in_controlled_shutdown=True, log_dirs=(HERE,)),
        ),
        (
            FenceBrokerRecord(id=1, epoch=10),
            replace(BROKER, in_controlled_shutdown=True, log_dirs=(HERE,)),
        ),
        (
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, fenced=-1),
            replace(BROKER, fenced=False, in_controlled_shutdown=True, log_dirs=(HERE,)),
        ),
        (record_of(replace(BROKER, epoch=40)), replace(BROKER, epoch=40)),
        (UnregisterBrokerRecord(broker_id=1, broker_epoch=40), None),
    ]
    image = BASE
    for record, expected in steps:
        delta = replay(image, [record], offset=30, epoch=2)
        assert delta.changed_brokers == {1}
        image = delta.image
        assert image.brokers.get(1) == expected


def test_a_record_about_another_registration_is_a_broken_log() -> None:
    with pytest.raises(AssertionError):
        after(FenceBrokerRecord(id=1, epoch=9), image=BASE)
    with pytest.raises(AssertionError):
        after(FenceBrokerRecord(id=2, epoch=9), image=BASE)
    with pytest.raises(AssertionError):
        after(PartitionChangeRecord(partition_id=0, topic_id=OTHER), image=BASE)
    with pytest.raises(AssertionError):
        after(RemoveTopicRecord(topic_id=OTHER), image=BASE)


def test_features_producer_ids_and_controllers() -> None:
    image = after(
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="x", feature_level=1),
        FeatureLevelRecord(name="x", feature_level=0),
        FeatureLevelRecord(name="y", feature_level=0),
        ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=1000),
        RegisterControllerRecord(controller_id=3, incarnation_id=ID, end_points=(), features=()),
    )
    assert dict(image.features) == {"metadata.version": 25}
    assert image.producer_ids.next_producer_id == 1000
    assert image.controllers[3].incarnation_id == ID


@settings(max_examples=examples(25))
@given(clusters(), clusters())
def test_a_delta_between_images_names_all_differences(old: ClusterImage, new: ClusterImage) -> None:
    delta = delta_between(old, new)
    assert delta.image is new
    before, later = set(map(str, old.topics)), set(map(str, new.topics))
    expected = {
        *map(str, delta.created_topics.values()),
        *(str(change.new) for change in delta.changed_topics.values()),
    }
    renamed = {str(each) for each in new.topics if each.id in {topic.id for topic in old.topics}}
    assert later - before <= expected | renamed
    assert {each.id for each in old.topics} - {each.id for each in new.topics} == set(
        delta.deleted_topics
    )
    for key in {*old.brokers, *new.brokers}:
        assert (key in delta.changed_brokers) == (old.brokers.get(key) != new.brokers.get(key))
    for resource in {*old.configs.resources(), *new.configs.resources()}:
        changed = old.configs.of(*resource) != new.configs.of(*resource)
        assert (resource in delta.changed_configs) == changed
    for topic_id in {*old.tiering, *new.tiering}:
        changed = old.tiering.get(topic_id) != new.tiering.get(topic_id)
        assert (topic_id in delta.changed_tiering) == changed


@settings(max_examples=examples(25))
@given(clusters())
def test_nothing_differs_between_equal_images(image: ClusterImage) -> None:
    offset, epoch = image.position
    again = replay(EMPTY, image.to_records(), offset=offset, epoch=epoch).image
    delta = delta_between(image, again)
    assert not delta.created_topics
    assert not delta.changed_topics
    assert not delta.deleted_topics
    assert not delta.changed_configs
    assert not delta.changed_brokers
    assert not delta.changed_features
    assert not delta.changed_tiering


def test_one_change_among_ten_thousand_partitions_shares_the_rest() -> None:
    image = after(*topic(count=10_000))
    record = PartitionChangeRecord(partition_id=7_000, topic_id=ID, leader=-1)
    changed = after(record, image=image).topics.by_id(ID)
    before = image.topics.by_id(ID)
    assert before is not None
    assert changed is not None
    differing = [
        number
        for number, partition in changed.in_order()
        if partition is not before.partitions[number]
    ]
    assert differing == [7_000]
