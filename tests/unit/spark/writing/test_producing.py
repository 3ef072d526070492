"""Acknowledged rows must be in the log once, in order, whatever the network does to answers.

Method: a fake broker that checks sequence numbers and drops or refuses requests; hypothesis over
faults and sizes; the log is compared with the rows.
"""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.client.cluster import ClusterClient
from ottla.records.batch import iter_headers
from ottla.records.record import iter_records
from ottla.spark.errors import WriteError
from ottla.spark.writing.producer_identities import Identities
from ottla.spark.writing.producing import RawProducer
from ottla.spark.writing.write_options import WriteOptions
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import ProduceRequest
from tests.drawn import examples
from tests.unit.spark.fake_broker import DROP, LEAVE_OUT, TOPIC, FakeBroker, Log


def options(broker: FakeBroker, **changes: Any) -> WriteOptions:
    raw = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "kafka.retry.backoff.ms": "1"}
    return WriteOptions.of(raw | changes)


def table(values: list[bytes]) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def stored(log: Log) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(log.data))]


FAULTS = st.lists(
    st.sampled_from([0, DROP, LEAVE_OUT, Error.NOT_LEADER_OR_FOLLOWER, Error.NOT_ENOUGH_REPLICAS]),
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None)
@given(FAULTS, st.lists(st.lists(st.binary(max_size=60), max_size=30), max_size=4))
def test_each_row_once(faults: list[int], writes: list[list[bytes]]) -> None:
    with FakeBroker(partitions=2) as broker, ClusterClient(broker.options()) as client:
        broker.faults[ProduceRequest].extend(faults)
        chosen = options(broker, **{"kafka.batch.size": "200"})
        producer = RawProducer(client, chosen)
        for rows in writes:
            if rows:
                producer.write({(TOPIC, 0): table(rows), (TOPIC, 1): table(rows[::-1])})
        assert stored(broker.logs[0]) == [value for rows in writes for value in rows]
        assert stored(broker.logs[1]) == [value for rows in writes for value in rows[::-1]]
        assert producer.written == 2 * sum(map(len, writes))


def test_sequences_go_on() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        producer = RawProducer(client, options(broker))
        producer.write({(TOPIC, 0): table([b"a"] * 3)})
        producer.write({(TOPIC, 0): table([b"b"] * 2)})
        headers = [header for _, header in iter_headers(broker.logs[0].data)]
        assert [header.base_sequence for header in headers] == [0, 3]
        assert {header.producer_id for header in headers} == {99}
        assert broker.count(InitProducerIdRequest) == 1


def identified(client: ClusterClient, broker: FakeBroker, identities: Identities) -> RawProducer:
    """Return a producer that has looked its topic up, as a task does."""
    producer = RawProducer(client, options(broker), identities)
    producer.partition_count(TOPIC)
    return producer


def test_a_cluster_created_again_with_its_id_gets_no_kept_producer_id() -> None:
    """It gives out the same producer ids again: rows would look like another's duplicates."""
    identities = Identities()
    for topic_id, value in ((b"i", b"a"), (b"j", b"b")):
        with FakeBroker() as broker, ClusterClient(broker.options()) as client:
            broker.cluster_id, broker.topic_id = "c", Uuid(topic_id * 16)
            others = RawProducer(client, options(broker), Identities())
            for _ in range(2):
                others.write({(TOPIC, 0): table([b"x"])})
            broker.received.clear()  # The next producer id is the same one again.
            broker.logs[0].last.clear()
            for _ in range(2):
                producer = identified(client, broker, identities)
                producer.write({(TOPIC, 0): table([value])})
                producer.finish()
            assert stored(broker.logs[0]) == [b"x", b"x", value, value]
            assert broker.count(InitProducerIdRequest) == 1


def test_the_next_task_continues_with_the_producer_id_of_one_that_ended_well() -> None:
    identities = Identities()
    with FakeBroker(partitions=2) as broker, ClusterClient(broker.options()) as client:
        broker.cluster_id = "c"
        for number in range(3):
            producer = identified(client, broker, identities)
            producer.write({(TOPIC, number % 2): table([b"a"] * 2)})
            producer.finish()
        assert broker.count(InitProducerIdRequest) == 1
        headers = [header for _, header in iter_headers(broker.logs[0].data)]
        assert [header.base_sequence for header in headers] == [0, 2]
        # One that fails leaves its id: a batch of it may come late.
        broker.faults[ProduceRequest].append(Error.INVALID_RECORD)
        with pytest.raises(WriteError):
            identified(client, broker, identities).write({(TOPIC, 0): table([b"b"])})
        # Two at a time do not share one, nor do two clusters.
        first, second = (identified(client, broker, identities) for _ in range(2))
        for producer in (first, second):
            producer.write({(TOPIC, 0): table([b"c"])})
        first.finish()
        with ClusterClient(broker.options()) as elsewhere:
            broker.cluster_id = "d"
            third = identified(elsewhere, broker, identities)
            third.write({(TOPIC, 0): table([b"d"])})
        ids = [header.producer_id for _, header in iter_headers(broker.logs[0].data)]
        assert ids == [99, 99, 100, 101, 102]
        assert stored(broker.logs[0]) == [b"a"] * 4 + [b"c", b"c", b"d"]


def test_without_idempotence() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        producer = RawProducer(client, options(broker, **{"kafka.acks": "1"}))
        producer.write({(TOPIC, 0): table([b"a"])})
        ((_, header),) = iter_headers(broker.logs[0].data)
        assert (header.producer_id, header.base_sequence) == (-1, -1)
        assert broker.count(InitProducerIdRequest) == 0


def test_batches_that_a_topic_does_not_take_are_split() -> None:
    values = [b"%03d" % number * 20 for number in range(100)]
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.batch_bytes_max = 300
        producer = RawProducer(client, options(broker))
        producer.write({(TOPIC, 0): table(values)})
        producer.write({(TOPIC, 0): table(values)})
        assert stored(broker.logs[0]) == values + values
        assert producer.written == 200


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Error.MESSAGE_TOO_LARGE, "raise the topic's max.message.bytes"),
        (Error.INVALID_RECORD, "INVALID_RECORD"),
        (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, "OUT_OF_ORDER"),
    ],
)
def test_refusals(error: int, message: str) -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.faults[ProduceRequest].append(error)
        with pytest.raises(WriteError, match=message):
            RawProducer(client, options(broker)).write({(TOPIC, 0): table([b"a"])})


def test_time_runs_out() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.faults[ProduceRequest].extend([Error.NOT_ENOUGH_REPLICAS] * 10_000)
        producer = RawProducer(client, options(broker, **{"kafka.delivery.timeout.ms": "20"}))
        with pytest.raises(WriteError, match="not written within 20 ms"):
            producer.write({(TOPIC, 0): table([b"a"])})


def test_topics() -> None:
    with (
        FakeBroker(partitions=3) as broker,
        ClusterClient(broker.options(retry_s=0.001)) as client,
    ):
        producer = RawProducer(client, options(broker))
        assert producer.partition_count(TOPIC) == 3
        with pytest.raises(WriteError, match="topic u"):
            producer.partition_count("u")
