"""Orders become requests, and responses count only for what their own request asked to delete.

Method: orders of a small ledger, the requests that they make, and answers as brokers give them.
"""

from dataclasses import replace

from ottla.base.errors import Error
from ottla.controller.deletion.deletion_orders import (
    DeletionOrder,
    OrderedTopic,
    add_to_batch,
    delete_replicas_request,
    delete_replicas_results,
    orders_of,
    replicas_to_delete,
    stop_replica_results,
)
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
    deletion_records,
)
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from ottla.wire.messages import delete_replicas as wire
from ottla.wire.messages import stop_replica as stop
from tests.unit.controller.builders import THREE, advance, uuid

ID = uuid("t")
ENTRY = (
    DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1)
    .with_status(1, STARTED, [0, 2])
    .with_status(1, SUCCESSFUL, [1])
    .with_status(2, BROKER_DOWN, [0])
    .with_status(9, STARTED, [0])
)
ORDER = DeletionOrder(
    broker_id=1,
    broker_epoch=101,
    topics=(OrderedTopic(topic_id=ID, name="t", partitions=(0, 2)),),
)


def ledger(policy: Policy, *, topic: bool) -> ClusterImage:
    """Return a cluster with the entry, and with the topic where it is there still."""
    partitions = [
        PartitionRecord(partition_id=number, topic_id=ID, replicas=(1, 2, 9), isr=(1,), leader=1)
        for number in range(3)
    ]
    entry = list(deletion_records(replace(ENTRY, policy=policy)))
    image = advance(THREE, [TopicRecord(name="t", topic_id=ID), *partitions, *entry])
    return image if topic else advance(image, [RemoveTopicRecord(topic_id=ID)])


def test_what_is_started_on_a_broker_that_is_there_is_ordered() -> None:
    image = ledger(Policy.CLASSIC, topic=True)
    assert list(replicas_to_delete(image, image.deletions.pending())) == [
        (1, ID, frozenset({0, 2}))
    ]
    assert list(orders_of(image, 1, [Replica(1, ID, 2), Replica(1, ID, 0)])) == [ORDER]


def test_nothing_is_ordered_by_a_name_whose_topic_is_gone_nor_by_the_id_of_one_that_lives() -> None:
    for policy, topic in ((Policy.CLASSIC, False), (Policy.AT_ONCE, True)):
        image = ledger(policy, topic=topic)
        assert not list(replicas_to_delete(image, image.deletions.pending()))
    image = ledger(Policy.AT_ONCE, topic=False)
    assert [each[0] for each in replicas_to_delete(image, image.deletions.pending())] == [1]


def test_a_classic_order_is_a_stop_replica_that_no_leader_epoch_refuses() -> None:
    view = ControllerView(
        image=ledger(Policy.CLASSIC, topic=True), controller_id=3, controller_epoch=7
    )
    batch = RequestBatch(view)
    add_to_batch(batch, ORDER)
    [sent] = batch.send_requests_to_brokers(view)
    assert (sent.broker_id, sent.broker_epoch, sent.controller_epoch) == (1, 101, 7)
    assert sent.deleted == {PartitionKey("t", 0), PartitionKey("t", 2)}
    [topic] = sent.request.topic_states
    assert topic.partition_states == tuple(
        stop.StopReplicaPartitionState(
            partition_index=number, leader_epoch=-2, delete_partition=True
        )
        for number in (0, 2)
    )


def stopped() -> BrokerRequest:
    """Return the StopReplica of ORDER, which stops another replica, too."""
    view = ControllerView(
        image=ledger(Policy.CLASSIC, topic=True), controller_id=3, controller_epoch=7
    )
    batch = RequestBatch(view)
    batch.add_stop_replica((1,), PartitionKey("t", 1), None, delete_partition=False)
    add_to_batch(batch, ORDER)
    [sent] = batch.send_requests_to_brokers(view)
    return sent


def test_an_answer_by_names_is_taken_for_the_ids_that_they_have() -> None:
    sent = stopped()
    listed = (("t", 0, Error.NONE), ("t", 2, Error.KAFKA_STORAGE_ERROR), ("unknown", 0, Error.NONE))
    response = stop.StopReplicaResponse(
        error_code=0,
        partition_errors=tuple(
            stop.StopReplicaPartitionError(
                topic_name=name, partition_index=number, error_code=error
            )
            for name, number, error in listed
        ),
    )
    assert stop_replica_results(sent, response) == {
        Replica(1, ID, 0): Error.NONE,
        Replica(1, ID, 2): Error.KAFKA_STORAGE_ERROR,
    }


def test_an_order_by_ids_names_both_epochs() -> None:
    sent = delete_replicas_request(ORDER, controller_id=3, controller_epoch=7)
    assert sent.request == wire.DeleteReplicasRequest(
        controller_id=3,
        controller_epoch=7,
        broker_epoch=101,
        topics=(wire.DeleteReplicasTopic(topic_id=ID, partitions=(0, 2)),),
    )
    assert (sent.broker_id, sent.broker_epoch, sent.controller_epoch) == (1, 101, 7)


def answer(error: Error, *results: tuple[int, int]) -> dict[Replica, Error]:
    """Return what an answer to ORDER says."""
    sent = delete_replicas_request(ORDER, controller_id=3, controller_epoch=7)
    listed = tuple(
        wire.DeleteReplicasPartitionResult(partition_index=number, error_code=code)
        for number, code in results
    )
    topics = (wire.DeleteReplicasTopicResult(topic_id=ID, partitions=listed),) if listed else ()
    response = wire.DeleteReplicasResponse(error_code=error, topics=topics)
    return delete_replicas_results(sent, response)


def test_delete_replicas_results_are_those_of_the_request_and_missing_ones_failed() -> None:
    both = {
        Replica(1, ID, 0): Error.NONE,
        Replica(1, ID, 2): Error.UNKNOWN_SERVER_ERROR,
    }
    assert answer(Error.NONE, (0, 0), (5, 0)) == both
    assert answer(Error.NONE, (0, 0), (2, 31_000)) == both  # A code of newer software.


def test_an_answer_that_failed_as_a_whole_failed_for_all() -> None:
    stale = answer(Error.STALE_BROKER_EPOCH, (0, 0))
    assert set(stale.values()) == {Error.STALE_BROKER_EPOCH}
    assert len(stale) == 2


def test_kafka_9946_only_what_was_to_be_deleted_is_answered_as_deleted() -> None:
    sent = stopped()
    response = stop.StopReplicaResponse(error_code=0, partition_errors=())
    assert set(stop_replica_results(sent, response)) == {*ORDER.replicas()}
