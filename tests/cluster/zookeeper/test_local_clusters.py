"""Goal: clusters over ZooKeeper are started, looked at and stopped as others are.

Method: `ottla up` and its like in a directory of the test's own, and `Cluster`, over real servers.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.log.names import CLEAN_SHUTDOWN
from ottla.testing import Cluster, ClusterError
from ottla.testing.ports import free_ports, is_free
from ottla.testing.processes import identify, wait_until_gone
from ottla.testing.zookeeper_server import ZooKeeperServer

from ..conftest import Reports
from ..ottla_command import Ran, ottla

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(7)]

Local = Callable[..., Ran]

STOP_SECONDS_PROMISED = 15

QUICK = {"zookeeper.session.timeout.ms": "2000"}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """Run a command about the cluster in the test's directory; it is stopped at the end."""
    directory = tmp_path / "cluster"

    def run(name: str, *arguments: str) -> Ran:
        return ottla(name, "--data-dir", str(directory), *arguments, cwd=tmp_path)

    yield run
    if (directory / "cluster.json").exists():
        run("down", "--timeout", "10")


def first_port(brokers: int) -> int:
    """Return a port that is free, with all that follow from it."""
    steps = (*range(brokers), *range(1000, 1000 + brokers), 200)
    while True:
        (port,) = free_ports(1)
        if all(is_free(port + step) for step in steps):
            return port


def status(local: Local) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(local("status", "--json").out)
    return facts


# -- ottla up ------------------------------------------------------------------------------------


def test_up_over_a_zookeeper_of_its_own_down_and_up_again(local: Local) -> None:
    port = first_port(2)
    up = local("up", "--brokers", "2", "--zookeeper", "--port", str(port), "--detach")
    assert up.code == 0, up.err
    connect = f"127.0.0.1:{port + 200}"
    assert f" (2 brokers over ZooKeeper at {connect}, cluster id " in up.out
    facts = status(local)
    assert (facts["mode"], facts["zookeeper"]) == ("zookeeper", connect)
    assert facts["controller"] in (1, 2)
    assert [
        (node["id"], node["roles"], node["port"], node["state"]) for node in facts["nodes"]
    ] == [
        (1, ["broker"], port, "running"),
        (2, ["broker"], port + 1, "running"),
        (201, ["zookeeper"], port + 200, "running"),
    ]
    shown = local("status").out.splitlines()
    assert f"cluster id {facts['cluster_id']})" in up.out
    assert shown[1:5] == [
        f"cluster id         {facts['cluster_id']}",
        "mode               zookeeper",
        f"zookeeper          {connect}",
        f"controller         {facts['controller']}",
    ]
    bootstrap = ("--bootstrap-server", facts["bootstrap"])
    assert ottla("topics", *bootstrap, "--create", "--topic", "kept").code == 0

    down = local("down")
    assert (down.code, down.out) == (0, "Stopped 3 nodes.\n")
    assert {node["state"] for node in status(local)["nodes"]} == {"stopped"}
    assert local("up", "--detach").code == 0
    again = status(local)
    assert (again["zookeeper"], again["bootstrap"]) == (connect, facts["bootstrap"])
    assert "kept" in ottla("topics", *bootstrap, "--list").out.splitlines()


def test_zookeeper_is_a_node_that_can_be_killed_and_started(local: Local) -> None:
    up = local("up", "--zookeeper", "--port", str(first_port(1)), "--detach")
    assert up.code == 0, up.err
    assert local("kill", "201").out == "node 201 is dead\n"
    assert [node["state"] for node in status(local)["nodes"]] == ["running", "dead"]
    assert local("start", "201").out == "node 201 is running\n"


@pytest.mark.parametrize("loss", ["pause", "kill"])
def test_down_ends_in_order_where_zookeeper_does_not_answer(
    local: Local, tmp_path: Path, loss: str, reports: Reports
) -> None:
    """No broker is killed: the next start has nothing to recover, and ZooKeeper ends last."""
    port = first_port(3)
    up = local("up", "--brokers", "3", "--zookeeper", "--port", str(port), "--detach")
    assert up.code == 0, up.err
    bootstrap = ("--bootstrap-server", status(local)["bootstrap"])
    created = ottla("topics", *bootstrap, "--create", "--topic", "t", "--replication-factor", "3")
    assert created.code == 0, created.err
    assert local(loss, "201").code == 0
    began = time.monotonic()
    down = local("down", "--timeout", str(STOP_SECONDS_PROMISED))
    reports.append(
        f"ottla down after {loss} of ZooKeeper",
        [f"{time.monotonic() - began:.1f} s, three brokers"],
    )
    assert (down.code, down.out) == (0, f"Stopped {4 if loss == 'pause' else 3} nodes.\n")
    for broker in (1, 2, 3):
        assert (tmp_path / f"cluster/node-{broker}/data/{CLEAN_SHUTDOWN}").exists()


