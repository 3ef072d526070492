"""Requests must follow leaders, coordinators and controllers, and nothing may be done twice.

Method: two fake brokers on sockets, which share one metadata that their answers change.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client import waiting
from ottla.client.cluster import SETTLE_SECONDS, ClientConfig, ClusterClient
from ottla.client.errors import (
    ClientError,
    ConnectionFailedError,
    NoBrokerError,
    NoSuchVersionError,
    Refusal,
    UnencodableRequestError,
    UnknownBrokerError,
)
from ottla.client.offsets import LATEST, list_offsets
from ottla.testing.ports import free_ports
from ottla.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from .fake_broker import FakeBroker
from .fake_clock import Clock

KEY = ("t", 0)
ID = Uuid(b"i" * 16)


class Brokers:
    """Brokers 1 and 2. Partition t-0 is led by `leader`, at `epoch`; -1 = by none."""

    def __init__(self) -> None:
        self.one, self.two = FakeBroker(), FakeBroker()
        self.ports = {1: self.one.port, 2: self.two.port}
        self.leader = 1
        self.epoch = 0
        self.topic_error = 0
        for each in (self.one, self.two):
            each.answer(MetadataRequest, self._metadata)
        self.answer_offsets(1, lambda: 0)
        self.answer_offsets(2, lambda: 0)

    def of(self, node: int) -> FakeBroker:
        return {1: self.one, 2: self.two}[node]

    def move(self, node: int) -> int:
        """Elect another leader."""
        self.leader, self.epoch = node, self.epoch + 1
        return Error.NOT_LEADER_OR_FOLLOWER

    def answer_offsets(self, node: int, code: Callable[[], int | None]) -> None:
        """Answer ListOffsets by an error, or by the broker's id; None closes the connection."""

        def answer(request: ListOffsetsRequest) -> ListOffsetsResponse | None:
            error = code()
            if error is None:
                return None
            each = ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=node)
            topic = ListOffsetsTopicResponse(name="t", partitions=(each,))
            return ListOffsetsResponse(topics=(topic,))

        self.of(node).answer(ListOffsetsRequest, answer)

    def count(self, request: type) -> int:
        return len(self.one.requests(request)) + len(self.two.requests(request))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            replica_nodes=(1, 2),
            isr_nodes=(1, 2),
        )
        topics = tuple(
            MetadataResponseTopic(
                error_code=self.topic_error if each.name == "t" else 3,
                name=each.name,
                topic_id=ID,
                partitions=(partition,) if each.name == "t" else (),
            )
            for each in request.topics or ()
        )
        brokers = tuple(
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port)
            for node, port in self.ports.items()
        )
        return MetadataResponse(brokers=brokers, topics=topics)


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    both = Brokers()
    with closing(both.one), closing(both.two):
        yield both


@pytest.fixture
def client(brokers: Brokers) -> Iterator[ClusterClient]:
    """A client that knows broker 1 only."""
    config = ClientConfig(bootstrap=brokers.one.address, backoff_s=0.001)
    with ClusterClient(config.with_timeout(5)) as opened:
        yield opened


def latest(client: ClusterClient) -> tuple[int, int]:
    """Return which broker answered; raise its error."""
    found = list_offsets(client, {KEY: LATEST})[KEY]
    if found.error_code:
        raise Refusal("t-0", found.error_code)
    return found.offset, client.leader(KEY).epoch


def test_a_leader_moves(brokers: Brokers, client: ClusterClient) -> None:
    brokers.answer_offsets(1, lambda: brokers.move(2))
    assert client.with_retries(lambda: latest(client)) == (2, 1)
    (request,) = brokers.two.requests(ListOffsetsRequest)
    assert request.topics[0].partitions[0].current_leader_epoch == 1
    assert brokers.count(MetadataRequest) == 2


def test_leaders_are_looked_up_once(brokers: Brokers, client: ClusterClient) -> None:
    assert [latest(client) for _ in range(3)] == [(1, 0)] * 3
    assert brokers.count(MetadataRequest) == 1


def test_a_leader_dies_with_the_request(brokers: Brokers, client: ClusterClient) -> None:
    def die() -> None:
        brokers.move(2)

    brokers.answer_offsets(1, die)
    with pytest.raises(ConnectionFailedError, match=r"\(waiting for the response to ListOffsets\)"):
        client.with_retries(lambda: latest(client))
    brokers.move(1)
    client.refresh()
    assert client.with_retries(lambda: latest(client), repeatable=True) == (2, 3)


def test_no_leader_for_a_while(brokers: Brokers, client: ClusterClient) -> None:
    brokers.leader = -1

    def look() -> int:
        if brokers.count(MetadataRequest) == 2:
            brokers.leader = 2
        return client.leader(KEY).node

    assert client.with_retries(look) == 2


