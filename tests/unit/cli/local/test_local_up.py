"""Which cluster `ottla up` runs: that of the data directory; options override it.

And what it leaves behind where nothing could be started, and how the stop of nodes ends.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.local.local_up import choose_brokers, choose_plans, stop_all, stored_zookeeper
from ottla.testing import cluster_file
from ottla.testing.cluster_file import ClusterEntry, NodeEntry
from ottla.testing.layout import ClusterError, NodePlan, place_nodes, plan_brokers, plan_nodes
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import HOST, LAST_PORT, free_ports, is_free
from ottla.testing.processes import identify
from ottla.testing.readiness import absent_zookeeper
from tests.unit.cli.conftest import Run


def store(directory: Path, brokers: int, controllers: int, port: int) -> None:
    nodes = [NodeEntry(plan) for plan in plan_nodes(brokers, controllers, port)]
    cluster_file.save(directory, ClusterEntry(cluster_id="id", nodes=nodes))


def test_a_new_data_directory(tmp_path: Path) -> None:
    assert choose_plans(tmp_path, None, None, None) == plan_nodes(1, 0, 9092)
    assert choose_plans(tmp_path, 3, None, 7000) == plan_nodes(3, 0, 7000)
    assert choose_plans(tmp_path, 1, 1, None) == plan_nodes(1, 1, 9092)
    assert choose_plans(tmp_path, 3, 3, None) == plan_nodes(3, 3, 9092)
    with pytest.raises(UsageError, match="--controllers 6: expected 0 to 5"):
        choose_plans(tmp_path, 3, 6, None)


@pytest.mark.parametrize(
    ("brokers", "controllers"), [(1, 0), (1, 1), (2, 0), (3, 0), (3, 1), (3, 3)]
)
def test_a_data_directory_keeps_its_cluster(tmp_path: Path, brokers: int, controllers: int) -> None:
    store(tmp_path, brokers, controllers, 7000)
    assert choose_plans(tmp_path, None, None, None) == plan_nodes(brokers, controllers, 7000)
    assert choose_plans(tmp_path, None, None, 8000) == plan_nodes(brokers, controllers, 8000)
    assert choose_plans(tmp_path, brokers, None, None) == plan_nodes(brokers, controllers, 7000)


def test_ports_that_were_not_in_a_row_stay(tmp_path: Path) -> None:
    """As in a data directory that `ottla.testing.Cluster` left."""
    plans = place_nodes(2, 0, [7000, 7777], [15_000])
    entry = ClusterEntry(cluster_id="id", nodes=[NodeEntry(plan) for plan in plans])
    cluster_file.save(tmp_path, entry)
    assert choose_plans(tmp_path, None, None, None) == plans


@pytest.mark.parametrize(
    ("brokers", "controllers", "port", "message"),
    [
        (0, None, None, "--brokers 0: expected 1 to 100"),
        (101, None, None, "--brokers 101: expected 1 to 100"),
        (1, -1, None, "--controllers -1: expected 0 to 5"),
        (1, None, 0, "--port 0: expected 1 to 64436, since the last node's metrics are on PORT"),
        (1, None, 64_437, "--port 64437: expected 1 to 64436"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(
    tmp_path: Path, brokers: int, controllers: int | None, port: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose_plans(tmp_path, brokers, controllers, port)


# -- over ZooKeeper ------------------------------------------------------------------------------


def store_over_zookeeper(directory: Path, own_port: int | None, connect: str) -> None:
    nodes = [NodeEntry(plan) for plan in plan_brokers(2, 7000, own_port)]
    cluster_file.save(directory, ClusterEntry(cluster_id="", nodes=nodes, zookeeper=connect))


def test_a_new_data_directory_gets_a_zookeeper_of_its_own(tmp_path: Path) -> None:
    first = free_ports(1)[0]
    assert stored_zookeeper(tmp_path) is None
    plans, connect = choose_brokers(tmp_path, 3, None, first, "")
    own = plans[-1].port  # first + 200, unless that is taken.
    assert (plans, connect) == (plan_brokers(3, first, own), f"{HOST}:{own}")


def test_an_existing_zookeeper_is_not_a_node(tmp_path: Path) -> None:
    for given in ("zk1", "zk1:2181", "zk1:2181,zk2:2182/some/path"):
        assert choose_brokers(tmp_path, None, 0, None, given) == (plan_brokers(1, 9092), given)


def test_a_zookeeper_cluster_stays_in_zookeeper_mode(tmp_path: Path) -> None:
    (own,) = free_ports(1)
    store_over_zookeeper(tmp_path, own, f"{HOST}:{own}")
    assert stored_zookeeper(tmp_path) == ""
    expected = plan_brokers(2, 7000, own), f"{HOST}:{own}"
    assert choose_brokers(tmp_path, None, None, None, "") == expected


def test_a_cluster_keeps_its_external_zookeeper(tmp_path: Path) -> None:
    store_over_zookeeper(tmp_path, None, "zk1:2181/path")
    assert stored_zookeeper(tmp_path) == "zk1:2181/path"


@pytest.mark.parametrize("given", ["/path", "zk1:port", "zk1,,zk2", "zk1 zk2", "http://zk1"])
def test_invalid_connect_strings(tmp_path: Path, given: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        choose_brokers(tmp_path, None, None, None, given)


def test_there_are_no_controllers_over_zookeeper(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--controllers 3: expected none with --zookeeper"):
        choose_brokers(tmp_path, None, 3, None, "")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use, outside the range of outgoing connections.

    Those that a node would have with it are free: its broker's is this one or 200 below.
    """
    others = (-200, 800, 1_000)
    port = next(
        port
        for port in free_ports(20)
        if port < LAST_PORT - 1_000 and all(is_free(port + each) for each in others)
    )
    with socket.create_server((HOST, port)):
        yield port


