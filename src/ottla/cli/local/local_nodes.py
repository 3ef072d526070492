"""`ottla down | status | kill | start | pause | resume`: the nodes of a cluster on this machine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.errors import CommandError
from ottla.cli.options import DEFAULT_DATA_DIR, check_seconds
from ottla.cli.typing_app import examples, new_app
from ottla.testing.layout import ClusterError
from ottla.testing.local_cluster import LocalCluster

app = new_app()

DataDir = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="The cluster's data directory.")
]
Node = Annotated[int, typer.Argument(metavar="NODE", help="The node's id, as in 'ottla status'.")]

DATA_DIR = Path(DEFAULT_DATA_DIR)


@contextmanager
def cluster_of(data_dir: Path) -> Iterator[LocalCluster]:
    """Yield the cluster of a data directory; a ClusterError ends the command."""
    try:
        engine = LocalCluster(data_dir, bound=False)
        engine.entry()
        yield engine
    except ClusterError as error:
        raise CommandError(str(error)) from None


@app.command("down", epilog=examples("ottla down", "ottla down --data-dir /tmp/t"))
def down(
    data_dir: DataDir = DATA_DIR,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long to wait before SIGKILL, for the brokers and then for the others.",
        ),
    ] = 30.0,
) -> int:
    """Stop a cluster: brokers first, then separate controllers or its own ZooKeeper.

    The data is kept. Exit code 1 if a node had to be killed.
    """
    from ottla.cli.local.local_up import stop_all

    check_seconds(timeout)
    with cluster_of(data_dir) as engine:
        return stop_all(engine, timeout)


@app.command("kill", epilog=examples("ottla kill 2"))
def kill(node: Node, data_dir: DataDir = DATA_DIR) -> None:
    """Kill a node (SIGKILL): no controlled shutdown; its data is kept."""
    with cluster_of(data_dir) as engine:
        engine.kill(node)
    print(f"node {node} is dead")


@app.command("start", epilog=examples("ottla start 2"))
def start(
    node: Node,
    data_dir: DataDir = DATA_DIR,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", help="How long to wait until the node is ready."
        ),
    ] = 60.0,
) -> None:
    """Start a node that was killed or stopped, and wait until it is ready."""
    from ottla.cli.progress import Progress

    check_seconds(timeout)
    progress = Progress()
    with cluster_of(data_dir) as engine:
        engine.start([node])
        try:
            engine.wait_ready(timeout, [node], progress.wait)
        finally:
            progress.done()
    print(f"node {node} is running")


@app.command("pause", epilog=examples("ottla pause 2", "ottla resume 2"))
def pause(node: Node, data_dir: DataDir = DATA_DIR) -> None:
    """Pause a node (SIGSTOP): its connections stay open, it does not respond."""
    with cluster_of(data_dir) as engine:
        engine.pause(node)
    print(f"node {node} is paused")


@app.command("resume", epilog=examples("ottla resume 2"))
def resume(node: Node, data_dir: DataDir = DATA_DIR) -> None:
    """Resume a paused node (SIGCONT)."""
    with cluster_of(data_dir) as engine:
        engine.resume(node)
    print(f"node {node} is resumed")


@app.command("status", epilog=examples("ottla status", "ottla status --json"))
def status(
    data_dir: DataDir = DATA_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show a cluster's nodes.

    States: starting, running, paused, stopping, stopped (by a command) or dead.
    """
    with cluster_of(data_dir) as engine:
        facts = collect(engine)
    if as_json:
        print(json.dumps(facts))
    else:
        _show(facts)


def collect(engine: LocalCluster) -> dict[str, Any]:
    """Return the object that `status --json` prints."""
    from ottla.testing.cluster_facts import active_controller, cluster_id

    entry = engine.entry()
    nodes: list[dict[str, Any]] = []
    for node in entry.nodes:
        state = engine.state(node)
        alive = node.process is not None and state not in ("stopped", "dead")
        nodes.append(
            {
                "id": node.plan.id,
                "pid": node.process.pid if alive and node.process is not None else None,
                "roles": list(node.plan.roles),
                "port": node.plan.port,
                "metrics_port": node.plan.metrics_port,
                "state": state,
            }
        )
    running = [
        node.plan
        for node, facts in zip(entry.nodes, nodes, strict=True)
        if facts["state"] == "running"
    ]
    over_zookeeper = entry.zookeeper is not None
    return {
        "mode": entry.mode,
        "bootstrap": entry.bootstrap,
        # In ZooKeeper mode it is stored in ZooKeeper; brokers return it in Metadata.
        "cluster_id": cluster_id(running) if over_zookeeper else entry.cluster_id,
        "controller": active_controller(running, over_zookeeper=over_zookeeper),
        "zookeeper": entry.zookeeper,
        "nodes": nodes,
    }


COLOURS = {"running": "green", "starting": "yellow", "paused": "yellow", "dead": "red"}


def _show(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    controller = facts["controller"]
    console = Console()
    console.print(f"bootstrap servers  {facts['bootstrap']}", highlight=False)
    cluster = "unknown" if facts["cluster_id"] is None else facts["cluster_id"]
    console.print(f"cluster id         {cluster}", highlight=False)
    console.print(f"mode               {facts['mode']}", highlight=False)
    if facts["zookeeper"] is not None:
        console.print(f"zookeeper          {facts['zookeeper']}", highlight=False)
    console.print(
        f"controller         {'unknown' if controller is None else controller}", highlight=False
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "ROLES", "PORT", "PID", "STATE"):
        table.add_column(title)
    for node in facts["nodes"]:
        colour = COLOURS.get(node["state"])
        state = f"[{colour}]{node['state']}[/{colour}]" if colour else node["state"]
        pid = "-" if node["pid"] is None else str(node["pid"])
        table.add_row(str(node["id"]), ",".join(node["roles"]), str(node["port"]), pid, state)
    console.print(table)