def test_a_coordinator_moves(brokers: Brokers, client: ClusterClient) -> None:
    nodes = [1, 2]

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        node = nodes.pop(0)
        return FindCoordinatorResponse(node_id=node, host="127.0.0.1", port=brokers.ports[node])

    for each in (brokers.one, brokers.two):
        each.answer(FindCoordinatorRequest, find)
    moved = ListGroupsResponse(error_code=Error.NOT_COORDINATOR, groups=())
    brokers.one.answer(ListGroupsRequest, lambda _: moved)
    brokers.two.answer(ListGroupsRequest, lambda _: ListGroupsResponse(error_code=0, groups=()))

    def ask() -> int:
        node = client.coordinator("g")[0]
        response = client.ask(ListGroupsRequest(), ListGroupsResponse, node=node)
        if response.error_code:
            raise Refusal("group g", response.error_code)
        return node

    assert client.with_retries(ask) == 2


def creation(codes: list[int | None]) -> Callable[[Any], CreateTopicsResponse | None]:
    """Return a handler that gives these answers; None closes the connection."""

    def answer(request: CreateTopicsRequest) -> CreateTopicsResponse | None:
        code = codes.pop(0)
        if code is None:
            return None
        result = CreatableTopicResult(name="n", error_code=code, error_message=None)
        return CreateTopicsResponse(topics=(result,))

    return answer


def create(client: ClusterClient) -> None:
    (result,) = client.ask(CreateTopicsRequest(topics=()), CreateTopicsResponse).topics
    if result.error_code:
        raise Refusal("topic n", result.error_code)


def test_a_controller_changes(brokers: Brokers, client: ClusterClient) -> None:
    brokers.one.answer(CreateTopicsRequest, creation([Error.NOT_CONTROLLER] * 2 + [Error.NONE]))
    client.with_retries(lambda: create(client))
    assert brokers.count(CreateTopicsRequest) == 3


@pytest.mark.parametrize("code", [None, Error.REQUEST_TIMED_OUT])
def test_what_may_have_been_done_is_not_sent_again(
    brokers: Brokers, client: ClusterClient, code: int | None
) -> None:
    brokers.one.answer(CreateTopicsRequest, creation([code, Error.NONE]))
    with pytest.raises(ClientError):
        client.with_retries(lambda: create(client))
    assert brokers.count(CreateTopicsRequest) == 1


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_connection_dies_between_requests(
    brokers: Brokers, client: ClusterClient, repeatable: bool
) -> None:
    """The client notices only when it waits for the response: it cannot tell this from one that
    was lost after it was handled."""
    latest(client)
    brokers.one.disconnect()
    if not repeatable:
        with pytest.raises(ConnectionFailedError):
            client.with_retries(lambda: latest(client))
    assert client.with_retries(lambda: latest(client), repeatable=repeatable) == (1, 0)


def test_a_dead_broker_in_the_metadata(brokers: Brokers, client: ClusterClient) -> None:
    brokers.ports[2] = free_ports(1)[0]
    brokers.leader = 2
    with pytest.raises(
        ConnectionFailedError,
        match=rf"^broker 2 at 127.0.0.1:{brokers.ports[2]}: connection refused$",
    ):
        client.with_retries(lambda: latest(client))

    def look() -> tuple[int, int]:
        if brokers.count(MetadataRequest) == 3:
            del brokers.ports[2]
        if brokers.count(MetadataRequest) == 5:
            brokers.move(1)
        return latest(client)

    assert client.with_retries(look, repeatable=True) == (1, 1)


def test_a_leader_that_the_metadata_lacks(brokers: Brokers, client: ClusterClient) -> None:
    brokers.leader = 9
    with pytest.raises(UnknownBrokerError, match=r"broker 9 .*: expected one of 1, 2"):
        latest(client)


def test_bootstrap_servers_that_have_gone(brokers: Brokers, client: ClusterClient) -> None:
    """The other brokers are known by then."""
    latest(client)
    brokers.one.close()
    brokers.one.disconnect()
    brokers.move(2)
    assert client.with_retries(lambda: latest(client), repeatable=True) == (2, 1)


