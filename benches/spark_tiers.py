"""Scan a tiered topic with Spark, beside everything that could be used instead.

One broker with a directory as its store; all but the last segments are remote only. The same
records are read from the store, through brokers, by Spark's own Kafka connector, from Parquet
files, and by a confluent-kafka consumer that drops its messages. The ceiling is a source in Python
whose batches are ready before. Spark writes into its noop sink, so every column of every record is
decoded and crosses to the JVM. Rounds alternate and the best of each counts. Everything shares the
machine. CPU: the broker's, in the last round, in seconds a million records.

    python benches/spark_tiers.py [--records N] [--rounds N] [--cores 1,2] [--only 100,…]

`--records 10000000` reads 10 million of 100 B and 1 GB of 1 KB.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from rich.console import Console
from rich.table import Table

import ottla.spark
import spark_peers
from maven_jars import NoJarsError
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.spark.tiers.tier_lookup import describe
from ottla.testing import Cluster
from scanned_topics import PARTITIONS, fill
from spark_peers import ReadyBatches, connector_jars, consume

CONFIG = {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
MIB = 1 << 20
TOPIC = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}
TIERED_WITHIN_SECONDS = 300
RECORDS = 2_000_000
RECORDS_MIN = 400_000
"""Fewer may fit into segments that are not closed."""
STORE, BROKERS, CONNECTOR, PARQUET = "store", "brokers", "connector", "Parquet"
LOOP, CEILING = "consumer loop", "ceiling"


@dataclass(frozen=True, slots=True)
class Kind:
    """Records of a size, as a share of the usual number; `ceiling`: the target of store to it."""

    name: str
    size_bytes: int
    share: float
    codec: str
    segment_bytes: int
    ceiling: float


KINDS = (
    Kind("100", 100, 1.0, "none", 4 * MIB, 0.65),
    Kind("100-zstd", 100, 1.0, "zstd", MIB, 0.5),
    Kind("1000", 1000, 0.1, "none", 4 * MIB, 0.85),
)
CONNECTOR_TARGET = 2.0


def remote_ends(bootstrap: str, topic: str, segment_bytes: int) -> dict[int, int]:
    """Wait until local logs have only their last segments; return where the remote tier ends."""
    deadline = time.monotonic() + TIERED_WITHIN_SECONDS
    with ClusterClient(ClientConfig(bootstrap=bootstrap)) as client:
        [found] = client.topics([topic])
        keys = {(topic, number): found.topic_id for number in range(PARTITIONS)}
        while True:
            tiers = describe(client, keys)
            if all(
                each.segments and each.local_bytes < 2 * segment_bytes for each in tiers.values()
            ):
                return {key[1]: each.segments[-1].end_offset for key, each in tiers.items()}
            assert time.monotonic() < deadline, "the topic was not tiered in time"
            time.sleep(0.5)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    pid: int, works: dict[str, Callable[[], object]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Return, of each work, the best time and the broker's CPU in its last round, in seconds."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for name, work in works.items():
            cpu, begun = cpu_seconds(pid), time.perf_counter()
            work()
            elapsed_s = time.perf_counter() - begun
            fastest = min(elapsed_s, best.get(name, (elapsed_s, 0))[0])
            best[name] = fastest, cpu_seconds(pid) - cpu
    return best


def scan(frame: Any) -> Callable[[], object]:
    """Return the work that decodes all of a table."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def works_of(
    spark: Any, cluster: Cluster, topic: str, ends: dict[int, int], kind: Kind, *, connector: bool
) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name; each reads exactly the remote records."""
    count = sum(ends.values())
    until = ",".join(f'"{number}":{end}' for number, end in ends.items())

    def reader(format_name: str) -> Any:
        chosen = spark.read.format(format_name).option("subscribe", topic)
        chosen = chosen.option("kafka.bootstrap.servers", cluster.bootstrap)
        return chosen.option("endingOffsets", f'{{"{topic}":{{{until}}}}}')

    store = reader("ottla").option("ottla.remote.storage.uri", cluster.remote_dir.as_uri()).load()
    frames = {STORE: store, BROKERS: reader("ottla").load()}
    if connector:
        frames[CONNECTOR] = reader("kafka").load()
    target = tempfile.mkdtemp(prefix="parquet-", dir=cluster.remote_dir.parent)
    store.write.mode("overwrite").parquet(target)
    frames[PARQUET] = spark.read.parquet(target)
    ready = spark.read.format("ready").option("bytes", kind.size_bytes).option("rows", count)
    frames[CEILING] = ready.option("tasks", spark.sparkContext.defaultParallelism).load()
    for name, frame in frames.items():
        assert frame.count() == count, f"{name} has {frame.count()} of {count} records"
    works = {name: scan(frame) for name, frame in frames.items()}
    works[LOOP] = lambda: consume(cluster.bootstrap, topic, ends)
    return works


def add_row(
    table: Table, kind: Kind, cores: int, count: int, found: dict[str, tuple[float, float]]
) -> None:
    """Add what was found."""
    rates = {name: count / seconds for name, (seconds, _) in found.items()}
    to_ceiling = rates[STORE] / rates[CEILING]
    cells = [f"{rates[name]:,.0f}" if name in rates else "-" for name in ORDER]
    to_connector = "-"
    if CONNECTOR in rates:
        ratio = rates[STORE] / rates[CONNECTOR]
        to_connector = f"{ratio:.2f} {_met(ratio, CONNECTOR_TARGET)}"
    cpu = [f"{found[name][1] * 1e6 / count:.2f}" for name in (STORE, BROKERS)]
    table.add_row(
        f"{kind.name} B",
        str(cores),
        *cells,
        to_connector,
        f"{to_ceiling:.2f} {_met(to_ceiling, kind.ceiling)}",
        *cpu,
    )


ORDER = (STORE, BROKERS, CONNECTOR, PARQUET, LOOP, CEILING)


def _met(ratio: float, target: float) -> str:
    return f"(≥ {target:g} {'met' if ratio >= target else 'MISSED'})"


def new_table() -> Table:
    """Return the empty table."""
    table = Table(title=f"Scans of {PARTITIONS} tiered partitions, records a second")
    headings = (
        "records",
        "cores",
        *ORDER,
        "to connector",
        "to ceiling",
        "CPU, store",
        "CPU, brokers",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def jars_or_none(console: Console) -> str | None:
    """Return the connector's jars; None and a line where they cannot be had."""
    try:
        return connector_jars()
    except NoJarsError as error:
        console.print(f"without Spark's Kafka connector: {error}")
        return None


