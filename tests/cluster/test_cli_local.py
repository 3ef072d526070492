"""`ottla up` and its like: real nodes, started, frozen, killed and stopped from the command line.

Method: each test has a directory and ports of its own, and stops what it started.
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
from ottla.testing.ports import free_ports, is_free
from ottla.testing.processes import identify, wait_until_gone

from .conftest import Reports
from .ottla_command import Ran, ottla, ottla_arguments

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(7)]

Local = Callable[..., Ran]

STOP_SECONDS_PROMISED = 15


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """Run a command about the cluster in the test's directory; it is stopped at the end."""
    directory = tmp_path / "cluster"

    def run(name: str, *arguments: str) -> Ran:
        return ottla(name, "--data-dir", str(directory), *arguments, cwd=tmp_path)

    yield run
    if (directory / "cluster.json").exists():
        run("down", "--timeout", "5")


def first_port(count: int) -> int:
    """Return a port that, with the following ones, the controller's and metrics', is free."""
    steps = (*range(count), 100, 101, 102)
    while True:
        (port,) = free_ports(1)
        if all(is_free(port + step) and is_free(port + step + 1000) for step in steps):
            return port


def status(local: Local) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(local("status", "--json").out)
    return facts


def states(local: Local) -> dict[int, str]:
    return {node["id"]: node["state"] for node in status(local)["nodes"]}


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition; fail where it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_broker_from_up_to_down_and_up_again(local: Local) -> None:
    port = first_port(1)
    up = local("up", "--port", str(port), "--detach", "--config", "log.retention.hours=5")
    assert up.code == 0
    assert f"Ottla serves at 127.0.0.1:{port} (1 broker, cluster id " in up.out
    facts = status(local)
    (node,) = facts.pop("nodes")
    cluster_id = facts.pop("cluster_id")
    assert f"cluster id {cluster_id})" in up.out
    assert f"cluster id         {cluster_id}\n" in local("status").out
    assert facts == {
        "mode": "kraft",
        "bootstrap": f"127.0.0.1:{port}",
        "controller": 1,
        "zookeeper": None,
    }
    assert identify(node.pop("pid"))
    assert node == {
        "id": 1,
        "roles": ["broker", "controller"],
        "port": port,
        "metrics_port": port + 1000,
        "state": "running",
    }
    bootstrap = ("--bootstrap-server", facts["bootstrap"])
    assert ottla("topics", *bootstrap, "--create", "--topic", "kept").code == 0
    shown = ottla("configs", *bootstrap, "--describe", "--broker", "1", "--all").out
    assert "  log.retention.hours=5 " in shown

    again = local("up", "--detach")
    assert again.code == 1
    assert "a cluster is running from " in again.err

    assert local("down") == (0, "Stopped 1 node.\n", "waiting for node 1 to stop\n")
    assert states(local) == {1: "stopped"}
    assert local("down") == (0, "No node is running.\n", "")
    assert local("up", "--detach").code == 0
    assert status(local)["bootstrap"] == f"127.0.0.1:{port}"
    assert "kept" in ottla("topics", *bootstrap, "--list").out.splitlines()
    shown = ottla("configs", *bootstrap, "--describe", "--broker", "1", "--all").out
    assert "  log.retention.hours=5 " in shown  # What was said once stays.


