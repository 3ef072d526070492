"""What one client writes, every client reads: keys, values, headers, timestamps, compression.

Method: a broker that all tests share; each body runs with each library as the writer, and the
two others read what it wrote. What is on disk is read too, since a broker that recompressed or
rewrote batches would still satisfy every reader.
"""

import pytest

from ottla.base.errors import Error
from ottla.records.batch import CREATE_TIME, LOG_APPEND_TIME
from ottla.records.compression import Codec
from ottla.testing import Cluster

from . import stored
from .clients import (
    COMPRESSIONS,
    NAMES,
    Client,
    Closing,
    Message,
    Record,
    Refused,
    client_of,
    produce,
    read_partition,
)
from .conftest import MakeTopic

TEN_MEGABYTES = 10 * 1024 * 1024
ROOM = 12 * 1024 * 1024


def content(records: list[Record]) -> list[tuple[object, ...]]:
    """Return what a reader must see of each record, whichever library it uses."""
    return [(each.offset, each.key, each.value, each.headers) for each in records]


def expected(messages: list[Message]) -> list[tuple[object, ...]]:
    """Return what readers must see of the messages of a whole partition."""
    return [(offset, each.key, each.value, each.headers) for offset, each in enumerate(messages)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_is_stored_as_sent_and_read_by_all(
    client: Client, compression: str, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    messages = [
        Message(topic=topic, key=b"key-%d" % index, value=b"value %d " % index * 50)
        for index in range(200)
    ]
    offsets = produce(client, shared.bootstrap, messages, compression=compression, linger_ms=50)
    assert offsets == list(range(200))
    codecs = {each.compression for each in stored.batches(shared, topic)}
    assert codecs == {Codec[compression.upper()]}
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, 200)
        assert content(records) == expected(messages), reader


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
def test_a_topic_with_its_own_compression_stores_that(
    client: Client, compression: str, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(compression_type=compression)
    messages = [Message(topic=topic, value=b"value %d " % index * 50) for index in range(50)]
    produce(client, shared.bootstrap, messages, linger_ms=50)
    codecs = {each.compression for each in stored.batches(shared, topic)}
    assert codecs == {Codec[compression.upper()]}
    records = read_partition(client, shared.bootstrap, topic, 50)
    assert content(records) == expected(messages)


def test_null_and_empty_are_distinguished(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    messages = [
        Message(topic=topic, key=b"key", value=None),
        Message(topic=topic, key=b"key", value=b""),
        Message(topic=topic, key=None, value=b"value"),
        Message(topic=topic, key=b"", value=b"value"),
        Message(topic=topic, key=None, value=b""),
        Message(topic=topic, key=b"", value=b""),
        Message(topic=topic, key=b"", value=None),
        Message(topic=topic, key=b"\x00\xff", value=b"\x00" * 10),
    ]
    produce(client, shared.bootstrap, messages)
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, len(messages))
        assert content(records) == expected(messages), reader


def test_a_record_may_lack_key_and_value(shared: Cluster, make_topic: MakeTopic) -> None:
    """Only librdkafka sends such; the others must read them."""
    topic = make_topic()
    messages = [Message(topic=topic)] * 3
    produce(client_of("confluent"), shared.bootstrap, messages)
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, 3)
        assert content(records) == expected(messages), reader


def test_headers_keep_order_duplicates_and_nulls(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    # kafka-python writes no null values in headers; it must read those of the others.
    nothing = b"" if client.NAME == "kafka_python" else None
    messages = [
        Message(topic=topic, value=b"1", headers=(("a", b"1"), ("b", b""), ("a", b"2"))),
        Message(topic=topic, value=b"2", headers=(("null", nothing), ("", b"no name"))),
        Message(topic=topic, value=b"3", headers=(("größe", b"\x00\xff"),) * 100),
        Message(topic=topic, value=b"4"),
    ]
    produce(client, shared.bootstrap, messages)
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, len(messages))
        assert content(records) == expected(messages), reader


def test_ten_megabytes_pass_where_the_topic_allows(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes=str(ROOM))
    value = bytes(range(256)) * (TEN_MEGABYTES // 256)
    messages = [Message(topic=topic, value=value), Message(topic=topic, value=b"small")]
    produce(client, shared.bootstrap, messages, max_bytes=ROOM)
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, 2, max_bytes=ROOM)
        assert content(records) == expected(messages), reader


def test_ten_megabytes_reach_readers_that_ask_for_less(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    """A reader with small limits still gets the first batch whole (KIP-74)."""
    topic = make_topic(max_message_bytes=str(ROOM))
    produce(
        client_of("confluent"),
        shared.bootstrap,
        [Message(topic=topic, value=b"x" * TEN_MEGABYTES), Message(topic=topic, value=b"y")],
        max_bytes=ROOM,
    )
    records = read_partition(client, shared.bootstrap, topic, 2, max_bytes=1000)
    assert [len(each.value or b"") for each in records] == [TEN_MEGABYTES, 1]


def test_what_is_larger_than_the_topic_allows_is_refused(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="10000")
    with Closing(client.producer(shared.bootstrap, max_bytes=ROOM)) as producer:
        assert producer.send([Message(topic=topic, value=b"x" * 9000)]) == [0]
        with pytest.raises(Refused) as refused:
            producer.send([Message(topic=topic, value=b"x" * 20_000)])
        assert refused.value.code == Error.MESSAGE_TOO_LARGE
        assert producer.send([Message(topic=topic, value=b"after")]) == [1]


def test_timestamps_are_the_producers(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    times = [1_600_000_000_000, 1_600_000_000_123, 1_500_000_000_000, 1]
    messages = [Message(topic=topic, value=b"x", timestamp_ms=each) for each in times]
    produce(client, shared.bootstrap, messages)
    assert {each.timestamp_type for each in stored.batches(shared, topic)} == {CREATE_TIME}
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, len(times))
        assert [each.timestamp_ms for each in records] == times, reader
        assert {each.timestamp_type for each in records} == {CREATE_TIME}, reader


def test_timestamps_are_the_brokers_where_the_topic_says_so(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    messages = [
        Message(topic=topic, value=b"x", timestamp_ms=1_600_000_000_000 + i) for i in (1, 2)
    ]
    produce(client, shared.bootstrap, messages, linger_ms=50)
    times = [
        each.max_timestamp
        for each in stored.batches(shared, topic)
        for _ in range(each.record_count)
    ]
    assert min(times) > 1_700_000_000_000
    for reader in NAMES:
        records = read_partition(client_of(reader), shared.bootstrap, topic, 2)
        assert [each.timestamp_ms for each in records] == times, reader
        assert {each.timestamp_type for each in records} == {LOG_APPEND_TIME}, reader


def test_timestamps_too_far_from_the_brokers_clock_are_refused(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(message_timestamp_before_max_ms="60000")
    with Closing(client.producer(shared.bootstrap)) as producer:
        assert producer.send([Message(topic=topic, value=b"now")]) == [0]
        with pytest.raises(Refused) as refused:
            producer.send([Message(topic=topic, value=b"old", timestamp_ms=1_600_000_000_000)])
        assert refused.value.code == Error.INVALID_TIMESTAMP


def test_compacted_topics_refuse_records_without_keys(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(cleanup_policy="compact")
    with Closing(client.producer(shared.bootstrap)) as producer:
        assert producer.send([Message(topic=topic, key=b"k", value=b"v")]) == [0]
        with pytest.raises(Refused) as refused:
            producer.send([Message(topic=topic, value=b"no key")])
        # aiokafka does not know this code, which is newer than its list.
        unknown = client.NAME == "aiokafka"
        expected_code = Error.UNKNOWN_SERVER_ERROR if unknown else Error.INVALID_RECORD
        assert refused.value.code == expected_code


def test_partitions_number_their_records_apart(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    messages = [Message(topic=topic, partition=i % 3, value=b"%d" % i) for i in range(30)]
    assert produce(client, shared.bootstrap, messages) == [i // 3 for i in range(30)]
    for partition in range(3):
        records = read_partition(client, shared.bootstrap, topic, 10, partition=partition)
        assert [each.value for each in records] == [b"%d" % i for i in range(partition, 30, 3)]
