"""Finding brokers and what is said when there is none, or when it is not a broker at all."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.base.errors import Error
from ottla.cli.errors import CommandError, UsageError
from ottla.cli.wire_client import Refusal, WireClient, parse_bootstrap, reason_of
from ottla.testing.ports import free_ports
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

from .fake_broker import FakeBroker, topic


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", ":9092", "a:b", "a:0", "a:70000"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        parse_bootstrap(text)


def test_a_dead_address_is_passed_over(broker: FakeBroker) -> None:
    (dead,) = free_ports(1)
    with WireClient(f"127.0.0.1:{dead},{broker.address}", timeout=5) as client:
        assert client.broker_ids() == [1]


def test_nobody_at_all() -> None:
    (dead,) = free_ports(1)
    with (
        WireClient(f"127.0.0.1:{dead}", timeout=0.2) as client,
        pytest.raises(
            CommandError,
            match=rf"no broker answers at 127.0.0.1:{dead} within 0.2 s "
            rf"\(127.0.0.1:{dead}: nobody listens there\)",
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


def test_somebody_who_is_no_broker(babbler: int) -> None:
    with (
        WireClient(f"127.0.0.1:{babbler}", timeout=0.3) as client,
        pytest.raises(CommandError, match="no broker answers"),
    ):
        client.cluster()


def test_a_broker_that_does_not_serve_a_request(broker: FakeBroker) -> None:
    with WireClient(broker.address, timeout=5) as client:
        assert not client.serves(ListGroupsRequest)
        with pytest.raises(CommandError, match="does not serve ListGroups"):
            client.ask(ListGroupsRequest(), ListGroupsResponse)


def test_a_broker_that_is_not_there(broker: FakeBroker) -> None:
    with (
        WireClient(broker.address, timeout=5) as client,
        pytest.raises(CommandError, match="broker 7 is not among the live ones: expected one of 1"),
    ):
        client.ask(ListGroupsRequest(), ListGroupsResponse, node=7)


def test_leaders(broker: FakeBroker) -> None:
    broker.topics = [topic("t", 2)]
    with WireClient(broker.address, timeout=0.2) as client:
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
    with WireClient(broker.address, timeout=5) as client:
        assert client.coordinator("g") == (1, "127.0.0.1", broker.port)
    assert codes == []


def test_a_refusal_that_patience_does_not_cure_comes_at_once(broker: FakeBroker) -> None:
    broker.answer(
        FindCoordinatorRequest,
        lambda _: FindCoordinatorResponse(
            error_code=Error.GROUP_AUTHORIZATION_FAILED, node_id=-1, host="", port=-1
        ),
    )
    with WireClient(broker.address, timeout=60) as client, pytest.raises(Refusal) as caught:
        client.coordinator("g")
    assert caught.value.code == Error.GROUP_AUTHORIZATION_FAILED
    assert len(broker.requests(FindCoordinatorRequest)) == 1


def test_reasons() -> None:
    assert reason_of(36, "It is there.") == "It is there. (TOPIC_ALREADY_EXISTS)"
    assert reason_of(36).endswith(" (TOPIC_ALREADY_EXISTS)")
    assert reason_of(9999) == "error 9999"
