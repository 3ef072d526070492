"""`ottla up`: starts a cluster on this machine and waits until it is ready."""

import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated

import typer

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import DEFAULT_DATA_DIR, check_seconds, key_values
from ottla.cli.progress import Progress
from ottla.cli.typing_app import examples, new_app
from ottla.cli.zookeeper_client import parse_connect
from ottla.stores.uri import FileUri, MemoryUri, StoreUriError, parse_store_uri
from ottla.testing import cluster_facts, cluster_file
from ottla.testing.cluster_file import ClusterEntry
from ottla.testing.layout import (
    BROKERS_MAX,
    CONTROLLERS_MAX,
    PORT_MAX,
    ZOOKEEPER_PORT_OFFSET,
    ClusterError,
    NodePlan,
    last_port_offset,
    plan_brokers,
    plan_nodes,
)
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import HOST

app = new_app()

OPTIONAL_VALUES = {"--zookeeper": ""}

DEFAULT_BROKERS = 1
DEFAULT_PORT = 9092
WATCH_SECONDS = 0.5
STOP_SECONDS = 30.0

EPILOG = examples(
    "ottla up                                   one broker at localhost:9092, until Ctrl-C",
    "ottla up --brokers 3 --detach              three brokers in the background",
    "ottla up --data-dir /tmp/t --port 19092    a second cluster",
    "ottla up --config auto.create.topics.enable=false",
    "ottla up --brokers 3 --zookeeper           with a ZooKeeper server of its own",
    "ottla up --zookeeper zk1:2181,zk2:2181/a   with an existing ZooKeeper ensemble",
    "ottla up --remote-storage file:///mnt/store   with tiered storage in a directory",
)

Config = Annotated[
    list[str],
    typer.Option("--config", metavar="NAME=VALUE", help="A property for all nodes; repeatable."),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        metavar="[CONNECT]",
        help="ZooKeeper mode: connect to CONNECT (host:port,... with an optional chroot); "
        "without a value, start a ZooKeeper server.",
    ),
]
RemoteStorage = Annotated[
    str | None,
    typer.Option(
        "--remote-storage",
        metavar="URI",
        help="Enable tiered storage, with the objects in URI: file:///DIRECTORY or "
        "s3://BUCKET/PREFIX. Topics use it with remote.storage.enable=true.",
    ),
]


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
            help="Separate controllers: 3 or 5 tolerate failures. "
            "0: the first 3 brokers (of 1 or 2, the first) are controllers too.  [default: 0]",
        ),
    ] = None,
    zookeeper: ZooKeeper = None,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The cluster's data directory.")
    ] = Path(DEFAULT_DATA_DIR),
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", help="Port of the first broker.  [default: 9092]"),
    ] = None,
    config: Config = [],  # noqa: B006 - typer copies it
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return when the cluster is ready; 'ottla down' stops it."),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", help="How long to wait until the cluster is ready."
        ),
    ] = 60.0,
    remote_storage: RemoteStorage = None,
) -> int:
    """Start a cluster on this machine, or restart the one in the data directory.

    Broker i has id i and listens on PORT + i - 1; controllers listen from PORT + 100.
    Metrics for Prometheus: each node's port + 1000, path /metrics.
    The cluster's own ZooKeeper server listens on PORT + 200.
    """
    check_seconds(timeout)
    properties = key_values(config, "--config", empty=False)
    if remote_storage is not None:
        properties |= remote_storage_properties(remote_storage)
    engine = LocalCluster(data_dir, bound=not detach)
    try:
        found = stored_zookeeper(data_dir) if zookeeper is None else zookeeper
        plans, connect = (
            (choose_plans(data_dir, brokers, controllers, port), None)
            if found is None
            else choose_brokers(data_dir, brokers, controllers, port, found)
        )
        with rollback_on_failure(engine, plans):
            entry = engine.prepare(plans, properties, connect)
            _start(engine, entry, timeout)
        if detach:
            print(f"Stop it with: ottla down --data-dir {data_dir}")
            return 0
        return _run_until_signal(engine)
    except ClusterError as error:
        raise CommandError(str(error)) from None


def choose_plans(
    data_dir: Path, brokers: int | None, controllers: int | None, port: int | None
) -> Sequence[NodePlan]:
    """Return the nodes to run: those of the data directory; options override them."""
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


