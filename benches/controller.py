"""How the controller does with 10,000 partitions: creation, failover, a lost broker, memory.

Three brokers and three controllers, each a process. Limits are those that we set ourselves for
two cores; they stand beside what was measured.
"""

import time
from collections import Counter
from dataclasses import dataclass

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from ottla.testing import Cluster

PARTITIONS = 10_000
TOPICS = 10
CREATION_S_MAX = 10.0
FAILOVER_S_MAX = 1.0
ELECTIONS_S_MAX = 1.0
FETCH_TIMEOUT_MS = 2_000
"""controller.quorum.fetch.timeout.ms: a silent leader is given up after that long."""
FAILOVERS = 3
BROKERS = (1, 2, 3)
LEADERS_LOST = 3_000


@dataclass(slots=True)
class Report:
    """The table under construction."""

    table: Table

    def row(self, name: str, measured: str, target: str = "", met: bool | None = None) -> None:
        """Add a line; `met` None = there is no target."""
        verdict = "" if met is None else f"{target}: {'met' if met else 'MISSED'}"
        self.table.add_row(name, measured, verdict)

    def seconds(self, name: str, value: float, limit: float | None = None) -> None:
        """Add a duration."""
        target = "" if limit is None else f"under {limit:g} s"
        self.row(name, f"{value:.2f} s", target, None if limit is None else value < limit)


def create(
    admin: AdminClient, name: str, partitions: int, factor: int, topics: int = TOPICS
) -> float:
    """Create topics; return the seconds until the metadata names every leader."""
    names = [f"{name}-{number}" for number in range(topics)]
    begun = time.perf_counter()
    made = admin.create_topics(
        [NewTopic(each, partitions // topics, factor) for each in names], request_timeout=120
    )
    for future in made.values():
        future.result(180)
    while sum(leaders(admin, names).values()) < partitions:
        time.sleep(0.05)
    return time.perf_counter() - begun


def leaders(admin: AdminClient, topics: list[str]) -> Counter[int]:
    """Return how many partitions of these topics each broker leads."""
    found: Counter[int] = Counter()
    metadata = admin.list_topics(timeout=60)
    for name in topics:
        topic = metadata.topics.get(name)
        if topic is not None:
            found.update(each.leader for each in topic.partitions.values() if each.leader >= 0)
    return found


def out_of_sync(admin: AdminClient, topics: list[str]) -> int:
    """Return how many partitions of these topics lack an in-sync replica."""
    metadata = admin.list_topics(timeout=60)
    return sum(
        len(each.isrs) < len(each.replicas)
        for name in topics
        for each in metadata.topics[name].partitions.values()
    )


def resident_mb(cluster: Cluster, node: int) -> float:
    """Return a node's resident memory."""
    return float(psutil.Process(cluster.pid(node)).memory_info().rss) / 1e6


def creation(report: Report, cluster: Cluster, admin: AdminClient) -> None:
    """Create 10,000 partitions of one replica; then say what each costs."""
    before = {node.id: resident_mb(cluster, node.id) for node in cluster.nodes}
    took = create(admin, "single", PARTITIONS, 1)
    report.seconds(
        f"create {PARTITIONS} partitions, RF 1, every leader named", took, CREATION_S_MAX
    )
    grown = {node: resident_mb(cluster, node) - mb for node, mb in before.items()}
    hosted = PARTITIONS / len(BROKERS)
    broker_kb = max(grown[node] for node in BROKERS) * 1e3 / hosted
    report.row("memory of a broker, by partition that it hosts", f"{broker_kb:.1f} kB")
    controllers = [grown[node.id] for node in cluster.nodes if not node.is_broker]
    report.row(
        "memory of a controller, by partition", f"{max(controllers) * 1e3 / PARTITIONS:.1f} kB"
    )
    open_files = max(psutil.Process(cluster.pid(node)).num_fds() for node in BROKERS)
    report.row("descriptors of a broker", str(open_files))


def failover(report: Report, cluster: Cluster, admin: AdminClient) -> None:
    """Kill the active controller; wait for the first change that the next one commits."""
    worst = 0.0
    for round_number in range(FAILOVERS):
        killed = cluster.wait_controller()
        begun = time.perf_counter()
        cluster.kill(killed)
        create(admin, f"after-{round_number}", 1, 1, topics=1)
        worst = max(worst, time.perf_counter() - begun)
        cluster.start(killed)
        cluster.wait_ready()
    report.seconds(
        f"controller killed, to the next one's first change (worst of {FAILOVERS})", worst
    )
    report.seconds(
        f"  of these, after the timeout of {FETCH_TIMEOUT_MS} ms",
        worst - FETCH_TIMEOUT_MS / 1000,
        FAILOVER_S_MAX,
    )


def broker_loss(report: Report, cluster: Cluster, admin: AdminClient) -> None:
    """Kill the broker that leads most; wait until all its partitions have a new leader."""
    partitions = LEADERS_LOST * len(BROKERS)
    report.seconds(f"create {partitions} partitions, RF 3", create(admin, "triple", partitions, 3))
    names = [f"triple-{number}" for number in range(TOPICS)]
    (victim, lost), *_ = leaders(admin, names).most_common(1)
    cluster.kill(victim)
    while leaders(admin, names)[victim] == lost:
        time.sleep(0.01)
    first = time.perf_counter()
    while leaders(admin, names)[victim] or sum(leaders(admin, names).values()) < partitions:
        time.sleep(0.01)
    took = time.perf_counter() - first
    report.seconds(f"{lost} leaders of a killed broker elected anew", took, ELECTIONS_S_MAX)
    begun = time.perf_counter()
    cluster.start(victim)
    cluster.wait_ready(120)
    report.seconds("the killed broker is back and unfenced", time.perf_counter() - begun)
    while out_of_sync(admin, names):
        time.sleep(0.05)
    report.seconds("  and all its replicas are in sync", time.perf_counter() - begun)
    report.row("memory of a broker with all of that", f"{resident_mb(cluster, 1):.0f} MB")


def main(console: Console) -> None:
    """Run and print."""
    table = Table(title="three brokers, three controllers")
    for heading in ("", "measured", "target"):
        table.add_column(heading, justify="right")
    report = Report(table)
    with Cluster(brokers=3, controllers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        creation(report, cluster, admin)
        failover(report, cluster, admin)
        broker_loss(report, cluster, admin)
        console.print(table)  # Before tens of thousands of folders are removed.


if __name__ == "__main__":
    main(Console(width=140))
