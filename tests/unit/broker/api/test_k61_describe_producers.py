"""DescribeProducers returns the producer state of partitions."""

import pytest

from ottla.base.errors import Error
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest

from ..harness import START_MS, BrokerHarness, batch


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic()
    return harness


def test_producers_by_id(harness: BrokerHarness) -> None:
    for producer_id in (9, 4):
        harness.broker.replicas.append(
            "t", 0, batch("a", "b", producer_id=producer_id, producer_epoch=3, base_sequence=0)
        )
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0,)),))
    (part,) = harness.ask(request, 0).topics[0].partitions
    assert part.error_code == Error.NONE
    assert [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp)
        for one in part.active_producers
    ] == [(4, 3, 1, START_MS), (9, 3, 1, START_MS)]
    assert {one.current_txn_start_offset for one in part.active_producers} == {-1}


@pytest.mark.parametrize(
    ("topic", "error"),
    [("nowhere", Error.UNKNOWN_TOPIC_OR_PARTITION), ("no/slash", Error.INVALID_TOPIC_EXCEPTION)],
)
def test_refusals(harness: BrokerHarness, topic: str, error: Error) -> None:
    request = DescribeProducersRequest(topics=(TopicRequest(name=topic, partition_indexes=(0,)),))
    (part,) = harness.ask(request, 0).topics[0].partitions
    assert (part.error_code, part.active_producers) == (error, ())


def test_followers_answer_too(harness: BrokerHarness) -> None:
    """kafka-transactions.sh find-hanging uses the given broker, whichever leads."""
    harness.broker.replicas.append(
        "t", 0, batch("a", producer_id=9, producer_epoch=3, base_sequence=0)
    )
    harness.add_broker(2)
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0,)),))
    before = harness.ask(request, 0)
    harness.broker.replicas.partition("t", 0).leader = 2
    assert harness.ask(request, 0) == before
    assert [one.producer_id for one in before.topics[0].partitions[0].active_producers] == [9]


def test_a_partition_that_is_named_often_is_described_once(harness: BrokerHarness) -> None:
    topics = (TopicRequest(name="t", partition_indexes=(0, 0, 7, 0)),) * 500
    (topic,) = harness.ask(DescribeProducersRequest(topics=topics), 0).topics
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [
        (0, Error.NONE),
        (7, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
