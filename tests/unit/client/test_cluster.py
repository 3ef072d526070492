"""Finding brokers, and the errors when there is none or the peer is no broker."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.client import cluster, waiting
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError, Refusal
from ottla.testing.ports import free_ports
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.client.fake_clock import Clock


def client_of(bootstrap: str, *, timeout: float, **more: Any) -> ClusterClient:
    return ClusterClient(ClientConfig(bootstrap=bootstrap, **more).with_timeout(timeout))


def test_a_dead_address_is_passed_over(broker: FakeBroker) -> None:
    (dead,) = free_ports(1)
    with client_of(f"127.0.0.1:{dead},{broker.address}", timeout=5) as client:
        assert client.broker_ids() == [1]


def test_no_broker_responds() -> None:
    (dead,) = free_ports(1)
    with (
        client_of(f"127.0.0.1:{dead}", timeout=0.2) as client,
        pytest.raises(
            ClientError,
            match=rf"no broker answers at 127.0.0.1:{dead} within 0.2 s "
            rf"\(127.0.0.1:{dead}: connection refused\)",
        ),
    ):
        client.cluster()


@pytest.fixture
def babbler() -> Iterator[int]:
    """A server that speaks something else; yields its port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def babble() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    client.recv(1000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=babble, daemon=True).start()
        yield server.getsockname()[1]


def test_every_address_has_its_reason(broker: FakeBroker) -> None:
    one, other = free_ports(2)
    with (
        client_of(f"127.0.0.1:{one},127.0.0.1:{other}", timeout=0.1) as client,
        pytest.raises(
            ClientError,
            match=rf"\(127.0.0.1:{one}: connection refused; "
            rf"127.0.0.1:{other}: connection refused\)",
        ),
    ):
        client.cluster()


class Network:
    """Connections that cost `needed` seconds by port, or all that they are given."""

    def __init__(self, clock: Clock, needed: dict[int, float]) -> None:
        self.clock = clock
        self.needed = needed

    def __call__(self, host: str, port: int, *, timeout: float, **_: Any) -> Any:
        self.clock.now += min(self.needed[port], timeout)
        if self.needed[port] > timeout:
            raise TimeoutError
        return self

    def version_for(self, request: type) -> int:
        return 0

    def close(self) -> None:
        pass


def found_after(monkeypatch: pytest.MonkeyPatch, needed: dict[int, float], timeout: float) -> float:
    """Return the seconds after which one of these ports was connected to."""
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(cluster, "Connection", Network(clock, needed))
    with client_of(",".join(f"x:{port}" for port in needed), timeout=timeout) as client:
        assert client.serves(ListGroupsRequest)
    return clock.now


HUNG = float("inf")


@pytest.mark.parametrize(
    ("needed", "timeout", "seconds"),
    [
        ({1: HUNG, 2: 0.5}, 5, 3.0),
        ({1: HUNG, 2: HUNG, 3: 0.5}, 6, 4.5),
        ({1: 4.0, 2: 0.5}, 15, 4.0),
        ({1: HUNG, 2: HUNG, 3: 0.5}, 60, 10.5),
    ],
)
def test_a_hanging_address_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch, needed: dict[int, float], timeout: float, seconds: float
) -> None:
    assert found_after(monkeypatch, needed, timeout) == pytest.approx(seconds)


def test_the_reason_of_a_hanging_address_names_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last tries are too short for any broker to respond."""
    with pytest.raises(
        ClientError, match=r"within 6 s \(x:1: no answer within 3 s; x:2: no answer within 3 s\)"
    ):
        found_after(monkeypatch, {1: HUNG, 2: HUNG}, 6)


class SlowBroker(FakeBroker):
    """Responds only after `awaited` is set, which means that a client waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()

    def _versions(self) -> Any:
        assert self.awaited.wait(60)
        return super()._versions()


