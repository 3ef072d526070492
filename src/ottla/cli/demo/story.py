"""`ottla demo`: a real cluster, real records, real clients, an object store and Spark.

Order: start, write, read with a consumer group, restart the whole cluster; closed segments move to
the object store; Spark reads both tiers; tiered storage is turned off, on again, and given up; the
topic is deleted. Only compared results are printed; the first difference ends the demo with exit
code 1.
"""

import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from ottla.cli.charts import BarChart
from ottla.cli.demo import queries, tiers
from ottla.cli.demo.flights import data_path
from ottla.cli.demo.records import CONSUMERS, Written, read_back, restart, write_flights
from ottla.cli.demo.steps import BROKERS, TOPIC, DemoError, check, step
from ottla.cli.errors import CommandError
from ottla.client.errors import ClientError

CONFIG: Final = {
    # With a delay of 1 s the three consumers share the topic from the first rebalance.
    "group.initial.rebalance.delay.ms": "1000",
    # Kafka's defaults are half a minute to five minutes: too long to watch.
    "remote.log.manager.task.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
SHORT_LIVED: Final = {
    # The optimizing compiler would take longer than what it makes faster.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How the demo runs.

    Fields: `data_dir`: kept where it is given; None = a temporary directory.
            `keep`: keep the temporary directory. What is kept has its topic, with both tiers.
            `full`: wait for purges, and have it proved that they have left nothing.
            `chart`: the PNG file; None = in the terminal only.
    """

    data_dir: Path | None = None
    keep: bool = False
    full: bool = False
    chart: Path | None = None

    @property
    def is_kept(self) -> bool:
        """Return whether the data directory is still there after the demo."""
        return self.keep or self.data_dir is not None


def run(console: Console, options: DemoOptions) -> int:
    """Run the whole demo; return the exit code. A `data_dir` that was given is never removed."""
    from confluent_kafka import KafkaException

    from ottla.testing.layout import ClusterError

    data_directory = options.data_dir or Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            chart = _run_steps(console, data_directory, options, stack)
        if options.chart is not None:
            chart.write_png(options.chart)
    except (
        DemoError,
        CommandError,
        ClientError,
        KafkaException,
        ClusterError,
        FileNotFoundError,
    ) as error:
        console.print(f"[red]The demo failed: {error}[/red]")
        return 1
    finally:
        if not options.is_kept:
            shutil.rmtree(data_directory, ignore_errors=True)
    took_s = time.monotonic() - began
    console.print(
        f"[bold green]Every result agrees with the source file.[/bold green] {took_s:.0f} s in all."
    )
    if options.is_kept:
        console.print(
            f"The data is kept. Start the cluster with: ottla up --data-dir {data_directory}"
        )
    for line in chart.lines(console.width):
        console.print(line)
    if options.chart is not None:
        console.print(f"The chart is in {options.chart}")
    return 0


def _run_steps(
    console: Console, data_directory: Path, options: DemoOptions, stack: ExitStack
) -> BarChart:
    from ottla.testing import Cluster

    source = data_path()
    with step(console, f"Starting {BROKERS} nodes, each a broker and a controller"):
        cluster = stack.enter_context(
            Cluster(brokers=BROKERS, data_dir=data_directory, config=CONFIG, remote_storage=True)
        )
        cluster.wait_ready(60)
        console.print(f"  bootstrap servers: {cluster.bootstrap}")
        console.print(f"  object store: {cluster.remote_dir.as_uri()}")
    with step(console, f"Writing {source.name} to the topic {TOPIC}"):
        written = write_flights(cluster.bootstrap, source)
        count = written.totals.count
        check(console, "acknowledged records", sum(written.ends.values()), count)
    with step(console, f"Reading it back with a group of {CONSUMERS} consumers"):
        read_back(console, cluster.bootstrap, written)
    with step(console, "Stopping the whole cluster and starting it again"):
        restart(console, cluster, written)
    uri = cluster.remote_dir.as_uri()
    with step(console, "Moving closed segments to the object store"):
        remote_ends = tiers.wait_tiered(cluster.bootstrap)
        tiers.describe(console, cluster.address(1))
    with step(console, 'Asking Spark, through format("ottla"): tiers and tail are one table'):
        spark = _spark(stack)
        chart = queries.ask(console, spark, cluster.bootstrap, uri, written)
        queries.check_store(console, spark, uri, remote_ends)
    _turn_off(console, spark, cluster.address(1), uri, written, options)
    return chart


def _turn_off(
    console: Console, spark: Any, bootstrap: str, uri: str, written: Written, options: DemoOptions
) -> None:
    with step(console, "Turning tiered storage off with the policy retain, and on again"):
        tiers.turn_off_and_on(console, bootstrap, written)
        tiers.audit(console, bootstrap, uri, deep=options.full)
    if options.is_kept:
        return  # What is kept has all its records.
    with step(console, "Turning it off with the policy delete"):
        starts = tiers.give_up(console, bootstrap)
        tiers.describe(console, bootstrap)
        queries.check_rest(console, spark, bootstrap, uri, written, starts)
        if options.full:
            tiers.wait_purged(console, bootstrap, uri)
        tiers.audit(console, bootstrap, uri, deep=options.full)
    with step(console, "Deleting the topic"):
        tiers.delete_topic(console, bootstrap, uri, full=options.full)
        if not options.full:
            console.print(
                "  The object store is purged some minutes later: ottla demo --full waits for it."
            )


def _spark(stack: ExitStack) -> Any:
    """Start Spark; it ends with the demo."""
    import ottla.spark

    spark = ottla.spark.session("ottla demo", config=SHORT_LIVED)
    stack.callback(spark.stop)
    return spark
