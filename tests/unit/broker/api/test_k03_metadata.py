"""Metadata describes the cluster by the client's listener, version and request.

Method: a cluster of records; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.metadata.records import PartitionRecord, TopicRecord, TopicTieringRecord
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

from ..harness import CLUSTER_ID, TOPIC_ID, BrokerHarness

NOBODY = Uuid(b"n" * 16)
ASKED, OPERATIONS_NOT_REQUESTED = 3576, -(2**31)


def by_name(*names: str, **how: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=how.pop("create", True),
        **how,
    )


def by_id(*ids: Uuid) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=one, name=None) for one in ids)
    )


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    for node_id in (1, 2):
        harness.add_broker(node_id)
    harness.add_broker(3, fenced=True)
    harness.add_topic("t", partitions=2, replicas=(1, 2, 3), isr=(1, 2))
    return harness


@pytest.mark.parametrize("version", range(14))
def test_a_topic_that_was_ever_tiered_comes_with_its_epoch_and_state(
    harness: BrokerHarness, version: int
) -> None:
    [topic] = harness.ask(by_name("t"), version).topics
    assert (topic.tiered_epoch, topic.tiering_state) == (0, 0)
    harness.commit(TopicTieringRecord(topic_id=TOPIC_ID, state=3, tiered_epoch=2, policy=2))
    [topic] = harness.ask(by_name("t"), version).topics
    assert (topic.tiered_epoch, topic.tiering_state) == ((2, 3) if version >= 9 else (0, 0))


def test_the_topic_of_remote_log_metadata_is_not_created_for_clients(
    harness: BrokerHarness,
) -> None:
    [topic] = harness.ask(by_name("__remote_log_metadata"), 9).topics
    assert (topic.error_code, topic.is_internal) == (Error.UNKNOWN_TOPIC_OR_PARTITION, True)
    assert harness.controller.calls == []


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic(harness: BrokerHarness, version: int) -> None:
    answer = harness.ask(by_name("t"), version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [
        (1, "host1", 9091),
        (2, "host2", 9092),
    ]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (Error.NONE, "t")
    assert topic.topic_id == (TOPIC_ID if version >= 10 else NO_UUID)
    assert [part.partition_index for part in topic.partitions] == [0, 1]
    first = topic.partitions[0]
    assert (first.leader_id, first.isr_nodes) == (1, (1, 2))
    assert first.leader_epoch == (0 if version >= 7 else -1)
    assert first.offline_replicas == ((3,) if version >= 5 else ())
    # Version 0 leaves out dead replicas, with an error.
    dead_error = Error.NONE if version else Error.REPLICA_NOT_AVAILABLE
    assert first.error_code == dead_error
    assert first.replica_nodes == ((1, 2, 3) if version else (1, 2))
    assert answer.cluster_id == (CLUSTER_ID if version >= 2 else None)
    if version:
        assert answer.controller_id in (1, 2)


def test_null_means_all_and_nothing_means_none(harness: BrokerHarness) -> None:
    harness.add_topic("u", Uuid(b"u" * 16))
    every = MetadataRequest(topics=None)
    assert [topic.name for topic in harness.ask(every, 12).topics] == ["t", "u"]
    assert harness.ask(by_name(), 1).topics == ()
    assert [topic.name for topic in harness.ask(by_name(), 0).topics] == ["t", "u"]


def test_topics_by_id(harness: BrokerHarness) -> None:
    known, unknown = harness.ask(by_id(TOPIC_ID, NOBODY), 12).topics
    assert (known.error_code, known.name) == (Error.NONE, "t")
    assert (unknown.error_code, unknown.name, unknown.topic_id) == (
        Error.UNKNOWN_TOPIC_ID,
        None,
        NOBODY,
    )


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_version_are_refused(harness: BrokerHarness, version: int) -> None:
    with_id = MetadataRequestTopic(topic_id=TOPIC_ID, name="t")
    nameless = MetadataRequestTopic(name=None)
    plain = MetadataRequestTopic(name="t")
    answer = harness.ask(MetadataRequest(topics=(plain, with_id)), version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("t", Error.INVALID_REQUEST),
        ("t", Error.INVALID_REQUEST),
    ]
    answer = harness.ask(MetadataRequest(topics=(nameless,)), version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("", Error.INVALID_REQUEST)
    ]
    assert answer.brokers == ()


def test_a_missing_topic_is_created_where_both_sides_allow_it(harness: BrokerHarness) -> None:
    answer = harness.ask(by_name("new", "t"), 12)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("new", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", Error.NONE),
    ]
    assert [each.name for each in harness.controller.calls[0][0].topics] == ["new"]


def test_a_missing_topic_is_not_created_where_the_client_forbids_it(harness: BrokerHarness) -> None:
    answer = harness.ask(by_name("new", "bad name", create=False), 12)
    assert [topic.error_code for topic in answer.topics] == [
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.INVALID_TOPIC_EXCEPTION,
    ]
    assert not harness.controller.calls


def test_a_missing_topic_is_not_created_where_the_broker_forbids_it() -> None:
    harness = BrokerHarness({"auto.create.topics.enable": "false"})
    answer = harness.ask(by_name("new"), 12)
    assert answer.topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert not harness.controller.calls


def test_operations_are_returned_where_requested(harness: BrokerHarness) -> None:
    quiet = harness.ask(by_name("t"), 8)
    assert quiet.cluster_authorized_operations == OPERATIONS_NOT_REQUESTED
    assert quiet.topics[0].topic_authorized_operations == OPERATIONS_NOT_REQUESTED
    loud = harness.ask(
        by_name(
            "t",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        ),
        8,
    )
    assert loud.cluster_authorized_operations == 8096
    assert loud.topics[0].topic_authorized_operations == ASKED


@pytest.mark.parametrize(
    ("leader", "version", "error"),
    [
        (-1, 12, Error.LEADER_NOT_AVAILABLE),
        (9, 12, Error.LEADER_NOT_AVAILABLE),
        (4, 12, Error.LISTENER_NOT_FOUND),
        (4, 5, Error.LEADER_NOT_AVAILABLE),
    ],
)
def test_a_leader_that_cannot_be_reached(
    harness: BrokerHarness, leader: int, version: int, error: Error
) -> None:
    harness.add_broker(4, listener="OTHER")
    topic_id = Uuid(b"u" * 16)
    harness.commit(
        TopicRecord(name="u", topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(4,),
            isr=(4,),
            leader=leader,
            leader_epoch=3,
            partition_epoch=0,
        ),
    )
    (part,) = harness.ask(by_name("u"), version).topics[0].partitions
    assert (part.error_code, part.leader_id) == (error, -1)


def test_internal_topics_are_marked(harness: BrokerHarness) -> None:
    harness.add_topic("__consumer_offsets", Uuid(b"o" * 16))
    assert harness.ask(by_name("__consumer_offsets"), 12).topics[0].is_internal
