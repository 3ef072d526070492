"""`ottla cluster` prints what kafka-cluster.sh prints.

Method: the text is Kafka's, written out; a fake broker answers in the real protocol.
"""

from typing import Any

from ottla.base.errors import Error
from ottla.wire.messages import describe_cluster as wire
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker


def serve(broker: FakeBroker) -> None:
    """Three brokers, of which one is fenced."""

    def describe(request: wire.DescribeClusterRequest) -> Any:
        nodes = [
            wire.DescribeClusterBroker(broker_id=2, host="localhost", port=9093, is_fenced=True),
            wire.DescribeClusterBroker(broker_id=1, host="localhost", port=9092, rack="left"),
            wire.DescribeClusterBroker(broker_id=30, host="far", port=19092),
        ]
        return wire.DescribeClusterResponse(
            error_code=0,
            cluster_id="some-cluster",
            brokers=tuple(e for e in nodes if request.include_fenced_brokers or not e.is_fenced),
        )

    broker.answer(wire.DescribeClusterRequest, describe)


def test_the_clusters_id(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    ran = run("cluster", "cluster-id", "--bootstrap-server", broker.address)
    assert (ran.code, ran.out) == (0, "Cluster ID: some-cluster\n")


def test_the_endpoints_of_live_brokers(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    ran = run("cluster", "list-endpoints", "--bootstrap-server", broker.address)
    assert ran.out.splitlines() == [
        "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  ",
        "1          localhost 9092       left       unfenced   broker         ",
        "30         far       19092      null       unfenced   broker         ",
    ]


def test_the_endpoints_of_fenced_brokers_too(run: Run, broker: FakeBroker) -> None:
    serve(broker)
    arguments = ("--bootstrap-server", broker.address, "--include-fenced-brokers")
    lines = run("cluster", "list-endpoints", *arguments).out.splitlines()
    assert [line.split()[0::4] for line in lines[1:]] == [
        ["1", "unfenced"],
        ["2", "fenced"],
        ["30", "unfenced"],
    ]


def test_the_controllers(run: Run, broker: FakeBroker) -> None:
    other = FakeBroker()
    broker.be_controller(101, active=other)
    ran = run("cluster", "list-endpoints", "--bootstrap-controller", broker.address)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "ID         HOST      PORT       RACK       ENDPOINT_TYPE  ",
        f"101        127.0.0.1 {broker.port:<10} null       controller     ",
        f"102        127.0.0.1 {other.port:<10} null       controller     ",
    ]
    ran = run("cluster", "cluster-id", "-C", broker.address)
    assert (ran.code, ran.out) == (0, "Cluster ID: some-cluster\n")
    words = ("--bootstrap-controller", broker.address, "--include-fenced-brokers")
    ran = run("cluster", "list-endpoints", *words)
    assert ran.code == 2
    assert "only supported with --bootstrap-server" in ran.err
    other.close()


def test_the_active_controller_unregisters(run: Run, broker: FakeBroker) -> None:
    other = FakeBroker()
    broker.be_controller(101, active=other)
    other.answer(UnregisterBrokerRequest, lambda _: UnregisterBrokerResponse(error_code=0))
    ran = run("cluster", "unregister", "-C", broker.address, "-i", "3")
    assert (ran.code, ran.out) == (0, "Broker 3 is no longer registered.\n")
    other.close()


def test_a_broker_is_unregistered(run: Run, broker: FakeBroker) -> None:
    broker.answer(UnregisterBrokerRequest, lambda _: UnregisterBrokerResponse(error_code=0))
    ran = run("cluster", "unregister", "--bootstrap-server", broker.address, "--id", "3")
    assert (ran.code, ran.out) == (0, "Broker 3 is no longer registered.\n")
    assert [each.broker_id for each in broker.requests(UnregisterBrokerRequest)] == [3]


def test_one_that_is_not_there_is_named(run: Run, broker: FakeBroker) -> None:
    def refuse(_: UnregisterBrokerRequest) -> Any:
        return UnregisterBrokerResponse(
            error_code=Error.BROKER_ID_NOT_REGISTERED, error_message="Broker 9 is not registered."
        )

    broker.answer(UnregisterBrokerRequest, refuse)
    ran = run("cluster", "unregister", "--bootstrap-server", broker.address, "--id", "9")
    assert ran.code == 1
    assert "broker 9: Broker 9 is not registered. (BROKER_ID_NOT_REGISTERED)" in ran.err


def test_an_id_that_no_broker_can_have(run: Run) -> None:
    for number in ("99999999999", "-1"):
        ran = run("cluster", "unregister", "--bootstrap-server", "x:1", "--id", number)
        assert ran.code == 2
        assert f"--id {number}: expected 0 to 2147483647" in ran.err


def test_unregister_is_refused_in_zookeeper_mode(run: Run, broker: FakeBroker) -> None:
    """Brokers there do not serve the request; it says so, and why."""
    ran = run("cluster", "unregister", "--bootstrap-server", broker.address, "--id", "3")
    assert ran.code == 1
    assert ran.err == (
        f"ottla cluster: the cluster at {broker.address} does not serve UnregisterBroker: "
        "expected a KRaft cluster, not ZooKeeper mode\n"
    )
