"""`ottla.testing.Cluster` and the pytest fixture, as users' own tests have them."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import Cluster, ClusterError

pytestmark = pytest.mark.cluster


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
        assert cluster.logs(1).count("node 1 is started") == 4
        assert (cluster.data_dir(1) / "meta.properties").exists()
    assert tmp_path.exists()  # A folder that was given is kept ...
    with Cluster(data_dir=tmp_path) as cluster:  # ... and its cluster goes on.
        assert cluster.logs(1).count("node 1 is started") == 5


def test_a_folder_that_was_not_given_goes_away() -> None:
    with Cluster() as cluster:
        folder = cluster.data_dir()
        assert folder.exists()
    assert not folder.exists()


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
