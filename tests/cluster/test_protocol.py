"""Versions old and new, metadata, automatic creation and long polls, as clients rely on them.

Method: raw connections that speak every version that the broker offers, and clients told to
behave like old ones.
"""

import select
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as ConfluentProducer

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.connection import Connection
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.testing import Cluster
from ottla.wire.frames import decode_response
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from .clients import Client, Closing, Message, client_of, eventually, produce, read_partition
from .conftest import QUICK, MakeTopic, known, new_name
from .raw import SECONDS, answer_to, answered, connect, encoded, port_of

LONG_MS = 60_000
BETWEEN_NODES = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 73}
"""Keys of what brokers and controllers say to each other."""

FETCH_VERSION = 12
"""The newest that names topics."""


@pytest.fixture
def broker(shared: Cluster) -> Iterator[Connection]:
    with Connection("127.0.0.1", port_of(shared), client_id="test", timeout=SECONDS) as opened:
        yield opened


def batch(*values: bytes) -> bytes:
    now_ms = int(time.time() * 1000)
    return encode_batch([(None, value, (), now_ms) for value in values])


def metadata(broker: Connection, *names: str, version: int | None = None) -> MetadataResponse:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=True,
    )
    return broker.ask(request, MetadataResponse, timeout=SECONDS, version=version)


def topic_id(broker: Connection, name: str) -> Uuid:
    return metadata(broker, name).topics[0].topic_id


def fetch_request(
    topic: str = "",
    id_: Uuid = NO_UUID,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=10 << 20,
        topics=(FetchTopic(topic=topic, topic_id=id_, partitions=(partition,)),),
    )


def fetched(frame: bytes | None) -> tuple[int, list[bytes | None]]:
    """Return the error and the values of the one partition of a fetch's answer."""
    assert frame is not None
    _, answer = decode_response(FetchResponse, frame, FETCH_VERSION)
    assert answer.error_code == Error.NONE
    partition = answer.responses[0].partitions[0]
    return partition.error_code, values_of(partition.records)


def values_of(records: Any) -> list[bytes | None]:
    return [each.value for each in iter_records(records or b"")]


# -- versions ------------------------------------------------------------------------------------


def test_api_versions_says_the_same_in_every_version(shared: Cluster) -> None:
    found = []
    for version in range(5):
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        frame = answer_to(shared, encoded(request, version))
        assert frame is not None
        _, answer = decode_response(ApiVersionsResponse, frame, version)
        assert answer.error_code == Error.NONE
        keys = answer.api_keys
        found.append([(each.api_key, each.min_version, each.max_version) for each in keys])
    assert found == [found[0]] * 5
    offered = {each[0] for each in found[0]}
    assert offered >= {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23}
    assert not offered & BETWEEN_NODES


def test_client_names_that_break_the_rules_are_refused(shared: Cluster) -> None:
    request = ApiVersionsRequest(client_software_name="<script>", client_software_version="1")
    frame = answer_to(shared, encoded(request, 3))
    assert frame is not None
    assert decode_response(ApiVersionsResponse, frame, 3)[1].error_code == Error.INVALID_REQUEST


def test_produce_and_fetch_in_every_version(broker: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic()
    id_ = topic_id(broker, topic)
    expected: list[bytes | None] = []
    for version in range(3, broker.versions[0][-1] + 1):
        value = b"in version %d" % version
        data = (PartitionProduceData(index=0, records=batch(value)),)
        by_id = version >= 13
        named = TopicProduceData(
            name="" if by_id else topic, topic_id=id_ if by_id else NO_UUID, partition_data=data
        )
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(named,))
        answer = broker.ask(request, ProduceResponse, timeout=SECONDS, version=version)
        partition = answer.responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (Error.NONE, len(expected))
        expected.append(value)
    for version in range(4, broker.versions[1][-1] + 1):
        by_id = version >= 13
        request_ = fetch_request("" if by_id else topic, id_ if by_id else NO_UUID)
        answer_ = broker.ask(request_, FetchResponse, timeout=SECONDS, version=version)
        found = answer_.responses[0].partitions[0]
        assert values_of(found.records) == expected
        assert found.high_watermark == len(expected)


