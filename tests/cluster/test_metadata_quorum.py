"""`ottla metadata-quorum` against real nodes: brokers pass the question on, controllers answer it.

Method: the command on a cluster of two brokers with a controller beside them.
"""

from collections.abc import Iterator

import pytest

from ottla.testing import Cluster

from .ottla_command import ottla

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, controllers=1) as started:
        yield started


def describe(option: str, address: str, *what: str) -> list[str]:
    ran = ottla("metadata-quorum", option, address, "describe", *what)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def addresses(cluster: Cluster) -> list[tuple[str, str]]:
    (controller,) = (node for node in cluster.nodes if "controller" in node.roles)
    return [
        ("--bootstrap-server", cluster.bootstrap),
        ("--bootstrap-controller", f"127.0.0.1:{controller.port}"),
    ]


def test_brokers_and_controllers_tell_the_same(cluster: Cluster) -> None:
    notified = []
    for option, address in addresses(cluster):
        facts = dict(line.split(":", maxsplit=1) for line in describe(option, address, "--status"))
        assert int(facts.pop("HighWatermark")) > 0
        notified.append({name: value.strip() for name, value in facts.items()})
    assert notified[0] == notified[1]
    port = addresses(cluster)[1][1]
    assert notified[0]["LeaderId"] == "101"
    assert notified[0]["CurrentVoters"] == f'[{{"id": 101, "endpoints": ["CONTROLLER://{port}"]}}]'
    assert notified[0]["CurrentObservers"] == '[{"id": 1}, {"id": 2}]'


def test_every_member_is_listed(cluster: Cluster) -> None:
    for option, address in addresses(cluster):
        rows = [line.split("\t") for line in describe(option, address, "--replication")]
        assert [(row[0].strip(), row[6].strip()) for row in rows] == [
            ("NodeId", "Status"),
            ("101", "Leader"),
            ("1", "Observer"),
            ("2", "Observer"),
        ]


def test_the_wrong_kind_of_listener_says_so(cluster: Cluster) -> None:
    broker = cluster.bootstrap.split(",")[0]
    ran = ottla("metadata-quorum", "--bootstrap-controller", broker, "describe", "--status")
    assert ran.code == 1
    assert "(MISMATCHED_ENDPOINT_TYPE)" in ran.err


def test_any_of_several_controllers_leads_to_the_active_one() -> None:
    """And tells where the others are, and its own properties."""
    with Cluster(brokers=1, controllers=3) as cluster:
        ports = {node.id: node.port for node in cluster.nodes if "controller" in node.roles}
        leaders = set()
        for port in ports.values():
            where = ("--bootstrap-controller", f"127.0.0.1:{port}")
            ran = ottla("metadata-quorum", *where, "describe", "--status")
            assert (ran.code, ran.err) == (0, "")
            leaders.add(ran.out.splitlines()[1])
            ran = ottla("cluster", "list-endpoints", *where)
            listed = [line.split() for line in ran.out.splitlines()[1:]]
            assert [(int(row[0]), int(row[2]), row[4]) for row in listed] == [
                (node_id, port, "controller") for node_id, port in ports.items()
            ]
            for node_id in ports:
                ran = ottla("configs", *where, "--describe", "--broker", str(node_id), "--all")
                assert f"  node.id={node_id} " in ran.out
        assert len(leaders) == 1
        where = ("--bootstrap-controller", f"127.0.0.1:{ports[103]}")
        setting = ("--broker-defaults", "--add-config", "log.retention.ms=77")
        assert ottla("configs", *where, "--alter", *setting).code == 0
        ran = ottla("configs", *where, "--describe", "--broker-defaults")
        assert "  log.retention.ms=77 " in ran.out
