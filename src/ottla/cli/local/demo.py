"""`ottla demo`: a real cluster, real records, real clients and Spark; every result is checked.

Order: start, write, read with a consumer group, restart the whole cluster, query with Spark,
compare with the source file, clean up. Only compared results are printed; the first difference
ends the demo with exit code 1.
"""

import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from ottla.cli.console.closing import close
from ottla.cli.local.flights import Totals, data_path, read_flights

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

TOPIC = "flights"
PARTITIONS = 6
REPLICAS = 3
GROUP = "demo-readers"
CONSUMERS = 3
BROKERS = 3
QUIET_S_MAX = 60.0
"""How long a step may make no progress before the demo fails."""


class DemoError(Exception):
    """A result differs from the source file, or a step made no progress."""


@dataclass(slots=True)
class Written:
    """What was written: all later results are compared with it."""

    totals: Totals = field(default_factory=Totals)
    checksum: int = 0
    """Sum of the CRC-32 of each message: equal for equal sets, in whatever order."""
    ends: dict[int, int] = field(default_factory=dict)


@contextmanager
def step(console: Console, title: str) -> Iterator[None]:
    """Print a step's title, then its duration."""
    console.print(f"[bold]{title}[/bold]")
    begun = time.monotonic()
    yield
    console.print(f"  [dim]{time.monotonic() - begun:.1f} s[/dim]")


def check(console: Console, what: str, found: Any, expected: Any) -> None:
    """Print a check that held; raise DemoError where it does not."""
    if found != expected:
        raise DemoError(f"{what}: found {found}, expected {expected}")
    shown = f"{found:,}" if isinstance(found, int) else f"the same in all {len(found)} partitions"
    console.print(f"  [green]✓[/green] {what}: {shown}")


def run(console: Console, *, keep: bool = False, data_dir: Path | None = None) -> int:
    """Run the whole demo; return the exit code. A `data_dir` that was given is never removed."""
    from confluent_kafka import KafkaException

    from ottla.testing.layout import ClusterError

    keep = keep or data_dir is not None
    data_directory = data_dir or Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            _run_steps(console, data_directory, stack)
    except (DemoError, KafkaException, ClusterError, FileNotFoundError) as error:
        console.print(f"[red]The demo failed: {error}[/red]")
        return 1
    finally:
        if not keep:
            shutil.rmtree(data_directory, ignore_errors=True)
    took_s = time.monotonic() - began
    console.print(
        f"[bold green]Every result agrees with the source file.[/bold green] {took_s:.0f} s in all."
    )
    if keep:
        console.print(
            f"The data is kept. Start the cluster with: ottla up --data-dir {data_directory}"
        )
    return 0


def _run_steps(console: Console, data_directory: Path, stack: ExitStack) -> None:
    from ottla.testing import Cluster

    source = data_path()
    with step(console, f"Starting {BROKERS} nodes, each a broker and a controller"):
        # With a delay of 1 s the three consumers share the topic from the first rebalance.
        config = {"group.initial.rebalance.delay.ms": "1000"}
        cluster = stack.enter_context(
            Cluster(brokers=BROKERS, data_dir=data_directory, config=config)
        )
        cluster.wait_ready(60)
        console.print(f"  bootstrap servers: {cluster.bootstrap}")
    with step(console, f"Writing {source.name} to the topic {TOPIC}"):
        written = write_flights(cluster.bootstrap, source)
        count = written.totals.count
        check(console, "acknowledged records", sum(written.ends.values()), count)
    with step(console, f"Reading it back with a group of {CONSUMERS} consumers"):
        read_back(console, cluster.bootstrap, written)
    with step(console, "Stopping the whole cluster and starting it again"):
        restart(console, cluster, written)
    with step(console, 'Asking Spark, through format("ottla")'):
        query_spark(console, cluster.bootstrap, written)


