"""One cluster and one Spark session for all tests; a topic of its own for each test."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla.spark
from ottla.testing import Cluster

# C1 only and no parallel collector: a JVM that starts fast rather than runs fast.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "tests.spark.loaded_daemon",
}
ROOT = Path(__file__).parents[2]
S3_SECRET = "known-to-processes-alone"
Message = tuple[bytes | None, bytes | None]
MakeTopic = Callable[..., str]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    # Some records are old on purpose; on a slow machine retention would come before their reader.
    config = {"auto.create.topics.enable": "true", "log.retention.ms": "-1"}
    with Cluster(brokers=1, config=config) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)  # Where the workers find their daemon, too.
        # Tasks have the environment that Spark was started with.
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", S3_SECRET)
        session = ottla.spark.session("tests", master="local[2]", config=QUICK)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient) -> MakeTopic:
    def make(partitions: int = 1, *, name: str | None = None, **config: str) -> str:
        name = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=settings)
        admin.create_topics([new])[name].result(30)
        return name

    return make


@pytest.fixture
def load(spark: Any, cluster: Cluster) -> Callable[..., Any]:
    """Load a topic, or what options say, as a DataFrame."""

    def load(topic: str | None = None, /, *, schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", cluster.bootstrap)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        if schema is not None:
            reader = reader.schema(schema)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return load


@pytest.fixture
def save(cluster: Cluster) -> Callable[..., None]:
    """Write a DataFrame to a topic, or to where its rows say."""

    def save(frame: Any, topic: str | None = None, /, **options: str) -> None:
        writer = frame.write.format("ottla").mode("append")
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
        if topic is not None:
            writer = writer.option("topic", topic)
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), value)
        writer.save()

    return save


@pytest.fixture
def produce(cluster: Cluster) -> Callable[..., None]:
    """Write messages with confluent-kafka."""

    def produce(
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = -1,
        headers: Any = None,
        timestamps: Sequence[int] = (),
        **config: Any,
    ) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                **settings,
            }
        )
        for number, (key, value) in enumerate(messages):
            producer.produce(
                topic,
                value,
                key,
                partition,
                headers=headers,
                timestamp=timestamps[number] if timestamps else 0,
            )
        assert producer.flush(60) == 0

    return produce
