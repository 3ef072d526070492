"""A topic that was large before it was tiered: its leader's own copies, and `pipeline backfill`.

One node, a directory as the store, a topic of one partition for each way: filled while it is not
tiered, then tiered. Measured is how long it takes until all closed segments are in the store, and
what CPU the broker spends. A backfill runs in a session of Spark that is warm; while it runs a
quota keeps the leader from copying more than the first segment itself. Each way is measured in
each round, in turn; ratios count, as tasks and broker share the cores.
"""

import argparse
import sys
import time
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from statistics import median

from rich.console import Console
from rich.table import Table

import ottla.spark
from ottla.cli.main import main as ottla_command
from ottla.client.cluster import ClientConfig
from ottla.spark.jobs.backfill import BackfillOptions, backfill
from tiered import MB, Node, fill, node
from waiting import until

TOTAL_MB = 1_000
SEGMENT_BYTES = 32 << 20
WARM_MB = 100
LEADER = "leader"
WAYS = (LEADER, "backfill, parallelism 1", "backfill, parallelism 2")
QUOTA = "remote.log.manager.copy.max.bytes.per.second"
UNLIMITED = 2**63 - 1
SETTLED_S = 1.0
"""After which a broker has taken over a property."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One way, once."""

    mb: float
    seconds: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.mb / self.seconds

    @property
    def cpu_ms_per_mb(self) -> float:
        return self.cpu_s * 1_000 / self.mb


def prepared(server: Node, mb: int) -> str:
    """Return a topic that is not tiered, with so many MB."""
    topic = server.create(1, {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "100"})
    fill(server.bootstrap, topic, mb)
    return topic


def limit_copies(server: Node, per_second: int) -> None:
    """Set the quota of the leader's own copies."""
    words = ["configs", "--bootstrap-server", server.bootstrap, "--alter"]
    words += ["--entity-type", "brokers", "--entity-default"]
    with redirect_stdout(StringIO()):
        assert ottla_command([*words, "--add-config", f"{QUOTA}={per_second}"]) == 0


def copied_by_leader(server: Node, topic: str) -> Measured:
    """Tier a topic, and wait until its leader has copied it."""
    limit_copies(server, UNLIMITED)
    cpu_s, begun = server.cpu_s(), time.perf_counter()
    server.configure(topic, remote_storage_enable="true")

    def is_copied() -> bool:
        (found,) = server.described([topic])
        return found.remote_segments > 0 and found.lag_segments == 0

    ended = until(is_copied, within_s=300)
    (found,) = server.described([topic])
    return Measured(found.remote_bytes / MB, ended - begun, server.cpu_s() - cpu_s)


def backfilled(server: Node, topic: str, spark: object, parallelism: int) -> Measured:
    """Tier a topic, and backfill it."""
    limit_copies(server, UNLIMITED)
    time.sleep(SETTLED_S)  # What the quota of the last time has charged is paid.
    limit_copies(server, 1)
    time.sleep(SETTLED_S)
    server.configure(topic, remote_storage_enable="true")

    def has_begun() -> bool:
        """The first segment is the leader's."""
        (found,) = server.described([topic])
        return found.remote_segments == 1

    until(has_begun, within_s=60)
    options = BackfillOptions(
        topic=topic,
        cluster=ClientConfig(bootstrap=server.bootstrap),
        remote_storage=server.cluster.remote_dir.as_uri(),
        parallelism=parallelism,
    )
    cpu_s, begun = server.cpu_s(), time.perf_counter()
    result = backfill(spark, options)
    elapsed_s, cpu_s = time.perf_counter() - begun, server.cpu_s() - cpu_s
    assert result.left.segments == 0
    assert not result.failures
    mb = sum(each.size_bytes for each in result.copied) / MB
    return Measured(mb, elapsed_s, cpu_s)


def measured(server: Node, spark: object, way: str, mb: int) -> Measured:
    """Measure one way with a topic of its own."""
    topic = prepared(server, mb)
    if way == LEADER:
        found = copied_by_leader(server, topic)
    else:
        found = backfilled(server, topic, spark, WAYS.index(way))
    server.admin.delete_topics([topic])[topic].result(30)
    return found


def main(words: list[str]) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=TOTAL_MB)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(words)
    found: dict[str, list[Measured]] = {way: [] for way in WAYS}
    spark = ottla.spark.session("bench", master="local[2]")
    with node() as server:
        measured(server, spark, WAYS[2], WARM_MB)
        for _ in range(options.rounds):
            for way in WAYS:
                found[way].append(measured(server, spark, way, options.mb))
    spark.stop()
    table = Table(title=f"{options.mb} MB in segments of {SEGMENT_BYTES >> 20} MiB, one partition")
    for heading in ("", "MB/s", "rounds", "ratio", "broker's CPU ms per MB", "ratio"):
        table.add_column(heading, justify="right")
    against = found[LEADER]
    for way in WAYS:
        rate, cost = (
            median(getattr(each, name) for each in found[way])
            for name in ("mb_per_s", "cpu_ms_per_mb")
        )
        table.add_row(
            way,
            f"{rate:.0f}",
            ", ".join(f"{each.mb_per_s:.0f}" for each in found[way]),
            f"{rate / median(each.mb_per_s for each in against):.2f}",
            f"{cost:.2f}",
            f"{cost / median(each.cpu_ms_per_mb for each in against):.2f}",
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
