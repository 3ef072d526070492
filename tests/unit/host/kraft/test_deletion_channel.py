"""A KRaft controller has every deletion confirmed by every broker, in each of its terms.

Method: the controller role on a disk in memory, brokers that are records, and links whose other
ends are the test; manual time. Decisions are tested with the deletion policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.brokers.unregister import unregister_broker
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.deletion.deletion_manager import FULL_CHECK_MS
from ottla.controller.retry_queue import RETRY_FIRST_MS
from ottla.host.kraft.controller_node import ControllerNode
from ottla.metadata.brokers import Endpoint, record_of
from ottla.metadata.deletions import DeletionImage
from ottla.metadata.features import ELR_VERSION, OTTLA_VERSION
from ottla.metadata.records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.unit.host.kraft.controller_cluster import ControllerCluster
from tests.unit.host.kraft.test_controller_node import (
    FEATURES,
    PROPERTIES,
    add_broker,
    running,
)

TOPIC = Uuid(b"topic-----------")
RETENTION_MS = 60_000


@dataclass
class Cluster(ControllerCluster):
    """A controller in its first term, and two brokers that hold partition 0 of a topic."""

    features: Mapping[str, int] = field(default_factory=lambda: FEATURES)

    def __post_init__(self) -> None:
        self.controller = self.start()
        for broker_id in (11, 12):
            add_broker(self.harness, self.controller, broker_id)
        self.create(TOPIC)

    def start(self) -> ControllerNode:
        """Let the next controller begin its term."""
        retention = {"ottla.deletion.receipt.retention.ms": str(RETENTION_MS)}
        self.controller = running(
            self.harness,
            brokers=self.brokers,
            features=self.features,
            properties=PROPERTIES | retention,
        )
        self.harness.workers.run()
        return self.controller

    def create(self, topic_id: Uuid) -> None:
        """Make a topic of the name t."""
        partition = PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(11, 12),
            isr=(11, 12),
            leader=11,
            leader_epoch=0,
            partition_epoch=0,
        )
        self.write(TopicRecord(name="t", topic_id=topic_id), partition)

    def delete(self) -> None:
        """Delete t, as the API does; committed once the disk has it."""
        self.controller.run(
            lambda image: delete_topics(
                image,
                [TopicReference(name="t")],
                context=self.controller.context,
                wall_ms=self.harness.clock.now_ms(),
            )
        )

    def unregister(self, broker_id: int) -> None:
        """Take a broker out of the cluster for good."""
        context = self.controller.context
        self.controller.run(lambda image: unregister_broker(image, broker_id, context=context))
        self.harness.workers.run()

    def answer_all(self, *broker_ids: int) -> None:
        """Have brokers do what they are ordered; all that follows is committed."""
        self.brokers.answer_all(*broker_ids)
        self.harness.workers.run()

    @property
    def entry(self) -> DeletionImage | None:
        """What is committed of the deletion."""
        return self.controller.runtime.committed_image.deletions.of(TOPIC)

    @property
    def rows(self) -> dict[int, str]:
        """Return the state of each broker's replica."""
        entry = self.entry
        assert entry is not None
        return {
            broker_id: " ".join(
                each.name for each in (standing.state, standing.reason) if each.name != "NONE"
            )
            for broker_id, standing, _ in entry.rows()
        }


def is_finished(cluster: Cluster) -> bool:
    return cluster.entry is not None and cluster.entry.is_finished


def test_a_deletion_is_finished_once_every_broker_has_answered() -> None:
    cluster = Cluster()
    cluster.delete()
    assert not cluster.brokers.orders, "nothing is ordered before it is a fact"
    cluster.harness.workers.run()
    assert cluster.rows == {11: "STARTED", 12: "STARTED"}
    for broker_id in (11, 12):
        [order] = cluster.brokers.out(broker_id)
        assert order.replicas == [(TOPIC, 0)]
        assert order.request.broker_epoch == broker_id
        assert order.request.controller_epoch == cluster.controller.runtime.epoch
    cluster.answer_all(11)
    assert cluster.rows == {11: "SUCCESSFUL", 12: "STARTED"}
    assert not is_finished(cluster)
    cluster.answer_all(12)
    assert cluster.rows == {11: "SUCCESSFUL", 12: "SUCCESSFUL"}
    assert is_finished(cluster)
    assert len(cluster.brokers.orders) == 2


def test_a_broker_that_is_down_gets_no_request_until_it_is_back() -> None:
    cluster = Cluster()
    cluster.fence(12)
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11)
    assert cluster.rows == {11: "SUCCESSFUL", 12: "INELIGIBLE BROKER_DOWN"}
    cluster.wait(FULL_CHECK_MS + 1_000)
    assert not cluster.brokers.out(12)
    add_broker(cluster.harness, cluster.controller, 12, epoch=99)
    [order] = cluster.brokers.out(12)
    assert order.request.broker_epoch == 99
    cluster.answer_all(12)
    assert is_finished(cluster)


def test_a_broker_that_dies_during_a_request_gets_it_again() -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    [first] = cluster.brokers.out(12)
    cluster.fence(12)
    assert cluster.rows[12] == "INELIGIBLE BROKER_DOWN"
    assert not first.is_out, "nobody knocks at a broker that is down"
    cluster.fence(12, fenced=False)
    [second] = cluster.brokers.out(12)
    assert second is not first
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


