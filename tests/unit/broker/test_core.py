"""The broker hands each metadata change to its parts, in the right order, and stops cleanly.

Method: records replayed into deltas; a group coordinator that notes what it hears.
"""

import pytest

from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord

from .world import LOG_DIR, World, batch

OFFSETS_ID = Uuid(b"o" * 16)


@pytest.fixture
def world() -> World:
    world = World()
    world.add_broker()
    return world


def test_the_group_coordinator_gets_its_partitions(world: World) -> None:
    world.add_topic(OFFSETS_TOPIC, OFFSETS_ID, partitions=2, replicas=(1, 2), isr=(1, 2))
    world.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, leader=2))
    world.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, isr=(2,)))
    world.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, leader=1))
    world.commit(RemoveTopicRecord(topic_id=OFFSETS_ID))
    assert world.groups.calls == [
        ("became_leader", 0),
        ("became_leader", 1),
        ("resigned", 1),
        ("resigned", 1),
        ("became_leader", 1),
        ("resigned", 0),
        ("resigned", 1),
        ("topics_deleted", {OFFSETS_ID: OFFSETS_TOPIC}),
    ]


def test_the_group_coordinator_gets_deleted_topics(world: World) -> None:
    world.add_topic("t")
    world.commit(RemoveTopicRecord(topic_id=Uuid(b"t" * 16)))
    assert world.groups.calls == [("topics_deleted", {Uuid(b"t" * 16): "t"})]


@pytest.mark.parametrize("broker", [ALL_BROKERS, "1"])
def test_a_broker_wide_default_reaches_every_log(world: World, broker: str) -> None:
    world.add_topic()
    log = world.broker.replicas.partition("t", 0).leader_log()
    world.commit(
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name=broker,
            name="log.retention.ms",
            value="1234",
        )
    )
    assert log.config.retention_ms == 1234


def test_another_brokers_setting_does_not(world: World) -> None:
    world.add_topic()
    log = world.broker.replicas.partition("t", 0).leader_log()
    world.commit(
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="2",
            name="log.retention.ms",
            value="1234",
        )
    )
    assert log.config.retention_ms != 1234


def test_records_survive_a_restart(world: World) -> None:
    world.add_topic()
    world.broker.replicas.append("t", 0, batch("a", "b"))
    image = world.broker.image
    world.broker.shutdown()
    assert world.disk.exists(f"{LOG_DIR}/.kafka_cleanshutdown")
    assert ("shutdown", None) in world.groups.calls

    again = World(disk=world.disk)
    again.load(image)
    again.broker.apply(delta_between(EMPTY, image))
    log = again.broker.replicas.partition("t", 0).leader_log()
    assert (log.log_end_offset, log.high_watermark) == (2, 2)


def test_no_log_is_created_at_a_start_while_a_log_dir_is_offline(world: World) -> None:
    """A missing log may be in the log directory that is offline (KAFKA-16234)."""
    world.add_topic()
    image = world.broker.image
    again = World({"log.dirs": "/one,/two"})
    again.log_dirs.dirs[0].error = OSError(5, "broken")
    again.broker.apply(delta_between(EMPTY, image))
    assert again.broker.replicas.partition("t", 0).log is None
    # New partitions are created in the log directory that is online.
    again.add_topic("new", Uuid(b"n" * 16))
    assert again.broker.replicas.partition("new", 0).log is not None


def test_no_timer_is_left_after_the_end(world: World) -> None:
    world.broker.start_serving()
    assert len(world.timers) > 0
    world.broker.shutdown()
    assert len(world.timers) == 0
