"""Topics for benchmarks that scan them."""

import uuid
from collections.abc import Mapping

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 2
RECORDS_PER_CALL = 10_000
"""One call fills one partition, then comes the next one."""
QUEUED_MAX = 2_000_000
"""Records in the producer's queue above which no more are given to it; it would drop them."""


def fill(
    bootstrap: str,
    name: str,
    size: int,
    count: int,
    *,
    producer: Mapping[str, str | int],
    topic: Mapping[str, str] | None = None,
) -> str:
    """Write `count` records of about `size` bytes, keys included; return the topic.

    `name`: its name begins so. `producer`, `topic`: their configuration, beside what all have.
    """
    full_name = f"{name}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(full_name, PARTITIONS, 1, config=dict(topic or {}))
    admin.create_topics([new])[full_name].result(30)
    writer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 5_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
        | dict(producer)
    )
    pad = b"abcdefghij" * (size // 10)
    for start in range(0, count, RECORDS_PER_CALL):
        messages = [
            {"key": b"key-%09d" % number, "value": b"%d" % number + pad[: size - 22]}
            for number in range(start, start + RECORDS_PER_CALL)
        ]
        partition = start // RECORDS_PER_CALL % PARTITIONS
        while len(writer) > QUEUED_MAX:
            writer.poll(0.1)
        taken = writer.produce_batch(full_name, messages, partition=partition)
        assert taken == len(messages), "the producer's queue is full"
    assert writer.flush(300) == 0, "not every record was acknowledged"
    return full_name
