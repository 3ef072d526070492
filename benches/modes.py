"""The same cluster in both modes, side by side: KRaft, and over a real ZooKeeper.

Three brokers; in KRaft mode all three are controllers too, over ZooKeeper one of them is elected,
so that in both a killed controller is a killed broker. The sessions that a death must outlast are
set to the same 2 s, and what follows their end is told apart. ZooKeeper counts a session from its
server's last word with the client and looks every 500 ms, so that its part varies the more.

`--topics N` creates fewer than 1,000 topics; `--rounds N` of each failover, the median is shown.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from rich.console import Console
from rich.table import Table

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.controller import decode_controller
from ottla.testing import Cluster, cluster_facts, zookeeper_process
from ottla.testing.ports import HOST
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from waiting import until

SESSION_MS = 2_000
CONFIG = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "300",
    "controller.quorum.fetch.timeout.ms": str(SESSION_MS),
}
OVER_ZOOKEEPER = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
PARTITIONS = 3
LED_PARTITIONS = 60
WAIT_S = 60.0
POLL_S = 0.002
NOT_YET = {
    Error.NONE,
    Error.TOPIC_ALREADY_EXISTS,
    Error.NOT_CONTROLLER,
    Error.REQUEST_TIMED_OUT,
    Error.INVALID_REPLICATION_FACTOR,
}
"""What a controller that is dead, or has not heard of all brokers yet, may answer."""


@dataclass(slots=True)
class Results:
    """What was measured in one mode: by row, seconds (a median of several) or words."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    def add(self, row: str, value: float) -> None:
        """Note a duration."""
        self.seconds.setdefault(row, []).append(value)
        print(f"{row}: {value:.2f} s", file=sys.stderr, flush=True)


class Mode:
    """One running cluster, and how its mode shows who was elected and what was stored."""

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeperServer | None) -> None:
        self.cluster = cluster
        self.client: KazooClient | None = None
        self._port = 0
        if zookeeper is not None:
            self._port = zookeeper.members[0].client_port
            self.client = KazooClient(zookeeper.connect)
            self.client.start()

    def close(self) -> None:
        """Let go of ZooKeeper."""
        if self.client is not None:
            self.client.stop()
            self.client.close()

    def ask(self, node: int) -> Connection:
        """Connect to a broker."""
        port = next(plan.port for plan in self.cluster.brokers if plan.id == node)
        return Connection(HOST, port, client_id="bench", timeout=WAIT_S)

    def elected(self) -> int | None:
        """Return the controller, whether or not it has begun to rule."""
        if self.client is None:
            alive = [node for node in self.cluster.nodes if self.cluster.pid(node.id) is not None]
            return cluster_facts.active_controller(alive)
        try:
            return decode_controller(self.client.get(paths.CONTROLLER)[0]).broker_id
        except NoNodeError:
            return None

    def stored(self) -> tuple[int, int, int]:
        """Return ZooKeeper's transactions, znodes and bytes; or the bytes of the metadata log."""
        if self.client is None:
            folder = self.cluster.data_dir(self.cluster.controllers[0].id)
            return 0, 0, sum(each.stat().st_size for each in folder.glob("__cluster_*/*.log"))
        lines = (zookeeper_process.ask(self._port, "mntr") or "").splitlines()
        facts = dict(line.split("\t", 1) for line in lines if "\t" in line)
        said = (zookeeper_process.ask(self._port, "srvr") or "").split("Zxid: ")[1].split()[0]
        return int(said, 16), int(facts["zk_znode_count"]), int(facts["zk_approximate_data_size"])

    def loading_s(self, node: int) -> float | None:
        """Return how long a new controller read znodes, by its log: KRaft's has them already."""
        times = [
            datetime.strptime(line[1:24], "%Y-%m-%d %H:%M:%S.%f").timestamp()
            for line in self.cluster.logs(node).splitlines()
            if " is the controller, epoch " in line or ": loaded " in line
        ]
        return times[-1] - times[-2] if len(times) >= 2 else None


