"""The replicas that brokers are ordered to delete, and the results in their responses.

Orders follow from the ledger: all that is STARTED on a broker that is up, and at intervals what
failed there. In ZooKeeper mode an order is sent as StopReplica, which names topics and waits in a
batch; in KRaft mode as DeleteReplicas (1002), which has topic ids. A response counts only for what
its own request asked the broker to delete (KAFKA-9946).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.deletion_policy import Replica, has_failed, is_reachable
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_responses import error_of
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.controller.zookeeper.request_batch_messages import REPLICAS_PER_ORDER_MAX
from ottla.metadata.deletions import STARTED, DeletionImage, Policy
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import delete_replicas as wire
from ottla.wire.messages.stop_replica import StopReplicaResponse

DELETE_REPLICAS_VERSION = 0

K = TypeVar("K", bound=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedTopic:
    """Partitions of one topic."""

    topic_id: Uuid
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOrder:
    """The replicas that one broker, under its present registration, is to delete."""

    broker_id: int
    broker_epoch: int
    topics: tuple[OrderedTopic, ...]

    def replicas(self) -> Iterator[Replica]:
        """Yield all replicas of the order."""
        for topic in self.topics:
            for partition_id in topic.partitions:
                yield Replica(self.broker_id, topic.topic_id, partition_id)


def replicas_to_delete(
    image: ClusterImage,
    deletions: Iterable[DeletionImage],
    *,
    retried: Collection[int] = (),
) -> Iterator[tuple[int, Uuid, frozenset[int]]]:
    """Yield (broker, topic, partitions) to be deleted, as far as that can be ordered now.

    That is what is STARTED, and on the brokers `retried` what failed, too: the ledger does not
    record that a failed replica is ordered again, or each attempt would be written, for weeks
    perhaps. A classic deletion is ordered by the topic's name, so the topic must still have it;
    any other one only where no topic of that id is left.
    """
    for deletion in deletions:
        is_there = image.topics.by_id(deletion.topic_id) is not None
        if deletion.is_finished or is_there != (deletion.policy is Policy.CLASSIC):
            continue
        for broker_id, rows in deletion.replicas.items():
            is_retried = broker_id in retried
            partitions = frozenset().union(
                *(
                    ids
                    for standing, ids in rows.items()
                    if standing == STARTED or (is_retried and has_failed(standing))
                )
            )
            if partitions and is_reachable(image, broker_id):
                yield broker_id, deletion.topic_id, partitions


def orders_of(
    image: ClusterImage, broker_id: int, replicas: Collection[Replica]
) -> Iterator[DeletionOrder]:
    """Yield the orders for replicas of a broker, each within REPLICAS_PER_ORDER_MAX."""
    listed = sorted(replicas)
    for begin in range(0, len(listed), REPLICAS_PER_ORDER_MAX):
        topics: dict[Uuid, list[int]] = {}
        for replica in listed[begin : begin + REPLICAS_PER_ORDER_MAX]:
            topics.setdefault(replica.topic_id, []).append(replica.partition)
        yield DeletionOrder(
            broker_id=broker_id,
            broker_epoch=image.brokers[broker_id].epoch,
            topics=tuple(
                OrderedTopic(
                    topic_id=topic_id, name=_name(image, topic_id), partitions=tuple(partition_ids)
                )
                for topic_id, partition_ids in topics.items()
            ),
        )


def _name(image: ClusterImage, topic_id: Uuid) -> str:
    deletion = image.deletions.of(topic_id)
    assert deletion is not None, "an order without an entry in the ledger"
    return deletion.name


# -- by StopReplica ----------------------------------------------------------------------------


def add_to_batch(batch: RequestBatch, order: DeletionOrder) -> None:
    """Add an order to a batch, as StopReplica with deletion."""
    for topic in order.topics:
        for partition_id in topic.partitions:
            key = PartitionKey(topic.name, partition_id)
            batch.add_stop_replica((order.broker_id,), key, None, delete_partition=True)


def stopped_replicas(sent: BrokerRequest) -> dict[PartitionKey, Replica]:
    """Return the replicas that a StopReplica asked to delete, by the ids that their topics had."""
    return {
        key: Replica(sent.broker_id, sent.deleted_topics[key.topic], key.partition)
        for key in sorted(sent.deleted)
    }


def stop_replica_results(
    sent: BrokerRequest, response: StopReplicaResponse
) -> dict[Replica, Error]:
    """Return the result for each replica that this request asked the broker to delete.

    A response to a plain stop is no proof that the data is deleted (KAFKA-9946).
    """
    errors = {
        PartitionKey(each.topic_name, each.partition_index): error_of(each.error_code)
        for each in response.partition_errors
    }
    return _results(stopped_replicas(sent), errors, error_of(response.error_code))


# -- by DeleteReplicas -------------------------------------------------------------------------


def delete_replicas_request(
    order: DeletionOrder, *, controller_id: int, controller_epoch: int
) -> BrokerRequest:
    """Return an order as a DeleteReplicas request."""
    return BrokerRequest(
        broker_id=order.broker_id,
        broker_epoch=order.broker_epoch,
        controller_epoch=controller_epoch,
        request=wire.DeleteReplicasRequest(
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            broker_epoch=order.broker_epoch,
            topics=tuple(
                wire.DeleteReplicasTopic(topic_id=topic.topic_id, partitions=topic.partitions)
                for topic in order.topics
            ),
        ),
        version=DELETE_REPLICAS_VERSION,
    )


def named_replicas(sent: BrokerRequest) -> dict[tuple[Uuid, int], Replica]:
    """Return the replicas that a DeleteReplicas asked to delete."""
    return {
        (topic.topic_id, partition_id): Replica(sent.broker_id, topic.topic_id, partition_id)
        for topic in sent.request.topics
        for partition_id in topic.partitions
    }


def delete_replicas_results(
    sent: BrokerRequest, response: wire.DeleteReplicasResponse
) -> dict[Replica, Error]:
    """Return the result for each replica of the request."""
    errors = {
        (topic.topic_id, each.partition_index): error_of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    return _results(named_replicas(sent), errors, error_of(response.error_code))


def _results(
    ordered: Mapping[K, Replica], errors: Mapping[K, Error], request_error: Error
) -> dict[Replica, Error]:
    """Return the result of each replica.

    One that the response does not list counts as failed, and so do all where the whole request
    failed; Kafka waits for those forever.
    """
    if request_error is not Error.NONE:
        return dict.fromkeys(ordered.values(), request_error)
    return {
        replica: errors.get(key, Error.UNKNOWN_SERVER_ERROR) for key, replica in ordered.items()
    }