def test_three_brokers_that_are_killed_started_paused_and_resumed(local: Local) -> None:
    port = first_port(3)
    assert local("up", "--brokers", "3", "--port", str(port), "--detach").code == 0
    nodes = status(local)["nodes"]
    assert [(node["id"], node["port"], node["roles"]) for node in nodes] == [
        (1, port, ["broker", "controller"]),
        (2, port + 1, ["broker", "controller"]),
        (3, port + 2, ["broker", "controller"]),
    ]
    assert status(local)["controller"] in (1, 2, 3)
    assert local("kill", "2") == (0, "node 2 is dead\n", "")
    assert local("pause", "3") == (0, "node 3 is paused\n", "")
    assert states(local) == {1: "running", 2: "dead", 3: "paused"}
    dead = local("kill", "2")
    assert (dead.code, dead.err) == (1, "ottla kill: node 2 does not run: it is dead\n")
    assert local("resume", "3") == (0, "node 3 is resumed\n", "")
    assert local("start", "2").out == "node 2 is running\n"
    assert set(states(local).values()) == {"running"}
    unknown = local("pause", "9")
    assert unknown.err == "ottla pause: no node 9 in this cluster: expected one of 1, 2, 3\n"
    other = local("up", "--brokers", "2", "--detach")
    assert other.code == 1
    assert local("pause", "1").code == 0
    assert local("down").out == "Stopped 3 nodes.\n"  # The paused one as well.
    assert set(states(local).values()) == {"stopped"}


def test_controllers_of_their_own(local: Local) -> None:
    port = first_port(1)
    up = ("up", "--brokers", "1", "--controllers", "3", "--port", str(port), "--detach")
    assert local(*up).code == 0
    facts = status(local)
    assert [(node["id"], node["port"], node["roles"]) for node in facts["nodes"]] == [
        (1, port, ["broker"]),
        (101, port + 100, ["controller"]),
        (102, port + 101, ["controller"]),
        (103, port + 102, ["controller"]),
    ]
    first = facts["controller"]
    assert first in (101, 102, 103)
    assert local("kill", str(first)).code == 0
    until(lambda: status(local)["controller"] in {101, 102, 103} - {first})


def test_down_ends_in_order_where_the_quorum_has_no_majority(
    local: Local, tmp_path: Path, reports: Reports
) -> None:
    """No node is killed, however patient the quorum: the next start has nothing to recover."""
    port = first_port(3)
    patient = ("--config", "controller.quorum.fetch.timeout.ms=20000")
    up = local("up", "--brokers", "3", "--port", str(port), "--detach", *patient)
    assert up.code == 0, up.err
    bootstrap = ("--bootstrap-server", status(local)["bootstrap"])
    created = ottla("topics", *bootstrap, "--create", "--topic", "t", "--replication-factor", "3")
    assert created.code == 0, created.err
    controller = status(local)["controller"]
    lost = (controller, controller % 3 + 1)
    for node in lost:
        assert local("kill", str(node)).code == 0
    began = time.monotonic()
    down = local("down", "--timeout", str(STOP_SECONDS_PROMISED))
    reports.append(
        "ottla down without a majority", [f"{time.monotonic() - began:.1f} s, one combined node"]
    )
    assert (down.code, down.out) == (0, "Stopped 1 node.\n")
    (left,) = {1, 2, 3} - set(lost)
    assert (tmp_path / f"cluster/node-{left}/data/{CLEAN_SHUTDOWN}").exists()


def test_the_tools_find_the_cluster_of_the_working_directory(tmp_path: Path) -> None:
    port = first_port(1)
    assert ottla("up", "--port", str(port), "--detach", cwd=tmp_path).code == 0
    try:
        ran = ottla("topics", "--list", cwd=tmp_path)
        assert ran.code == 0
        assert ran.err == f"using the cluster of ./ottla-data at 127.0.0.1:{port}\n"
    finally:
        ottla("down", cwd=tmp_path)
    ran = ottla("topics", "--list", cwd=tmp_path)
    assert ran.code == 2
    assert "no cluster runs from ./ottla-data" in ran.err


def test_a_directory_without_a_cluster(local: Local) -> None:
    for name, arguments in (("down", ()), ("status", ()), ("kill", ("1",)), ("start", ("1",))):
        ran = local(name, *arguments)
        assert ran.code == 1
        assert ran.err.startswith(f"ottla {name}: no cluster in ")
        assert ran.err.endswith("cluster.json\n")


