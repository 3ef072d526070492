"""What deletions cost: many topics at once, and a storm of short-lived ones while a broker is down.

Three brokers; combined nodes in KRaft mode, one elected controller over ZooKeeper. Everything is
read from outside: answers, the nodes' metrics, files. "Gone" is when the controller's gauge of
topics to delete is back at 0 and no broker has a folder of theirs, but for those that wait under
another name for `file.delete.delay.ms`. Each duration stands beside that of the creation of the
same topics, in the same run.

`--topics`, `--partitions`: of the mass; `--storm`: topics of the storm, 0 = none; `--mode`.
"""

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.testing.ports import HOST
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse

FACTOR = 3
BATCH = 100
"""Topics of one request, and of one turn of the storm."""

WAIT_S = 600.0
POLL_S = 0.05
STEPS = 5
"""Into how many parts the storm is cut, to see whether a topic costs more at its end."""

TO_DELETE = "kafka_controller_kafka_controller_topics_to_delete_count"
REQUESTS = "kafka_network_request_metrics_requests_total"
TELLING = ("LeaderAndIsr", "UpdateMetadata", "StopReplica", "DeleteReplicas")
"""What controllers send to brokers."""

CONFIG = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
OVER_ZOOKEEPER = {"zookeeper.session.timeout.ms": "4000"}


@dataclass(frozen=True, slots=True)
class Scraped:
    """Metrics of all living nodes: the largest by name, and requests summed by name."""

    values: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Held:
    """What is stored at one moment: bytes of the metadata, megabytes resident at the controller."""

    metadata_bytes: int
    resident_mb: float


class Bench:
    """A running cluster and its rows."""

    def __init__(self, cluster: Cluster, table: Table) -> None:
        self.cluster = cluster
        self._table = table

    def row(self, what: str, value: str) -> None:
        """Show a result."""
        self._table.add_row(what, value)
        print(f"{what}: {value}", file=sys.stderr, flush=True)

    def ask(self) -> Connection:
        """Connect to whom clients take for the controller: in KRaft mode to any broker."""
        cluster = self.cluster
        alive = [plan for plan in cluster.brokers if cluster.pid(plan.id) is not None]
        wanted = cluster.wait_controller()
        plan = next((each for each in alive if each.id == wanted), alive[0])
        return Connection(HOST, plan.port, client_id="bench", timeout=WAIT_S)

    def scrape(self) -> Scraped:
        """Read the metrics of the nodes that live."""
        found = Scraped()
        for plan in self.cluster.nodes:
            if self.cluster.pid(plan.id) is None:
                continue
            address = f"http://{self.cluster.metrics_address(plan.id)}/metrics"
            with urllib.request.urlopen(address, timeout=WAIT_S) as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                name, _, value = line.rpartition(" ")
                if name.startswith(f"{REQUESTS}{{"):
                    found.requests[name.split('"')[1]] += int(float(value))
                elif name == TO_DELETE:
                    # In KRaft mode every controller tells it, over ZooKeeper the elected one.
                    found.values[name] = max(found.values[name], int(float(value)))
        return found

    def held(self) -> Held:
        """Return what the metadata takes: on the fullest disk, and in the controller's memory."""
        folder = self.cluster.data_dir(self.cluster.brokers[0].id).parent.parent
        if self.cluster.zookeeper_connect is None:
            files = [
                sum(each.stat().st_size for each in node.glob("*/__cluster_metadata-0/*.log"))
                for node in folder.glob("node-*")
            ]
        else:
            files = [
                sum(each.stat().st_blocks * 512 for each in server.rglob("log.*"))
                for server in folder.glob("zookeeper*")
            ]
        pid = self.cluster.pid(self.cluster.wait_controller())
        return Held(max(files, default=0), psutil.Process(pid).memory_info().rss / 1e6)

    def wait_gone(self, prefix: str) -> float:
        """Wait until no deletion is open and no folder left; return when that was."""
        deadline = time.perf_counter() + WAIT_S
        while self.scrape().values[TO_DELETE] or any(self.folders(prefix)):
            assert time.perf_counter() < deadline, "deletions do not end"
            time.sleep(POLL_S)
        return time.perf_counter()

    def folders(self, prefix: str) -> Iterator[Path]:
        """Yield the folders of some topics, but for those that wait to be emptied."""
        for plan in self.cluster.brokers:
            for each in self.cluster.data_dir(plan.id).glob(f"{prefix}*"):
                if not each.name.endswith("-delete"):
                    yield each


# -- what clients ask ------------------------------------------------------------------------------


def create(connection: Connection, names: list[str], partitions: int, factor: int) -> None:
    """Create topics by requests of BATCH."""
    for begin in range(0, len(names), BATCH):
        request = CreateTopicsRequest(
            topics=tuple(
                CreatableTopic(
                    name=each,
                    num_partitions=partitions,
                    replication_factor=factor,
                    assignments=(),
                    configs=(),
                )
                for each in names[begin : begin + BATCH]
            ),
            timeout_ms=int(WAIT_S * 1000),
        )
        answer = connection.ask(request, CreateTopicsResponse, timeout=WAIT_S)
        _check((each.error_code, each.error_message) for each in answer.topics)


def delete(connection: Connection, names: list[str], *, timeout_ms: int) -> None:
    """Delete topics by requests of BATCH."""
    for begin in range(0, len(names), BATCH):
        states = tuple(
            DeleteTopicState(name=each, topic_id=NO_UUID) for each in names[begin : begin + BATCH]
        )
        request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        answer = connection.ask(request, DeleteTopicsResponse, timeout=WAIT_S)
        _check((each.error_code, each.error_message) for each in answer.responses)


