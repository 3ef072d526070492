"""The engine's directories and errors; nodes are started by the cluster tests.

Method: entries of `cluster.json` name this test's own process, another pid's, or none.
"""

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from ottla.metadata.properties import read_properties
from ottla.testing import cluster_file, node_forks
from ottla.testing.cluster import Cluster
from ottla.testing.cluster_file import ClusterEntry, NodeEntry
from ottla.testing.layout import ClusterError, plan_brokers, plan_nodes
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import free_ports
from ottla.testing.processes import Identity, identify


@pytest.fixture
def engine(tmp_path: Path) -> LocalCluster:
    return LocalCluster(tmp_path / "cluster", bound=True)


def pretend(engine: LocalCluster, process: Identity | None, *, wanted: bool) -> None:
    """Let `cluster.json` say that node 1 is this process."""
    entry = engine.entry()
    entry.nodes[0].process, entry.nodes[0].wanted = process, wanted
    cluster_file.save(engine.data_dir, entry)


def properties(engine: LocalCluster) -> dict[str, str]:
    return read_properties(engine.properties_path(1).read_text())


def test_preparing_formats_and_keeps_the_cluster(engine: LocalCluster) -> None:
    first = engine.prepare(plan_nodes(1, 0, 19092), {"log.retention.hours": "5"})
    assert (engine.node_dir(1) / "data" / "meta.properties").exists()
    again = engine.prepare(plan_nodes(1, 0, 29092), {"log.roll.hours": "6"})
    assert again.cluster_id == first.cluster_id
    assert again.bootstrap == "127.0.0.1:29092"
    assert properties(engine)["listeners"].startswith("PLAINTEXT://127.0.0.1:29092,")
    assert properties(engine)["log.retention.hours"] == "5"
    assert properties(engine)["log.roll.hours"] == "6"


def test_a_data_dir_keeps_its_number_of_nodes(engine: LocalCluster) -> None:
    engine.prepare(plan_nodes(1, 0, 9092), {})
    with pytest.raises(
        ClusterError,
        match="holds a cluster of 1 broker and 0 separate controllers: expected that, "
        "not 3 brokers and 0 separate controllers",
    ):
        engine.prepare(plan_nodes(3, 0, 9092), {})


def test_a_running_cluster_is_not_prepared_again(engine: LocalCluster) -> None:
    engine.prepare(plan_nodes(1, 0, 9092), {})
    pretend(engine, identify(os.getpid()), wanted=True)
    with pytest.raises(ClusterError, match=rf"is running .*: node 1 \(pid {os.getpid()}\)"):
        engine.prepare(plan_nodes(1, 0, 9092), {})
    with pytest.raises(ClusterError, match="node 1 runs already"):
        engine.start()


def test_a_property_that_no_node_takes_is_refused(engine: LocalCluster) -> None:
    with pytest.raises(ClusterError, match=r"log\.segment\.bytes"):
        engine.prepare(plan_nodes(1, 0, 9092), {"log.segment.bytes": "many"})


def test_what_is_refused_leaves_nothing_behind(engine: LocalCluster) -> None:
    with pytest.raises(ClusterError, match=r"no\.such\.property"):
        engine.prepare(plan_nodes(3, 0, 9092), {"no.such.property": "1"})
    assert [path.name for path in engine.data_dir.iterdir()] == ["cluster.lock"]


def test_a_half_prepared_data_dir_is_finished_later(engine: LocalCluster) -> None:
    """The cluster id was once written last: directories formatted before did not match it then."""
    engine.data_dir.mkdir()
    (engine.data_dir / "node-2").write_text("a file in a directory's place")
    with pytest.raises(FileExistsError):
        engine.prepare(plan_nodes(2, 0, 9092), {})
    assert (engine.node_dir(1) / "data" / "meta.properties").exists()
    (engine.data_dir / "node-2").unlink()
    engine.prepare(plan_nodes(2, 0, 9092), {})
    assert (engine.node_dir(2) / "data" / "meta.properties").exists()


