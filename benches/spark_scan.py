"""Scan a topic with Spark, beside a plain confluent-kafka consumer loop over the same records.

Spark runs as `local[2]` into its noop sink, so every column of every record is decoded and crosses
to the JVM; the consumer makes a message object of each record and does nothing with it. Rounds
alternate and the best of each counts. Broker, Spark and consumer share the machine.
"""

import time
import uuid
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table

import ottla.spark
from ottla.testing import Cluster
from scanned_topics import PARTITIONS, fill

ROUNDS = 3
SIZES = ((100, 2_000_000), (1000, 400_000))


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
                config = {"compression.type": codec, "batch.size": 1_000_000}
                topic = fill(cluster.bootstrap, "scan", size, count, producer=config)
                reader = spark.read.format("ottla").option("subscribe", topic)
                reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap)
                full, narrow = reader.load(), reader.schema("offset long").load()
                assert narrow.count() == count
                best = best_of(
                    {
                        "full": full.write.format("noop").mode("overwrite").save,
                        "narrow": narrow.write.format("noop").mode("overwrite").save,
                        "loop": partial(consume, cluster.bootstrap, topic, count),
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