def test_no_broker_is_left(brokers: Brokers) -> None:
    config = ClientConfig(bootstrap=brokers.one.address, bootstrap_s=0.1)
    brokers.one.close()
    with ClusterClient(config) as client, pytest.raises(NoBrokerError, match="connection refused"):
        client.with_retries(lambda: latest(client), repeatable=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_one_deadline_for_all_retries(
    brokers: Brokers, client: ClusterClient, clock: Clock
) -> None:
    """Also for retries inside retries: `by_leader` has its own where it is called alone."""
    brokers.leader = -1
    with pytest.raises(Refusal) as caught:
        client.with_retries(lambda: latest(client))
    assert caught.value.code == Error.LEADER_NOT_AVAILABLE
    assert 5 <= clock.now <= 5 + client.config.backoff_s_max
    with pytest.raises(Refusal):
        client.by_leader([KEY])
    assert clock.now <= 2 * (5 + client.config.backoff_s_max)


def test_the_backoff_doubles(brokers: Brokers, client: ClusterClient, clock: Clock) -> None:
    brokers.leader = -1
    with pytest.raises(Refusal):
        client.with_retries(lambda: latest(client), backoff_s=0.5)
    assert clock.now == 0.5 + 5 * 1.0
    assert brokers.count(MetadataRequest) == 7


def test_unknown_topics_are_retried_for_a_shorter_time(
    brokers: Brokers, client: ClusterClient, clock: Clock
) -> None:
    client.config = client.config.with_timeout(60)
    with pytest.raises(Refusal, match=r"^topic u: .*UNKNOWN_TOPIC_OR_PARTITION"):
        client.with_retries(lambda: client.leader(("u", 0)), repeatable=True)
    assert SETTLE_SECONDS <= clock.now <= SETTLE_SECONDS + 1


@pytest.mark.parametrize("repeatable", [False, True])
def test_errors_that_patience_does_not_cure(
    brokers: Brokers, client: ClusterClient, repeatable: bool
) -> None:
    brokers.topic_error = Error.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Refusal, match=r"^topic t: .*AUTHORIZATION_FAILED"):
        client.with_retries(lambda: latest(client), repeatable=repeatable)
    assert brokers.count(MetadataRequest) == 1


def test_attempts_that_the_deadline_does_not_end(
    brokers: Brokers, client: ClusterClient, clock: Clock
) -> None:
    client.config = replace(client.config, retry_s=0)
    brokers.leader = -1
    with pytest.raises(Refusal):
        client.with_retries(lambda: latest(client), repeatable=True, attempts_min=3)
    assert brokers.count(MetadataRequest) == 3


def test_an_unsupported_request(brokers: Brokers, client: ClusterClient) -> None:
    attempts = []

    def ask() -> None:
        attempts.append(None)
        client.ask(DescribeGroupsRequest(groups=()), DescribeGroupsResponse)

    with pytest.raises(NoSuchVersionError, match="does not serve DescribeGroups"):
        client.with_retries(ask, repeatable=True, attempts_min=5)
    assert len(attempts) == 1


def test_an_unsupported_version(brokers: Brokers, client: ClusterClient) -> None:
    brokers.one.ranges[ListOffsetsRequest] = (90, 91)
    with pytest.raises(NoSuchVersionError, match="serves versions 90 to 91 of ListOffsets"):
        client.with_retries(lambda: latest(client), repeatable=True)


def test_a_request_that_cannot_be_encoded(brokers: Brokers, client: ClusterClient) -> None:
    with pytest.raises(UnencodableRequestError, match="Metadata cannot be encoded"):
        client.topics(["\udcff"])
    assert client.broker_ids() == [1, 2]  # The connection is whole.


@pytest.mark.parametrize(
    ("key", "topic_id", "code"),
    [
        (("u", 0), ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 5), ID, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (("t", 0), Uuid(b"j" * 16), Error.UNKNOWN_TOPIC_ID),
    ],
)
def test_no_such_partition(
    client: ClusterClient, key: tuple[str, int], topic_id: Uuid, code: int
) -> None:
    with pytest.raises(Refusal) as caught:
        client.leader(key, topic_id=topic_id)
    assert caught.value.code == code


def test_brokers_that_come_and_go(brokers: Brokers, client: ClusterClient) -> None:
    assert client.broker_ids() == [1, 2]
    brokers.ports[3] = brokers.ports.pop(2)
    assert client.broker_ids() == [1, 2]
    client.refresh()
    assert client.broker_ids() == [1, 3]


def test_unknown_topics(client: ClusterClient) -> None:
    with pytest.raises(Refusal, match=r"^topic u: "):
        client.topics(["t", "u"])
    assert [each.name for each in client.topics(["t", "u"], skip_unknown=True)] == ["t"]


def test_configurations() -> None:
    with pytest.raises(ValueError, match=r"^security.protocol=SSL: expected PLAINTEXT$"):
        ClientConfig(bootstrap="a:1", security_protocol="SSL")
    with pytest.raises(ValueError, match=r"^a: expected HOST:PORT\[,HOST:PORT...\]$"):
        ClientConfig(bootstrap="a")
