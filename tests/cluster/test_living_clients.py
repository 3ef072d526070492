"""Clients that live while a topic goes and is made again use the new one, and read all of it.

They know the former topic's leader epochs, and librdkafka takes any smaller one for stale whatever
id the topic has (KAFKA-12257): it would send to a leader of the past, for ever.

Method: elections raise the former topic's epoch, records take its log to some offset; then it is
deleted and made again under producers and consumers of two libraries, which are told nothing.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from ottla.base.errors import Error

from .clients import Closing, eventually
from .conftest import NewCluster
from .deletions import MODES, PATIENCE_SECONDS, Site, site_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240), pytest.mark.forms(1)]

NAME = "made-again"
ELECTIONS = 4
FORMER, NEW = [b"former %d" % number for number in range(7)], [b"new %d" % n for n in range(10)]


@pytest.fixture(params=MODES, ids=["kraft", "zookeeper"])
def site(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster, 2) as site:
        yield site


def leader_epoch(site: Site) -> int:
    """Return what each broker says once it knows who leads."""
    epochs = eventually(
        lambda: [
            [each.leader_epoch for each in site.described(NAME, node=n).partitions] for n in (1, 2)
        ],
        lambda found: found[0] == found[1] != [],
        within=PATIENCE_SECONDS,
        what="both brokers to know the topic",
    )
    return int(epochs[0][0])


def elect(site: Site) -> None:
    """Let the partition's leaders take turns; each turn raises the epoch."""
    partition = TopicPartition(NAME, 0)
    with Closing(KafkaAdminClient(bootstrap_servers=site.cluster.bootstrap)) as admin:
        for turn in range(ELECTIONS):
            replicas = [2, 1] if turn % 2 == 0 else [1, 2]
            admin.alter_partition_reassignments({partition: replicas})
            admin.elect_leaders(0, {NAME: [0]})
            eventually(
                lambda: [each.leader_id for each in site.described(NAME).partitions],
                [replicas[0]].__eq__,
                within=PATIENCE_SECONDS,
                what=f"{replicas[0]} to lead",
            )


def produce(producer: Producer, values: list[bytes]) -> list[tuple[KafkaError | None, int]]:
    reports: list[tuple[KafkaError | None, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        reports.append((error, message.offset()))

    for value in values:
        producer.produce(NAME, value, partition=0, on_delivery=delivered)
    producer.flush(PATIENCE_SECONDS)
    return reports


def confluent_values(consumer: Consumer, count: int) -> list[bytes]:
    """Read so many records; errors of a topic that is gone or moves are the client's to bear."""
    found: list[bytes] = []

    def read() -> int:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found)

    eventually(read, lambda read: read >= count, within=PATIENCE_SECONDS, what=f"{count} records")
    return found


def kafka_python_values(consumer: KafkaConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def read() -> int:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value for record in records)
        return len(found)

    eventually(read, lambda read: read >= count, within=PATIENCE_SECONDS, what=f"{count} records")
    return found


def test_producers_and_consumers_go_on_with_the_topic_that_is_made_anew(site: Site) -> None:
    error, _ = site.try_create(NAME, (1, 2))
    assert error is Error.NONE
    elect(site)
    former = leader_epoch(site)
    assert former >= ELECTIONS
    bootstrap = site.cluster.bootstrap
    with Closing(
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1_000,
            }
        ),
        KafkaProducer(bootstrap_servers=bootstrap, acks="all"),
        KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=1_000
        ),
    ) as (confluent_reader, kafka_python_writer, kafka_python_reader):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        confluent_reader.assign([ConfluentPartition(NAME, 0, 0)])
        kafka_python_reader.assign([TopicPartition(NAME, 0)])
        assert produce(producer, FORMER) == [(None, offset) for offset in range(len(FORMER))]
        kafka_python_writer.send(NAME, b"former", partition=0).get(PATIENCE_SECONDS)
        for values in (
            confluent_values(confluent_reader, len(FORMER) + 1),
            kafka_python_values(kafka_python_reader, len(FORMER) + 1),
        ):
            assert values == [*FORMER, b"former"]

        assert site.delete(NAME) is Error.NONE
        eventually(
            lambda: site.try_create(NAME, (1, 2))[0],
            Error.NONE.__eq__,
            within=PATIENCE_SECONDS,
            what="the name to be free",
        )
        assert leader_epoch(site) > former
        assert produce(producer, NEW) == [(None, offset) for offset in range(len(NEW))]
        sent = kafka_python_writer.send(NAME, b"new", partition=0).get(PATIENCE_SECONDS)
        assert sent.offset == len(NEW)
        assert confluent_values(confluent_reader, len(NEW) + 1) == [*NEW, b"new"]
        assert kafka_python_values(kafka_python_reader, len(NEW) + 1) == [*NEW, b"new"]