def main(words: list[str]) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", default="2", help="1,2: each in a session of its own")
    parser.add_argument("--only", default=",".join(each.name for each in KINDS))
    options = parser.parse_args(words)
    if options.records < RECORDS_MIN:
        parser.error(f"--records {options.records}: expected {RECORDS_MIN} at least")
    kinds = [each for each in KINDS if each.name in options.only.split(",")]
    console, table = Console(), new_table()
    jars = jars_or_none(console)
    with Cluster(brokers=1, config=CONFIG, remote_storage=True) as cluster:
        [node] = cluster.brokers
        pid = cluster.pid(node.id)
        assert pid is not None
        topics = {}
        for kind in kinds:
            count = max(20_000, int(options.records * kind.share) // 20_000 * 20_000)
            topics[kind] = fill(
                cluster.bootstrap,
                "tiers",
                kind.size_bytes,
                count,
                producer={"batch.size": 250_000, "compression.type": kind.codec},
                topic=TOPIC | {"segment.bytes": str(kind.segment_bytes)},
            )
        for cores in map(int, options.cores.split(",")):
            config = {} if jars is None else {"spark.jars": jars}
            spark = ottla.spark.session("bench", master=f"local[{cores}]", config=config)
            # Spark's workers do not have this directory on their path.
            cloudpickle.register_pickle_by_value(spark_peers)
            spark.dataSource.register(ReadyBatches)
            for kind, topic in topics.items():
                ends = remote_ends(cluster.bootstrap, topic, kind.segment_bytes)
                works = works_of(spark, cluster, topic, ends, kind, connector=jars is not None)
                found = measure(pid, works, options.rounds)
                add_row(table, kind, cores, sum(ends.values()), found)
                line = ", ".join(f"{name} {seconds:.1f} s" for name, (seconds, _) in found.items())
                console.print(f"{kind.name} B, {cores} cores: {line}")
            spark.stop()
    wide = Console(width=max(console.width, 200))
    wide.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
