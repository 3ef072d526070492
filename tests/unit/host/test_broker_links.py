"""A broker connects to the others at their addresses in the newest metadata.

Method: the links are fakes that record their parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.host.broker_links import BrokerLinks
from ottla.host.node_ports import Address
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.image import EMPTY, ClusterImage

from ..broker.harness import node_config


class FakeLink:
    def __init__(self, choose: Callable[[], Address | None], client_id: str) -> None:
        self.choose = choose
        self.client_id = client_id
        self.retargets = 0
        self.closed = False

    connected = False

    def send(self, request: object, version: int, *, timeout_ms: int) -> Pending[Any]:
        raise AssertionError("nothing is sent here")

    def retarget(self) -> None:
        self.retargets += 1

    def close(self) -> None:
        self.closed = True


class Cluster:
    """Metadata that changes, and the links that were made."""

    def __init__(self) -> None:
        self.image = EMPTY
        self.made: list[FakeLink] = []
        self.links = BrokerLinks(self.connect, node_config(), lambda: self.image)

    def connect(
        self, choose: Callable[[], Address | None], *, client_id: str, **how: object
    ) -> FakeLink:
        self.made.append(FakeLink(choose, client_id))
        return self.made[-1]

    def register(self, node_id: int, *endpoints: Endpoint) -> ClusterImage:
        broker = BrokerImage(
            id=node_id, epoch=1, incarnation_id=Uuid(bytes(16)), endpoints=endpoints
        )
        self.image = replace(self.image, brokers=self.image.brokers.set(node_id, broker))
        return self.image


def test_each_broker_and_fetcher_has_a_connection_made_once() -> None:
    harness = Cluster()
    assert harness.links.to(2) is harness.links.to(2, 0)
    assert harness.links.to(2, 1) is not harness.links.to(2)
    assert harness.links.to(3) is not harness.links.to(2)
    assert [link.client_id for link in harness.made] == [
        "broker-1-fetcher-0",
        "broker-1-fetcher-1",
        "broker-1-fetcher-0",
    ]


def test_the_address_is_that_of_the_inter_broker_listener_at_each_connect() -> None:
    harness = Cluster()
    harness.links.to(2)
    (link,) = harness.made
    assert link.choose() is None  # Not registered yet: there is nowhere to go.
    harness.register(2, Endpoint("OTHER", "elsewhere", 1), Endpoint("PLAINTEXT", "here", 2))
    assert link.choose() == ("here", 2)
    harness.register(2, Endpoint("PLAINTEXT", "there", 3))
    assert link.choose() == ("there", 3)
    harness.links.brokers_changed()
    assert link.retargets == 1
    harness.register(2, Endpoint("OTHER", "elsewhere", 1))
    assert link.choose() is None


def test_closing_closes_all() -> None:
    harness = Cluster()
    harness.links.to(2)
    harness.links.to(3)
    harness.links.close()
    assert all(link.closed for link in harness.made)
