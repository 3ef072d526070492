"""The broker hands each metadata change to its parts, in the right order, and stops cleanly.

Method: records replayed into deltas; a group coordinator that notes what it hears.
"""

import pytest

from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.delta import delta_between
from ottla.metadata.image import EMPTY
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord

from .harness import LOG_DIR, BrokerHarness, batch

OFFSETS_ID = Uuid(b"o" * 16)


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    return harness


def test_the_group_coordinator_gets_its_partitions(harness: BrokerHarness) -> None:
    harness.add_topic(OFFSETS_TOPIC, OFFSETS_ID, partitions=2, replicas=(1, 2), isr=(1, 2))
    harness.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, leader=2))
    harness.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, isr=(2,)))
    harness.commit(PartitionChangeRecord(partition_id=1, topic_id=OFFSETS_ID, leader=1))
    harness.commit(RemoveTopicRecord(topic_id=OFFSETS_ID))
    assert harness.groups.calls == [
        ("became_leader", 0),
        ("became_leader", 1),
        ("resigned", 1),
        ("resigned", 1),
        ("became_leader", 1),
        ("resigned", 0),
        ("resigned", 1),
        ("topics_deleted", {OFFSETS_ID: OFFSETS_TOPIC}),
    ]


def test_the_group_coordinator_gets_deleted_topics(harness: BrokerHarness) -> None:
    harness.add_topic("t")
    harness.commit(RemoveTopicRecord(topic_id=Uuid(b"t" * 16)))
    assert harness.groups.calls == [("topics_deleted", {Uuid(b"t" * 16): "t"})]


@pytest.mark.parametrize("broker", [ALL_BROKERS, "1"])
def test_a_broker_wide_default_reaches_every_log(harness: BrokerHarness, broker: str) -> None:
    harness.add_topic()
    log = harness.broker.replicas.partition("t", 0).leader_log()
    harness.commit(
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name=broker,
            name="log.retention.ms",
            value="1234",
        )
    )
    assert log.config.retention_ms == 1234


def test_another_brokers_setting_does_not(harness: BrokerHarness) -> None:
    harness.add_topic()
    log = harness.broker.replicas.partition("t", 0).leader_log()
    harness.commit(
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="2",
            name="log.retention.ms",
            value="1234",
        )
    )
    assert log.config.retention_ms != 1234


def test_a_deleted_replica_stays_on_disk_as_long_as_the_dynamic_delay_says(
    harness: BrokerHarness,
) -> None:
    def set_delay(value: str | None) -> None:
        harness.commit(
            ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name=ALL_BROKERS,
                name="log.segment.delete.delay.ms",
                value=value,
            )
        )

    def deleted() -> list[str]:
        return [name for name in harness.disk.listdir(LOG_DIR) if name.endswith("-delete")]

    set_delay("1000")
    harness.add_topic()
    harness.commit(RemoveTopicRecord(topic_id=Uuid(b"t" * 16)))
    assert deleted()
    harness.clock.advance(1_000)
    assert not deleted()

    set_delay(None)
    harness.add_topic("u", Uuid(b"u" * 16))
    harness.commit(RemoveTopicRecord(topic_id=Uuid(b"u" * 16)))
    harness.clock.advance(59_000)
    assert deleted()
    harness.clock.advance(1_000)
    assert not deleted()


def test_records_survive_a_restart(harness: BrokerHarness) -> None:
    harness.add_topic()
    harness.broker.replicas.append("t", 0, batch("a", "b"))
    image = harness.broker.image
    harness.broker.shutdown()
    assert harness.disk.exists(f"{LOG_DIR}/.kafka_cleanshutdown")
    assert ("shutdown", None) in harness.groups.calls

    again = BrokerHarness(disk=harness.disk)
    again.load(image)
    again.broker.apply(delta_between(EMPTY, image))
    log = again.broker.replicas.partition("t", 0).leader_log()
    assert (log.log_end_offset, log.high_watermark) == (2, 2)


def test_no_log_is_created_at_a_start_while_a_log_dir_is_offline(harness: BrokerHarness) -> None:
    """A missing log may be in the log directory that is offline (KAFKA-16234)."""
    harness.add_topic()
    image = harness.broker.image
    again = BrokerHarness({"log.dirs": "/one,/two"})
    again.log_dirs.dirs[0].error = OSError(5, "broken")
    again.broker.apply(delta_between(EMPTY, image))
    assert again.broker.replicas.partition("t", 0).log is None
    # New partitions are created in the log directory that is online.
    again.add_topic("new", Uuid(b"n" * 16))
    assert again.broker.replicas.partition("new", 0).log is not None


def test_no_timer_is_left_after_the_end(harness: BrokerHarness) -> None:
    harness.broker.start_serving()
    assert len(harness.timers) > 0
    harness.broker.shutdown()
    assert len(harness.timers) == 0
