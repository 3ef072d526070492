"""A cluster whose store stops answering while partitions are copied and consumers read old records.

For the test that nothing else suffers, and for the benchmark that says by how much.
"""

import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3  # type: ignore[import-untyped]
import psutil
from confluent_kafka import Consumer, Producer

from ottla.base.errors import Error
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.wire.messages import describe_remote_log as remote_wire
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from tests.unit.stores.moto_server import MotoServer

from . import stored
from .background import Background
from .clients import Closing, Message, client_of, eventually
from .conftest import BROKERS, QUICK, new_name
from .store_gate import StoreGate

PARTITIONS = 12
FETCHERS = 20
SEGMENT_BYTES = 16 * 1024
VALUE_BYTES = 1_000
RECORDS = 100
"""Of each partition, before the store is silent and again while it is: six segments."""

PAUSE_SECONDS = 0.05
"""Between two operations of a client, for the benchmark: each percentile is of many."""

BUCKET = "slow"
KINDS = frozenset({"log", "index", "timeindex", "txnindex", "snapshot", "epochs"})
CONFIG = QUICK | {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "4",
    # Every read of old records needs the store.
    "ottla.remote.chunk.cache.size.bytes": "0",
    "ottla.remote.index.cache.size.bytes": "0",
}
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "100",
}


@dataclass
class Scene:
    """The cluster, the gate before its store, and the tiered topic."""

    cluster: Cluster
    gate: StoreGate
    store: Any
    topic: str = field(default_factory=lambda: new_name("slow-store"))
    produced: int = 0
    """Records of each partition."""

    def produce(self) -> None:
        """Produce the records of some segments to each partition."""
        with Closing(client_of("confluent").producer(self.cluster.bootstrap)) as producer:
            for begin in range(0, RECORDS, 5):
                producer.send(
                    [
                        Message(topic=self.topic, partition=partition, value=bytes(VALUE_BYTES))
                        for partition in range(PARTITIONS)
                        for _ in range(begin, begin + 5)
                    ]
                )
        self.produced += RECORDS

    def described(self) -> list[remote_wire.RemoteLogPartition]:
        """Return what the leaders say of the topic's partitions, with the remote segments."""
        asked = remote_wire.DescribeRemoteLogTopic(
            name=self.topic, partitions=tuple(range(PARTITIONS))
        )
        found: dict[int, remote_wire.RemoteLogPartition] = {}
        with ClusterClient(ClientConfig(bootstrap=self.cluster.bootstrap)) as client:
            for node in BROKERS:
                request = remote_wire.DescribeRemoteLogRequest(
                    topics=(asked,), include_segments=True
                )
                answer = client.ask(request, remote_wire.DescribeRemoteLogResponse, node=node)
                for topic in answer.topics:
                    found |= {
                        each.partition: each for each in topic.partitions if not each.error_code
                    }
        return [found[partition] for partition in sorted(found)]

    def wait_copied(self, within: float) -> list[remote_wire.RemoteLogPartition]:
        """Wait until every closed segment is copied; return the partitions."""
        return eventually(
            self.described,
            lambda found: (
                len(found) == PARTITIONS
                and all(
                    each.lag_segments == 0 and each.remote_end_offset >= self.produced - 30
                    for each in found
                )
            ),
            within=within,
            what="every closed segment in the store",
        )

    def wait_local_deleted(self) -> None:
        """Wait until local retention has followed, so that old records are in the store alone."""
        eventually(
            lambda: max(
                len(stored.segments(self.cluster, self.topic, partition, node=node))
                for node in BROKERS
                for partition in range(PARTITIONS)
            ),
            lambda most: most <= 2,
            within=60,
            what="local segments deleted",
        )

    def objects(self) -> set[tuple[int, str]]:
        """Return the segments' objects as (partition, name), manifests left out."""
        pages = self.store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        names = [each["Key"] for page in pages for each in page.get("Contents", ())]
        parts = [name.split("/") for name in names if "/manifest/" not in name]
        return {
            (int(part[-2]), part[-1]) for part in parts if part[-3].startswith(f"{self.topic}-")
        }


@contextmanager
def scene() -> Iterator[Scene]:
    """Run three brokers over a store behind a gate, with a tiered topic that is copied."""
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    with MotoServer() as moto, StoreGate(int(moto.url.rpartition(":")[2])) as gate:
        store = boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1")
        store.create_bucket(Bucket=BUCKET)
        uri = f"s3://{BUCKET}/tier?endpoint={gate.url}&region=us-east-1"
        with Cluster(brokers=3, remote_storage=uri, config=CONFIG, metrics=True) as cluster:
            made = Scene(cluster, gate, store)
            with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
                admin.create_topic(
                    made.topic, partitions=PARTITIONS, replication_factor=3, config=TOPIC
                )
            made.produce()
            made.wait_copied(120)
            made.wait_local_deleted()
            yield made