@pytest.mark.parametrize("node", [None, 1])
def test_a_wait_for_a_hanging_broker_is_reported(node: int | None) -> None:
    """It has the connection from the system, and nothing after that."""
    slow = SlowBroker()
    lines: list[str] = []

    def record(line: str) -> None:
        lines.append(line)
        slow.awaited.set()

    patient = ClientConfig(bootstrap=slow.address, connect_s=60).with_timeout(60)
    with closing(slow), ClusterClient(patient, record) as client:
        if node is None:
            assert client.broker_ids() == [1]
            assert lines == [f"waiting for a broker at {slow.address}"]
            return
        slow.awaited.set()
        client.cluster()
        client.close()
        slow.awaited.clear()
        lines.clear()
        slow.answer(ListGroupsRequest, lambda _: ListGroupsResponse(error_code=0, groups=()))
        client.ask(ListGroupsRequest(), ListGroupsResponse, node=1)
        assert lines == [f"waiting for broker 1 at {slow.address}"]


def test_a_closed_connection_is_reported_once(broker: FakeBroker) -> None:
    broker.answer(ListGroupsRequest, lambda _: None)
    with (
        client_of(broker.address, timeout=5) as client,
        pytest.raises(
            ClientError,
            match=rf"^{broker.address}: the peer closed the connection "
            r"\(waiting for the response to ListGroups\)$",
        ),
    ):
        client.ask(ListGroupsRequest(), ListGroupsResponse)


def test_a_peer_that_is_no_broker(babbler: int) -> None:
    with (
        client_of(f"127.0.0.1:{babbler}", timeout=0.3) as client,
        pytest.raises(ClientError, match="no broker answers"),
    ):
        client.cluster()


def test_a_broker_that_does_not_serve_a_request(broker: FakeBroker) -> None:
    with client_of(broker.address, timeout=5) as client:
        assert not client.serves(ListGroupsRequest)
        with pytest.raises(ClientError, match="does not serve ListGroups"):
            client.ask(ListGroupsRequest(), ListGroupsResponse)


def test_a_broker_that_is_not_there(broker: FakeBroker) -> None:
    with (
        client_of(broker.address, timeout=5) as client,
        pytest.raises(ClientError, match="broker 7 is not among the live ones: expected one of 1"),
    ):
        client.ask(ListGroupsRequest(), ListGroupsResponse, node=7)


def test_leaders(broker: FakeBroker) -> None:
    broker.topics = [topic("t", 2)]
    with client_of(broker.address, timeout=0.2) as client:
        assert client.by_leader({("t", 1), ("t", 0)}) == {1: [("t", 0), ("t", 1)]}
        with pytest.raises(Refusal, match=r"partition t-5: .*UNKNOWN_TOPIC_OR_PARTITION"):
            client.by_leader({("t", 5)})
        with pytest.raises(Refusal, match=r"topic u: .*UNKNOWN_TOPIC_OR_PARTITION"):
            client.by_leader({("u", 0)})


def test_a_coordinator_that_loads_is_waited_for(broker: FakeBroker) -> None:
    codes = [Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NONE]

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            error_code=codes.pop(0), node_id=1, host="127.0.0.1", port=broker.port
        )

    broker.answer(FindCoordinatorRequest, find)
    with client_of(broker.address, timeout=5) as client:
        assert client.coordinator("g") == (1, "127.0.0.1", broker.port)
    assert codes == []


def test_a_refusal_that_patience_does_not_cure_comes_at_once(broker: FakeBroker) -> None:
    broker.answer(
        FindCoordinatorRequest,
        lambda _: FindCoordinatorResponse(
            error_code=Error.GROUP_AUTHORIZATION_FAILED, node_id=-1, host="", port=-1
        ),
    )
    with client_of(broker.address, timeout=60) as client, pytest.raises(Refusal) as caught:
        client.coordinator("g")
    assert caught.value.code == Error.GROUP_AUTHORIZATION_FAILED
    assert len(broker.requests(FindCoordinatorRequest)) == 1
