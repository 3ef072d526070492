"""Where consumers begin and jump to: seeks, resets, times, deleted records, long polls.

Method: the shared broker, each body with each library.
"""

import pytest

from ottla.base.errors import Error
from ottla.testing import Cluster

from . import stored
from .clients import (
    Client,
    Closing,
    Message,
    Refused,
    client_of,
    eventually,
    produce,
    read,
)
from .conftest import MakeTopic, new_name

START_MS = 1_600_000_000_000


def filled(make_topic: MakeTopic, cluster: Cluster, count: int = 100, **config: str) -> str:
    """Return a topic whose record `i` has the value `i` and the time START_MS + 10 i."""
    topic = make_topic(**config)
    messages = [
        Message(topic=topic, value=b"%d" % i, timestamp_ms=START_MS + 10 * i) for i in range(count)
    ]
    # Several batches, so that what is looked for lies in the middle of the log and of a batch.
    for begin in range(0, count, 10):
        produce(client_of("confluent"), cluster.bootstrap, messages[begin : begin + 10])
    return topic


def test_seek_by_offset(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, shared)
    with Closing(client.consumer(shared.bootstrap)) as consumer:
        consumer.assign([(topic, 0)])
        assert [each.offset for each in read(consumer, 100)] == list(range(100))
        for offset in (95, 0, 42):
            consumer.seek((topic, 0), offset)
            records = read(consumer, 100 - offset)
            assert [each.offset for each in records] == list(range(offset, 100))


def test_seek_by_time(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, shared)
    with Closing(client.consumer(shared.bootstrap)) as consumer:
        consumer.assign([(topic, 0)])
        partition = (topic, 0)
        assert consumer.offset_for_time(partition, 0) == 0
        assert consumer.offset_for_time(partition, START_MS) == 0
        assert consumer.offset_for_time(partition, START_MS + 1) == 1
        assert consumer.offset_for_time(partition, START_MS + 420) == 42
        assert consumer.offset_for_time(partition, START_MS + 990) == 99
        assert consumer.offset_for_time(partition, START_MS + 991) is None
        consumer.seek(partition, consumer.offset_for_time(partition, START_MS + 951) or -1)
        assert [each.value for each in read(consumer, 4)] == [b"96", b"97", b"98", b"99"]


def test_watermarks(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Closing(client.consumer(shared.bootstrap)) as consumer:
        assert consumer.watermarks((topic, 0)) == (0, 0)
        produce(client, shared.bootstrap, [Message(topic=topic, value=b"x")] * 7)
        assert consumer.watermarks((topic, 0)) == (0, 7)


def test_reset_to_the_earliest(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, shared, 10)
    group = new_name("earliest")
    with Closing(client.consumer(shared.bootstrap, group=group, reset="earliest")) as consumer:
        consumer.subscribe([topic])
        assert [each.offset for each in read(consumer, 10)] == list(range(10))


def test_reset_to_the_latest(client: Client, shared: Cluster, make_topic: MakeTopic) -> None:
    topic = filled(make_topic, shared, 10)
    with (
        Closing(client.consumer(shared.bootstrap, reset="latest")) as consumer,
        Closing(client.producer(shared.bootstrap)) as producer,
    ):
        consumer.assign([(topic, 0)])

        def send_and_poll() -> list[int]:
            # Where "latest" is, is decided some time after the first poll.
            producer.send([Message(topic=topic, value=b"new")])
            return [each.offset for each in consumer.poll(0.3)]

        offsets = eventually(send_and_poll, what="a record after the end")
        assert offsets[0] >= 10


def test_an_offset_beyond_the_end_resets(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = filled(make_topic, shared, 10)
    with Closing(client.consumer(shared.bootstrap, reset="earliest")) as consumer:
        consumer.assign([(topic, 0)])
        read(consumer, 10)
        consumer.seek((topic, 0), 1000)
        assert [each.offset for each in read(consumer, 10)] == list(range(10))


def test_deleted_records_are_gone_for_readers(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = filled(make_topic, shared, 50)
    with Closing(client.admin(shared.bootstrap)) as admin:
        assert admin.delete_records((topic, 0), 33) == 33
        with pytest.raises(Refused) as refused:
            admin.delete_records((topic, 0), 51)
        assert refused.value.code == Error.OFFSET_OUT_OF_RANGE
    with Closing(client.consumer(shared.bootstrap, reset="earliest")) as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.watermarks((topic, 0)) == (33, 50)
        assert [each.offset for each in read(consumer, 17)] == list(range(33, 50))
        consumer.seek((topic, 0), 5)
        assert [each.offset for each in read(consumer, 17)] == list(range(33, 50))
        assert consumer.offset_for_time((topic, 0), START_MS) == 33


def test_many_segments_read_as_one_log(
    client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic(segment_bytes=str(1 << 20))
    messages = [Message(topic=topic, value=b"%06d" % i * 10_000) for i in range(100)]
    for begin in range(0, 100, 5):
        produce(client, shared.bootstrap, messages[begin : begin + 5])
    assert len(stored.segments(shared, topic)) > 4
    with Closing(client.consumer(shared.bootstrap)) as consumer:
        consumer.assign([(topic, 0)])
        assert [each.value for each in read(consumer, 100)] == [each.value for each in messages]
        consumer.seek((topic, 0), 37)
        assert [each.offset for each in read(consumer, 63)] == list(range(37, 100))
