"""What brokers are ordered to delete, and what their answers say.

An order follows from the ledger: it is what stands at STARTED on a broker that is there, and now
and then what failed there. In ZooKeeper mode it goes out as StopReplica, which names topics and
waits in a batch; in KRaft mode as DeleteReplicas (1002), which names them by id. An answer counts
only for what its very request told the broker to delete (KAFKA-9946).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.broker_responses import ReplicaDeletionResults, error_of
from ottla.controller.deletion_policy import Replica, has_failed, is_reachable
from ottla.controller.keys import PartitionKey
from ottla.controller.request_batch import BrokerRequest, RequestBatch
from ottla.controller.request_batch_messages import REPLICAS_PER_ORDER_MAX
from ottla.metadata.deletions import STARTED, DeletionImage, Policy
from ottla.metadata.image import ClusterImage
from ottla.wire.messages import delete_replicas as wire

DELETE_REPLICAS_VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedTopic:
    """Partitions of one topic."""

    topic_id: Uuid
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOrder:
    """What one broker, as it is registered now, is to delete."""

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
    say that a failed replica is ordered once more, or each attempt would be written, for weeks
    perhaps. A classic deletion is ordered by the topic's name, which must still be this very
    topic's; any other one only where no topic of that id is left.
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
    """Yield the orders for some replicas of a broker, none too large."""
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
    """Have a batch tell an order's broker to stop and to delete what it names."""
    for topic in order.topics:
        for partition_id in topic.partitions:
            key = PartitionKey(topic.name, partition_id)
            batch.add_stop_replica((order.broker_id,), key, None, delete_partition=True)


def stop_replica_results(
    image: ClusterImage, outcome: ReplicaDeletionResults
) -> dict[Replica, Error]:
    """Return an answer to StopReplica by the topics' ids; unknown topics are left out."""
    listed = [*((key, Error.NONE) for key in outcome.succeeded), *outcome.failed]
    results: dict[Replica, Error] = {}
    for key, error in listed:
        topic_id = image.topics.id_of(key.topic)
        if topic_id is not None:
            results[Replica(outcome.broker_id, topic_id, key.partition)] = error
    return results


# -- by DeleteReplicas -------------------------------------------------------------------------


def delete_replicas_request(
    order: DeletionOrder, *, controller_id: int, controller_epoch: int
) -> BrokerRequest:
    """Return an order as a request that names topics by id."""
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


def delete_replicas_results(
    sent: BrokerRequest, response: wire.DeleteReplicasResponse
) -> dict[Replica, Error]:
    """Return what an answer says of each replica that was asked for.

    One that the broker does not speak of has not been deleted, nor has any where the whole
    request failed.
    """
    request_error = error_of(response.error_code)
    listed = {
        (topic.topic_id, each.partition_index): error_of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    results: dict[Replica, Error] = {}
    for topic in sent.request.topics:
        for partition_id in topic.partitions:
            replica = Replica(sent.broker_id, topic.topic_id, partition_id)
            error = listed.get((topic.topic_id, partition_id), Error.UNKNOWN_SERVER_ERROR)
            results[replica] = error if request_error is Error.NONE else request_error
    return results
