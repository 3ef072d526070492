"""A response counts for the topic of its request, not for a later one of the same name.

Method: a StopReplica request of a deletion, its response, and the image when that arrives.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid, uuid_text
from ottla.controller.deletion.deletion_events import DeletionsAnswered, OrdersDropped
from ottla.controller.deletion.deletion_orders import DeletionOrder, OrderedTopic, add_to_batch
from ottla.controller.deletion.deletion_policy import Replica
from ottla.controller.zookeeper.controller_view import ControllerView
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.host.controller.controller_channel import Answered, Dropped
from ottla.host.zookeeper.controller_events import event_of
from ottla.metadata.brokers import BrokerImage, record_of
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, deletion_records
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import ForgetDeletionRecord, PartitionRecord, TopicRecord
from ottla.metadata.znodes import paths
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop

OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)
BROKER = BrokerImage(id=1, epoch=101, incarnation_id=OLD, endpoints=(), fenced=False)


def going(topic_id: Uuid) -> ClusterImage:
    """Return a cluster in which a topic t of this id is being deleted."""
    entry = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=1)
    partition = PartitionRecord(
        partition_id=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1
    )
    records = (
        record_of(BROKER),
        TopicRecord(name="t", topic_id=topic_id),
        partition,
        *deletion_records(entry.with_status(1, STARTED, [0])),
    )
    return replay(EMPTY, records, offset=1, epoch=1).image


def order(image: ClusterImage, topic_id: Uuid) -> BrokerRequest:
    view = ControllerView(image=image, controller_id=1, controller_epoch=7)
    batch = RequestBatch(view)
    topic = OrderedTopic(topic_id=topic_id, name="t", partitions=(0,))
    add_to_batch(batch, DeletionOrder(broker_id=1, broker_epoch=101, topics=(topic,)))
    [sent] = batch.send_requests_to_brokers(view)
    return sent


def test_an_answer_counts_for_no_other_topic_of_the_same_name() -> None:
    done = stop.StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=0)
    answer = Answered(
        sent=order(going(OLD), OLD),
        response=stop.StopReplicaResponse(error_code=0, partition_errors=(done,)),
    )
    answered = DeletionsAnswered(1, 101, {Replica(1, OLD, 0): Error.NONE})
    assert event_of(going(OLD), answer) == answered
    assert event_of(going(NEW), answer) == answered
    assert event_of(EMPTY, answer) == answered, "the machine must know that it was answered"


def test_a_dropped_request_counts_for_no_other_topic_of_the_same_name() -> None:
    dropped = Dropped(sent=order(going(OLD), OLD), error=Error.BROKER_NOT_AVAILABLE)
    for image in (going(OLD), going(NEW), EMPTY):
        assert event_of(image, dropped) == OrdersDropped(1, 101, (Replica(1, OLD, 0),))


def test_an_existing_topic_that_is_rejected_as_deleted_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its znode was restored by hand; only the log says why it is not served."""

    def living(topic_id: Uuid) -> ClusterImage:
        image = going(topic_id)
        return replay(image, (ForgetDeletionRecord(topic_id=topic_id),), offset=2, epoch=1).image

    refused = lai.LeaderAndIsrTopicError(
        topic_id=OLD,
        partition_errors=(
            lai.LeaderAndIsrPartitionError(partition_index=0, error_code=Error.UNKNOWN_TOPIC_ID),
        ),
    )
    answer = Answered(
        sent=order(going(OLD), OLD),
        response=lai.LeaderAndIsrResponse(error_code=0, topics=(refused,)),
    )
    event_of(going(OLD), answer)
    event_of(living(NEW), answer)
    assert caplog.records == [], "what was said before its deletion is refused for good"
    event_of(living(OLD), answer)
    [record] = caplog.records
    assert f"topic t with id {uuid_text(OLD)}" in record.getMessage()
    assert paths.CONTROLLER in record.getMessage()