def alive_to(connection: Connection) -> set[int]:
    """Return the brokers that a broker knows as alive."""
    answer = connection.ask(MetadataRequest(topics=()), MetadataResponse, timeout=WAIT_S)
    return {each.node_id for each in answer.brokers}


def _check(answers: Iterator[tuple[int, str | None]]) -> None:
    # Over ZooKeeper a deletion that outlasts its timeout is queued all the same.
    wrong = [each for each in answers if each[0] not in (Error.NONE, Error.REQUEST_TIMED_OUT)]
    assert not wrong, wrong[0]


# -- what is measured ------------------------------------------------------------------------------


def mass(bench: Bench, topics: int, partitions: int) -> None:
    """Delete many topics while all brokers live."""
    names = [f"mass-{number:05}" for number in range(topics)]
    title = f"{topics} topics x {partitions} partitions, RF {FACTOR}"
    with bench.ask() as connection:
        begun = time.perf_counter()
        create(connection, names, partitions, FACTOR)
        created = time.perf_counter() - begun
        bench.row(f"{title}: created (the peer)", f"{created:.2f} s")
        wanted = topics * partitions * FACTOR
        until(lambda: sum(1 for _ in bench.folders("mass-")) == wanted)
        before, requests = bench.held(), bench.scrape().requests
        begun = time.perf_counter()
        # Do not wait for the end of each batch: whether it is acknowledged is the question.
        delete(connection, names, timeout_ms=0)
        acknowledged = time.perf_counter() - begun
    gone = bench.wait_gone("mass-") - begun
    sent = bench.scrape().requests - requests
    written = bench.held().metadata_bytes - before.metadata_bytes
    bench.row("  deleted, to all acknowledged", f"{acknowledged:.2f} s")
    bench.row("    ratio to their creation", f"{acknowledged / created:.2f}")
    bench.row("  to all gone, with receipts", f"{gone:.2f} s")
    bench.row("    ratio to their creation", f"{gone / created:.2f}")
    listed = ", ".join(f"{sent[each]} {each}" for each in TELLING if sent[each])
    bench.row("  requests from the controller", listed or "none")
    bench.row("  metadata written", f"{written / 1e3:.0f} kB, {written / topics:.0f} B a topic")


def storm(bench: Bench, topics: int) -> None:
    """Create and delete topics while a broker is down; then have it back.

    A quorum's controller places replicas on a broker that is fenced, and the deletion of those is
    open until it is back. Over ZooKeeper a dead broker takes none: two replicas, which are gone.
    """
    cluster = bench.cluster
    is_kraft = cluster.zookeeper_connect is None
    away = next(plan.id for plan in cluster.brokers if plan.id != cluster.wait_controller())
    cluster.kill(away)
    part = topics // STEPS
    before = bench.held()
    with bench.ask() as connection:
        until(lambda: away not in alive_to(connection))
        for step in range(STEPS):
            begun = time.perf_counter()
            for first in range(step * part, (step + 1) * part, BATCH):
                last = min(first + BATCH, (step + 1) * part)
                names = [f"storm-{number:06}" for number in range(first, last)]
                create(connection, names, 1, FACTOR if is_kraft else FACTOR - 1)
                delete(connection, names, timeout_ms=0 if is_kraft else 60_000)
            took = time.perf_counter() - begun
            after = bench.held()
            grown = after.metadata_bytes - before.metadata_bytes
            bench.row(
                f"storm, topics {step * part + 1} to {(step + 1) * part}, a broker down",
                f"{1e3 * took / part:.1f} ms, {grown / part:.0f} B of metadata a topic; "
                f"{bench.scrape().values[TO_DELETE]} open, {after.resident_mb:.0f} MB resident",
            )
            before = after
    settle(bench, away)


def settle(bench: Bench, away: int) -> None:
    """Start the broker again; everything that was open ends."""
    begun = time.perf_counter()
    bench.cluster.start(away)
    bench.cluster.wait_ready()
    gone = bench.wait_gone("storm-") - begun
    held = bench.held()
    bench.row("  the broker is back, to nothing open and no folder left", f"{gone:.2f} s")
    bench.row("    resident at the controller then", f"{held.resident_mb:.0f} MB")
    bench.row("    metadata then", f"{held.metadata_bytes / 1e3:.0f} kB")


def until(look: Callable[[], bool]) -> None:
    """Poll until something is so."""
    deadline = time.perf_counter() + WAIT_S
    while not look():
        assert time.perf_counter() < deadline, "what is waited for does not come"
        time.sleep(POLL_S)


@contextmanager
def running(mode: str) -> Iterator[Cluster]:
    """Run a cluster of three in one mode."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        over_zookeeper = mode == "zookeeper"
        config = CONFIG | OVER_ZOOKEEPER if over_zookeeper else CONFIG
        with Cluster(
            brokers=3,
            zookeeper=over_zookeeper,
            config=config,
            data_dir=Path(folder),
            metrics=True,
        ) as cluster:
            yield cluster


def main(console: Console) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--storm", type=int, default=5_000)
    parser.add_argument("--mode", choices=("kraft", "zookeeper", "both"), default="both")
    options = parser.parse_args()
    console.print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
    for mode in ("kraft", "zookeeper") if options.mode == "both" else (options.mode,):
        table = Table("", "measured", title=f"deletions, three brokers, {mode}")
        with running(mode) as cluster:
            bench = Bench(cluster, table)
            mass(bench, options.topics, options.partitions)
            if options.storm:
                storm(bench, options.storm)
        console.print(table)
    console.print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Console(width=150))
