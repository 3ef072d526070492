"""A producer retries as Kafka's does, and records the outcome of each batch.

Method: a fake broker that loses requests and responses as its script says, in virtual time.
"""

from ottla.base.errors import Error
from ottla.records.batch import iter_headers
from ottla.records.compression import Codec
from ottla.records.record import iter_records
from ottla.testing.checkers.records import idempotent_writes_twice
from ottla.testing.history.history import History, LogSeen
from ottla.testing.history.identity import identity
from ottla.testing.history.topics import Outcome
from ottla.testing.sim_clients.producer import DELIVERY_TIMEOUT_MS, Producer
from ottla.wire.messages.produce import ProduceRequest

from .fake import INIT, LOST_AFTER, LOST_BEFORE, PARTITION, PRODUCE, TOPIC, FakeCluster


def run(
    cluster: FakeCluster, *, idempotent: bool = True, ms: int = 3_000, in_flight_max: int = 5
) -> Producer:
    producer = Producer(
        cluster.client("p"),
        TOPIC,
        idempotent=idempotent,
        interval_ms=50,
        in_flight_max=in_flight_max,
    )
    producer.begin()
    cluster.steps.run(ms)
    producer.stop()
    cluster.steps.run(5_000)
    assert producer.is_done
    return producer


def outcomes(history: History) -> set[Outcome]:
    return {write.outcome for write in history.writes}


def sent(cluster: FakeCluster) -> list[bytes]:
    """Return the batch of each request, in order."""
    return [
        bytes(request.topic_data[0].partition_data[0].records)  # type: ignore[arg-type]
        for request in cluster.requests
        if isinstance(request, ProduceRequest)
    ]


