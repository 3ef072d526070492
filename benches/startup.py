"""How soon a node serves, and how much memory it takes: idle, and with 1,000 partitions."""

import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from ottla.testing import Cluster

PARTITIONS = 1000
FIRST_ACK_S_MAX = 1.0
IDLE_MB_MAX = 60.0


def first_acknowledgement_s(cluster: Cluster, topic: str) -> float:
    """Start the only node and return the seconds until a produce is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "linger.ms": 0,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 10,
            "retry.backoff.ms": 5,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "log_level": 0,
        }
    )
    begun = time.perf_counter()
    cluster.start(1)
    producer.produce(topic, b"first", partition=0)
    assert producer.flush(60) == 0
    return time.perf_counter() - begun


def main(console: Console) -> None:
    """Run and print."""
    table = Table(title="one combined node (controller and broker)")
    for heading in ("", "measured", "target"):
        table.add_column(heading, justify="right")

    def row(name: str, value: float, unit: str, limit: float | None = None) -> None:
        met = "" if limit is None else f"under {limit:g} {unit}: {['MISSED', 'met'][value < limit]}"
        table.add_row(name, f"{value:.2f} {unit}", met)

    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        Cluster(brokers=1, data_dir=Path(folder)) as cluster,
    ):
        cluster.wait_ready(60)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("first", 1, 1)])["first"].result(30)
        cluster.stop(1)
        starts = []
        for _ in range(3):
            starts.append(first_acknowledgement_s(cluster, "first"))
            cluster.wait_ready(60)
            idle_mb = memory_mb(cluster)
            cluster.stop(1)
        row("`ottla server` to the first acknowledged produce", min(starts), "s", FIRST_ACK_S_MAX)
        row("resident memory, idle", idle_mb, "MB", IDLE_MB_MAX)
        cluster.start(1)
        cluster.wait_ready(60)
        begun = time.perf_counter()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(60)
        row(f"creating a topic of {PARTITIONS} partitions", time.perf_counter() - begun, "s")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for partition in range(PARTITIONS):
            producer.produce("many", b"x", partition=partition)
        assert producer.flush(60) == 0
        row(f"resident memory, {PARTITIONS} partitions written to", memory_mb(cluster), "MB")
    console.print(table)


def memory_mb(cluster: Cluster) -> float:
    """Return the resident memory of the only node in MB."""
    (node,) = cluster.nodes
    return float(psutil.Process(cluster.pid(node.id)).memory_info().rss) / 1e6


if __name__ == "__main__":
    main(Console(width=140))
