"""Ottla beside Apache Kafka 4.3.1 on the same cores in the same run: `make bench-kafka`.

Both clusters run all the time; each case is measured on one, then on the other, in three rounds,
and medians count. Each case is run once before that, so that the JVM has compiled what it uses.
One-record requests come from plain sockets (`raw_load.py`), all else from librdkafka. Client and
servers share the cores: ratios count, not the absolute numbers, and where the client is the limit
on both sides the ratio is nearer to 1 than the servers are. CPU is that of all nodes.

    python benches/against_kafka.py [--rounds N] [--json] [PART ...]

Parts: requests, one (one node, replication factor 1), three (three nodes, acks=all).
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import confluent_kafka
import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

import raw_load
from clients import drain, new_consumer, new_producer
from kafka_peer import VERSION, kafka_nodes
from maven_jars import NoJarsError, jars_of
from ottla.records.builder import encode_batch
from ottla.wire.frames import encode_request
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from servers import Server, ottla_nodes

ROUNDS = 3
MB = 1_000_000
RAW_SECONDS = 4.0
SIZES = {100: 1_500_000, 1_000: 400_000}
"""Records of a round, by their bytes."""
SIZES_THREE = {100: 600_000, 1_000: 150_000}
LOADS = ((1, 1), (16, 8), (64, 1))
"""Connections, and requests in flight on each."""
RECORDS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured. `target`: of the ratio of rates (None = none); `unit`: of the rate."""

    name: str
    unit: str
    measure: Callable[[Server], "Run"]
    target: float | None = None
    cpu_target: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A rate, the CPU of the nodes, and a p99 in µs (None = not known).

    Fields: `cpu`: milliseconds a MB; of requests, microseconds a request.
    """

    rate: float
    cpu: float
    p99_us: float | None = None


def new_topic(peer: Server, partitions: int, replicas: int = 1) -> str:
    """Create a topic, and wait until all partitions have leaders."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": peer.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"} if replicas > 1 else {}
    admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(30)
    while True:
        found = admin.list_topics(topic, timeout=10).topics[topic]
        led = [each.leader >= 0 for each in found.partitions.values()]
        if found.error is None and len(led) == partitions and all(led):
            return topic
        time.sleep(0.05)


def one_record(topic: str, partition: int = 0) -> bytes:
    """Return a Produce request with one record of 100 B, acks=1, with its length prefix."""
    batch = encode_batch([(None, b"x" * 100, (), 1_700_000_000_000)])
    data = PartitionProduceData(index=partition, records=batch)
    message = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return encode_request(message, 9, 1, "bench")


def requests(connections: int, in_flight: int) -> Callable[[Server], Run]:
    """Return the measurement of Produce requests with one record of 100 B each, acks=1."""

    def measure(peer: Server) -> Run:
        topic = new_topic(peer, 1)
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(one_record(topic))
            cpu_s = peer.cpu_s()
            found = raw_load.measure(
                peer.bootstrap, Path(file.name), connections, in_flight, RAW_SECONDS
            )
            count = found["per_s"] * RAW_SECONDS
            run = Run(found["per_s"], (peer.cpu_s() - cpu_s) * 1e6 / count, found["p99_us"])
        client = Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "bench"})
        _, end = client.get_watermark_offsets(TopicPartition(topic, 0), 30)
        client.close()
        assert end >= count * 0.99, f"{count:.0f} responses, but only {end} records are in the log"
        return run

    return measure


def produce(size: int, count: int, partitions: int, replicas: int = 1) -> Callable[[Server], Run]:
    """Return the measurement of librdkafka's producer."""

    def measure(peer: Server) -> Run:
        topic = new_topic(peer, partitions, replicas)
        return _write(peer, topic, size, count, partitions, replicas)

    return measure


