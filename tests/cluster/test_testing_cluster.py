"""`ottla.testing.Cluster` and the pytest fixture, as users' own tests have them."""

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster, ClusterError

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(4)]


def test_a_node_through_all_that_can_happen_to_it(tmp_path: Path) -> None:
    # A killed broker's place is free again once its session is over.
    quick = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
    with Cluster(config=quick, data_dir=tmp_path) as cluster:
        (node,) = cluster.nodes
        assert node.roles == ("broker", "controller")
        assert cluster.bootstrap == cluster.address(1) == f"127.0.0.1:{node.port}"
        first = cluster.pid(1)
        assert first is not None
        assert cluster.state(1) == "running"
        cluster.pause(1)
        assert cluster.state(1) == "paused"
        cluster.resume(1)
        cluster.wait_ready()
        cluster.kill(1)
        assert (cluster.state(1), cluster.pid(1)) == ("dead", None)
        cluster.start(1)
        cluster.wait_ready()
        cluster.stop(1)
        assert cluster.state(1) == "stopped"
        cluster.start(1)
        cluster.wait_ready()
        cluster.restart(1)
        assert cluster.state(1) == "running"
        assert cluster.logs(1).count("node 1 started") == 4
        assert (cluster.data_dir(1) / "meta.properties").exists()
    assert tmp_path.exists()  # A directory that was given is kept ...
    with Cluster(data_dir=tmp_path) as cluster:  # ... and its cluster goes on.
        assert cluster.logs(1).count("node 1 started") == 5


QUICK_QUORUM = {
    "controller.quorum.fetch.timeout.ms": "500",
    "controller.quorum.election.timeout.ms": "300",
}


def test_three_nodes_that_are_brokers_and_controllers() -> None:
    with Cluster(brokers=3, config=QUICK_QUORUM, metrics=True) as cluster:
        assert [node.roles for node in cluster.nodes] == [("broker", "controller")] * 3
        assert cluster.controllers == cluster.brokers == cluster.nodes
        first = cluster.wait_controller()
        assert cluster.controller == first
        for node in (1, 2, 3):
            text = metrics(cluster.metrics_address(node))
            led = f"kafka_controller_kafka_controller_active_controller_count {int(node == first)}"
            assert led in text.splitlines()
        cluster.pause(first)
        second = cluster.wait_controller(besides=first)
        cluster.resume(first)
        cluster.kill(second)
        assert cluster.wait_controller(besides=second) in {1, 2, 3} - {second}
        cluster.start(second)
        cluster.wait_ready()


def test_a_whole_cluster_stops_in_order(tmp_path: Path) -> None:
    """All at once, then one by one, of which the last two find no quorum any more."""
    with Cluster(brokers=3, config=QUICK_QUORUM, data_dir=tmp_path):
        pass
    assert [stops(tmp_path, node) for node in (1, 2, 3)] == [1, 1, 1]
    with Cluster(brokers=3, data_dir=tmp_path) as cluster:
        for node in (1, 2, 3):
            cluster.stop(node)
    assert [stops(tmp_path, node) for node in (1, 2, 3)] == [2, 2, 2]


def stops(directory: Path, node: int) -> int:
    """Return how often a node has stopped in order; the last time its logs were closed."""
    assert (directory / f"node-{node}" / "data" / ".kafka_cleanshutdown").exists()
    log = (directory / f"node-{node}" / "server.log").read_text()
    return log.count(f"node {node} stopped")


def test_controllers_of_their_own_and_what_is_known_of_partitions() -> None:
    with Cluster(brokers=3, controllers=1) as cluster:
        assert [node.id for node in cluster.controllers] == [101]
        assert cluster.controller == 101
        assert cluster.controller_address(101) == f"127.0.0.1:{cluster.nodes[3].port}"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", 2, 3)])["orders"].result(30)
        cluster.wait_in_sync("orders")
        facts = cluster.partitions("orders")
        assert sorted(facts) == [0, 1]
        assert all(set(each.isr) == set(each.replicas) == {1, 2, 3} for each in facts.values())
        assert cluster.partitions("nothing") == {}
        with pytest.raises(ClusterError, match="node 1 is no controller"):
            cluster.controller_address(1)
        with pytest.raises(ClusterError, match="no metrics are served"):
            cluster.metrics_address(1)
        cluster.kill(101)
        assert cluster.controller is None
        with pytest.raises(ClusterError, match="for an active controller in vain"):
            cluster.wait_controller(timeout=0.2)
        cluster.start(101)  # Or the brokers would look for a controller when they stop.
        cluster.wait_ready()


def test_a_directory_with_a_separate_controller_goes_on_with_it(tmp_path: Path) -> None:
    """As all directories of several brokers had one before combined nodes became the default."""
    with Cluster(brokers=2, controllers=1, data_dir=tmp_path):
        pass
    with Cluster(brokers=2, data_dir=tmp_path) as cluster:
        assert [node.id for node in cluster.nodes] == [1, 2, 101]
        assert cluster.controller == 101


def metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_a_directory_that_was_not_given_goes_away() -> None:
    with Cluster() as cluster:
        directory = cluster.data_dir()
        assert directory.exists()
    assert not directory.exists()


def test_a_node_that_does_not_start_tells_why(tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path):
        pass
    lock = tmp_path / "node-1" / "data" / ".lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(ClusterError, match=r"node 1 ended with exit code 1 [\s\S]*\.lock"):
        Cluster(data_dir=tmp_path).__enter__()


def test_the_fixture(tmp_path: Path) -> None:
    """A suite of a user's, with nothing but the package installed."""
    (tmp_path / "test_mine.py").write_text(
        "def test_one(ottla_cluster):\n"
        "    assert len(ottla_cluster.brokers) == 2\n"
        "def test_two(ottla_cluster):\n"
        "    assert ottla_cluster.state(1) == 'running'\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ottla-brokers", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
