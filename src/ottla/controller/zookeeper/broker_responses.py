"""What responses of brokers mean to the controller: events, each a plain value.

A response never runs a decision; the caller puts its event into the controller's queue.
Source: KafkaController.processLeaderAndIsrResponseReceived,
processTopicDeletionStopReplicaResponseReceived; ControllerChannelManager.scala, Kafka 3.9.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDeletionResults:
    """The results of one StopReplica request that deletes replicas."""

    broker_id: int
    succeeded: tuple[PartitionKey, ...] = ()
    failed: tuple[tuple[PartitionKey, Error], ...] = ()


def replica_deletion_results(
    image: ClusterImage, sent: BrokerRequest, response: stop.StopReplicaResponse
) -> ReplicaDeletionResults | None:
    """Return what a StopReplica response means for deletions; None = nothing.

    Only partitions that this request asked the broker to delete count, and only while their topic
    is being deleted: a response to a plain stop is no proof that the data is deleted (KAFKA-9946).
    A replica that the response does not list counts as failed, and so do all where the whole
    request failed; Kafka waits for those forever.
    """
    errors = {
        PartitionKey(each.topic_name, each.partition_index): error_of(each.error_code)
        for each in response.partition_errors
    }
    request_error = error_of(response.error_code)
    succeeded: list[PartitionKey] = []
    failed: list[tuple[PartitionKey, Error]] = []
    for key in sorted(sent.deleted):
        if not image.is_being_deleted(key.topic):
            continue
        error = (
            errors.get(key, Error.UNKNOWN_SERVER_ERROR)
            if request_error is Error.NONE
            else request_error
        )
        if error is Error.NONE:
            succeeded.append(key)
        else:
            failed.append((key, error))
    if not succeeded and not failed:
        return None
    return ReplicaDeletionResults(
        broker_id=sent.broker_id, succeeded=tuple(succeeded), failed=tuple(failed)
    )


def failed_replicas(
    sent: BrokerRequest, response: lai.LeaderAndIsrResponse
) -> tuple[PartitionKey, ...]:
    """Return the partitions that a broker cannot serve because their log directories failed.

    The broker reports that with KAFKA_STORAGE_ERROR for the partition.
    """
    if error_of(response.error_code) is not Error.NONE:
        return ()
    errors = _partition_errors(sent.request, response)
    return tuple(sorted(key for key, error in errors if error is Error.KAFKA_STORAGE_ERROR))


def _partition_errors(
    request: lai.LeaderAndIsrRequest, response: lai.LeaderAndIsrResponse
) -> Iterator[tuple[PartitionKey, Error]]:
    """Yield the errors by topic name; from version 5 on the response names topics by id."""
    for each in response.partition_errors:
        yield PartitionKey(each.topic_name, each.partition_index), error_of(each.error_code)
    names: dict[Uuid, str] = {each.topic_id: each.topic_name for each in request.topic_states}
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is None:
            continue  # Not a topic of the request.
        for each in topic.partition_errors:
            yield PartitionKey(name, each.partition_index), error_of(each.error_code)


def error_of(code: int) -> Error:
    """Return the error of a code; UNKNOWN_SERVER_ERROR for one that this version does not know."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
