"""Compacted topics are cleaned while they are written to, through kills, and nothing is lost.

Method: real brokers with a cleaner that looks every moment; confluent-kafka writes and reads; the
broker's files are read as any Kafka tool would. A broker is killed when files of a cleaning are
seen on its disk, so that it dies in the middle of one.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

from . import stored

EAGER = {
    "log.cleaner.backoff.ms": "50",
    "log.segment.delete.delay.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1048576",
    "log.initial.task.delay.ms": "200",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
}
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "200",
}
OFFSETS = "__consumer_offsets"
KEYS = 50
DEADLINE_S = 40.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, config=EAGER) as started:
        yield started


def wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def new_topic(cluster: Cluster, name: str, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1, config=TOPIC | config)])
    made[name].result(20)
    return name


class Writer:
    """Produces to one topic and remembers what was acknowledged last of each key."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self.state: dict[bytes, tuple[int, bytes | None]] = {}
        self.number = 0
        self._random = random.Random(7)
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 40,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            key = b"key-%d" % self._random.randrange(KEYS)
            value = None if self._random.random() < 0.05 else b"%d" % self.number + bytes(100)
            self._producer.produce(self.topic, value, key, on_delivery=self._delivered)
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        assert error is None, error
        key, offset = message.key(), message.offset()  # type: ignore[attr-defined]
        if offset > self.state.get(key, (-1, None))[0]:
            self.state[key] = (offset, message.value())  # type: ignore[attr-defined]


def read(cluster: Cluster, topic: str, start: int = 0) -> list[tuple[int, bytes, bytes | None]]:
    """Read to the end from `start`, which may lie in a hole."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
        raise AssertionError("the end of the topic was not reached")
    finally:
        consumer.close()


def check(cluster: Cluster, writer: Writer) -> None:
    """What a reader from the start learns is what was acknowledged."""
    found = read(cluster, writer.topic)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    state = {key: (offset, value) for offset, key, value in found}
    assert state == writer.state


def directory(cluster: Cluster, topic: str) -> Path:
    return cluster.data_dir(1) / f"{topic}-0"


def log_bytes(cluster: Cluster, topic: str) -> int:
    total = 0
    for path in stored.segments(cluster, topic):
        with suppress(FileNotFoundError):  # The cleaner has just taken it away.
            total += path.stat().st_size
    return total


def is_cleaned(cluster: Cluster, topic: str) -> bool:
    path = cluster.data_dir(1) / "cleaner-offset-checkpoint"
    return path.exists() and f"{topic} 0 " in path.read_text()


@pytest.mark.cluster
def test_a_topic_is_cleaned_while_it_is_written_to(cluster: Cluster) -> None:
    writer = Writer(cluster, new_topic(cluster, "cleaned"))
    for _ in range(8):
        writer.write(1000)
        writer.flush()
    wait(lambda: is_cleaned(cluster, writer.topic), "the topic is never cleaned")
    written = writer.number * 110
    wait(lambda: log_bytes(cluster, writer.topic) < written / 4, "the topic does not shrink")
    check(cluster, writer)
    # Every offset can be read from, also those of which nothing is left.
    last = read(cluster, writer.topic, 1)
    assert last == [row for row in read(cluster, writer.topic) if row[0] >= 1]
    hole = next(offset for offset in range(10_000) if offset not in {row[0] for row in last})
    assert read(cluster, writer.topic, hole)[0][0] > hole


def _is_of_a_cleaning(path: Path) -> bool:
    return path.suffix in (".tmp", ".cleaned", ".swap")


@pytest.mark.cluster
def test_a_broker_killed_while_cleaning_loses_nothing(cluster: Cluster) -> None:
    writer = Writer(cluster, new_topic(cluster, "killed"))
    where = directory(cluster, writer.topic)
    met = 0
    for _ in range(6):
        writer.write(1500)
        writer.flush()
        endings = (".tmp", ".cleaned", ".swap", ".deleted")
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            if any(name.name.endswith(endings) for name in where.iterdir()):
                met += 1
                break
        cluster.kill(1)
        cluster.start(1)
        cluster.wait_ready()
        check(cluster, writer)
    assert met > 0  # Else no kill fell into a cleaning.
    writer.write(1500)
    writer.flush()
    wait(lambda: log_bytes(cluster, writer.topic) < 400_000, "the topic does not shrink")
    cluster.restart(1)
    check(cluster, writer)
    # The cleaner looks every moment, and may be at work again.
    wait(lambda: not any(map(_is_of_a_cleaning, where.iterdir())), "files of a cleaning are left")


@pytest.mark.cluster
def test_the_topic_of_offsets_shrinks_and_keeps_what_groups_committed(cluster: Cluster) -> None:
    topic = new_topic(cluster, "read")
    consumers = [
        Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"group-{number}",
                "enable.auto.commit": False,
            }
        )
        for number in range(3)
    ]
    commits = 600
    note = "x" * 3000
    for offset in range(1, commits + 1):
        for consumer in consumers:
            where = TopicPartition(topic, 0, offset, note)
            consumer.commit(offsets=[where], asynchronous=False)
    written = commits * len(consumers) * len(note)
    wait(lambda: is_cleaned(cluster, OFFSETS), "the offsets are never cleaned")
    wait(lambda: log_bytes(cluster, OFFSETS) < written / 4, "the offsets do not shrink")
    cluster.kill(1)
    cluster.start(1)
    cluster.wait_ready()
    for consumer in consumers:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        assert (found.offset, found.metadata) == (commits, note)
        consumer.close()