def test_a_cluster_of_which_no_node_could_start_leaves_nothing(
    run: Run, tmp_path: Path, taken: int
) -> None:
    directory = tmp_path / "cluster"
    for brokers in ("1", "2"):
        ran = run("up", "--data-dir", str(directory), "--port", str(taken), "--brokers", brokers)
        assert ran.code == 1
        assert f"port {taken} for the broker listener of node 1 is in use" in ran.err
        assert not directory.exists()


def test_other_files_in_the_data_directory_are_kept(run: Run, tmp_path: Path, taken: int) -> None:
    for names in ([], ["mine"]):
        for name in names:
            (tmp_path / name).write_text("")
        assert run("up", "--data-dir", str(tmp_path), "--port", str(taken)).code == 1
        assert [each.name for each in tmp_path.iterdir()] == names


def test_a_cluster_that_was_there_stays(run: Run, tmp_path: Path, taken: int) -> None:
    engine = LocalCluster(tmp_path, bound=False)
    engine.prepare(plan_nodes(1, 0, free_ports(1)[0]), {})
    before = contents(tmp_path)
    for config in ((), ("--config", "log.retention.hours=5")):
        ran = run("up", "--data-dir", str(tmp_path), "--port", str(taken), *config)
        assert ran.code == 1
        assert contents(tmp_path) == before


def test_a_cluster_that_fails_as_it_starts_keeps_its_ports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no process of it stays, also where only the second node cannot be started."""
    engine = LocalCluster(tmp_path, bound=False)
    first = free_ports(1)[0]
    engine.prepare(plan_nodes(2, 0, first), {})
    before = contents(tmp_path)
    spawn, spawned = LocalCluster._spawn, []

    def fail_later(self: LocalCluster, plan: NodePlan) -> Any:
        if spawned:
            raise ClusterError("no more processes")
        spawned.append(spawn(self, plan))
        return spawned[0]

    monkeypatch.setattr(LocalCluster, "_spawn", fail_later)
    other = free_ports(1)[0]
    words = ("up", "--data-dir", str(tmp_path), "--port", str(other), "--detach")
    ran = run(*words)
    assert ran.code == 1
    assert ran.err.endswith("no more processes\n")
    assert spawned[0].poll() is not None
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before


def test_two_at_once_leave_the_cluster_of_the_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has prepared the directory too when the first starts its node."""
    prepare = LocalCluster.prepare
    with subprocess.Popen(["sleep", "60"]) as first:

        def prepare_late(self: LocalCluster, *arguments: Any) -> ClusterEntry:
            entry = prepare(self, *arguments)
            entry.nodes[0].process, entry.nodes[0].wanted = identify(first.pid), True
            cluster_file.save(tmp_path, entry)
            return entry

        monkeypatch.setattr(LocalCluster, "prepare", prepare_late)
        try:
            ran = run("up", "--data-dir", str(tmp_path), "--port", str(free_ports(1)[0]))
            assert ran.code == 1
            assert ran.err.endswith(f"ottla up: node 1 runs already (pid {first.pid})\n")
            assert first.poll() is None
            (node,) = cluster_file.load(tmp_path).nodes
            assert (node.process, node.wanted) == (identify(first.pid), True)
        finally:
            first.kill()