class Clients(Background):
    """Clients that need no remote storage, one operation after the other, while a block runs.

    Fields: `seconds`: how long each took, by kind. `pause_seconds`: between two of one kind.
    """

    KINDS = ("produce", "join", "create", "delete")

    def __init__(
        self, cluster: Cluster, topic: str, *, pause_seconds: float = PAUSE_SECONDS
    ) -> None:
        super().__init__((self._produce, self._join, self._topics), patience=90)
        self._bootstrap = cluster.bootstrap
        self._topic = topic
        self._pause_seconds = pause_seconds
        self.seconds: dict[str, list[float]] = {kind: [] for kind in self.KINDS}

    def begun(self) -> None:
        # What came first has paid for metadata, connections and coordinators.
        eventually(
            lambda: self.errors or all(self.seconds.values()), within=60, what="each operation once"
        )
        for each in self.seconds.values():
            each.clear()

    def ending(self) -> None:
        eventually(
            lambda: self.errors or all(self.seconds.values()), within=60, what="each operation once"
        )

    def percentile(self, kind: str, part: float) -> float:
        ordered = sorted(self.seconds[kind])
        return ordered[int(len(ordered) * part)]

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[kind].append(time.monotonic() - begun)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all", "linger.ms": 0})
        failures: list[Any] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        while not self._stop.is_set():
            with self._timed("produce"):
                producer.produce(self._topic, bytes(100), on_delivery=delivered)
                assert producer.flush(60) == 0
            assert not failures
            self._stop.wait(self._pause_seconds)

    def _join(self) -> None:
        while not self._stop.is_set():
            with self._timed("join"):
                consumer = Consumer(
                    {
                        "bootstrap.servers": self._bootstrap,
                        "group.id": new_name("slow-group"),
                        "session.timeout.ms": 6_000,
                    }
                )
                consumer.subscribe([self._topic])
                deadline = time.monotonic() + 60
                while not consumer.assignment():
                    consumer.poll(0.02)
                    assert time.monotonic() < deadline, "the group has no assignment"
            consumer.close()
            self._stop.wait(self._pause_seconds)

    def _topics(self) -> None:
        with Closing(client_of("confluent").admin(self._bootstrap)) as admin:
            while not self._stop.is_set():
                name = new_name("slow-topic")
                with self._timed("create"):
                    admin.create_topic(name, partitions=3, replication_factor=3)
                with self._timed("delete"):
                    admin.delete_topic(name)
                self._stop.wait(self._pause_seconds)


class Fetchers(Background):
    """Consumers of the first records of the tiered topic, each over a connection of its own.

    Fields: `errors_seen`: of the responses; `answers`, `bytes`: how many, and their records.
    """

    def __init__(self, scene: Scene) -> None:
        with ClusterClient(ClientConfig(bootstrap=scene.cluster.bootstrap)) as client:
            leaders = {
                partition: client.leader((scene.topic, partition))
                for partition in range(PARTITIONS)
            }
            topic_id = client.topics([scene.topic])[0].topic_id
        self._topic_id = topic_id
        self.errors_seen: set[int] = set()
        self.answers = [0] * FETCHERS
        self.bytes = [0] * FETCHERS
        works: list[Callable[[], None]] = []
        for number in range(FETCHERS):
            partition = number % PARTITIONS
            port = int(scene.cluster.address(leaders[partition].node).rpartition(":")[2])
            works.append(lambda number=number, port=port: self._fetch(number, port))  # type: ignore[misc]
        super().__init__(works, patience=60)

    def _fetch(self, number: int, port: int) -> None:
        partition = FetchPartition(
            partition=number % PARTITIONS, fetch_offset=0, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            session_epoch=-1,
            topics=(FetchTopic(topic_id=self._topic_id, partitions=(partition,)),),
        )
        with Connection("127.0.0.1", port, client_id="old", timeout=30) as connection:
            while not self._stop.is_set():
                answer = connection.ask(request, FetchResponse, timeout=30)
                for topic in answer.responses:
                    for part in topic.partitions:
                        self.errors_seen.add(part.error_code)
                        self.bytes[number] += len(part.records or b"")
                        if part.error_code:
                            time.sleep(0.1)
                self.answers[number] += 1


ALLOWED = frozenset({Error.NONE, Error.KAFKA_STORAGE_ERROR})
"""What consumers are answered while the store is silent, and retry without the application."""


@dataclass
class Size:
    """The most threads and memory that a broker had at one of the samples."""

    threads: int = 0
    resident_bytes: int = 0


class Sizes(Background):
    """Samples the brokers while a block runs. `most`: by node."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__((self._sample,), patience=10)
        self._processes = {node: psutil.Process(cluster.pid(node)) for node in BROKERS}
        self.most = {node: Size() for node in BROKERS}

    def begun(self) -> None:
        eventually(lambda: all(each.threads for each in self.most.values()), within=10)

    def _sample(self) -> None:
        while not self._stop.is_set():
            for node, process in self._processes.items():
                most = self.most[node]
                most.threads = max(most.threads, process.num_threads())
                most.resident_bytes = max(most.resident_bytes, process.memory_info().rss)
            time.sleep(0.1)


def metric(cluster: Cluster, name: str) -> float:
    """Return the sum of a metric's samples over all brokers."""
    total = 0.0
    for node in BROKERS:
        url = f"http://{cluster.metrics_address(node)}/metrics"
        with urllib.request.urlopen(url, timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        for line in lines:
            if line.startswith((f"{name} ", f"{name}{{")):
                total += float(line.rsplit(" ", 1)[1])
    return total
