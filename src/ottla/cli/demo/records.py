"""Clients of the demo: they write the flights, read them as a group, and look after a restart."""

import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console

from ottla.cli.console.closing import close
from ottla.cli.demo.flights import Totals, read_flights
from ottla.cli.demo.steps import (
    PARTITIONS,
    QUIET_S_MAX,
    REPLICAS,
    TOPIC,
    DemoError,
    check,
)

if TYPE_CHECKING:
    from ottla.testing.cluster import Cluster

GROUP: Final = "demo-readers"
CONSUMERS: Final = 3
TIERED: Final = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": str(1 << 20),
}
"""The topic's configuration: closed segments are copied, and leave local disks but for one MiB."""


@dataclass(slots=True)
class Written:
    """What was written: all later results are compared with it."""

    totals: Totals = field(default_factory=Totals)
    checksum: int = 0
    """Sum of the CRC-32 of each message: equal for equal sets, in whatever order."""
    ends: dict[int, int] = field(default_factory=dict)


def write_flights(bootstrap: str, source: Path) -> Written:
    """Create the topic and write every flight as JSON, keyed by carrier."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, config=TIERED)])[TOPIC].result(30)
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


def _commas(counts: list[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts)
