"""DescribeCluster returns brokers on a broker's listener, controllers on a controller's."""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.ports import Listener
from ottla.wire.messages.describe_cluster import DescribeClusterRequest

from ..harness import CLUSTER_ID, BrokerHarness

BROKERS, CONTROLLERS = 1, 2


def request(endpoint_type: int = BROKERS, **how: Any) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        **({"include_cluster_authorized_operations": False} | how), endpoint_type=endpoint_type
    )


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker(1)
    harness.add_broker(2, fenced=True)
    return harness


@pytest.mark.parametrize("version", [0, 1, 2])
def test_brokers(harness: BrokerHarness, version: int) -> None:
    answer = harness.ask(request(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 1)
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (1, "host1", 9091, "rack1")
    assert answer.cluster_authorized_operations == -(2**31)


def test_fenced_brokers_are_returned_where_requested(harness: BrokerHarness) -> None:
    answer = harness.ask(request(include_fenced_brokers=True), 2)
    assert [(node.broker_id, node.is_fenced) for node in answer.brokers] == [(1, False), (2, True)]


def test_operations(harness: BrokerHarness) -> None:
    answer = harness.ask(request(include_cluster_authorized_operations=True), 1)
    assert answer.cluster_authorized_operations == 8096


def test_controllers(harness: BrokerHarness) -> None:
    """The voters: this node by the request's listener, the others by its configuration."""
    harness.quorum.nodes = {
        1: (("OTHER", "aside", 1), ("CONTROLLER", "quorum1", 9093)),
        3: (("VOTERS", "quorum3", 9095),),
        2: (("CONTROLLER", "quorum2", 9094),),
    }
    answer = harness.ask(request(CONTROLLERS), 1, listener=Listener.CONTROLLER)
    assert (answer.endpoint_type, answer.controller_id) == (CONTROLLERS, 1)
    assert answer.cluster_id == CLUSTER_ID
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [
        (1, "quorum1", 9093),
        (2, "quorum2", 9094),
        (3, "quorum3", 9095),
    ]


def test_a_controller_without_a_known_address_is_left_out(harness: BrokerHarness) -> None:
    harness.quorum.leader_id = -1
    answer = harness.ask(request(CONTROLLERS), 1, listener=Listener.CONTROLLER)
    assert answer.controller_id == -1


@pytest.mark.parametrize(
    ("endpoint_type", "listener", "error"),
    [
        (CONTROLLERS, Listener.CLIENT, Error.MISMATCHED_ENDPOINT_TYPE),
        (BROKERS, Listener.CONTROLLER, Error.MISMATCHED_ENDPOINT_TYPE),
        (3, Listener.CLIENT, Error.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_the_wrong_kind_of_node(
    harness: BrokerHarness, endpoint_type: int, listener: Listener, error: Error
) -> None:
    answer = harness.ask(request(endpoint_type), 1, listener=listener)
    assert (answer.error_code, answer.brokers) == (error, ())
    assert answer.error_message