def create(connection: Connection, names: list[str], partitions: int, factor: int) -> float:
    """Create topics, however often that takes; return when it was accepted."""
    wanted = tuple(
        CreatableTopic(
            name=each,
            num_partitions=partitions,
            replication_factor=factor,
            assignments=(),
            configs=(),
        )
        for each in names
    )
    request = CreateTopicsRequest(topics=wanted, timeout_ms=int(WAIT_S * 1000))
    deadline = time.perf_counter() + WAIT_S
    while True:
        answer = connection.ask(request, CreateTopicsResponse, timeout=WAIT_S)
        errors = {each.error_code for each in answer.topics}
        if errors <= {Error.NONE, Error.TOPIC_ALREADY_EXISTS}:
            return time.perf_counter()
        assert errors <= NOT_YET, answer.topics[0]
        assert time.perf_counter() < deadline, answer.topics[0]
        time.sleep(POLL_S)


def leaders(connection: Connection, topics: list[str]) -> list[int]:
    """Return the leader of each partition that a broker knows of."""
    asked = tuple(MetadataRequestTopic(name=each) for each in topics)
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = connection.ask(request, MetadataResponse, timeout=WAIT_S)
    return [each.leader_id for topic in answer.topics for each in topic.partitions]


def restart(mode: Mode, results: Results) -> None:
    """Stop all, start all: who is elected, and when everything serves."""
    mode.cluster.stop()
    begun = time.perf_counter()
    mode.cluster.start()
    results.add("processes started, to a controller elected", until_elected(mode, 0) - begun)
    mode.cluster.wait_ready()
    results.add("  and to the whole cluster serving again", time.perf_counter() - begun)


def until_elected(mode: Mode, besides: int) -> float:
    """Wait until another one is elected; return when that was."""
    return until(lambda: mode.elected() not in (None, besides), every_s=POLL_S)


def failover(mode: Mode, results: Results, number: int, what: str) -> None:
    """Kill the controller; wait for the next one, and for the first topic that it creates."""
    cluster = mode.cluster
    killed = cluster.wait_controller()
    survivor = next(plan.id for plan in cluster.brokers if plan.id != killed)
    name = f"after-{what.replace(' ', '-')}-{number}"
    with mode.ask(survivor) as connection, ThreadPoolExecutor(1) as pool:
        begun = time.perf_counter()
        cluster.kill(killed)
        accepted = pool.submit(create, connection, [name], 1, 1)
        elected = until_elected(mode, killed)
        successor = mode.elected()
        took = accepted.result(WAIT_S) - begun
    row = f"controller killed, to the next accepted CreateTopics, {what}"
    results.add(row, took)
    results.add(f"  of these, until another is elected (sessions: 2 s), {what}", elected - begun)
    results.add(f"  of these, after the election, {what}", took - (elected - begun))
    loading = None if successor is None or mode.client is None else mode.loading_s(successor)
    if loading is not None:
        results.add(f"    in which it read the znodes, {what}", loading)
    cluster.start(killed)
    cluster.wait_ready()


def broker_loss(mode: Mode, results: Results, topic: str) -> None:
    """Kill a broker that is not the controller; wait until others lead what it led."""
    cluster = mode.cluster
    cluster.wait_in_sync(topic)
    controller = cluster.wait_controller()
    with mode.ask(controller) as connection:
        led = Counter(leaders(connection, [topic]))
        others = [each.id for each in cluster.brokers if each.id != controller]
        # One that was away a moment ago leads nothing yet, and would not be missed.
        lost, victim = max((led[each], each) for each in others)
        assert lost, led
        begun = time.perf_counter()
        cluster.kill(victim)
        first = until(lambda: leaders(connection, [topic]).count(victim) < lost, every_s=POLL_S)
        last = until(lambda: not {victim, -1} & set(leaders(connection, [topic])), every_s=POLL_S)
    results.add("another broker killed, to all its partitions led anew", last - begun)
    results.add("  of these, until the first is (session: 2 s)", first - begun)
    results.add("  of these, after the first", last - first)
    cluster.start(victim)
    cluster.wait_ready()
    cluster.wait_in_sync(topic)


