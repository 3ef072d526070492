"""`ottla up`: starts a cluster on this machine and waits until it serves."""

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import DEFAULT_DATA_DIR, check_seconds, key_values
from ottla.cli.progress import Progress
from ottla.cli.typing_app import examples, new_app
from ottla.testing import cluster_file
from ottla.testing.cluster_file import ClusterEntry
from ottla.testing.layout import (
    BROKERS_MAX,
    CONTROLLERS_MAX,
    PORT_MAX,
    ClusterError,
    NodePlan,
    last_port_offset,
    plan_nodes,
)
from ottla.testing.local_cluster import LocalCluster

app = new_app()

OPTIONAL_VALUES = {"--zookeeper": ""}

DEFAULT_BROKERS = 1
DEFAULT_PORT = 9092
WATCH_SECONDS = 0.5
STOP_SECONDS = 30.0

EPILOG = examples(
    "ottla up                                   one broker at localhost:9092, until Ctrl-C",
    "ottla up --brokers 3 --detach              three of them, in the background",
    "ottla up --data-dir /tmp/t --port 19092    another cluster beside it",
    "ottla up --config auto.create.topics.enable=false",
)


@app.command("up", epilog=EPILOG)
def up(
    brokers: Annotated[
        int | None, typer.Option("--brokers", metavar="N", help="How many brokers.  [default: 1]")
    ] = None,
    controllers: Annotated[
        int | None,
        typer.Option(
            "--controllers",
            metavar="N",
            help="Separate controllers, 3 or 5 to survive losses; "
            "0 lets the first 3 brokers (the first, of 1 or 2) be controllers too.  [default: 0]",
        ),
    ] = None,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Where the cluster lives.")
    ] = Path(DEFAULT_DATA_DIR),
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", help="Of the first broker.  [default: 9092]"),
    ] = None,
    config: Annotated[
        list[str],
        typer.Option("--config", metavar="NAME=VALUE", help="A property of all nodes; repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it serves; 'ottla down' stops it.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for it.")
    ] = 60.0,
    zookeeper: Annotated[str | None, typer.Option("--zookeeper", hidden=True)] = None,
    remote_storage: Annotated[str | None, typer.Option("--remote-storage", hidden=True)] = None,
) -> int:
    """Start a cluster on this machine, or the one that the data folder holds already.

    Broker i has the id i and listens on PORT + i - 1; controllers listen from PORT + 100.
    Prometheus finds each node's metrics on the node's port + 1000, under /metrics.
    """
    if zookeeper is not None:
        raise CommandError("--zookeeper: clusters over ZooKeeper are not supported yet")
    if remote_storage is not None:
        raise CommandError("--remote-storage: tiered storage is not supported yet")
    check_seconds(timeout)
    properties = key_values(config, "--config", empty=False)
    engine = LocalCluster(data_dir, bound=not detach)
    try:
        entry = engine.prepare(choose_plans(data_dir, brokers, controllers, port), properties)
        _start(engine, entry, timeout)
        if detach:
            print(f"Stop it with: ottla down --data-dir {data_dir}")
            return 0
        return _stay(engine)
    except ClusterError as error:
        raise CommandError(str(error)) from None


def choose_plans(
    data_dir: Path, brokers: int | None, controllers: int | None, port: int | None
) -> Sequence[NodePlan]:
    """Return the nodes to run: what the folder holds, unless the options say otherwise."""
    stored: Sequence[NodePlan] = ()
    if cluster_file.exists(data_dir):
        stored = cluster_file.load(data_dir).plans
    if stored and brokers is None and controllers is None and port is None:
        return stored
    count = sum(plan.is_broker for plan in stored) or DEFAULT_BROKERS
    separate = sum(not plan.is_broker for plan in stored)
    if brokers is None:
        brokers = count
    if controllers is None:
        controllers = separate
    if port is None:
        port = stored[0].port if stored else DEFAULT_PORT
    _check_numbers(brokers, controllers, port)
    return plan_nodes(brokers, controllers, port)


def _check_numbers(brokers: int, controllers: int, port: int) -> None:
    if not 1 <= brokers <= BROKERS_MAX:
        raise UsageError(f"--brokers {brokers}: expected 1 to {BROKERS_MAX}")
    if not 0 <= controllers <= CONTROLLERS_MAX:
        raise UsageError(f"--controllers {controllers}: expected 0 to {CONTROLLERS_MAX}")
    last_offset = last_port_offset(controllers)
    last = PORT_MAX - last_offset
    if not 1 <= port <= last:
        raise UsageError(
            f"--port {port}: expected 1 to {last}, since the last node's metrics "
            f"are on PORT + {last_offset}"
        )


def _start(engine: LocalCluster, entry: ClusterEntry, timeout: float) -> None:
    count = len(entry.nodes)
    progress = Progress()
    progress.say(f"Starting {count} {'node' if count == 1 else 'nodes'} in {engine.data_dir}")
    engine.start()
    try:
        engine.wait_ready(timeout, tell=progress.wait)
    except BaseException:
        # Nothing of a cluster that does not serve is left behind.
        engine.stop(STOP_SECONDS, tell=progress.wait)
        raise
    finally:
        progress.done()
    brokers = sum(plan.is_broker for plan in entry.plans)
    noun = "1 broker" if brokers == 1 else f"{brokers} brokers"
    print(f"Ottla serves at {entry.bootstrap} ({noun}, cluster id {entry.cluster_id})", flush=True)


def _stay(engine: LocalCluster) -> int:
    """Watch the nodes until Ctrl-C or SIGTERM, then stop them."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, end) for number in numbers]
    print("Ctrl-C stops it.", flush=True)
    try:
        _watch(engine, ended)
    finally:
        # A second Ctrl-C ends the waiting for slow nodes as well.
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    return stop_all(engine, STOP_SECONDS)


def _watch(engine: LocalCluster, ended: threading.Event) -> None:
    """Say when a node's state changes; return once all were stopped (`ottla down`)."""
    states = {node.plan.id: "running" for node in engine.entry().nodes}
    while not ended.wait(WATCH_SECONDS):
        for node in engine.entry().nodes:
            state = engine.state(node)
            if state != states[node.plan.id]:
                print(f"node {node.plan.id} is {state}", flush=True)
                states[node.plan.id] = state
        if all(state == "stopped" for state in states.values()):
            return


def stop_all(engine: LocalCluster, timeout: float) -> int:
    """Stop the nodes that live, and say what had to be killed; return the exit code."""
    living = engine.alive()
    if not living:
        print("No node is running.")
        return 0
    progress = Progress()
    killed = engine.stop(timeout, tell=progress.wait)
    progress.done()
    for node_id in killed:
        print(f"node {node_id} did not stop within {timeout:g} s and was killed (SIGKILL)")
    count = len(living)
    print(f"Stopped {count} {'node' if count == 1 else 'nodes'}.")
    return 0
