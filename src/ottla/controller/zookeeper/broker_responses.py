"""What responses of brokers mean to the controller.

A response never runs a decision; the caller puts its event into the controller's queue. Those to
orders of deletions are in `ottla.controller.deletion.deletion_orders`.
Source: KafkaController.processLeaderAndIsrResponseReceived; ControllerChannelManager.scala,
Kafka 3.9.
"""

from collections.abc import Iterator

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.request_batch import BrokerRequest
from ottla.wire.messages import leader_and_isr as lai


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
