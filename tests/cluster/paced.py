"""A client that sends 50 messages a second, and notes how long each takes to be read again."""

import time
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing import Cluster
from tests.exposition import Scrape

from .background import Background
from .conftest import new_topic

INTERVAL_SECONDS = 0.02
LAG = "ottla_loop_lag_seconds"


class Paced(Background):
    """Sends and reads while its block runs. `seconds`: how long each message took, end to end."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__((self._send, self._read), patience=60)
        self._bootstrap = cluster.bootstrap
        self._topic = new_topic(cluster.bootstrap, "paced")
        self._sent = 0
        self._all_sent = False
        self.seconds: list[float] = []

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]

    def begun(self) -> None:
        deadline = time.monotonic() + 30
        while len(self.seconds) < 20 and not self.errors and time.monotonic() < deadline:
            time.sleep(0.05)
        # What came first has paid for metadata and connections.
        del self.seconds[:]

    def _send(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "acks": "all"})
        due = time.monotonic()
        while not self._stop.is_set():
            producer.produce(self._topic, str(time.monotonic()).encode())
            self._sent += 1
            producer.poll(0)
            due += INTERVAL_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
        left = producer.flush(30)
        self._all_sent = True
        assert left == 0, f"{left} messages were not acknowledged"

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "paced",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        read = 0
        try:
            while not (self._all_sent and read == self._sent):
                message = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, message.error()
                read += 1
                self.seconds.append(time.monotonic() - float(message.value()))
        finally:
            consumer.close()


def scrape(cluster: Cluster, node: int = 1) -> Scrape:
    """Return a node's metrics."""
    with urllib.request.urlopen(
        f"http://{cluster.metrics_address(node)}/metrics", timeout=20
    ) as answer:
        return Scrape(answer.read().decode())


def stalls(found: Scrape, above_seconds: float) -> float:
    """Return how often the loop was later than that."""
    within = {
        float(dict(labels)["le"]): count
        for (name, labels), count in found.families[LAG].samples.items()
        if name == f"{LAG}_bucket"
    }
    bound = max(each for each in within if each <= above_seconds)
    return found.value(f"{LAG}_count") - within[bound]