def test_list_offsets_in_every_version(broker: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for version in range(1, broker.versions[2][-1] + 1):
        for timestamp in (-1, -2):
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = (ListOffsetsTopic(name=topic, partitions=(partition,)),)
            request = ListOffsetsRequest(replica_id=-1, topics=topics)
            answer = broker.ask(request, ListOffsetsResponse, timeout=SECONDS, version=version)
            found = answer.topics[0].partitions[0]
            assert (found.error_code, found.offset) == (Error.NONE, 0)


@pytest.mark.parametrize("version", [(0, 11), (1, 0), (2, 1), (2, 8), (3, 9)])
def test_kafka_python_as_an_old_client(
    version: tuple[int, int], shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=shared.bootstrap, api_version=version)
    assert producer.send(topic, b"value").get(30).offset == 0
    producer.close(5)
    consumer = KafkaConsumer(
        bootstrap_servers=shared.bootstrap, api_version=version, auto_offset_reset="earliest"
    )
    consumer.assign([KafkaPythonPartition(topic, 0)])
    records = eventually(lambda: consumer.poll(200), what="the record")
    assert [each.value for each in records[KafkaPythonPartition(topic, 0)]] == [b"value"]
    consumer.close()


@pytest.mark.parametrize("version", ["0.11.0", "2.0.0"])
def test_librdkafka_that_does_not_ask_for_versions(
    version: str, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    config = {
        "bootstrap.servers": shared.bootstrap,
        "api.version.request": False,
        "broker.version.fallback": version,
        "log_level": 0,
    }
    producer = ConfluentProducer(config)
    producer.produce(topic, value=b"value")
    assert producer.flush(30) == 0
    consumer = ConfluentConsumer({**config, "group.id": new_name("old")})
    consumer.subscribe([topic])
    consumer.close()
    records = read_partition(client_of("confluent"), shared.bootstrap, topic, 1)
    assert [each.value for each in records] == [b"value"]


# -- metadata ------------------------------------------------------------------------------------


def test_metadata_of_all_of_none_and_of_unknown_topics(
    broker: Connection, make_topic: MakeTopic
) -> None:
    topic, unknown = make_topic(2), new_name("unknown")
    for version in range(broker.versions[3][-1] + 1):
        everything = MetadataRequest(topics=() if version == 0 else None)
        answer = broker.ask(everything, MetadataResponse, timeout=SECONDS, version=version)
        assert topic in {each.name for each in answer.topics}
        assert [each.node_id for each in answer.brokers] == [1]
        if version > 0:
            assert metadata(broker, version=version).topics == ()
        found = metadata(broker, topic, unknown, version=version).topics
        assert [(each.name, each.error_code) for each in found] == [
            (topic, Error.NONE),
            (unknown, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert [each.leader_id for each in found[0].partitions] == [1, 1]


def test_metadata_by_id(broker: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic()
    ids = (topic_id(broker, topic), Uuid(b"\x07" * 16))
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=each, name=None) for each in ids)
    )
    found = broker.ask(request, MetadataResponse, timeout=SECONDS).topics
    assert [(each.name, each.error_code) for each in found] == [
        (topic, Error.NONE),
        (None, Error.UNKNOWN_TOPIC_ID),
    ]


# -- topics that do not exist ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def creating() -> Iterator[Cluster]:
    config = QUICK | {"auto.create.topics.enable": "true", "num.partitions": "3"}
    with Cluster(brokers=1, config=config) as cluster:
        yield cluster


def test_producing_creates_a_topic_where_that_is_on(client: Client, creating: Cluster) -> None:
    topic = new_name("created")
    messages = [Message(topic=topic, partition=2, value=b"first")]
    assert produce(client, creating.bootstrap, messages) == [0]
    with Closing(client.admin(creating.bootstrap)) as admin:
        assert admin.partitions(topic) == [0, 1, 2]


def test_asking_creates_nothing_where_the_client_forbids(creating: Cluster) -> None:
    topic = new_name("forbidden")
    with Connection("127.0.0.1", port_of(creating), client_id="t", timeout=SECONDS) as broker:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
        )
        for _ in range(3):
            found = broker.ask(request, MetadataResponse, timeout=SECONDS).topics
            assert found[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_impossible_names_are_not_created(creating: Cluster) -> None:
    with Connection("127.0.0.1", port_of(creating), client_id="t", timeout=SECONDS) as broker:
        found = metadata(broker, "no spaces").topics
        assert found[0].error_code == Error.INVALID_TOPIC_EXCEPTION


def test_nothing_is_created_where_that_is_off(broker: Connection, shared: Cluster) -> None:
    topic = new_name("off")
    for _ in range(3):
        error = metadata(broker, topic).topics[0].error_code
        assert error == Error.UNKNOWN_TOPIC_OR_PARTITION
    data = (PartitionProduceData(index=0, records=batch(b"x")),)
    topics = (TopicProduceData(name=topic, partition_data=data),)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    answer = broker.ask(request, ProduceResponse, timeout=SECONDS, version=9)
    error = answer.responses[0].partition_responses[0].error_code
    assert error == Error.UNKNOWN_TOPIC_OR_PARTITION
    frame = answer_to(shared, encoded(fetch_request(topic), FETCH_VERSION))
    assert fetched(frame) == (Error.UNKNOWN_TOPIC_OR_PARTITION, [])


def test_a_subscriber_of_an_unknown_topic_is_told_and_sees_it_once_it_is_there(
    shared: Cluster,
) -> None:
    topic = new_name("later")
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": shared.bootstrap,
            "group.id": new_name("early"),
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
    )
    with Closing(consumer):
        consumer.subscribe([topic])
        message = eventually(lambda: consumer.poll(0.2), lambda found: found is not None)
        assert message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        with Closing(client_of("confluent").admin(shared.bootstrap)) as admin:
            admin.create_topic(topic)
            eventually(lambda: known(admin, topic), what="the topic to be known")
        produce(client_of("confluent"), shared.bootstrap, [Message(topic=topic, value=b"x")])

        def value() -> bytes | None:
            found = consumer.poll(0.2)
            return None if found is None or found.error() else found.value()

        assert eventually(value, what="the record") == b"x"


# -- long polls ----------------------------------------------------------------------------------


def test_a_fetch_waits_for_the_first_record(shared: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with connect(shared) as raw:
        raw.sendall(encoded(fetch_request(topic, max_wait_ms=LONG_MS), FETCH_VERSION))
        assert select.select([raw], [], [], 0.2)[0] == []
        produce(client_of("confluent"), shared.bootstrap, [Message(topic=topic, value=b"x")])
        assert fetched(answered(raw, b"")) == (Error.NONE, [b"x"])


def test_a_fetch_waits_for_min_bytes(shared: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    request = fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=20_000)
    messages = [Message(topic=topic, value=b"x" * 9000)]
    with connect(shared) as raw:
        raw.sendall(encoded(request, FETCH_VERSION))
        for _ in range(2):
            produce(client_of("confluent"), shared.bootstrap, messages)
            assert select.select([raw], [], [], 0.2)[0] == []
        produce(client_of("confluent"), shared.bootstrap, messages)
        error, values = fetched(answered(raw, b""))
        assert (error, len(values)) == (Error.NONE, 3)


def test_a_fetch_waits_no_longer_than_max_wait(shared: Cluster, make_topic: MakeTopic) -> None:
    request = fetch_request(make_topic(), max_wait_ms=300, min_bytes=1)
    assert fetched(answer_to(shared, encoded(request, FETCH_VERSION))) == (Error.NONE, [])


def test_a_fetch_that_waits_hears_of_the_topics_end(shared: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with connect(shared) as raw:
        raw.sendall(encoded(fetch_request(topic, max_wait_ms=LONG_MS), FETCH_VERSION))
        with Closing(client_of("confluent").admin(shared.bootstrap)) as admin:
            admin.delete_topic(topic)
        error, values = fetched(answered(raw, b""))
        assert error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER)
        assert values == []


def test_what_comes_after_a_waiting_fetch_waits_too(shared: Cluster, make_topic: MakeTopic) -> None:
    """Answers keep the order of their requests on a connection."""
    topic = make_topic()
    with connect(shared) as raw:
        raw.sendall(encoded(fetch_request(topic, max_wait_ms=LONG_MS), FETCH_VERSION))
        raw.sendall(encoded(ApiVersionsRequest(), 0, correlation_id=2))
        assert select.select([raw], [], [], 0.2)[0] == []
        produce(client_of("confluent"), shared.bootstrap, [Message(topic=topic, value=b"x")])
        assert fetched(answered(raw, b"")) == (Error.NONE, [b"x"])
        second = answered(raw, b"")
        assert second is not None
        assert second[:4] == b"\x00\x00\x00\x02"
