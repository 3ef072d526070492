"""librdkafka's producer and consumer as the benchmarks set them: large batches, no idle fetches."""

import uuid
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, Message, Producer, TopicPartition

AT_ONCE = 100_000
SILENCE_SECONDS = 10.0


def new_producer(bootstrap: str, *, acks: str = "1") -> Producer:
    """Return a producer that makes large batches."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 5_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "acks": acks,
            "log_level": 0,
        }
    )


def new_consumer(bootstrap: str, partitions: Sequence[TopicPartition]) -> Consumer:
    """Return a consumer of these partitions, in a group of its own."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            # Else librdkafka stops fetching for a second when it has 100,000 messages.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 2_000_000,
            "fetch.queue.backoff.ms": 1,
            "log_level": 0,
        }
    )
    consumer.assign(list(partitions))
    return consumer


def batches(
    consumer: Consumer, left: int, *, silence_s: float = SILENCE_SECONDS
) -> Iterator[list[Message]]:
    """Yield messages as they come, until so many have come."""
    while left > 0:
        messages = consumer.consume(min(left, AT_ONCE), silence_s)
        assert messages, f"the server sent nothing for {silence_s:g} s"
        left -= len(messages)
        yield messages


def drain(consumer: Consumer, count: int) -> None:
    """Take so many messages, and drop them."""
    for _ in batches(consumer, count):
        pass
