"""A StopReplica response counts for the replicas that its own request asked to delete, and no more.

Method: a batch is sent, an answer made by hand is read; names as in Kafka's
ControllerChannelManagerTest.
"""

from collections.abc import Iterable

import pytest

from ottla.base.errors import Error
from ottla.controller.deletion.deletion_orders import stop_replica_results
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, header_record, replicas_record
from ottla.metadata.image import ClusterImage
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaResponse
from tests.unit.controller.model_brokers import (
    change,
    cluster_image,
    led,
    sent,
    topic,
    topic_id,
    view,
)

FOO0, FOO1, BAR0 = PartitionKey("foo", 0), PartitionKey("foo", 1), PartitionKey("bar", 0)
LED = led([1, 2])


def a_cluster(*, queued: Iterable[str] = (), started: Iterable[str] = ()) -> ClusterImage:
    image = cluster_image([1, 2], topic("foo", LED, LED), topic("bar", LED))
    for name in (*queued, *started):
        asked = DeletionImage(topic_id=topic_id(name), name=name, policy=Policy.CLASSIC, asked_ms=1)
        image = change(image, [header_record(asked)]).image
    begins = [replicas_record(topic_id(name), 1, STARTED, [0]) for name in started]
    return change(image, begins).image


def results(errors: dict[PartitionKey, Error]) -> dict[Replica, Error]:
    return {Replica(2, topic_id(key.topic), key.partition): each for key, each in errors.items()}


def stop(
    image: ClusterImage, *deleted: PartitionKey, kept: Iterable[PartitionKey] = ()
) -> BrokerRequest:
    seen = view(image)
    batch = RequestBatch(seen)
    for key in deleted:
        batch.add_stop_replica([2], key, LED, delete_partition=True)
    for key in kept:
        batch.add_stop_replica([2], key, LED, delete_partition=False)
    [request] = sent(batch, seen)
    return request


def stopped(
    errors: dict[PartitionKey, Error] | None = None, whole: Error = Error.NONE
) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=whole,
        partition_errors=tuple(
            StopReplicaPartitionError(
                topic_name=key.topic, partition_index=key.partition, error_code=error
            )
            for key, error in (errors or {}).items()
        ),
    )


def all_well(*keys: PartitionKey) -> StopReplicaResponse:
    return stopped(dict.fromkeys(keys, Error.NONE))


def test_stop_replica_request_sent() -> None:
    image = a_cluster()
    asked = stop(image, kept=[FOO0, BAR0])
    assert stop_replica_results(asked, all_well(FOO0, BAR0)) == {}


def test_stop_replica_requests_while_topic_deletion_started() -> None:
    image = a_cluster(started=["foo"])
    asked = stop(image, FOO0, FOO1, kept=[BAR0])
    event = stop_replica_results(asked, all_well(FOO0, FOO1, BAR0))
    assert event == results({FOO0: Error.NONE, FOO1: Error.NONE})


def test_kafka_9946_stop_replica_request_without_delete_partition_while_deletion_started() -> None:
    """A stop came first and its answer now: the data is on the disk still."""
    image = a_cluster(started=["foo"])
    asked = stop(image, kept=[FOO0, FOO1])
    assert stop_replica_results(asked, all_well(FOO0, FOO1)) == {}


def test_each_partition_is_answered_by_itself() -> None:
    image = a_cluster(started=["foo"])
    asked = stop(image, FOO0, FOO1)
    answer = stopped({FOO0: Error.KAFKA_STORAGE_ERROR, FOO1: Error.NONE})
    assert stop_replica_results(asked, answer) == results(
        {FOO0: Error.KAFKA_STORAGE_ERROR, FOO1: Error.NONE}
    )


@pytest.mark.parametrize("error", [Error.STALE_BROKER_EPOCH, Error.UNKNOWN_SERVER_ERROR])
def test_an_error_of_the_whole_request_fails_every_deletion_in_it(error: Error) -> None:
    """Kafka's event is lost here: such an answer names no partition."""
    image = a_cluster(started=["foo"])
    event = stop_replica_results(stop(image, FOO0, FOO1), stopped(whole=error))
    assert event == results({FOO0: error, FOO1: error})


def test_a_replica_that_the_answer_does_not_name_is_not_deleted() -> None:
    image = a_cluster(started=["foo"])
    event = stop_replica_results(stop(image, FOO0, FOO1), all_well(FOO0))
    assert event == results({FOO0: Error.NONE, FOO1: Error.UNKNOWN_SERVER_ERROR})


def test_an_error_that_this_software_does_not_know() -> None:
    image = a_cluster(started=["foo"])
    [code] = {30_000}
    answer = StopReplicaResponse(
        error_code=0,
        partition_errors=(
            StopReplicaPartitionError(topic_name="foo", partition_index=0, error_code=code),
        ),
    )
    event = stop_replica_results(stop(image, FOO0), answer)
    assert event == results({FOO0: Error.UNKNOWN_SERVER_ERROR})
