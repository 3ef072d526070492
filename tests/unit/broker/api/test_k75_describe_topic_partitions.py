"""DescribeTopicPartitions pages through topics: every partition once, in order, none twice.

Method: three topics of different sizes; the cursors of each answer lead through all pages.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.records import TopicTieringRecord
from ottla.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.drawn import examples

from ..harness import BrokerHarness

SIZES = {"a": 3, "b": 1, "c": 4}
ALL = [(name, index) for name, size in SIZES.items() for index in range(size)]


def build() -> BrokerHarness:
    harness = BrokerHarness({"max.request.partition.size.limit": "5"})
    harness.add_broker()
    for name, size in SIZES.items():
        harness.add_topic(name, Uuid(name.encode() * 16), partitions=size)
    return harness


@pytest.fixture(scope="module")
def harness() -> BrokerHarness:
    return build()


def request(
    *names: str, limit: int = 2000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor,
    )


@given(limit=st.integers(-1, 9), named=st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_the_pages_hold_every_partition_once(
    harness: BrokerHarness, limit: int, named: bool
) -> None:
    names = tuple(SIZES) if named else ()
    returned: list[tuple[str, int]] = []
    cursor = None
    while True:
        answer = harness.ask(request(*names, limit=limit, cursor=cursor), 0)
        page = [
            (topic.name, part.partition_index)
            for topic in answer.topics
            for part in topic.partitions
        ]
        assert 1 <= len(page) <= max(1, min(limit, 5))  # The broker's own limit counts, too.
        returned += page
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert returned == ALL


def test_a_partition_is_described_in_full(harness: BrokerHarness) -> None:
    (topic,) = harness.ask(request("b"), 0).topics
    assert (topic.error_code, topic.topic_id, topic.topic_authorized_operations) == (
        0,
        Uuid(b"b" * 16),
        3576,
    )
    (part,) = topic.partitions
    assert (part.leader_id, part.leader_epoch, part.replica_nodes, part.isr_nodes) == (
        1,
        0,
        (1,),
        (1,),
    )
    assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == (
        (),
        (),
        (),
    )


def test_missing_topics_are_returned_only_where_requested(harness: BrokerHarness) -> None:
    answer = harness.ask(request("nowhere", "b", "no/slash"), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("b", Error.NONE),
        ("no/slash", Error.INVALID_TOPIC_EXCEPTION),
        ("nowhere", Error.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    # A topic may have been deleted since the page before: the next one follows.
    gone = Cursor(topic_name="bb", partition_index=2)
    answer = harness.ask(request(cursor=gone), 0)
    assert [topic.name for topic in answer.topics] == ["c"]


@pytest.mark.parametrize(
    "cursor",
    [Cursor(topic_name="a", partition_index=-1), Cursor(topic_name="z", partition_index=0)],
)
def test_senseless_cursors_are_refused_topic_by_topic(
    harness: BrokerHarness, cursor: Cursor
) -> None:
    answer = harness.ask(request("b", "a", cursor=cursor), 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("b", Error.INVALID_REQUEST),
        ("a", Error.INVALID_REQUEST),
    ]
    assert answer.next_cursor is None


def test_a_topic_that_was_ever_tiered_comes_with_its_epoch_and_state() -> None:
    harness = build()
    harness.commit(TopicTieringRecord(topic_id=Uuid(b"b" * 16), state=1, tiered_epoch=4))
    found = harness.ask(request(), 0).topics
    assert [(each.tiered_epoch, each.tiering_state) for each in found] == [(0, 0), (4, 1), (0, 0)]
