"""The metrics of deletions, in either mode.

Method: images written out; a controller whose gauges are scraped during a deletion.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.base.metrics import render
from ottla.host.controller.deletion_metrics import DeletionCounts, count_deletions
from ottla.host.metric_families import ControllerFamilies
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    HaltReason,
    Policy,
    ReplicaStatus,
    header_record,
    replicas_record,
)
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import PartitionRecord, Record, RemoveTopicRecord, TopicRecord
from tests.exposition import Scrape
from tests.unit.host.kraft.test_deletion_channel import Cluster

PREFIX = "kafka_controller_kafka_controller"
NAMES = (
    "topics_to_delete",
    "replicas_to_delete",
    "topics_ineligible_to_delete",
    "replicas_ineligible_to_delete",
)

TOPIC = Uuid(bytes([7]) * 16)


def an_image(*records: Record) -> ClusterImage:
    """Return a cluster with a topic of two partitions on three brokers, and what was recorded."""
    partitions = (
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC,
            replicas=(1, 2, 3),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for number in range(2)
    )
    made = (TopicRecord(name="t", topic_id=TOPIC), *partitions)
    return replay(EMPTY, [*made, *records], offset=0, epoch=1).image


def queued(halted: HaltReason = HaltReason.NONE) -> Record:
    return header_record(
        DeletionImage(topic_id=TOPIC, name="t", policy=Policy.CLASSIC, asked_ms=1, halted=halted)
    )


def standing(broker_id: int, how: ReplicaStatus, *numbers: int) -> Record:
    return replicas_record(TOPIC, broker_id, how, numbers)


@pytest.mark.parametrize(
    ("records", "counts"),
    [
        ((), (0, 0, 0, 0)),
        ((queued(),), (1, 6, 0, 0)),
        ((queued(HaltReason.REASSIGNMENT),), (1, 6, 1, 0)),
        ((queued(), standing(1, STARTED, 0, 1), standing(2, SUCCESSFUL, 0)), (1, 5, 0, 0)),
        ((queued(), standing(1, SUCCESSFUL, 0, 1), standing(3, BROKER_DOWN, 0, 1)), (1, 4, 1, 2)),
        (
            (
                queued(),
                standing(1, SUCCESSFUL, 0, 1),
                standing(3, BROKER_DOWN, 1),
                RemoveTopicRecord(topic_id=TOPIC),
            ),
            (1, 1, 1, 1),
        ),
    ],
)
def test_what_is_counted_of_deletions(records: tuple[Record, ...], counts: tuple[int, ...]) -> None:
    assert count_deletions(an_image(*records)) == DeletionCounts(*counts)


def gauges(cluster: Cluster) -> tuple[float, ...]:
    families = ControllerFamilies(cluster.controller.log, cluster.controller.runtime)
    found = Scrape("".join(render(families.collect(0))))
    return tuple(found.value(f"{PREFIX}_{name}_count") for name in NAMES)


def test_a_controller_counts_replicas_that_are_not_confirmed_yet() -> None:
    cluster = Cluster()
    assert gauges(cluster) == (0, 0, 0, 0)
    cluster.delete()
    cluster.harness.workers.run()
    assert gauges(cluster) == (1, 2, 0, 0)
    cluster.fence(12)
    assert gauges(cluster) == (1, 2, 1, 1)
    cluster.answer_all(11)
    assert gauges(cluster) == (1, 1, 1, 1)
    cluster.fence(12, fenced=False)
    assert gauges(cluster) == (1, 1, 0, 0)
    cluster.answer_all(12)
    assert gauges(cluster) == (0, 0, 0, 0)
