"""A client's view of the cluster goes forward only.

Method: Metadata responses of a fake broker.
"""

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER, Uuid

from .fake import METADATA, NODE, PARTITION, TOPIC, TOPIC_ID, FakeCluster

OTHER_ID = Uuid(bytes(15) + b"\x08")


def test_an_older_leader_epoch_is_not_taken() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    client.follow(TOPIC)
    cluster.epoch = 4
    client.refresh()
    cluster.steps.run(500)
    cluster.epoch, cluster.leader = 3, 9
    client.refresh()
    cluster.steps.run(500)
    assert client.leaders[PARTITION] == (1, 4)


def test_a_topic_that_was_replaced_does_not_come_back() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    client.follow(TOPIC)
    for topic_id in (TOPIC_ID, OTHER_ID, TOPIC_ID):
        cluster.topic_id = topic_id
        client.refresh()
        cluster.steps.run(500)
    assert client.ids == {TOPIC: OTHER_ID}
    assert client.partitions_of(TOPIC) == [(OTHER_ID, 0)]


def test_an_unknown_topic_has_no_leader() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    client.follow(TOPIC)
    client.refresh()
    cluster.steps.run(500)
    cluster.topic_error = Error.UNKNOWN_TOPIC_OR_PARTITION
    client.refresh()
    cluster.steps.run(500)
    assert client.leaders[PARTITION].node == NO_LEADER
    cluster.topic_error = Error.NONE
    client.refresh()
    cluster.steps.run(500)
    assert client.leaders[PARTITION].node == NODE


def test_concurrent_refreshes_share_one_request() -> None:
    cluster = FakeCluster()
    client = cluster.client()
    answers = [client.refresh(), client.refresh()]
    cluster.steps.run(500)
    assert all(answer.value for answer in answers)
    assert len(cluster.requests) == 1
    assert not cluster.script[METADATA]
