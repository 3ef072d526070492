"""Runs the nodes of a local cluster as processes: the engine of `ottla up` and of `Cluster`.

    <data-dir>/cluster.json                 the nodes, their ports and pids
    <data-dir>/node-<id>/node.properties    written anew at each `prepare`
    <data-dir>/node-<id>/server.log         what the node printed, over all its starts; what was
                                            printed before the last 16 MiB is in server.log.1 to 4
    <data-dir>/node-<id>/data/              log.dirs
    <data-dir>/zookeeper/                   the same for a ZooKeeper of the cluster's own

Only processes that this engine started are ever signalled (see `processes.Identity`). A bound
node ends with its parent: it holds the read end of a pipe as standard input and stops when the
other end closes; a guard does that for a ZooKeeper. It is in a process group of its own, so Ctrl-C
reaches the parent alone; and when the parent is killed while the node is paused, that group becomes
orphaned, for which POSIX promises a SIGCONT.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.base.ids import Uuid, uuid_text
from ottla.host.rotating_output import OUTPUT_FILES_MAX, numbered
from ottla.metadata.properties import write_properties
from ottla.testing import cluster_file, node_forks, ports, processes, readiness, zookeeper_process
from ottla.testing.cluster_file import ClusterEntry, NodeEntry
from ottla.testing.layout import (
    ZOOKEEPER_ID,
    ClusterError,
    NodePlan,
    check_config,
    node_properties,
)
from ottla.testing.node_forks import ForkedNode
from ottla.testing.zookeeper_process import Member

Child = subprocess.Popen[bytes] | ForkedNode

Report = Callable[[str], None]
"""Takes one line that says what is waited for."""

LOG_TAIL_LINES = 20
POLL_SECONDS = 0.1


def silent(line: str) -> None:
    """Tell nobody."""


class LocalCluster:
    """The cluster in one data directory. Every method reads the state from disk again.

    `bound`: whether the nodes that this object starts end with this process.
    Raises: ClusterError for all that a caller can foresee.
    """

    def __init__(self, data_dir: Path, *, bound: bool) -> None:
        self.data_dir = data_dir.resolve()
        self._bound = bound
        self._children: dict[int, Child] = {}
        self._guards: dict[int, subprocess.Popen[bytes]] = {}

    # -- what there is -------------------------------------------------------------------------

    def entry(self) -> ClusterEntry:
        """Return what `cluster.json` says; raise ClusterError where there is none."""
        return cluster_file.load(self.data_dir)

    def node_dir(self, node_id: int) -> Path:
        """Return a node's directory."""
        return self.data_dir / ("zookeeper" if node_id == ZOOKEEPER_ID else f"node-{node_id}")

    def log_path(self, node_id: int) -> Path:
        """Return the file that takes a node's output."""
        return self.node_dir(node_id) / "server.log"

    def properties_path(self, node_id: int) -> Path:
        """Return a node's property file."""
        return self.node_dir(node_id) / "node.properties"

    def state(self, node: NodeEntry) -> str:
        """Return running, starting, paused, stopping, stopped (on purpose) or dead."""
        if node.process is None or not processes.is_alive(node.process):
            return "dead" if node.wanted else "stopped"
        if processes.is_paused(node.process):
            return "paused"
        if not node.wanted:
            return "stopping"
        return "running" if ports.accepts(node.plan.port) else "starting"

    def alive(self) -> list[NodeEntry]:
        """Return the nodes whose processes exist, paused ones too."""
        return [node for node in self.entry().nodes if _is_running(node)]

    def started(self) -> list[int]:
        """Return the nodes whose present processes this object has started."""
        return [
            node.plan.id
            for node in self.entry().nodes
            if node.process is not None and node.process.pid in self._children
        ]

    # -- making it -----------------------------------------------------------------------------

    def prepare(
        self, plans: Sequence[NodePlan], config: Mapping[str, str], zookeeper: str | None = None
    ) -> ClusterEntry:
        """Write the directory for these nodes, or adapt it to new ports and configuration.

        Existing state is kept: the cluster id, the data, and configuration not given again.
        `zookeeper`: what a cluster over ZooKeeper connects to; its own is one of the nodes.
        """
        check_config(config)
        if any(plan.is_zookeeper for plan in plans):
            zookeeper_process.check_installed()
        with cluster_file.locked(self.data_dir):
            if cluster_file.exists(self.data_dir):
                entry = self._adapt(plans, config, zookeeper)
            else:
                entry = ClusterEntry(
                    cluster_id=_new_cluster_id() if zookeeper is None else "",
                    nodes=[NodeEntry(plan) for plan in plans],
                    config=dict(config),
                    zookeeper=zookeeper,
                )
            nodes = [plan for plan in plans if not plan.is_zookeeper]
            properties = [self._properties(plan, entry) for plan in nodes]
            for each in properties:
                readiness.check_properties(each)
            # The id is saved before any directory is formatted with it: if it were lost in between,
            # the next attempt would find directories of another cluster.
            cluster_file.save(self.data_dir, entry)
            for plan, each in zip(nodes, properties, strict=True):
                self._write_node(plan, each, entry)
            for plan in plans[len(nodes) :]:
                zookeeper_process.write_config(self.node_dir(plan.id), Member(1, plan.port), ())
        return entry

    def _adapt(
        self, plans: Sequence[NodePlan], config: Mapping[str, str], zookeeper: str | None
    ) -> ClusterEntry:
        entry = self.entry()
        running = [node for node in entry.nodes if _is_running(node)]
        if running:
            named = ", ".join(f"node {node.plan.id} (pid {_pid(node)})" for node in running)
            raise ClusterError(
                f"a cluster is running from {self.data_dir}: {named}{self._way_out(entry)}"
            )
        before, after = _shape(entry.plans), _shape(plans)
        if before != after or (entry.zookeeper is None) != (zookeeper is None):
            raise ClusterError(
                f"{self.data_dir} holds a cluster of {_describe(entry.plans, entry.zookeeper)}: "
                f"expected that, not {_describe(plans, zookeeper)}, or another directory"
            )
        entry.zookeeper = zookeeper
        entry.nodes = [NodeEntry(plan) for plan in plans]
        entry.config |= config
        return entry

    def _way_out(self, entry: ClusterEntry) -> str:
        """Return what helps where a cluster runs already, in whole or in part."""
        stop = f"'ottla down --data-dir {self.data_dir}' stops it"
        gone = [node.plan.id for node in entry.nodes if not _is_running(node)]
        if not gone:
            return f"; {stop}"
        dead = f"node {gone[0]} does" if len(gone) == 1 else f"nodes {', '.join(map(str, gone))} do"
        return (
            f"; {dead} not run: 'ottla start {gone[0]} --data-dir {self.data_dir}' starts"
            f" {'it' if len(gone) == 1 else 'one'} again, {stop}"
        )

    def _properties(self, plan: NodePlan, entry: ClusterEntry) -> dict[str, str]:
        data = str(self.node_dir(plan.id) / "data")
        return node_properties(plan, entry.plans, data, entry.config, entry.zookeeper)

    def _write_node(self, plan: NodePlan, properties: dict[str, str], entry: ClusterEntry) -> None:
        self.node_dir(plan.id).mkdir(parents=True, exist_ok=True)
        self.properties_path(plan.id).write_text(
            "# Written by Ottla at each start of the cluster.\n" + write_properties(properties),
            encoding="utf-8",
        )
        # Over ZooKeeper a broker learns the cluster's id from there, and writes it down itself.
        if entry.zookeeper is None:
            readiness.format_node(properties, entry.cluster_id)

    # -- start and stop ------------------------------------------------------------------------

    def start(self, node_ids: Sequence[int] | None = None) -> None:
        """Start nodes that do not run (all where not named), without waiting for them."""
        with cluster_file.locked(self.data_dir):
            entry = self.entry()
            nodes = _pick(entry, node_ids)
            for node in nodes:
                if _is_running(node):
                    raise ClusterError(f"node {node.plan.id} runs already (pid {_pid(node)})")
            for node in nodes:
                _check_ports(node.plan)
            started: list[Child] = []
            try:
                # ZooKeeper first, which the others look for.
                for node in sorted(nodes, key=lambda node: not node.plan.is_zookeeper):
                    child = self._spawn(node.plan)
                    started.append(child)
                    node.process = processes.identify(child.pid)
                    node.wanted = True
                    if node.plan.is_zookeeper and self._bound:
                        self._guards[child.pid] = zookeeper_process.guard(node.process)
            finally:
                self._remember(started, entry)

    def _remember(self, started: list[Child], entry: ClusterEntry) -> None:
        self._children |= {child.pid: child for child in started}
        try:
            cluster_file.save(self.data_dir, entry)
        except OSError:
            # A process that is in no file could never be stopped again.
            for child in started:
                identity = processes.identify(child.pid)
                processes.send_signal(identity, signal.SIGKILL)
                processes.wait_until_gone(identity, 10)
            self._reap()
            raise

    def _spawn(self, plan: NodePlan) -> Child:
        if plan.is_zookeeper:
            directory = self.node_dir(plan.id)
            return zookeeper_process.spawn(
                directory, is_ensemble=False, own_session=not self._bound
            )
        arguments = ["server"]
        if self._bound:
            arguments.append("--until-stdin-closes")
        arguments += ["--rotate-output", str(self.log_path(plan.id))]
        arguments.append(str(self.properties_path(plan.id)))
        with open(self.log_path(plan.id), "ab") as log:
            if self._bound and node_forks.can_fork():
                return node_forks.SERVER.start(
                    arguments, directory=self.node_dir(plan.id), output=log
                )
            # -P: a directory named ottla in the working directory must not be taken for the
            # package.
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "ottla.cli", *arguments],
                stdin=subprocess.PIPE if self._bound else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.node_dir(plan.id),
                start_new_session=not self._bound,
                process_group=0 if self._bound else None,
            )

    def wait_ready(
        self, timeout: float, node_ids: Sequence[int] | None = None, report: Report = silent
    ) -> None:
        """Wait until nodes (all wanted ones where not named) serve and know of each other.

        Raises ClusterError as soon as one of them ends, with the end of its log.
        """
        deadline = time.monotonic() + timeout
        entry = self.entry()
        over_zookeeper = entry.zookeeper is not None
        nodes = [node for node in _pick(entry, node_ids) if node.wanted]
        reported = ""
        while True:
            for node in nodes:
                if not _is_running(node):
                    raise ClusterError(self._exit_report(node))
            missing = readiness.missing(
                [node.plan for node in nodes], over_zookeeper=over_zookeeper
            )
            if missing is None:
                return
            # A broker without an ensemble cannot answer: report that as the reason.
            missing = readiness.absent_zookeeper(entry.zookeeper) or missing
            if missing != reported:
                reported = missing
                report(f"waiting for {missing}")
            if time.monotonic() >= deadline:
                whole = "the cluster" if node_ids is None else f"node {node_ids[0]}"
                raise ClusterError(
                    f"{whole} does not serve after {timeout:g} s: still waiting for {missing}"
                    + "".join(f"\n{self._tail_of(node.plan.id)}" for node in nodes)
                )
            time.sleep(POLL_SECONDS)

    def stop(
        self, timeout: float, node_ids: Sequence[int] | None = None, report: Report = silent
    ) -> list[int]:
        """Stop nodes with SIGTERM, brokers before others; return those it had to kill.

        Brokers go first: their controlled shutdown needs the controller, and a controller over
        ZooKeeper needs ZooKeeper. `timeout`: seconds for the brokers, and
        as many again for the others.
        """
        with cluster_file.locked(self.data_dir):
            entry = self.entry()
            nodes = _pick(entry, node_ids)
            for node in nodes:
                node.wanted = False
            # Nodes on a full disk can be stopped too; they are shown as dead then.
            with suppress(OSError):
                cluster_file.save(self.data_dir, entry)
        killed: list[int] = []
        for is_broker in (True, False):
            # One deadline per group: slow brokers must not use up the time of ZooKeeper.
            deadline = time.monotonic() + timeout
            group = [node for node in nodes if node.plan.is_broker == is_broker]
            for node in group:
                self._signal(node, signal.SIGTERM)
                self._signal(node, signal.SIGCONT)  # A paused process gets SIGTERM only after that.
            for node in group:
                if not self._wait_gone(node, deadline, report):
                    self._signal(node, signal.SIGKILL)
                    self._wait_gone(node, time.monotonic() + timeout, silent)
                    killed.append(node.plan.id)
        self._reap()
        return killed

    def kill(self, node_id: int) -> None:
        """Kill a node (SIGKILL) and wait for its end."""
        node = self._running_node(node_id)
        self._signal(node, signal.SIGKILL)
        if not self._wait_gone(node, time.monotonic() + 10, silent):
            raise ClusterError(f"node {node_id} (pid {_pid(node)}) does not end after SIGKILL")
        self._reap()

    def pause(self, node_id: int) -> None:
        """Pause a node's process (SIGSTOP): its connections stay open, it does not answer."""
        node = self._running_node(node_id)
        self._signal(node, signal.SIGSTOP)
        self._wait_paused(node, True)

    def resume(self, node_id: int) -> None:
        """Resume a paused node (SIGCONT)."""
        node = self._running_node(node_id)
        self._signal(node, signal.SIGCONT)
        self._wait_paused(node, False)

    def logs(self, node_id: int) -> str:
        """Return what a node has printed, as far as its log files are kept."""
        path = self.log_path(node_id)
        older = (numbered(path, number) for number in range(OUTPUT_FILES_MAX - 1, 0, -1))
        files = [each for each in (*older, path) if each.exists()]
        return "".join(each.read_text(encoding="utf-8", errors="replace") for each in files)

    # -- help ----------------------------------------------------------------------------------

    def _running_node(self, node_id: int) -> NodeEntry:
        node = self.entry().node(node_id)
        if not _is_running(node):
            raise ClusterError(f"node {node_id} does not run: it is {self.state(node)}")
        return node

    def _signal(self, node: NodeEntry, number: signal.Signals) -> None:
        if node.process is not None:
            processes.send_signal(node.process, number)

    def _wait_gone(self, node: NodeEntry, deadline: float, report: Report) -> bool:
        if node.process is None:
            return True
        if processes.wait_until_gone(node.process, 0):
            return True
        report(f"waiting for node {node.plan.id} to stop")
        return processes.wait_until_gone(node.process, max(0.0, deadline - time.monotonic()))

    def _wait_paused(self, node: NodeEntry, paused: bool) -> None:
        assert node.process is not None
        deadline = time.monotonic() + 10
        while processes.is_paused(node.process) != paused and time.monotonic() < deadline:
            time.sleep(processes.POLL_SECONDS)

    def _reap(self) -> None:
        for pid, child in list(self._children.items()):
            if child.poll() is not None:
                if child.stdin is not None:
                    with suppress(OSError):
                        child.stdin.close()
                if pid in self._guards:
                    zookeeper_process.dismiss(self._guards.pop(pid))
                del self._children[pid]

    def _exit_report(self, node: NodeEntry) -> str:
        pid = node.process.pid if node.process else 0
        child = self._children.get(pid)
        code = child.poll() if child is not None else None
        how = (
            ""
            if code is None
            else f" with exit code {code}"
            if code >= 0
            else f" by signal {-code}"
        )
        return f"node {node.plan.id} ended{how} while it started\n{self._tail_of(node.plan.id)}"

    def _tail_of(self, node_id: int) -> str:
        lines = self.logs(node_id).splitlines()[-LOG_TAIL_LINES:]
        if not lines:
            return f"(nothing in {self.log_path(node_id)})"
        return "\n".join(
            [f"the end of {self.log_path(node_id)}:", *(f"  {line}" for line in lines)]
        )


