"""Produce and consume through confluent-kafka: one Ottla node beside librdkafka's mock cluster.

The mock is written in C and keeps its data in memory; Ottla writes files. Rounds of both
alternate and the best of each counts, since the machine's other load only ever slows. The
client is the same and shares the cores, so the ratios matter, not the absolute numbers.

The mock keeps only the last 5 MB of a partition, so writing to one partition measures a server
that forgets beside one that keeps files. Where the data must be kept ("kept", and what is
consumed) it is spread over as many partitions as that takes, on both servers alike.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from clients import drain, new_consumer, new_producer
from servers import Server, mock_cluster, ottla_node

ROUNDS = 3
MB = 1_000_000
MOCK_PARTITIONS = 4
PARTITION_BYTES_MAX = 4 * MB
TARGETS = {
    ("produce 1000 B, kept", "rate"): (1.2, "at least"),
    ("consume 1000 B", "rate"): (0.9, "at least"),
    ("produce 1000 B, kept", "cpu"): (0.7, "at most"),
    ("consume 1000 B", "cpu"): (1.2, "at most"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: MB and records per second, and the server's CPU milliseconds per MB."""

    mb_per_s: float
    records_per_s: float
    cpu_ms_per_mb: float


def new_topic(server: Server, partitions: int = 1) -> str:
    """Create a topic and wait until it has a leader; the benchmarks use its partition 0."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    if server.name != "mock":  # The mock has no CreateTopics: it makes topics when asked of them.
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    client = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    while True:
        found = client.list_topics(topic, timeout=10).topics[topic]
        if found.error is None and found.partitions and found.partitions[0].leader >= 0:
            return topic


def measure(server: Server, size: int, count: int, work: Callable[[], None]) -> Run:
    """Time `work`, which moves `count` records of `size` bytes."""
    cpu_s, begun = server.cpu_s(), time.perf_counter()
    work()
    elapsed_s = time.perf_counter() - begun
    mb = size * count / MB
    cpu_ms = (server.cpu_s() - cpu_s) * 1000
    return Run(mb / elapsed_s, count / elapsed_s, cpu_ms / mb)


def produce(server: Server, size: int, count: int) -> Run:
    """Write `count` records to one partition and wait for every acknowledgement."""
    return write(server, size, count, [TopicPartition(new_topic(server), 0, 0)])


def produce_kept(server: Server, size: int, count: int) -> Run:
    """The same over so many partitions that the mock keeps all of it, as Ottla does."""
    return write(server, size, count, spread(server, size, count))


def write(server: Server, size: int, count: int, partitions: list[TopicPartition]) -> Run:
    """Write `count` records, evenly over `partitions`, one after the other."""
    producer = new_producer(server.bootstrap)
    for topic in {each.topic for each in partitions}:
        producer.list_topics(topic, timeout=10)
    messages = [{"value": b"x" * size}] * 1000
    per_partition = count // len(partitions) // len(messages)
    assert per_partition * len(messages) * len(partitions) == count

    def work() -> None:
        for each in partitions:
            for _ in range(per_partition):
                producer.produce_batch(each.topic, messages, partition=each.partition)
        assert producer.flush(120) == 0, "not every record was acknowledged"

    return measure(server, size, count, work)


def spread(server: Server, size: int, count: int) -> list[TopicPartition]:
    """Make topics with enough partitions for the mock to keep `count` records."""
    wanted = -(-count * size // PARTITION_BYTES_MAX)
    topics = [new_topic(server, MOCK_PARTITIONS) for _ in range(-(-wanted // MOCK_PARTITIONS))]
    every = [TopicPartition(topic, each, 0) for topic in topics for each in range(MOCK_PARTITIONS)]
    return every[:wanted]


def consume(server: Server, size: int, count: int) -> Run:
    """Read `count` records from many partitions at once."""
    partitions = spread(server, size, count)
    write(server, size, count, partitions)
    consumer = new_consumer(server.bootstrap, partitions)
    run = measure(server, size, count, lambda: drain(consumer, count))
    consumer.close()
    return run


def compare(servers: list[Server]) -> dict[str, dict[str, Run]]:
    """Return the best run of each server by what was measured."""
    best: dict[str, dict[str, Run]] = {}
    for size, count in ((100, 1_000_000), (1000, 300_000)):
        for _ in range(ROUNDS):
            for server in servers:
                for name, bench in BENCHES.items():
                    name = name.format(size=size)
                    run = bench(server, size, count)
                    known = best.setdefault(name, {}).get(server.name)
                    best[name][server.name] = run if known is None else better(known, run)
    return best


BENCHES = {
    "produce {size} B": produce,
    "produce {size} B, kept": produce_kept,
    "consume {size} B": consume,
}


def better(one: Run, other: Run) -> Run:
    """Combine two runs: the higher rate, the lower CPU."""
    return Run(
        max(one.mb_per_s, other.mb_per_s),
        max(one.records_per_s, other.records_per_s),
        min(one.cpu_ms_per_mb, other.cpu_ms_per_mb),
    )


def verdict(name: str, kind: str, ratio: float) -> str:
    """Say whether a ratio meets its target."""
    target = TARGETS.get((name, kind))
    if target is None:
        return ""
    limit, sense = target
    met = ratio >= limit if sense == "at least" else ratio <= limit
    return f"{sense} {limit}: {'met' if met else 'MISSED'}"


def main(console: Console) -> None:
    """Run and print."""
    with ottla_node() as ottla, mock_cluster() as mock:
        best = compare([ottla, mock])
    table = Table(title="confluent-kafka against one Ottla node and librdkafka's mock")
    for heading in ("", "ottla MB/s", "mock MB/s", "ratio", "target"):
        table.add_column(heading, justify="left" if heading in ("", "target") else "right")
    for heading in ("ottla CPU ms/MB", "mock CPU ms/MB", "ratio "):
        table.add_column(heading, justify="right")
    table.add_column("target ")
    for name, runs in best.items():
        ottla_run, mock_run = runs["ottla"], runs["mock"]
        rate = ottla_run.mb_per_s / mock_run.mb_per_s
        cpu = ottla_run.cpu_ms_per_mb / mock_run.cpu_ms_per_mb
        table.add_row(
            name,
            f"{ottla_run.mb_per_s:.0f}",
            f"{mock_run.mb_per_s:.0f}",
            f"{rate:.2f}",
            verdict(name, "rate", rate),
            f"{ottla_run.cpu_ms_per_mb:.2f}",
            f"{mock_run.cpu_ms_per_mb:.2f}",
            f"{cpu:.2f}",
            verdict(name, "cpu", cpu),
        )
    console.print(table)


if __name__ == "__main__":
    main(Console(width=140))