def contents(directory: Path) -> dict[Path, bytes]:
    """Return every file with what is in it."""
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_partly_running_cluster_names_the_remedies(run: Run, tmp_path: Path) -> None:
    engine = LocalCluster(tmp_path, bound=False)
    entry = engine.prepare(plan_nodes(3, 0, free_ports(1)[0]), {})
    entry.nodes[1].process = identify(os.getpid())
    cluster_file.save(tmp_path, entry)
    ran = run("up", "--data-dir", str(tmp_path))
    assert ran.code == 1
    assert f"a cluster is running from {tmp_path}: node 2 (pid {os.getpid()})" in ran.err
    assert (
        f"; nodes 1, 3 do not run: 'ottla start 1 --data-dir {tmp_path}' starts one again, "
        f"'ottla down --data-dir {tmp_path}' stops it\n"
    ) in ran.err


def test_zookeepers_port_is_never_another_one(run: Run, tmp_path: Path, taken: int) -> None:
    plans, connect = choose_brokers(tmp_path, None, None, taken - 200, "")
    assert connect == f"{HOST}:{taken}"
    assert plans[-1].purposes == {taken: "ZooKeeper"}
    engine = LocalCluster(tmp_path, bound=False)
    engine.prepare(plans, {}, connect)
    with pytest.raises(ClusterError, match=f"port {taken} for ZooKeeper of node 201 is in use"):
        engine.start()


def test_each_port_has_a_purpose() -> None:
    (combined,) = plan_nodes(1, 0, 9092)
    assert combined.purposes == {
        9092: "the broker listener", 9192: "the controller listener", 10092: "the metrics",
    }  # fmt: skip
    assert plan_nodes(1, 1, 9092)[1].purposes == {
        9192: "the controller listener", 10192: "the metrics",
    }  # fmt: skip


def test_an_unreachable_ensemble_is_reported(taken: int) -> None:
    (free,) = free_ports(1)
    assert absent_zookeeper(None) is None
    assert absent_zookeeper(f"{HOST}:{free},{HOST}:{taken}/a") is None
    absent = f"{HOST}:{free},{HOST}:{free}/a"
    assert absent_zookeeper(absent) == f"ZooKeeper at {absent}"


class Stoppable:
    """The part of LocalCluster that stopping uses. `killed`: the nodes that do not end in time."""

    def __init__(self, running: int, killed: list[int]) -> None:
        self._running = running
        self._killed = killed

    def alive(self) -> list[int]:
        return list(range(self._running))

    def stop(self, timeout: float, *, report: Any) -> list[int]:
        return self._killed


def test_nodes_that_had_to_be_killed_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def stop(running: int, *killed: int) -> int:
        return stop_all(cast(LocalCluster, Stoppable(running, list(killed))), 30)

    assert stop(0) == stop(3) == 0
    assert capsys.readouterr().out == "No node is running.\nStopped 3 nodes.\n"
    with pytest.raises(CommandError, match=r"^node 2 did not stop within 30 s and was killed \(S"):
        stop(3, 2)
    with pytest.raises(CommandError, match=r"^nodes 1, 2 did not stop within 30 s and were killed"):
        stop(3, 1, 2)
    assert capsys.readouterr().out == "Stopped 3 nodes.\n" * 2


WATCHED_BY_SIGNALS = """
import signal
import sys

from ottla.cli.local import local_up

class Node:
    class plan:
        id = 1

class Engine:  # Its only node runs on and on.
    nodes = (Node,)
    def entry(self):
        return self
    def state(self, node):
        return "running"

def stopped(engine, timeout):
    sys.settrace(None)
    return 0

def trace(frame, event, argument):
    global left
    if event == "line":
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)
    return trace

# A process in a script's background inherits a SIGINT that is ignored: then nothing would end the
# wait in the rounds whose signal comes before the handlers are set.
signal.signal(signal.SIGINT, signal.default_int_handler)
local_up.WATCH_SECONDS = 0.001
local_up.stop_all = stopped
for line in range(1, 200):
    left = line
    sys.settrace(trace)
    try:
        local_up._run_until_signal(Engine())
    except KeyboardInterrupt:  # Before the handlers were set.
        sys.settrace(None)
print("ended")
"""


def test_ctrl_c_ends_the_watch_loop_at_any_line() -> None:
    """Also within the wait itself, whose lock a handler must not want."""
    program = f"import sys; sys.path[:] = {sys.path!r}\n{WATCHED_BY_SIGNALS}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=100)
    assert (ran.returncode, ran.stdout[-6:]) == (0, b"ended\n"), ran.stderr
