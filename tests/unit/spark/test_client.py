"""A client must find leaders, retry what may pass, and name for good what does not.

Method: a fake broker on a socket, whose next answers are spoilt one by one.
"""

import socket

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.spark.client import ClusterClient, Refused
from ottla.spark.errors import ClusterError
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.metadata import MetadataRequest
from tests.unit.spark.fake_broker import DROP, ID, NODE, TOPIC, FakeBroker


def test_topics_and_leaders() -> None:
    with FakeBroker(partitions=3) as broker, ClusterClient(broker.options()) as client:
        topic = client.topics()[TOPIC]
        assert topic.id == ID
        assert list(topic.leaders) == [0, 1, 2]
        assert client.leader((TOPIC, 2)).node == NODE
        assert client.by_leader([(TOPIC, 1), (TOPIC, 0)]) == {NODE: [(TOPIC, 0), (TOPIC, 1)]}
        assert broker.count(MetadataRequest) == 1  # Leaders were known already.
        assert client.topics(["u"]) == {}


@pytest.mark.parametrize("fault", [DROP, Error.LEADER_NOT_AVAILABLE, Error.NOT_CONTROLLER])
def test_retriable_errors_are_retried(fault: int) -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.faults[MetadataRequest].extend([fault, fault])
        assert client.with_retries("looking", lambda: client.leader((TOPIC, 0))).node == NODE


def test_other_errors_are_not_retried() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.faults[MetadataRequest].append(Error.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ClusterError, match=r"looking: topic t: .*AUTHORIZATION") as caught:
            client.with_retries("looking", client.topics)
        assert caught.value.code == Error.TOPIC_AUTHORIZATION_FAILED
        assert broker.count(MetadataRequest) == 1


def test_patience_ends() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options(api_timeout_ms=1)) as client:
        broker.leader = -1
        with pytest.raises(ClusterError, match="LEADER_NOT_AVAILABLE"):
            client.with_retries("looking", lambda: client.leader((TOPIC, 0)), attempts_min=3)
        assert broker.count(MetadataRequest) >= 3


@pytest.mark.parametrize(
    ("key", "topic_id", "code"),
    [
        (("u", 0), ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, 5), ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, 0), Uuid(b"j" * 16), Error.UNKNOWN_TOPIC_ID),
    ],
)
def test_no_such_partition(key: tuple[str, int], topic_id: Uuid, code: int) -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        with pytest.raises(Refused) as caught:
            client.leader(key, topic_id=topic_id)
        assert caught.value.code == code


def test_requests_that_the_broker_lacks() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:

        def ask() -> None:
            client.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)

        with pytest.raises(ClusterError, match="does not serve DescribeLogDirs"):
            client.with_retries("asking for sizes", ask)


def test_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        FakeBroker() as broker,
        ClusterClient(broker.options(bootstrap=(("127.0.0.1", port),), api_timeout_ms=1)) as client,
        pytest.raises(ClusterError, match=rf"no broker answers at 127.0.0.1:{port} within"),
    ):
        client.with_retries("looking", client.topics)