def remote_storage_properties(uri: str) -> dict[str, str]:
    """Return the node properties that enable tiered storage. Raises: UsageError."""
    try:
        parsed = parse_store_uri(uri)
    except StoreUriError as error:
        raise UsageError(f"--remote-storage {error}") from None
    if isinstance(parsed, MemoryUri):
        raise UsageError(
            f"--remote-storage {uri}: each node would have a store of its own; "
            "expected file:///DIRECTORY or s3://BUCKET/PREFIX"
        )
    if isinstance(parsed, FileUri):
        # Nodes take a missing directory for a mount that is gone.
        try:
            Path(parsed.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--remote-storage {uri}: {error.strerror}") from None
    return {"remote.log.storage.system.enable": "true", "ottla.remote.storage.uri": uri.strip()}


def stored_zookeeper(data_dir: Path) -> str | None:
    """Return the stored --zookeeper value: "" = the cluster's own server; None = KRaft."""
    if not cluster_file.exists(data_dir):
        return None
    entry = cluster_file.load(data_dir)
    return "" if any(plan.is_zookeeper for plan in entry.plans) else entry.zookeeper


def choose_brokers(
    data_dir: Path, brokers: int | None, controllers: int | None, port: int | None, zookeeper: str
) -> tuple[Sequence[NodePlan], str]:
    """Return the nodes of a ZooKeeper cluster, and its connect string.

    Options override what the data directory holds. `zookeeper`: the option's value; "" = the
    cluster's own server, on its stored port.
    """
    if controllers:
        raise UsageError(
            f"--controllers {controllers}: expected none with --zookeeper, "
            "where one of the brokers is elected"
        )
    if zookeeper:
        parse_connect(zookeeper)
    stored: Sequence[NodePlan] = ()
    if cluster_file.exists(data_dir):
        stored = cluster_file.load(data_dir).plans
    if brokers is None:
        brokers = sum(plan.is_broker for plan in stored) or DEFAULT_BROKERS
    first = stored[0].port if stored else DEFAULT_PORT
    if port is None:
        port = first
    _check_numbers(brokers, 0, port)
    if zookeeper:
        return plan_brokers(brokers, port), zookeeper
    before = [plan.port for plan in stored if plan.is_zookeeper and port == first]
    wanted = before[0] if before else port + ZOOKEEPER_PORT_OFFSET
    return plan_brokers(brokers, port, wanted), f"{HOST}:{wanted}"


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
    try:
        engine.start()
        engine.wait_ready(timeout, report=progress.wait)
    except BaseException:
        # Leave no process of a cluster that did not become ready. Those of another command that
        # starts the same cluster are not this one's.
        engine.stop(STOP_SECONDS, engine.started(), report=progress.wait)
        raise
    finally:
        progress.done()
    brokers = sum(plan.is_broker for plan in entry.plans)
    noun = "1 broker" if brokers == 1 else f"{brokers} brokers"
    cluster_id = entry.cluster_id
    if entry.zookeeper is not None:
        noun += f" over ZooKeeper at {entry.zookeeper}"
        cluster_id = cluster_facts.cluster_id(entry.plans) or "unknown"
    print(f"Ottla serves at {entry.bootstrap} ({noun}, cluster id {cluster_id})", flush=True)


@contextmanager
def rollback_on_failure(engine: LocalCluster, plans: Sequence[NodePlan]) -> Iterator[None]:
    """Undo what was written for a cluster that could not be started.

    The files of a new cluster of which no node was started are removed: otherwise the data
    directory would keep the number of nodes of a cluster that never ran. An existing cluster keeps
    its ports and configuration.
    """
    data_dir = engine.data_dir
    node_dirs = [engine.node_dir(plan.id) for plan in plans]
    files = [data_dir / cluster_file.FILE, data_dir / cluster_file.LOCK]
    is_new = not any(path.exists() for path in (*node_dirs, files[0]))
    dir_existed = data_dir.exists()
    properties = [engine.properties_path(plan.id) for plan in plans]
    before = {path: path.read_bytes() for path in (*properties, files[0]) if path.exists()}
    try:
        yield
    except ClusterError:
        if files[0] in before and not engine.alive():
            for path, content in before.items():
                path.write_bytes(content)
        if is_new and not _has_started(data_dir):
            for node_dir in node_dirs:
                shutil.rmtree(node_dir, ignore_errors=True)
            for file in files:
                file.unlink(missing_ok=True)
            if not dir_existed:
                with suppress(OSError):  # No longer empty.
                    data_dir.rmdir()
        raise


def _has_started(data_dir: Path) -> bool:
    """Tell whether any node was ever started there."""
    if not cluster_file.exists(data_dir):
        return False
    return any(node.process is not None for node in cluster_file.load(data_dir).nodes)


def _run_until_signal(engine: LocalCluster) -> int:
    """Watch the nodes until Ctrl-C or SIGTERM, then stop them."""
    # Filled by a signal handler, which may interrupt the wait at any line. An Event would deadlock:
    # its `set` takes the lock that the interrupted `wait` may hold.
    signals = SimpleQueue[int]()

    def end(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, end) for number in numbers]
    print("Ctrl-C stops it.", flush=True)
    try:
        _watch(engine, signals)
    finally:
        # A second Ctrl-C also interrupts the wait for slow nodes.
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    return stop_all(engine, STOP_SECONDS)


def _watch(engine: LocalCluster, signals: SimpleQueue[int]) -> None:
    """Print state changes of nodes; return at a signal, or once all nodes are stopped."""
    states = {node.plan.id: "running" for node in engine.entry().nodes}
    while not _is_signalled(signals, WATCH_SECONDS):
        for node in engine.entry().nodes:
            state = engine.state(node)
            if state != states[node.plan.id]:
                print(f"node {node.plan.id} is {state}", flush=True)
                states[node.plan.id] = state
        if all(state == "stopped" for state in states.values()):
            return


def _is_signalled(signals: SimpleQueue[int], timeout: float) -> bool:
    try:
        signals.get(timeout=timeout)
    except Empty:
        return False
    return True


def stop_all(engine: LocalCluster, timeout: float) -> int:
    """Stop the running nodes; return the exit code.

    Raises: CommandError that names the nodes that had to be killed.
    """
    living = engine.alive()
    if not living:
        print("No node is running.")
        return 0
    progress = Progress()
    try:
        killed = engine.stop(timeout, report=progress.wait)
    finally:
        progress.done()
    count = len(living)
    print(f"Stopped {count} {'node' if count == 1 else 'nodes'}.", flush=True)
    if killed:
        named = "node" if len(killed) == 1 else "nodes"
        verb = "was" if len(killed) == 1 else "were"
        raise CommandError(
            f"{named} {', '.join(map(str, killed))} did not stop within {timeout:g} s "
            f"and {verb} killed (SIGKILL)"
        )
    return 0
