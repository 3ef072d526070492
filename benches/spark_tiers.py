"""Scan a tiered topic with Spark: from the object store, and the same records through brokers.

One broker with a directory as its store, local retention of nothing: all but the last segments are
remote only. Spark runs as `local[2]` into its noop sink, so every column of every record is decoded
and crosses to the JVM. Rounds alternate and the best of each counts. Broker, Spark and store share
the machine. `broker CPU`: of the last round, per million records.
"""

import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

import ottla.spark
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.spark.tier_lookup import describe
from ottla.testing import Cluster
from scanned_topics import PARTITIONS, fill

ROUNDS = 3
SIZES = ((100, 1_000_000), (1000, 200_000))
CONFIG = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
SEGMENT_BYTES = 4 * 1024 * 1024
TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}
TIERED_WITHIN_SECONDS = 120


def remote_ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Wait until local logs have only their last segments; return where the remote tier ends."""
    deadline = time.monotonic() + TIERED_WITHIN_SECONDS
    with ClusterClient(ClientConfig(bootstrap=bootstrap)) as client:
        [found] = client.topics([topic])
        keys = {(topic, number): found.topic_id for number in range(PARTITIONS)}
        while True:
            tiers = describe(client, keys)
            if all(
                each.segments and each.local_bytes < 2 * SEGMENT_BYTES for each in tiers.values()
            ):
                return {key[1]: each.segments[-1].end_offset for key, each in tiers.items()}
            assert time.monotonic() < deadline, "the topic was not tiered in time"
            time.sleep(0.5)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(cluster: Cluster, frames: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return, of each frame, the best time and the broker's CPU in its last round, in seconds."""
    [node] = cluster.brokers
    pid = cluster.pid(node.id)
    assert pid is not None
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for name, frame in frames.items():
            cpu, begun = cpu_seconds(pid), time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            elapsed_s = time.perf_counter() - begun
            fastest = min(elapsed_s, best.get(name, (elapsed_s, 0))[0])
            best[name] = fastest, cpu_seconds(pid) - cpu
    return best


def main(console: Console, share: float) -> None:
    """Run and print; `share` of the usual number of records."""
    table = Table(title=f"Scans of {PARTITIONS} tiered partitions, records a second")
    for heading in ("", "from the store", "through brokers", "ratio", "broker CPU s/M", "s/M"):
        table.add_column(heading, justify="left" if not heading else "right")
    with Cluster(brokers=1, config=CONFIG, remote_storage=True) as cluster:
        spark = ottla.spark.session("bench", master="local[2]")
        for size, records in SIZES:
            written = max(20_000, int(records * share) // 20_000 * 20_000)
            topic = fill(
                cluster.bootstrap, "tiers", size, written,
                producer={"batch.size": 250_000}, topic=TOPIC,
            )  # fmt: skip
            ends = remote_ends(cluster.bootstrap, topic)
            count = sum(ends.values())
            until = ",".join(f'"{number}":{end}' for number, end in ends.items())
            reader = spark.read.format("ottla").option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
            reader = reader.option("endingOffsets", f'{{"{topic}":{{{until}}}}}')
            brokers = reader.load()
            uri = cluster.remote_dir.as_uri()
            store = reader.option("ottla.remote.storage.uri", uri).load()
            assert store.count() == brokers.count() == count
            found = measure(cluster, {"store": store, "brokers": brokers})
            rates = {name: count / seconds for name, (seconds, _) in found.items()}
            cpu = {name: seconds * 1e6 / count for name, (_, seconds) in found.items()}
            table.add_row(
                f"{size} B",
                f"{rates['store']:,.0f}",
                f"{rates['brokers']:,.0f}",
                f"{rates['store'] / rates['brokers']:.2f}",
                f"{cpu['store']:.2f}",
                f"{cpu['brokers']:.2f}",
            )
        spark.stop()
    console.print(table)


if __name__ == "__main__":
    main(Console(width=120), float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
