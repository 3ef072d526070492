"""An idempotent producer's messages land once and in order, whatever breaks on the way.

Method: the producer reaches the broker only through a proxy that cuts connections (the broker
advertises the proxy's port), and the broker is killed and started again several times meanwhile.
What is on disk afterwards is compared record by record with what was sent.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from kafka.errors import KafkaError

from kafka import KafkaProducer
from ottla.base.errors import Error
from ottla.metadata.properties import read_properties, write_properties
from ottla.testing import Cluster

from . import stored
from .clients import Closing, Message, client_of
from .conftest import QUICK, new_topic
from .proxy import CuttingProxy

SEED = 20_250_117
PARTITIONS = 4


@contextmanager
def behind_a_proxy(
    cut_rate: float, config: Mapping[str, str] | None = None
) -> Iterator[tuple[Cluster, CuttingProxy]]:
    """A broker whose clients reach it through the proxy alone, but for its own port."""
    with Cluster(brokers=1, config=QUICK | dict(config or {})) as cluster:
        (broker,) = cluster.brokers
        with CuttingProxy(broker.port, seed=SEED, cut_rate=cut_rate) as proxy:
            path = cluster.data_dir() / "node-1" / "node.properties"
            properties = read_properties(path.read_text())
            properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy.port}"
            path.write_text(write_properties(properties))
            cluster.restart(1)
            yield cluster, proxy


def values_on_disk(cluster: Cluster, topic: str, partition: int) -> list[int]:
    return [int(each.value or b"-1") for each in stored.records(cluster, topic, partition)]


def test_a_hundred_thousand_messages_land_once_and_in_order() -> None:
    count, kills = 100_000, 4
    failures: list[object] = []
    delivered = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal delivered
        delivered += 1
        if error is not None:
            failures.append(error)

    with behind_a_proxy(cut_rate=0.03) as (cluster, proxy):
        topic = new_topic(cluster.bootstrap, "once", PARTITIONS)
        producer = ConfluentProducer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "queue.buffering.max.messages": 10_000,
                "log_level": 0,
                "error_cb": lambda error: failures.append(error) if error.fatal() else None,
            }
        )
        killed = 0
        for number in range(count):
            while True:
                try:
                    producer.produce(
                        topic,
                        value=b"%d" % (number // PARTITIONS),
                        partition=number % PARTITIONS,
                        on_delivery=on_delivery,
                    )
                except BufferError:
                    producer.poll(0.05)
                else:
                    break
            producer.poll(0)
            if killed < kills and delivered >= (killed + 1) * count // (kills + 1):
                cluster.kill(1)
                cluster.start(1)
                killed += 1
        assert producer.flush(60) == 0
        assert failures == []
        assert killed == kills
        assert proxy.cuts > 20, "the run proved little"
        cluster.wait_ready()
        for partition in range(PARTITIONS):
            found = values_on_disk(cluster, topic, partition)
            assert found == list(range(count // PARTITIONS)), f"partition {partition}"
            batches = stored.batches(cluster, topic, partition)
            assert batches[-1].next_offset == len(found)


@pytest.mark.parametrize("name", ["kafka_python", "aiokafka"])
def test_the_other_clients_messages_land_once_and_in_order(name: str) -> None:
    count = 4000
    with behind_a_proxy(cut_rate=0.1) as (cluster, proxy):
        topic = new_topic(cluster.bootstrap, name)
        address = f"127.0.0.1:{proxy.port}"
        with Closing(client_of(name).producer(address, idempotent=True)) as producer:
            for begin in range(0, count, 100):
                producer.send(
                    Message(topic=topic, value=b"%d" % number)
                    for number in range(begin, begin + 100)
                )
                if begin % 2000 == 0:
                    cluster.kill(1)
                    cluster.start(1)
        assert proxy.cuts > 5, "the run proved little"
        cluster.wait_ready()
        assert values_on_disk(cluster, topic, 0) == list(range(count))


def test_historic_messages_land_once() -> None:
    """A producer expired by what its records say: with timestamps of a year ago at the next look
    for silent producers, and at a start. What it had not heard of then landed twice."""
    count = 1000
    looks = {"producer.id.expiration.check.interval.ms": "20"}
    year_ago_ms = int(time.time() * 1000) - 365 * 24 * 3_600_000
    with behind_a_proxy(cut_rate=0.1, config=looks) as (cluster, proxy):
        topic = new_topic(cluster.bootstrap, "historic", retention_ms="-1")
        producer = ConfluentProducer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 10,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        for number in range(count):
            producer.produce(topic, value=b"%d" % number, timestamp=year_ago_ms + number)
            producer.poll(0)
            if number == count // 2:
                cluster.kill(1)
                cluster.start(1)
        assert producer.flush(60) == 0
        assert proxy.cuts > 5, "the run proved little"
        cluster.wait_ready()
        assert values_on_disk(cluster, topic, 0) == list(range(count))


def test_librdkafka_is_refused_transactions_at_once(shared: Cluster) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": shared.bootstrap, "transactional.id": "refused", "log_level": 0}
    )
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(60)
    error = raised.value.args[0]
    assert error.fatal()
    assert error.code() == Error.CLUSTER_AUTHORIZATION_FAILED
    assert "does not support transactions" in error.str()


def test_kafka_python_is_refused_transactions_at_once(shared: Cluster) -> None:
    producer = KafkaProducer(bootstrap_servers=shared.bootstrap, transactional_id="refused")
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):
        producer.init_transactions()
    producer.close(1)


def test_aiokafka_is_refused_transactions_at_once(shared: Cluster) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=shared.bootstrap, transactional_id="refused")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioKafkaError, match="ClusterAuthorizationFailed"):
        asyncio.run(asyncio.wait_for(start(), 60))