def sequences(cluster: FakeCluster) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and sequence of each request, in order."""
    headers = [next(iter_headers(batch))[1] for batch in sent(cluster)]
    return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in headers]


def test_each_acknowledged_value_is_at_its_offset() -> None:
    cluster = FakeCluster()
    producer = run(cluster)
    assert producer.acknowledged == len(cluster.history.writes) > 20
    assert outcomes(cluster.history) == {Outcome.ACKNOWLEDGED}
    for write in cluster.history.writes:
        end = write.offset + len(write.values)
        assert tuple(cluster.log[write.offset : end]) == write.values
        assert write.partition == PARTITION
    assert {incarnation.what for incarnation in cluster.history.progress} == {"writes to orders-0"}


def test_a_lost_response_is_retried_with_the_same_sequence() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [None, LOST_AFTER]
    run(cluster, in_flight_max=1)
    tried = sequences(cluster)
    assert tried[1] == tried[2]
    assert sent(cluster)[1] == sent(cluster)[2]
    assert len(cluster.log) == len(set(cluster.log))
    assert outcomes(cluster.history) == {Outcome.ACKNOWLEDGED}
    again = cluster.history.writes[1]
    assert (again.tries, again.offset) == (2, -1), "the broker answered DUPLICATE_SEQUENCE_NUMBER"


def test_a_plain_producer_retries_into_a_duplicate() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [None, LOST_AFTER]
    run(cluster, idempotent=False)
    assert len(cluster.log) > len(set(cluster.log))
    assert all(write.producer is None for write in cluster.history.writes)
    log = LogSeen(1, PARTITION, 0, len(cluster.log), dict(enumerate(cluster.log)))
    assert idempotent_writes_twice(History(writes=cluster.history.writes, logs=[log])) == []


def test_a_gap_is_filled_in_order() -> None:
    cluster = FakeCluster()
    cluster.delay_ms = 80  # Several batches are in flight.
    cluster.script[PRODUCE] = [None, LOST_BEFORE]
    run(cluster)
    assert outcomes(cluster.history) == {Outcome.ACKNOWLEDGED}
    numbers = [int(value.split(b":")[1]) for value in cluster.log]
    assert numbers == sorted(numbers)


def test_a_rejection_before_the_append_is_a_failure() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [Error.NOT_ENOUGH_REPLICAS] * 1_000
    producer = Producer(cluster.client("p"), TOPIC, idempotent=False, interval_ms=50)
    producer.begin()
    cluster.steps.run(DELIVERY_TIMEOUT_MS + 2_000)
    assert outcomes(cluster.history) == {Outcome.FAILED}
    assert cluster.log == []


def test_a_batch_that_may_be_there_is_unknown_when_given_up() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [LOST_AFTER, *[Error.NOT_ENOUGH_REPLICAS] * 1_000]
    producer = Producer(cluster.client("p"), TOPIC, idempotent=False, interval_ms=50)
    producer.begin()
    cluster.steps.run(DELIVERY_TIMEOUT_MS + 2_000)
    assert cluster.history.writes[0].outcome is Outcome.UNKNOWN


def test_after_giving_up_an_idempotent_producer_begins_a_new_epoch() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [None, *[LOST_BEFORE] * 120]
    producer = run(cluster, ms=DELIVERY_TIMEOUT_MS + 10_000, in_flight_max=1)
    assert producer.new_epochs > 0
    epochs = [epoch for _id, epoch, _sequence in sequences(cluster)]
    assert epochs == sorted(epochs)
    assert next(s for _id, epoch, s in sequences(cluster) if epoch == 1) == 0
    assert Outcome.UNKNOWN in outcomes(cluster.history)
    assert cluster.history.writes[-1].outcome is Outcome.ACKNOWLEDGED


def test_a_sequence_that_nothing_can_mend_begins_a_new_epoch() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [None, Error.OUT_OF_ORDER_SEQUENCE_NUMBER]
    producer = run(cluster, in_flight_max=1)
    assert producer.new_epochs == 1
    assert [write.outcome for write in cluster.history.writes[:2]] == [
        Outcome.ACKNOWLEDGED,
        Outcome.FAILED,
    ]


def test_a_fenced_producer_gets_another_id() -> None:
    cluster = FakeCluster()
    cluster.script[PRODUCE] = [None, Error.INVALID_PRODUCER_EPOCH]
    cluster.script[INIT] = [None, Error.NOT_CONTROLLER]
    run(cluster, in_flight_max=1)
    assert sorted({producer_id for producer_id, _e, _s in sequences(cluster)}) == [101, 102]
    assert cluster.history.writes[-1].outcome is Outcome.ACKNOWLEDGED


def test_with_acks_0_the_outcome_is_unknown_at_once() -> None:
    cluster = FakeCluster()
    producer = Producer(cluster.client("p"), TOPIC, idempotent=False, interval_ms=50, acks=0)
    producer.begin()
    cluster.steps.run(2_000)
    producer.stop()
    cluster.steps.run(1_000)
    assert producer.is_done
    writes = cluster.history.writes
    assert len(writes) > 5
    assert {(each.outcome, each.tries, each.acks) for each in writes} == {(Outcome.UNKNOWN, 1, 0)}


def test_keyed_records_name_their_keys_and_tombstones_carry_their_value_in_a_header() -> None:
    cluster = FakeCluster()
    producer = Producer(
        cluster.client("p"), TOPIC, idempotent=True, interval_ms=20, keys=7, codec=Codec.GZIP
    )
    producer.begin()
    cluster.steps.run(4_000)
    expected = {
        value: (key, is_tombstone)
        for write in cluster.history.writes
        for value, key, is_tombstone in zip(write.values, write.keys, write.tombstones, strict=True)
    }
    records = [record for batch in sent(cluster) for record in iter_records(batch)]
    assert {identity(each): (each.key, each.value is None) for each in records} == expected
    assert {is_tombstone for _, is_tombstone in expected.values()} == {True, False}
    keys = {key for key, _ in expected.values()}
    assert {key.partition(b"-")[0] for key in keys} == {b"key", b"rare"}
    assert all(
        header.compression is Codec.GZIP
        for _, header in map(next, map(iter_headers, sent(cluster)))
    )


def test_one_that_is_stopped_and_done_sends_nothing_more() -> None:
    """Or it writes while the logs are read in the end, and what it wrote seems lost."""
    for ms in range(1_000, 1_100, 10):
        cluster = FakeCluster()
        producer = Producer(
            cluster.client("p"), TOPIC, idempotent=True, interval_ms=50, in_flight_max=5
        )
        producer.begin()
        cluster.steps.run(ms)
        producer.stop()
        while not producer.is_done:
            cluster.steps.run(1)
        before = len(sent(cluster))
        cluster.steps.run(5_000)
        assert len(sent(cluster)) == before > 0