def write_flights(bootstrap: str, source: Path) -> Written:
    """Create the topic and write every flight as JSON, keyed by carrier."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])[TOPIC].result(30)
    written = Written()
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(str(error))
            return
        partition = message.partition()
        written.ends[partition] = max(written.ends.get(partition, 0), message.offset() + 1)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    encode = msgspec.json.Encoder().encode
    for number, flight in enumerate(read_flights(source)):
        written.totals.add(flight)
        value = encode(flight)
        written.checksum += zlib.crc32(value)
        key = f"{flight['carrier']}{flight['flight']}"
        producer.produce(TOPIC, value, key, on_delivery=delivered)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(QUIET_S_MAX) or failures:
        raise DemoError(f"records were not acknowledged: {failures[:1] or 'time ran out'}")
    return written


def read_back(console: Console, bootstrap: str, written: Written) -> None:
    """Read the topic with a group; every record must come exactly once."""
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,  # A rebalance hands over what was read, not more.
    }
    consumers = [Consumer(settings) for _ in range(CONSUMERS)]
    shares = [0] * CONSUMERS
    checksum = 0
    next_offsets: dict[int, int] = {}
    for consumer in consumers:
        consumer.subscribe([TOPIC])
    try:
        deadline = time.monotonic() + QUIET_S_MAX
        while sum(shares) < written.totals.count:
            if time.monotonic() > deadline:
                raise DemoError(f"the group read {sum(shares):,} records, then no more came")
            for index, consumer in enumerate(consumers):
                for message in consumer.consume(10_000, 0.1):
                    if message.error() is not None:
                        raise DemoError(f"a consumer failed: {message.error()}")
                    partition, offset = message.partition(), message.offset()
                    if next_offsets.get(partition, 0) != offset:
                        raise DemoError(f"partition {partition}: offset {offset} out of order")
                    next_offsets[partition] = offset + 1
                    checksum += zlib.crc32(message.value())
                    shares[index] += 1
                    deadline = time.monotonic() + QUIET_S_MAX
        for consumer in consumers:
            commit(consumer)
        check(console, "records read", sum(shares), written.totals.count)
        check(console, "checksum of all messages", checksum, written.checksum)
        console.print(f"  shares of the {CONSUMERS} consumers: {_commas(shares)}")
    finally:
        for consumer in consumers:
            close(consumer)


def commit(consumer: Any) -> None:
    """Commit what a member has read.

    There may be nothing to commit: it has read nothing, or the auto-commit interval or a rebalance
    has just committed all of it.
    """
    from confluent_kafka import KafkaError, KafkaException

    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:
            raise


def restart(console: Console, cluster: "Cluster", written: Written) -> None:
    """Restart every node; end offsets and committed offsets must be unchanged."""
    from confluent_kafka import Consumer, TopicPartition

    cluster.stop()
    console.print("  all nodes are down")
    cluster.start()
    cluster.wait_ready(60)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        ends = {p.partition: consumer.get_watermark_offsets(p, 30)[1] for p in partitions}
        committed = {p.partition: p.offset for p in consumer.committed(partitions, 30)}
        check(console, "records after the restart", sum(ends.values()), written.totals.count)
        check(console, "offsets committed by the group", committed, ends)
    finally:
        close(consumer)


def query_spark(console: Console, bootstrap: str, written: Written) -> None:
    """Count flights and miles per carrier and month with Spark; compare each cell."""
    import ottla.spark

    spark = ottla.spark.session("ottla demo")
    try:
        from pyspark.sql import functions as sql

        topic = (
            spark.read.format("ottla")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", TOPIC)
            .load()
        )
        flights = topic.select(
            sql.from_json(
                sql.col("value").cast("string"), "carrier string, month int, distance long"
            ).alias("flight")
        ).select("flight.*")
        rows = (
            flights.groupBy("carrier", "month")
            .agg(sql.count("*").alias("flights"), sql.sum("distance").alias("miles"))
            .collect()
        )
        offsets = topic.groupBy("partition").agg(
            sql.count("*").alias("records"), sql.max("offset").alias("last")
        )
        ends = {row["partition"]: row["last"] + 1 for row in offsets.collect()}
    finally:
        spark.stop()
    found = {(row["carrier"], row["month"]): row["flights"] for row in rows}
    miles = {(row["carrier"], row["month"]): row["miles"] for row in rows}
    console.print(totals_table(found))
    check(console, "flights that Spark counted", sum(found.values()), written.totals.count)
    if found != written.totals.flights or miles != written.totals.miles:
        raise DemoError("Spark's totals per carrier and month differ from the source file's")
    check(console, "totals per carrier and month that agree", len(found), len(rows))
    check(console, "miles flown", sum(miles.values()), sum(written.totals.miles.values()))
    check(console, "end offsets that Spark saw", ends, written.ends)


def totals_table(flights: dict[tuple[str, int], int]) -> Table:
    """Lay out flights by carrier (rows) and month (columns)."""
    table = Table(
        title="Flights from New York City in 2013, counted by Spark",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    table.add_column("carrier")
    for month in range(1, 13):
        table.add_column(str(month), justify="right")
    table.add_column("total", justify="right", style="bold")
    for carrier in sorted({carrier for carrier, _ in flights}):
        months = [flights.get((carrier, month), 0) for month in range(1, 13)]
        cells = [str(count or "") for count in months]
        table.add_row(carrier, *cells, str(sum(months)))
    return table


def _commas(counts: list[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts)