def _is_running(node: NodeEntry) -> bool:
    return node.process is not None and processes.is_alive(node.process)


def _pid(node: NodeEntry) -> int:
    assert node.process is not None
    return node.process.pid


def _pick(entry: ClusterEntry, node_ids: Sequence[int] | None) -> list[NodeEntry]:
    return entry.nodes if node_ids is None else [entry.node(node_id) for node_id in node_ids]


def _shape(plans: Sequence[NodePlan]) -> list[tuple[int, tuple[str, ...]]]:
    return [(plan.id, plan.roles) for plan in plans]


def _describe(plans: Sequence[NodePlan], zookeeper: str | None) -> str:
    brokers = sum(plan.is_broker for plan in plans)
    separate = len(plans) - brokers
    if zookeeper is not None:
        whose = "its own ZooKeeper" if separate else "another's ZooKeeper"
        return f"{brokers} {'broker' if brokers == 1 else 'brokers'} over {whose}"
    return (
        f"{brokers} {'broker' if brokers == 1 else 'brokers'} and {separate} separate "
        f"{'controller' if separate == 1 else 'controllers'}"
    )


def _check_ports(plan: NodePlan) -> None:
    for port, purpose in plan.purposes.items():
        if not ports.is_free(port):
            holder = ports.holder(port)
            by = f" by {holder}" if holder else ""
            raise ClusterError(f"port {port} for {purpose} of node {plan.id} is in use{by}")


def _new_cluster_id() -> str:
    while True:
        text = uuid_text(Uuid(os.urandom(16)))
        if not text.startswith("-"):  # Or tools would take it for an option.
            return text
