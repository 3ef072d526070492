"""What it costs to check every record of a produced batch: two nodes side by side, one without.

The second node has `ottla.record.validation=batch`. Rounds of both alternate and the best of each
counts; the client is the same and shares the cores, so the ratios matter. Records of one size are
what most benchmarks send, and are checked by columns; records of mixed sizes are walked one by one,
which is the worst that a well-meaning producer does. lz4 is compressed JSON-like text.
"""

import random
from collections.abc import Callable

from confluent_kafka import Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from clients import new_producer
from servers import Server, ottla_node
from throughput import MB, Run, measure, new_topic

ROUNDS = 5
BATCH_MESSAGES = 1000
LOSS_MAX = 0.10
"""Of throughput at 1 KB, uncompressed."""


def sizes_of(size: int, mixed: bool) -> list[int]:
    """Return the sizes of one call's messages, which are `size` on average."""
    if not mixed:
        return [size] * BATCH_MESSAGES
    drawn = random.Random(size)
    half = [drawn.randrange(size // 2, size) for _ in range(BATCH_MESSAGES // 2)]
    sizes = half + [2 * size - each for each in half]
    drawn.shuffle(sizes)
    return sizes


def write(server: Server, size: int, total_mb: int, *, mixed: bool, codec: str) -> Run:
    """Produce so much to one partition, and wait for every acknowledgement."""
    topic = new_topic(server)
    producer = new_producer(server.bootstrap)
    if codec != "none":
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "batch.num.messages": 100_000,
                "queue.buffering.max.messages": 5_000_000,
                "compression.type": codec,
                "acks": 1,
                "log_level": 0,
            }
        )
    producer.list_topics(topic, timeout=10)
    text = b'{"user": 12345, "action": "click", "at": "2024-05-01T12:00:00Z", "page": "/a/b"}' * 40
    messages = [{"value": text[:each]} for each in sizes_of(size, mixed)]
    calls = total_mb * MB // (size * BATCH_MESSAGES)
    at = TopicPartition(topic, 0)

    def work() -> None:
        for _ in range(calls):
            producer.produce_batch(at.topic, messages, partition=at.partition)
        assert producer.flush(120) == 0, "not every record was acknowledged"

    return measure(server, size, calls * BATCH_MESSAGES, work)


def best(runs: list[Run], of: Callable[[Run], float], *, largest: bool) -> float:
    """Return the best round's figure."""
    return max(map(of, runs)) if largest else min(map(of, runs))


def main() -> None:
    """Print throughput and the node's CPU, with and without, for each kind of records."""
    table = Table("records", "full MB/s", "batch MB/s", "ratio", "full ms/MB", "batch ms/MB")
    with (
        ottla_node(ottla_record_validation="full") as full,
        ottla_node(ottla_record_validation="batch") as batch,
    ):
        for size, mixed, codec in (
            (1000, False, "none"),
            (1000, True, "none"),
            (100, False, "none"),
            (100, True, "none"),
            (1000, True, "lz4"),
            (100, True, "lz4"),
        ):
            total_mb = 200 if size == 1000 else 60
            found: dict[str, list[Run]] = {"full": [], "batch": []}
            for _ in range(ROUNDS):
                for name, server in (("full", full), ("batch", batch)):
                    found[name].append(write(server, size, total_mb, mixed=mixed, codec=codec))
            rates = [best(each, lambda run: run.mb_per_s, largest=True) for each in found.values()]
            cpus = [
                best(each, lambda run: run.cpu_ms_per_mb, largest=False) for each in found.values()
            ]
            ratio = rates[0] / rates[1]
            judged = size == 1000 and codec == "none"
            verdict = "" if not judged else " ok" if ratio >= 1 - LOSS_MAX else " MISSED"
            table.add_row(
                f"{size} B, {'mixed sizes' if mixed else 'one size'}, {codec}",
                f"{rates[0]:.0f}",
                f"{rates[1]:.0f}",
                f"{ratio:.2f}{verdict}",
                f"{cpus[0]:.2f}",
                f"{cpus[1]:.2f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