@pytest.mark.parametrize(
    "answer",
    [
        {"error": Error.OPERATION_NOT_ATTEMPTED},
        {"whole": Error.STALE_CONTROLLER_EPOCH},
        {"whole": Error.STALE_BROKER_EPOCH},
    ],
)
def test_a_response_without_the_replica_is_retried_after_a_backoff(
    answer: dict[str, Error],
) -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    appended = cluster.controller.log.records_appended
    cluster.brokers.out(12)[0].answer(**answer)
    cluster.harness.workers.run()
    assert cluster.rows[12] == "STARTED"
    assert cluster.controller.log.records_appended == appended
    assert not cluster.brokers.out(12)
    cluster.wait(RETRY_FIRST_MS)
    assert len(cluster.brokers.out(12)) == 1
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


def test_a_disk_that_fails_shows_in_the_ledger_and_is_tried_again() -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.brokers.out(12)[0].answer(Error.KAFKA_STORAGE_ERROR)
    cluster.harness.workers.run()
    assert cluster.rows[12] == "INELIGIBLE FOLDER_FAILED"
    appended = cluster.controller.log.records_appended
    for pause in (1, 2, 4):
        cluster.wait(pause * RETRY_FIRST_MS)
        [order] = cluster.brokers.out(12)
        order.answer(Error.KAFKA_STORAGE_ERROR)
        cluster.harness.workers.run()
    assert cluster.rows[12] == "INELIGIBLE FOLDER_FAILED"
    assert cluster.controller.log.records_appended == appended, "it was known"
    cluster.wait(8 * RETRY_FIRST_MS)
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


def test_a_disk_that_fails_in_two_terms_is_tried_again_without_a_record() -> None:
    """The new controller logs its election, and not the failure that is reported again."""
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11)
    cluster.brokers.out(12)[0].answer(Error.KAFKA_STORAGE_ERROR)
    cluster.harness.workers.run()
    cluster.wait(RETRY_FIRST_MS)
    [unanswered] = cluster.brokers.out(12)
    cluster.controller.stop()
    cluster.start()
    assert not unanswered.is_out
    appended = cluster.controller.log.records_appended
    [order] = cluster.brokers.out(12)
    order.answer(Error.KAFKA_STORAGE_ERROR)
    cluster.harness.workers.run()
    assert cluster.rows[12] == "INELIGIBLE FOLDER_FAILED"
    assert cluster.controller.log.records_appended == appended
    cluster.wait(2 * RETRY_FIRST_MS)
    cluster.answer_all(12)
    assert is_finished(cluster)


def test_the_next_controller_goes_on_from_the_ledger() -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11)
    before = cluster.controller.runtime.epoch
    [old] = cluster.brokers.out(12)
    cluster.controller.stop()
    assert not old.is_out
    assert all(link.closed for link in cluster.brokers.links)
    cluster.start()
    [order] = cluster.brokers.out(12)
    assert order.request.controller_epoch == cluster.controller.runtime.epoch > before
    assert not cluster.brokers.out(11), "what is proved is not asked again"
    cluster.answer_all(12)
    assert is_finished(cluster)


def test_a_broker_that_is_unregistered_is_not_waited_for() -> None:
    cluster = Cluster()
    cluster.fence(12)
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11)
    cluster.unregister(12)
    assert cluster.rows == {11: "SUCCESSFUL", 12: "ABANDONED UNREGISTERED"}
    assert is_finished(cluster)


def test_a_topic_of_the_same_name_is_none_of_its_business() -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.create(Uuid(b"another topic---"))
    assert [each.replicas for each in cluster.brokers.orders] == [[(TOPIC, 0)]] * 2


def test_a_receipt_is_deleted_after_its_retention() -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11, 12)
    cluster.wait(RETENTION_MS)
    assert is_finished(cluster)
    cluster.wait(FULL_CHECK_MS)
    assert cluster.entry is None


def test_a_cluster_without_a_ledger_has_neither_channels_nor_orders() -> None:
    cluster = Cluster(features={ELR_VERSION: 0, OTTLA_VERSION: 0})
    cluster.delete()
    cluster.harness.workers.run()
    assert "t" not in cluster.controller.image.topics
    assert cluster.entry is None
    assert not cluster.brokers.links


def test_a_ledger_that_is_switched_on_is_driven_from_then_on() -> None:
    cluster = Cluster(features={ELR_VERSION: 0, OTTLA_VERSION: 0})
    cluster.write(FeatureLevelRecord(name=OTTLA_VERSION, feature_level=1))
    cluster.delete()
    cluster.harness.workers.run()
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


def test_an_exception_does_not_keep_a_controller_from_becoming_active(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.controller.stop()
    cluster.brokers.broken = True
    cluster.start()
    assert cluster.controller.ready.done
    assert "processing topic deletions failed" in caplog.text
    cluster.brokers.broken = False
    cluster.write(NoOpRecord())
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


def test_a_change_that_was_missed_is_processed_with_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.delete()
    cluster.harness.workers.run()
    cluster.brokers.broken = True
    add_broker(cluster.harness, cluster.controller, 12, epoch=99)
    assert "processing topic deletions failed" in caplog.text
    cluster.brokers.broken = False
    cluster.write(NoOpRecord())
    assert [each.request.broker_epoch for each in cluster.brokers.out(12)] == [99]
    cluster.answer_all(11, 12)
    assert is_finished(cluster)


def test_a_broker_that_cannot_be_reached_by_its_listener_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    assert "no listener" not in caplog.text
    broker = cluster.controller.image.brokers[12]
    others = tuple(Endpoint(name, "localhost", 1) for name in ("OUTSIDE", "INSIDE"))
    cluster.write(record_of(replace(broker, epoch=99, endpoints=others)))
    assert "broker 12 has no listener PLAINTEXT" in caplog.text
