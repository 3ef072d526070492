"""A cluster over ZooKeeper, and the znodes that an operator reads and writes beside it."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kazoo.client import KazooClient

from ottla.metadata.znodes import paths
from ottla.testing import Cluster

from ..ottla_command import ottla

PATIENCE_SECONDS = 20.0


class Operator:
    """Looks at a cluster's znodes, writes them with kazoo or `ottla ... --zookeeper`."""

    def __init__(self, cluster: Cluster, client: KazooClient) -> None:
        assert cluster.zookeeper_connect is not None
        self.cluster = cluster
        self.client = client
        self.connect: str = cluster.zookeeper_connect

    # -- reading -------------------------------------------------------------------------------

    def text(self, path: str) -> str:
        """Return what a znode holds, as it is written."""
        data: bytes = self.client.get(path)[0]
        return data.decode()

    def json(self, path: str) -> dict[str, Any]:
        """Return what a znode holds."""
        content: dict[str, Any] = json.loads(self.text(path))
        return content

    def stat(self, path: str) -> Any:
        """Return what ZooKeeper says of a znode; None = it is not there."""
        return self.client.exists(path)

    def controller(self) -> int:
        """Return who is elected."""
        return int(self.json(paths.CONTROLLER)["brokerid"])

    def epoch(self) -> int:
        """Return the epoch of the last election."""
        return int(self.text(paths.CONTROLLER_EPOCH))

    def others(self) -> list[int]:
        """Return the brokers that are not the controller."""
        return [plan.id for plan in self.cluster.brokers if plan.id != self.controller()]

    def logged(self, text: str) -> bool:
        """Tell whether a broker has printed something."""
        return self.times_logged(text) > 0

    def times_logged(self, text: str) -> int:
        """Return how often the brokers have printed something."""
        return sum(self.cluster.logs(plan.id).count(text) for plan in self.cluster.brokers)

    # -- writing -------------------------------------------------------------------------------

    def run(self, command: str, *words: str) -> str:
        """Run a command that must succeed, over ZooKeeper; return what it prints."""
        ran = ottla(command, "--zookeeper", self.connect, *words)
        assert ran.code == 0, ran.err
        return ran.out

    def write(self, path: str, value: object) -> None:
        """Create a znode, or set it where it is there. Bytes are written as they are."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        if self.stat(path) is None:
            self.client.create(path, data)
        else:
            self.client.set(path, data)

    def place(self, name: str, assignment: Mapping[int, list[int]], **more: object) -> None:
        """Create or change a topic by its znode, as tools before 2.4 did, and wait for leaders."""
        partitions = {str(number): replicas for number, replicas in assignment.items()}
        self.write(paths.topic(name), {"version": 1, "partitions": partitions, **more})
        until(lambda: all(self.stat(paths.state(name, each)) for each in assignment))
        self.cluster.wait_in_sync(name, PATIENCE_SECONDS)

    def notify(self, entity_path: str) -> None:
        """Tell brokers that a configuration has changed."""
        data = json.dumps({"version": 2, "entity_path": entity_path}).encode()
        self.client.create(paths.CONFIG_CHANGE, data, sequence=True)

    # -- clients -------------------------------------------------------------------------------

    def produce(self, name: str, partition: int = 0, *, size: int = 10) -> KafkaError | None:
        """Produce one record; return why it was refused."""
        refused: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        producer.produce(
            name,
            b"x" * size,
            partition=partition,
            on_delivery=lambda error, _: refused.append(error),
        )
        producer.flush(PATIENCE_SECONDS)
        [error] = refused
        return error

    def consume(self, name: str, partition: int = 0) -> int:
        """Read a partition from its start; return how many records came before its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "none",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(name, partition, 0)])
        found = 0
        try:
            while True:
                record = consumer.poll(PATIENCE_SECONDS)
                assert record is not None, "nothing comes"
                if record.error() is not None:
                    assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                    return found
                found += 1
        finally:
            consumer.close()


@contextmanager
def operating(cluster: Cluster) -> Iterator[Operator]:
    """Connect to what a cluster runs over."""
    client = KazooClient(cluster.zookeeper_connect)
    client.start()
    try:
        yield Operator(cluster, client)
    finally:
        client.stop()
        client.close()


def until(
    condition: Callable[[], object], what: str = "it", *, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait for something to become so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} does not come"
        time.sleep(0.05)
