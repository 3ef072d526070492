"""The logs of many new partitions are created in steps, and found when the change is applied.

Method: changes replayed by hand, with real logs on a disk in memory.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.base.turns import at_once
from ottla.broker.logs.log_creation import LOGS_AT_ONCE_MAX, new_partitions
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.testing.disk import Fault
from tests.unit.broker.harness import LOG_DIR, TOPIC_ID, BrokerHarness, config_record

NEW_ID = Uuid(b"n" * 16)
MANY = LOGS_AT_ONCE_MAX + 3


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    return harness


def partitions(
    *numbers: int, topic_id: Uuid = TOPIC_ID, replicas: tuple[int, ...] = (1,)
) -> list[Record]:
    return [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        for number in numbers
    ]


def change(image: ClusterImage, *records: Record) -> ClusterDelta:
    offset, epoch = image.position
    return replay(image, records, offset=offset + len(records), epoch=epoch)


def a_topic(harness: BrokerHarness, count: int = MANY, name: str = "t") -> ClusterDelta:
    made = TopicRecord(name=name, topic_id=TOPIC_ID)
    return change(harness.broker.image, made, *partitions(*range(count)))


def partition_dirs(harness: BrokerHarness) -> list[str]:
    return sorted(name for name in harness.disk.listdir(LOG_DIR) if name[-1].isdigit())


def test_each_step_makes_one_log_and_the_change_finds_them_all(harness: BrokerHarness) -> None:
    delta = a_topic(harness)
    steps = harness.broker.replicas.prepare(delta)
    assert steps is not None
    for count in range(1, MANY + 1):
        next(steps)
        assert len(partition_dirs(harness)) == count
        assert list(harness.broker.replicas.hosted()) == []
    at_once(steps)
    made = [harness.log_dirs.get("t", number) for number in range(MANY)]
    harness.broker.apply(delta)
    assert [each.log for each in harness.broker.replicas.hosted()] == made
    assert all(each.is_leader for each in harness.broker.replicas.hosted())


def test_a_few_are_made_when_the_change_is_followed(harness: BrokerHarness) -> None:
    delta = a_topic(harness, LOGS_AT_ONCE_MAX)
    assert harness.broker.replicas.prepare(delta) is None
    assert harness.log_dirs.get("t", 0) is None


def test_they_are_made_as_the_topic_is_configured(harness: BrokerHarness) -> None:
    harness.commit(config_record("t", "segment_bytes", "2000000"))
    delta = a_topic(harness)
    steps = harness.broker.replicas.prepare(delta)
    assert steps is not None
    at_once(steps)
    log = harness.log_dirs.get("t", 0)
    assert log is not None
    assert log.config.segment_bytes == 2_000_000


def test_a_name_that_another_topic_still_has_is_left_to_the_change(harness: BrokerHarness) -> None:
    harness.commit(*a_topic_of(NEW_ID))
    old = harness.log_dirs.get("t", 0)
    delta = change(harness.broker.image, RemoveTopicRecord(topic_id=NEW_ID), *a_topic_of(TOPIC_ID))
    steps = harness.broker.replicas.prepare(delta)
    assert steps is not None
    at_once(steps)
    assert harness.log_dirs.get("t", 0) is old
    harness.broker.apply(delta)
    assert {each.topic_id for each in harness.broker.replicas.hosted()} == {TOPIC_ID}
    assert not [each for each in harness.disk.listdir(LOG_DIR) if each.endswith("-stray")]


def a_topic_of(topic_id: Uuid) -> list[Record]:
    return [TopicRecord(name="t", topic_id=topic_id), *partitions(*range(MANY), topic_id=topic_id)]


def test_a_failed_log_creation_is_logged_when_the_change_is_applied(
    harness: BrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    delta = a_topic(harness)
    harness.disk.faults.append(Fault(path=LOG_DIR, times=None))
    steps = harness.broker.replicas.prepare(delta)
    assert steps is not None
    at_once(steps)
    assert caplog.text == ""
    harness.broker.apply(delta)
    assert f"log creation failed: {MANY} partitions, such as t-0 (" in caplog.text
    assert all(each.log is None for each in harness.broker.replicas.hosted())


class TestWhatIsNew:
    """Which partitions a change gives a broker to host."""

    def test_those_of_a_new_topic_that_it_hosts(self, harness: BrokerHarness) -> None:
        records = [*partitions(1, 0), *partitions(2, replicas=(2, 3)), *partitions(3)]
        delta = change(harness.broker.image, TopicRecord(name="t", topic_id=TOPIC_ID), *records)
        assert [index for _, index in new_partitions(delta, 1)] == [0, 1, 3]

    def test_those_that_a_topic_grows_by_and_those_moved_here(self, harness: BrokerHarness) -> None:
        harness.add_topic(partitions=1)
        harness.commit(*partitions(1, replicas=(2, 3)))
        moved = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, replicas=(2, 1))
        led = PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1)
        delta = change(harness.broker.image, moved, led, *partitions(2))
        assert [(topic.name, index) for topic, index in new_partitions(delta, 1)] == [
            ("t", 1),
            ("t", 2),
        ]
        assert list(new_partitions(delta, 9)) == []