def test_a_node_that_cannot_be_saved_is_stopped(engine: LocalCluster) -> None:
    """As on a full disk: a process that is in no file could never be stopped."""
    engine.prepare(plan_nodes(1, 0, *free_ports(1)), {})
    # What `save` writes first cannot be written.
    (engine.data_dir / "cluster.json.new").mkdir()
    before = running()
    with pytest.raises(OSError, match=r"cluster\.json\.new"):
        engine.start()
    assert running() <= before


def running() -> set[psutil.Process]:
    """Return this process's descendants but the one that starts nodes, which stays."""
    server = node_forks.SERVER.process
    return {
        each
        for each in psutil.Process().children(recursive=True)  # Other tests' too, such as a Spark.
        if each.status() != psutil.STATUS_ZOMBIE and (server is None or each.pid != server.pid)
    }


def test_nodes_are_stopped_also_where_nothing_can_be_written(engine: LocalCluster) -> None:
    engine.prepare(plan_nodes(1, 0, 9092), {})
    with subprocess.Popen(["sleep", "60"]) as child:
        pretend(engine, identify(child.pid), wanted=True)
        (engine.data_dir / "cluster.json.new").mkdir()
        assert engine.stop(10.0) == []
        assert child.wait(10) == -signal.SIGTERM


def test_what_a_broker_that_hangs_takes_is_not_taken_from_zookeeper(engine: LocalCluster) -> None:
    """It ends in order, last, however long the brokers took."""
    hangs = "trap '' TERM; echo; exec sleep 60"
    takes_a_moment = "trap 'sleep 0.5; exit 7' TERM; echo; while :; do sleep 0.05; done"
    plans = plan_brokers(1, 9092, 9292)
    with ExitStack() as stack:
        children = []
        for script in (hangs, takes_a_moment):
            child = stack.enter_context(
                subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
            )
            stack.callback(child.kill)
            assert child.stdout is not None
            child.stdout.readline()
            children.append(child)
        nodes = [
            NodeEntry(plan, identify(child.pid), wanted=True)
            for plan, child in zip(plans, children, strict=True)
        ]
        engine.data_dir.mkdir()
        cluster_file.save(engine.data_dir, ClusterEntry(cluster_id="", nodes=nodes, zookeeper="z"))
        assert engine.stop(3.0) == [1]
        assert [child.wait(10) for child in children] == [-signal.SIGKILL, 7]


def test_states_of_nodes_without_a_process(engine: LocalCluster) -> None:
    engine.prepare(plan_nodes(1, 0, *free_ports(1)), {})
    (node,) = engine.entry().nodes
    assert engine.state(node) == "stopped"
    pretend(engine, identify(os.getpid()), wanted=True)
    assert engine.state(engine.entry().nodes[0]) == "starting"  # It does not listen.
    pretend(engine, identify(os.getpid()), wanted=False)
    assert engine.state(engine.entry().nodes[0]) == "stopping"


def test_a_recycled_pid_is_a_dead_node_and_is_not_signalled(engine: LocalCluster) -> None:
    engine.prepare(plan_nodes(1, 0, 9092), {})
    pretend(engine, Identity(os.getpid(), "another boot:5"), wanted=True)
    assert engine.state(engine.entry().nodes[0]) == "dead"
    assert engine.alive() == []
    with pytest.raises(ClusterError, match="node 1 does not run: it is dead"):
        engine.kill(1)
    assert engine.stop(1.0) == []  # And this test lives on.


def test_no_cluster(engine: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="no cluster in"):
        engine.stop(1.0)


def test_a_cluster_for_tests_must_be_entered() -> None:
    with pytest.raises(ClusterError, match="use it within its `with` block"):
        _ = Cluster().bootstrap
    with pytest.raises(ClusterError, match="0 brokers: expected 1 to 100"):
        Cluster(brokers=0)