def _write(peer: Server, topic: str, size: int, count: int, partitions: int, replicas: int) -> Run:
    producer = new_producer(peer.bootstrap, acks="all" if replicas > 1 else "1")
    producer.list_topics(topic, timeout=10)
    messages = [{"value": b"x" * size}] * RECORDS_AT_ONCE

    def work() -> None:
        for number in range(count // RECORDS_AT_ONCE):
            producer.produce_batch(topic, messages, partition=number % partitions)
        assert producer.flush(120) == 0, "not every record was acknowledged"

    return _timed(peer, size * count / MB, work)


def consume(size: int, count: int, partitions: int, replicas: int = 1) -> Callable[[Server], Run]:
    """Return the measurement of librdkafka's consumer. What it reads is written once a cluster."""
    topics: dict[str, str] = {}

    def measure(peer: Server) -> Run:
        if peer.name not in topics:
            topics[peer.name] = new_topic(peer, partitions, replicas)
            _write(peer, topics[peer.name], size, count, partitions, replicas)
        partitions_read = [TopicPartition(topics[peer.name], i, 0) for i in range(partitions)]
        consumer = new_consumer(peer.bootstrap, partitions_read)
        try:
            return _timed(peer, size * count / MB, lambda: drain(consumer, count))
        finally:
            consumer.close()

    return measure


def _timed(peer: Server, mb: float, work: Callable[[], None]) -> Run:
    cpu_s, began = peer.cpu_s(), time.perf_counter()
    work()
    took_s = time.perf_counter() - began
    return Run(mb / took_s, (peer.cpu_s() - cpu_s) * 1000 / mb)


def cases_of_requests() -> Iterator[Case]:
    """Yield the cases of small requests to one node."""
    for connections, in_flight in LOADS:
        yield Case(
            name=f"requests, {connections} connections, {in_flight} in flight each",
            unit="requests/s",
            measure=requests(connections, in_flight),
            target=1.0 if connections > 1 else None,
        )


def cases_of_one() -> Iterator[Case]:
    """Yield the cases of one node."""
    for size, count in SIZES.items():
        for partitions in (1, 6):
            yield Case(
                name=f"produce {size} B, {partitions} partitions",
                unit="MB/s",
                measure=produce(size, count, partitions),
                target=2.0 if size == 1_000 else None,
                cpu_target=0.4,
            )
            yield Case(
                name=f"consume {size} B, {partitions} partitions",
                unit="MB/s",
                measure=consume(size, count, partitions),
                target=1.3 if partitions == 1 else 1.2 if size == 1_000 else None,
            )


def cases_of_three() -> Iterator[Case]:
    """Yield the cases of three nodes, three replicas, acks=all."""
    for size, count in SIZES_THREE.items():
        yield Case(
            name=f"produce {size} B, 3 partitions, RF 3, acks=all",
            unit="MB/s",
            measure=produce(size, count, 3, 3),
            cpu_target=0.4,
        )
        yield Case(
            name=f"consume {size} B, 3 partitions, RF 3",
            unit="MB/s",
            measure=consume(size, count, 3, 3),
        )


PARTS: dict[str, tuple[int, Callable[[], Iterator[Case]]]] = {
    "requests": (1, cases_of_requests),
    "one": (1, cases_of_one),
    "three": (3, cases_of_three),
}


@contextmanager
def both(nodes: int) -> Iterator[tuple[Server, Server]]:
    """Run a cluster of each, with so many nodes."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        ottla_nodes(nodes, Path(directory)) as ottla,
        kafka_nodes(nodes, Path(directory)) as kafka,
    ):
        yield ottla, kafka


def compare(case: Case, ottla: Server, kafka: Server, rounds: int) -> tuple[Run, Run]:
    """Return the medians of both, after one run that does not count."""
    runs: dict[str, list[Run]] = {ottla.name: [], kafka.name: []}
    for number in range(rounds + 1):
        for peer in (ottla, kafka):
            run = case.measure(peer)
            if number:
                runs[peer.name].append(run)
    return _median(runs[ottla.name]), _median(runs[kafka.name])


def _median(runs: list[Run]) -> Run:
    p99s = [each.p99_us for each in runs if each.p99_us is not None]
    return Run(
        median(each.rate for each in runs),
        median(each.cpu for each in runs),
        median(p99s) if p99s else None,
    )


def new_table() -> Table:
    """Return the empty table."""
    table = Table(title=f"Ottla beside Apache Kafka {VERSION}: medians")
    table.add_column("case")
    for heading in ("unit", "Ottla", "Kafka", "ratio", "target", "CPU", "CPU of Kafka", "ratio "):
        table.add_column(heading, justify="right")
    table.add_column("target ", justify="right")
    table.add_column("p99 ms", justify="right")
    table.add_column("p99 of Kafka", justify="right")
    return table


def add_row(table: Table, case: Case, ottla: Run, kafka: Run) -> None:
    """Add what was found of a case."""
    ratio, cpu = ottla.rate / kafka.rate, ottla.cpu / kafka.cpu
    table.add_row(
        case.name,
        case.unit,
        f"{ottla.rate:,.0f}",
        f"{kafka.rate:,.0f}",
        f"{ratio:.2f}",
        "" if case.target is None else f"≥ {case.target:g} {_met(ratio >= case.target)}",
        f"{ottla.cpu:.2f}",
        f"{kafka.cpu:.2f}",
        f"{cpu:.2f}",
        "" if case.cpu_target is None else f"≤ {case.cpu_target:g} {_met(cpu <= case.cpu_target)}",
        *("" if each.p99_us is None else f"{each.p99_us / 1000:.2f}" for each in (ottla, kafka)),
    )


def _met(holds: bool) -> str:
    return "met" if holds else "MISSED"


def machine() -> str:
    """Return what the figures were measured on."""
    memory_gb = psutil.virtual_memory().total / 1e9
    return (
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}, "
        f"load at the start {os.getloadavg()[0]:.1f}"
    )


def main(words: list[str]) -> int:
    """Run the parts named, or all, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="one object a case, too")
    options = parser.parse_args(words)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    console = Console()
    try:
        jars_of("kafka")
    except NoJarsError as error:
        console.print(f"skipped: Apache Kafka cannot run here: {error}")
        return 0
    console.print(machine())
    table, memory = new_table(), []
    for part in options.parts or PARTS:
        nodes, cases = PARTS[part]
        with both(nodes) as (ottla, kafka):
            for case in cases():
                found, known = compare(case, ottla, kafka, options.rounds)
                add_row(table, case, found, known)
                console.print(f"{case.name}: {found.rate:,.0f} ÷ {known.rate:,.0f} {case.unit}")
                if options.json:
                    ratio = found.rate / known.rate
                    print(json.dumps({"case": case.name, "ratio": ratio}), flush=True)
            memory.append(
                f"memory of {nodes} {'node' if nodes == 1 else 'nodes'} after it: "
                f"{ottla.resident_mb():,.0f} MB, Kafka {kafka.resident_mb():,.0f} MB"
            )
    wide = Console(width=max(console.width, 170))
    wide.print(table)
    console.print("CPU: milliseconds a MB; of requests, microseconds a request.")
    console.print("\n".join(memory))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
