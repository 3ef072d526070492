"""Scan a topic with Spark, beside a plain confluent-kafka consumer loop over the same records.

Spark runs as `local[2]` into its noop sink, so every column of every record is decoded and crosses
to the JVM; the consumer makes a message object of each record and does nothing with it. Rounds
alternate and the best of each counts. Broker, Spark and consumer share the machine.
"""

import time
import uuid
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

import ottla.spark
from ottla.testing import Cluster

ROUNDS = 3
PARTITIONS = 2
SIZES = ((100, 2_000_000), (1000, 400_000))


def fill(bootstrap: str, size: int, count: int, codec: str) -> str:
    """Write `count` records of about `size` bytes, keys included; return the topic."""
    topic = f"scan-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 5_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    pad = b"abcdefghij" * (size // 10)
    per_call = 10_000
    for start in range(0, count, per_call):
        messages = [
            {"key": b"key-%09d" % number, "value": b"%d" % number + pad[: size - 22]}
            for number in range(start, start + per_call)
        ]
        producer.produce_batch(topic, messages, partition=start // per_call % PARTITIONS)
    assert producer.flush(300) == 0, "not every record was acknowledged"
    return topic


def consume(bootstrap: str, topic: str, count: int) -> None:
    """Read the topic from its start, as fast as the client hands records over."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 10_000_000,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    left = count
    while left > 0:
        messages = consumer.consume(min(left, 100_000), 10)
        assert messages, "the server sent nothing for ten seconds"
        left -= len(messages)
    consumer.close()


def best_of(works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the best time of each piece of work, in seconds."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, work in works.items():
            begun = time.perf_counter()
            work()
            elapsed_s = time.perf_counter() - begun
            best[name] = min(best.get(name, elapsed_s), elapsed_s)
    return best


def main(console: Console) -> None:
    """Run and print."""
    table = Table(title=f"Scans of {PARTITIONS} partitions, records a second")
    for heading in ("", "spark, all columns", "spark, offsets only", "consumer loop", "ratio"):
        table.add_column(heading, justify="left" if not heading else "right")
    with Cluster(brokers=1) as cluster:
        spark = ottla.spark.session("bench", master="local[2]")
        for size, count in SIZES:
            for codec in ("none", "zstd"):
                topic = fill(cluster.bootstrap, size, count, codec)
                reader = spark.read.format("ottla").option("subscribe", topic)
                reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
                full, narrow = reader.load(), reader.schema("offset long").load()
                assert narrow.count() == count
                best = best_of(
                    {
                        "full": full.write.format("noop").mode("overwrite").save,
                        "narrow": narrow.write.format("noop").mode("overwrite").save,
                        "loop": lambda t=topic, n=count: consume(cluster.bootstrap, t, n),
                    }
                )
                rates = {name: count / seconds for name, seconds in best.items()}
                table.add_row(
                    f"{size} B {codec}",
                    f"{rates['full']:,.0f}",
                    f"{rates['narrow']:,.0f}",
                    f"{rates['loop']:,.0f}",
                    f"{rates['full'] / rates['loop']:.2f}",
                )
        spark.stop()
    console.print(table)


if __name__ == "__main__":
    main(Console(width=120))