def test_up_over_a_zookeeper_that_runs_leaves_it_running(
    local: Local, zookeeper: ZooKeeperServer, chroot: str
) -> None:
    connect = zookeeper.connect + chroot
    up = local("up", "--zookeeper", connect, "--port", str(first_port(1)), "--detach")
    assert up.code == 0, up.err
    facts = status(local)
    assert (facts["zookeeper"], facts["controller"]) == (connect, 1)
    assert [node["roles"] for node in facts["nodes"]] == [["broker"]]
    assert local("down").out == "Stopped 1 node.\n"
    assert zookeeper.mode() == "standalone"
    assert local("up", "--detach").code == 0
    assert status(local)["zookeeper"] == connect


def test_what_cannot_be_had_over_zookeeper_is_refused(local: Local) -> None:
    ran = local("up", "--zookeeper", "--controllers", "1", "--detach")
    assert ran.code == 2
    assert "--controllers 1: expected none with --zookeeper" in ran.err
    ran = local("up", "--zookeeper", "zk1,,zk2", "--detach")
    assert ran.code == 2
    assert "expected HOST:PORT[,...][/CHROOT]" in ran.err


def test_a_directory_of_one_mode_is_not_run_in_the_other(local: Local, tmp_path: Path) -> None:
    with Cluster(data_dir=tmp_path / "cluster"):
        pass
    ran = local("up", "--zookeeper", "--detach")
    assert ran.code == 1
    assert "expected that, not 1 broker over its own ZooKeeper, or another directory" in ran.err


# -- for tests -----------------------------------------------------------------------------------


def test_a_cluster_for_tests_has_a_zookeeper_and_elects_another_controller() -> None:
    with Cluster(brokers=2, zookeeper=True, config=QUICK, metrics=True) as cluster:
        assert cluster.zookeeper is not None
        assert cluster.zookeeper_connect == cluster.zookeeper.connect
        assert [node.id for node in cluster.nodes] == [1, 2]
        assert cluster.controllers == ()
        first = cluster.wait_controller()
        cluster.kill(first)
        second = cluster.wait_controller(besides=first)
        assert {first, second} == {1, 2}
        cluster.start(first)
        cluster.wait_ready()
        assert cluster.controller == second


def test_a_cluster_in_a_kept_directory_goes_on_with_its_zookeepers_data(tmp_path: Path) -> None:
    for expected in ({}, {0}):
        with Cluster(zookeeper=True, data_dir=tmp_path) as cluster:
            assert set(cluster.partitions("kept")) == set(expected)
            assert expected or ottla(
                "topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "kept"
            ).code == 0  # fmt: skip


def test_clusters_over_servers_that_are_given(zookeeper: ZooKeeperServer, chroot: str) -> None:
    with Cluster(zookeeper=zookeeper.connect + chroot) as cluster:
        assert cluster.zookeeper is None
        assert cluster.zookeeper_connect == zookeeper.connect + chroot
    with ZooKeeperServer(3) as ensemble, Cluster(zookeeper=ensemble, config=QUICK) as cluster:
        assert cluster.zookeeper is ensemble
        leader = ensemble.leader()
        assert leader is not None
        ensemble.kill(leader)
        ran = ottla("topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "t")
        assert ran.code == 0, ran.err


def test_there_are_no_controllers_over_zookeeper() -> None:
    with pytest.raises(ClusterError, match="1 controllers over ZooKeeper: expected 0"):
        Cluster(controllers=1, zookeeper=True)


# -- servers -------------------------------------------------------------------------------------


def test_servers_are_killed_frozen_and_restarted() -> None:
    with ZooKeeperServer() as server:
        assert server.mode() == "standalone"
        server.pause()
        assert server.mode() is None
        server.resume()
        server.wait_ready()
        before = server.pid()
        server.kill()
        assert (server.pid(), server.mode()) == (None, None)
        with pytest.raises(ClusterError, match="ZooKeeper server 1 does not run"):
            server.kill()
        server.restart()
        assert server.pid() not in (None, before)
        assert server.address() == server.connect


OWNER = """
import sys
from ottla.testing.zookeeper_server import ZooKeeperServer
server = ZooKeeperServer(data_dir=sys.argv[1])
server.start()
print(server.pid(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("frozen", [False, True])
def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path, frozen: bool) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        server = identify(int(owner.stdout.readline()))
        if frozen:
            os.kill(server.pid, signal.SIGSTOP)
    finally:
        owner.kill()
        owner.communicate()
    assert wait_until_gone(server, 10)


def test_a_server_that_cannot_start_shows_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "version-2").write_text("in the way of a directory")
    began = time.monotonic()
    with pytest.raises(ClusterError, match="ZooKeeper server 1 ended with exit code"):
        ZooKeeperServer(data_dir=tmp_path).start()
    assert time.monotonic() - began < 60


def test_an_absent_ensemble_is_told_at_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    connect = f"127.0.0.1:{port}/nowhere"
    began = time.monotonic()
    ran = ottla(
        "up", "--data-dir", str(tmp_path), "--zookeeper", connect, "--port", str(first_port(1)),
        "--detach", "--timeout", "4",
    )  # fmt: skip
    assert ran.code == 1
    assert time.monotonic() - began < 30
    waits = [line for line in ran.err.splitlines() if line.startswith("waiting for ")]
    assert waits[0] == f"waiting for ZooKeeper at {connect}"
    assert f"still waiting for ZooKeeper at {connect}" in ran.err