def test_a_port_in_use_is_named_with_its_holder(local: Local, tmp_path: Path) -> None:
    port = first_port(1)
    assert local("up", "--port", str(port), "--detach").code == 0
    pid = status(local)["nodes"][0]["pid"]
    other = tmp_path / "other"
    ran = ottla("up", "--data-dir", str(other), "--port", str(port), "--detach")
    assert ran.code == 1
    assert f"ottla up: port {port} for the broker listener of node 1 is in use by " in ran.err
    assert f"(pid {pid})" in ran.err
    assert states(local) == {1: "running"}  # It was left alone.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "node.id=7"], "node.id=7 cannot be set for a whole cluster: it follows "
         "from the number of nodes and the ports"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(local: Local, arguments: list[str], message: str) -> None:
    assert local("up", *arguments, "--detach") == (1, "", f"ottla up: {message}\n")


def test_a_property_that_no_node_takes_is_named(local: Local) -> None:
    ran = local("up", "--config", "log.segment.bytes=many", "--detach")
    assert ran.code == 1
    assert "log.segment.bytes" in ran.err
    assert "many" in ran.err


def test_a_node_that_does_not_start_shows_the_end_of_its_log(local: Local, tmp_path: Path) -> None:
    port = first_port(1)
    assert local("up", "--port", str(port), "--detach").code == 0
    assert local("down").code == 0
    lock = tmp_path / "cluster" / "node-1" / "data" / ".lock"
    lock.unlink()
    lock.mkdir()  # Where the node wants a file.
    ran = local("up", "--detach")
    assert ran.code == 1
    notified = ran.err[ran.err.index("ottla up: ") :].splitlines()
    assert notified[0] == "ottla up: node 1 ended with exit code 1 while it started"
    assert notified[1] == f"the end of {tmp_path}/cluster/node-1/server.log:"
    assert str(lock) in notified[-1]
    assert states(local) == {1: "stopped"}


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`ottla up` in the foreground of the test's directory, once it serves."""
    directory = tmp_path / "cluster"
    with subprocess.Popen(
        ottla_arguments("up", "--data-dir", str(directory), "--port", str(first_port(1))),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("Ottla serves at ")
            assert process.stdout.readline() == "Ctrl-C stops it.\n"
            yield process
        finally:
            process.kill()  # Unless it has ended; its node does not outlive it.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_a_cluster_in_the_foreground(
    local: Local, foreground: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    foreground.send_signal(number)
    out, _ = foreground.communicate(timeout=30)
    assert (foreground.returncode, out) == (0, "Stopped 1 node.\n")
    assert states(local) == {1: "stopped"}


def test_a_cluster_in_the_foreground_says_what_becomes_of_its_nodes(
    local: Local, foreground: "subprocess.Popen[str]"
) -> None:
    assert foreground.stdout is not None
    assert local("kill", "1").code == 0
    assert foreground.stdout.readline() == "node 1 is dead\n"
    assert local("start", "1").code == 0
    until(lambda: states(local) == {1: "running"})
    assert local("down").code == 0
    out, _ = foreground.communicate(timeout=30)
    assert foreground.returncode == 0
    assert out.splitlines()[-1] == "No node is running."


@pytest.mark.parametrize("is_paused", [False, True])
def test_nodes_do_not_outlive_a_parent_that_is_killed(
    local: Local, foreground: "subprocess.Popen[str]", is_paused: bool
) -> None:
    node = identify(status(local)["nodes"][0]["pid"])
    if is_paused:
        assert local("pause", "1").code == 0
    foreground.kill()
    foreground.communicate(timeout=30)
    assert wait_until_gone(node, 20)


def test_nodes_do_not_outlive_the_tests_that_started_them(tmp_path: Path) -> None:
    program = (
        "from ottla.testing import Cluster\n"
        "import sys, time\n"
        "with Cluster() as cluster:\n"
        "    print(cluster.pid(1), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        # The killed parent cannot remove its directory.
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert parent.stdout is not None
    node = identify(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate(timeout=30)
    assert wait_until_gone(node, 20)