def creation(mode: Mode, results: Results, topics: int) -> None:
    """Create many topics by one request; say what was written for it."""
    names = [f"many-{number:04}" for number in range(topics)]
    before = mode.stored()
    with mode.ask(mode.cluster.brokers[0].id) as connection:
        begun = time.perf_counter()
        row = f"{topics} topics x {PARTITIONS} partitions, RF 3, by one request"
        results.add(row, create(connection, names, PARTITIONS, 3) - begun)
        after = mode.stored()
        wanted = topics * PARTITIONS
        done = until(
            lambda: sum(each >= 0 for each in leaders(connection, names)) == wanted, every_s=POLL_S
        )
        results.add("  and to every leader named", done - begun)
    transactions, znodes, stored = (new - old for old, new in zip(before, after, strict=True))
    results.words["  written for it"] = (
        f"{stored / 1e3:.0f} kB of log"
        if mode.client is None
        else f"{transactions} transactions, {znodes} znodes, {stored / 1e3:.0f} kB"
    )


def run(results: Results, zookeeper: ZooKeeperServer | None, rounds: int, topics: int) -> None:
    """Measure one mode."""
    config = CONFIG if zookeeper is None else CONFIG | OVER_ZOOKEEPER
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        begun = time.perf_counter()
        cluster = Cluster(
            brokers=3, zookeeper=zookeeper or False, config=config, data_dir=Path(folder)
        )
        with cluster:
            results.add("a new cluster, to all three serving", time.perf_counter() - begun)
            mode = Mode(cluster, zookeeper)
            try:
                restart(mode, results)
                with mode.ask(cluster.brokers[0].id) as connection:
                    create(connection, ["led"], LED_PARTITIONS, 3)
                for number in range(rounds):
                    failover(mode, results, number, "1 topic")
                for _ in range(rounds):
                    broker_loss(mode, results, "led")
                creation(mode, results, topics)
                for number in range(rounds):
                    failover(mode, results, number, f"{topics} topics")
            finally:
                mode.close()


def show(console: Console, kraft: Results, zookeeper: Results) -> None:
    """Print both, side by side."""
    table = Table(title="three brokers, KRaft (combined nodes) beside ZooKeeper (one server)")
    for heading in ("", "KRaft", "ZooKeeper", "ratio"):
        table.add_column(heading, justify="left" if not heading else "right")
    rows = [*kraft.seconds]
    for row in zookeeper.seconds:
        if row not in rows:
            rows.insert([*zookeeper.seconds].index(row), row)
    for row in rows:
        left, right = (
            statistics.median(each.seconds[row]) if row in each.seconds else None
            for each in (kraft, zookeeper)
        )
        ratio = "" if left is None or right is None else f"{right / left:.2f}"
        table.add_row(row, seconds_of(left), seconds_of(right), ratio)
    for row, words in kraft.words.items():
        table.add_row(row, words, zookeeper.words[row])
    console.print(table)


def seconds_of(value: float | None) -> str:
    """Return a duration as text."""
    return "-" if value is None else f"{value:.2f} s"


def main(console: Console) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console.print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
    kraft, over_zookeeper = Results(), Results()
    run(kraft, None, options.rounds, options.topics)
    begun = time.perf_counter()
    with ZooKeeperServer() as server:
        over_zookeeper.add("the ZooKeeper server itself", time.perf_counter() - begun)
        run(over_zookeeper, server, options.rounds, options.topics)
    show(console, kraft, over_zookeeper)
    console.print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Console(width=150))
