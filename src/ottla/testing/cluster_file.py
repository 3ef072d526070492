"""`cluster.json`: the state of a local cluster between two commands.

One writer at a time, by an exclusive lock on a file beside it. The pids in it may be stale:
`processes.Identity` tells whether they are still those processes.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.testing.layout import ClusterError, NodePlan
from ottla.testing.ports import HOST
from ottla.testing.processes import Identity

FILE = "cluster.json"
LOCK = "cluster.lock"
FORMAT = 1


@dataclass(slots=True)
class NodeEntry:
    """One node in the file. `wanted`: it should run; False after a stop on purpose."""

    plan: NodePlan
    process: Identity | None = None
    wanted: bool = False


@dataclass(slots=True, kw_only=True)
class ClusterEntry:
    """The content of the file.

    Fields: `cluster_id`: "" in a cluster over ZooKeeper, where its brokers agree on one.
            `zookeeper`: what such a cluster connects to; None = KRaft mode.
    """

    cluster_id: str
    nodes: list[NodeEntry]
    config: dict[str, str] = field(default_factory=dict)
    zookeeper: str | None = None

    @property
    def mode(self) -> str:
        """Return kraft or zookeeper."""
        return "kraft" if self.zookeeper is None else "zookeeper"

    @property
    def plans(self) -> tuple[NodePlan, ...]:
        """Return the nodes' plans, brokers first."""
        return tuple(node.plan for node in self.nodes)

    @property
    def bootstrap(self) -> str:
        """Return what clients give as bootstrap servers."""
        return ",".join(f"{HOST}:{plan.port}" for plan in self.plans if plan.is_broker)

    def node(self, node_id: int) -> NodeEntry:
        """Return a node's entry; raise ClusterError where the cluster has none of that id."""
        for each in self.nodes:
            if each.plan.id == node_id:
                return each
        known = ", ".join(str(plan.id) for plan in self.plans)
        raise ClusterError(f"no node {node_id} in this cluster: expected one of {known}")


def exists(data_dir: Path) -> bool:
    """Tell whether the directory holds a cluster."""
    return (data_dir / FILE).is_file()


def load(data_dir: Path) -> ClusterEntry:
    """Read the file; raise ClusterError where there is none, or not of this format."""
    path = data_dir / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ClusterError(f"no cluster in {data_dir}: expected {path}") from None
    except ValueError as error:
        raise ClusterError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ClusterError(f"{path} holds no JSON object: expected what 'ottla up' wrote")
    if content.get("version") != FORMAT:
        raise ClusterError(f"{path} has version {content.get('version')}: expected {FORMAT}")
    try:
        entry = _entry_of(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"{path} lacks or garbles {error}") from None
    if not entry.nodes:
        raise ClusterError(f"{path} names no nodes: expected what 'ottla up' wrote")
    return entry


def save(data_dir: Path, entry: ClusterEntry) -> None:
    """Replace the file."""
    content = {
        "version": FORMAT,
        "cluster_id": entry.cluster_id,
        "mode": entry.mode,
        "zookeeper": entry.zookeeper,
        "bootstrap": entry.bootstrap,
        "config": entry.config,
        "nodes": [_node_json(node) for node in entry.nodes],
    }
    temporary = data_dir / f"{FILE}.new"
    try:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, data_dir / FILE)
    except OSError as error:
        error.filename = error.filename or str(temporary)  # ENOSPC has no file name.
        with suppress(OSError):
            temporary.unlink()
        raise


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the directory's lock; wait for another holder."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with open(data_dir / LOCK, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _node_json(node: NodeEntry) -> dict[str, Any]:
    return {
        "id": node.plan.id,
        "roles": list(node.plan.roles),
        "port": node.plan.port,
        "controller_port": node.plan.controller_port,
        "metrics_port": node.plan.metrics_port,
        "pid": node.process.pid if node.process else None,
        "started": node.process.started if node.process else None,
        "wanted": node.wanted,
    }


def _entry_of(content: dict[str, Any]) -> ClusterEntry:
    nodes = []
    for each in content["nodes"]:
        plan = NodePlan(
            id=each["id"],
            roles=tuple(each["roles"]),
            port=each["port"],
            controller_port=each["controller_port"],
            metrics_port=each.get("metrics_port"),
        )
        process = Identity(each["pid"], each["started"]) if each["pid"] is not None else None
        nodes.append(NodeEntry(plan, process, each["wanted"]))
    return ClusterEntry(
        cluster_id=content["cluster_id"],
        nodes=nodes,
        config=dict(content["config"]),
        zookeeper=content.get("zookeeper"),
    )
