"""Produce appends valid batches, refuses others one by one, and responds as acks requires.

Method: real logs on a disk in memory; requests and responses pass the codec of their version. Every
test runs twice, also with plain requests handled by the short path (`plain_produce`).
"""

import errno
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.pending import Pending, completed
from ottla.broker.api.k00_produce import ADMIN_CLIENT_ID, API
from ottla.broker.api.plain_produce import NotPlain, PlainProduces
from ottla.broker.ports import CloseConnection
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.records.batch import parse_header
from ottla.records.builder import encode_batch
from ottla.records.compression import Codec
from ottla.testing.disk import Fault
from ottla.wire.frames import decode_response, encode_request, encode_response
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

from ..harness import START_MS, TOPIC_ID, BrokerHarness, batch, reach

OTHER_ID = Uuid(b"o" * 16)


def produce(
    *records: bytes | None,
    topic: str = "t",
    topic_id: Uuid = NO_UUID,
    acks: int = -1,
    timeout_ms: int = 1_000,
) -> ProduceRequest:
    """Return a request with one batch for each partition from 0 on."""
    partitions = tuple(
        PartitionProduceData(index=index, records=data) for index, data in enumerate(records)
    )
    data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(data,))


def parts(answer: Any) -> list[tuple[int, int]]:
    """Return (error, base offset) of each partition."""
    return [
        (part.error_code, part.base_offset)
        for topic in answer.responses
        for part in topic.partition_responses
    ]


class ShortPathHarness(BrokerHarness):
    """Has plain requests handled by the short path. `taken`: how many it has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def begin(self, request: Any, version: int, **how: Any) -> Pending[Any]:
        if not isinstance(request, ProduceRequest):
            return super().begin(request, version, **how)
        connection = self.context(API.key, version, **how).connection
        short = PlainProduces(
            lambda _, header: self.context(API.key, header.api_version, **how),
            lambda ctx, late: encode_response(late, ctx.version, ctx.header.correlation_id),
        )
        frame = bytearray(encode_request(request, version, 7, how.get("client_id", "test"))[4:])
        outcome = short.handle(self.broker.replicas, connection, memoryview(frame))
        if isinstance(outcome, NotPlain):
            return super().begin(request, version, **how)
        self.taken += 1
        frame[:] = bytes(len(frame))  # The buffer is used again at once.
        pending = outcome if isinstance(outcome, Pending) else completed(outcome)
        return pending.map(lambda chunks: self._decoded(chunks, version))

    def _decoded(self, chunks: list[bytes] | None, version: int) -> Any:
        assert chunks is not None
        sent = b"".join(chunks)
        assert int.from_bytes(sent[:4], "big") == len(sent) - 4
        correlation_id, response = decode_response(ProduceResponse, sent[4:], version)
        assert correlation_id == 7
        return response


@pytest.fixture(params=[BrokerHarness, ShortPathHarness])
def harness(request: pytest.FixtureRequest) -> BrokerHarness:
    harness: BrokerHarness = request.param()
    harness.add_broker()
    harness.add_topic(partitions=2)
    return harness


def log_of(harness: BrokerHarness, index: int = 0, topic: str = "t") -> Any:
    return harness.broker.replicas.partition(topic, index).log


@pytest.mark.parametrize("version", API.versions)
def test_every_version_appends(harness: BrokerHarness, version: int) -> None:
    by_id = version >= 13
    request = produce(
        batch("a", "b"),
        batch("c"),
        topic="" if by_id else "t",
        topic_id=TOPIC_ID if by_id else NO_UUID,
    )
    answer = harness.ask(request, version)
    assert parts(answer) == [(Error.NONE, 0), (Error.NONE, 0)]
    assert parts(harness.ask(request, version)) == [(Error.NONE, 2), (Error.NONE, 1)]
    first = answer.responses[0].partition_responses[0]
    assert first.log_append_time_ms == -1
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert answer.responses[0].topic_id == (TOPIC_ID if by_id else NO_UUID)
    assert log_of(harness).log_end_offset == log_of(harness).high_watermark == 4


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("version", API.versions)
def test_the_short_path_takes_one_batch_that_is_answered(version: int, acks: int) -> None:
    harness = ShortPathHarness()
    harness.add_broker()
    harness.add_topic(partitions=2)
    by_id = version >= 13
    names = {"topic": "" if by_id else "t", "topic_id": TOPIC_ID if by_id else NO_UUID}
    answer = harness.ask(produce(batch("a"), acks=acks, **names), version)
    assert harness.taken == (acks != 0 and version >= 5)
    assert answer is None if acks == 0 else parts(answer) == [(Error.NONE, 0)]
    harness.taken = 0
    harness.ask(produce(batch("a"), batch("b"), acks=acks, **names), version)
    assert harness.taken == 0
    ends = [log_of(harness, index).log_end_offset for index in range(2)]
    assert ends == [2, 1]


def test_kafka_is_followed_in_advertising_version_0() -> None:
    assert API.advertised == range(14)
    assert API.versions[0] == 3


def test_offset_and_epoch_are_stamped_and_nothing_else_changes(harness: BrokerHarness) -> None:
    sent = batch("a", codec=Codec.ZSTD)
    harness.ask(produce(batch("x")), 9)
    harness.ask(produce(sent), 9)
    found = log_of(harness).read(1, max_bytes=1_000, upper_bound=2)
    (piece,) = found.slices
    kept = piece.read()
    piece.release()
    header = parse_header(kept)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 0)
    assert kept[16:] == sent[16:]


def test_log_append_time_is_stamped_by_the_broker(harness: BrokerHarness) -> None:
    harness.add_topic("stamped", OTHER_ID, message_timestamp_type="LogAppendTime")
    answer = harness.ask(produce(batch("a", timestamp=5), topic="stamped"), 9)
    assert answer.responses[0].partition_responses[0].log_append_time_ms == START_MS


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_other_acks_are_refused_for_each_partition(harness: BrokerHarness, acks: int) -> None:
    answer = harness.ask(produce(batch("a"), batch("b"), acks=acks), 9)
    assert parts(answer) == [(Error.INVALID_REQUIRED_ACKS, -1)] * 2
    assert log_of(harness).log_end_offset == 0


def test_acks_0_is_not_answered(harness: BrokerHarness) -> None:
    assert harness.ask(produce(batch("a"), acks=0), 9) is None
    assert log_of(harness).log_end_offset == 1


def test_a_failure_with_acks_0_ends_the_connection(harness: BrokerHarness) -> None:
    with pytest.raises(CloseConnection):
        harness.ask(produce(batch("a"), topic="nowhere", acks=0), 9)


def test_partitions_fail_by_themselves(harness: BrokerHarness) -> None:
    answer = harness.ask(produce(batch("a"), None, batch("c")), 9)
    assert parts(answer) == [
        (Error.NONE, 0),
        (Error.INVALID_RECORD, -1),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_an_unknown_id(harness: BrokerHarness) -> None:
    answer = harness.ask(produce(batch("a"), topic="", topic_id=OTHER_ID), 13)
    assert parts(answer) == [(Error.UNKNOWN_TOPIC_ID, -1)]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", Error.INVALID_RECORD),
        (batch("a") + batch("b"), Error.INVALID_RECORD),
        (batch("a")[:-1], Error.INVALID_RECORD),
        (bytes(14) + b"\0\0\1" + bytes(60), Error.INVALID_RECORD),
        (batch("a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
         Error.INVALID_TXN_STATE),
        (batch("a")[:-1] + b"?", Error.CORRUPT_MESSAGE),
        (batch("a" * 1_100_000), Error.MESSAGE_TOO_LARGE),
        (batch("a", timestamp=START_MS + 3_700_000), Error.INVALID_TIMESTAMP),
    ],
    ids=["none", "two", "cut", "old format", "transactional", "damaged", "large", "future"],
)  # fmt: skip
def test_what_is_no_fit_batch_is_refused(
    harness: BrokerHarness, records: bytes, error: Error
) -> None:
    answer = harness.ask(produce(records), 9)
    assert parts(answer) == [(error, -1)]
    assert log_of(harness).log_end_offset == 0


def test_a_refusal_has_a_message(harness: BrokerHarness) -> None:
    (part,) = harness.ask(produce(b""), 9).responses[0].partition_responses
    assert "one record batch" in part.error_message
    (part,) = harness.ask(produce(batch("a"), topic="nowhere"), 9).responses[0].partition_responses
    assert part.error_message is None  # The code says all.


def test_zstd_needs_version_7(harness: BrokerHarness) -> None:
    request = produce(batch("a", codec=Codec.ZSTD))
    assert parts(harness.ask(request, 6)) == [(Error.UNSUPPORTED_COMPRESSION_TYPE, -1)]
    assert parts(harness.ask(request, 7)) == [(Error.NONE, 0)]


def test_records_without_keys_are_refused_by_name_on_compacted_topics(
    harness: BrokerHarness,
) -> None:
    harness.add_topic("compacted", OTHER_ID, cleanup_policy="compact")
    records = [(key, b"v", (), START_MS) for key in (b"k", None, b"k", None)]
    answer = harness.ask(produce(encode_batch(records, codec=Codec.LZ4), topic="compacted"), 9)
    assert parts(answer) == [(Error.INVALID_RECORD, -1)]
    (part,) = answer.responses[0].partition_responses
    assert [each.batch_index for each in part.record_errors] == [1, 3]
    # Not what is wrong with the batch as a whole.
    answer = harness.ask(produce(batch("a")[:-1] + b"?", topic="compacted"), 9)
    (part,) = answer.responses[0].partition_responses
    assert (part.error_code, part.record_errors) == (Error.CORRUPT_MESSAGE, ())


def test_only_the_admin_client_writes_to_internal_topics(harness: BrokerHarness) -> None:
    harness.add_topic("__consumer_offsets", OTHER_ID)
    request = produce(batch("a"), topic="__consumer_offsets")
    assert parts(harness.ask(request, 9)) == [(Error.INVALID_TOPIC_EXCEPTION, -1)]
    assert parts(harness.ask(request, 9, client_id=ADMIN_CLIENT_ID)) == [(Error.NONE, 0)]


def test_brokers_write_to_the_metadata_of_remote_segments(harness: BrokerHarness) -> None:
    harness.add_topic(REMOTE_LOG_METADATA_TOPIC, OTHER_ID)
    request = produce(batch("a"), topic=REMOTE_LOG_METADATA_TOPIC)
    assert parts(harness.ask(request, 9)) == [(Error.NONE, 0)]


def test_an_idempotent_retry_lands_once(harness: BrokerHarness) -> None:
    request = produce(batch("a", "b", producer_id=9, producer_epoch=0, base_sequence=0))
    assert parts(harness.ask(request, 9)) == [(Error.NONE, 0)]
    assert parts(harness.ask(request, 9)) == [(Error.NONE, 0)]
    assert log_of(harness).log_end_offset == 2
    gap = produce(batch("c", producer_id=9, producer_epoch=0, base_sequence=5))
    assert parts(harness.ask(gap, 9)) == [(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


class TestLeadership:
    """The error of a broker that does not lead, and the current leader in its response."""

    @pytest.fixture
    def moved(self, harness: BrokerHarness) -> BrokerHarness:
        harness.add_broker(2)
        harness.add_topic("far", OTHER_ID, leader=2, replicas=(2,), isr=(2,))
        return harness

    @pytest.mark.parametrize("version", [9, 10])
    def test_the_new_leader_is_returned_from_version_10(
        self, moved: BrokerHarness, version: int
    ) -> None:
        answer = moved.ask(produce(batch("a"), topic="far"), version)
        assert parts(answer) == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]
        leader = answer.responses[0].partition_responses[0].current_leader
        endpoints = [(node.node_id, node.host, node.port) for node in answer.node_endpoints]
        if version >= 10:
            assert (leader.leader_id, leader.leader_epoch) == (2, 0)
            assert endpoints == [(2, "host2", 9092)]
        else:
            assert (leader.leader_id, endpoints) == (-1, [])

    def test_a_follower_refuses(self, harness: BrokerHarness) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
        assert parts(harness.ask(produce(batch("a")), 9)) == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]


class TestAcksAll:
    """A partition of three in-sync replicas, two of which have not fetched."""

    @pytest.fixture
    def replicated(self, harness: BrokerHarness) -> BrokerHarness:
        harness.add_topic("r", OTHER_ID, replicas=(1, 2, 3), isr=(1, 2, 3), min_insync_replicas="2")
        return harness

    def catch_up(self, harness: BrokerHarness, **ends: int) -> None:
        partition = harness.broker.replicas.partition("r", 0)
        if reach(partition, {int(node[1:]): end for node, end in ends.items()}):
            harness.broker.replicas.produce_purgatory.wake(partition)

    def test_the_answer_waits_for_every_in_sync_replica(self, replicated: BrokerHarness) -> None:
        waiting = replicated.begin(produce(batch("a"), topic="r"), 9)
        assert not waiting.done
        self.catch_up(replicated, n2=1)
        assert not waiting.done
        self.catch_up(replicated, n3=1)
        assert parts(waiting.value) == [(Error.NONE, 0)]

    def test_acks_1_does_not_wait(self, replicated: BrokerHarness) -> None:
        assert parts(replicated.ask(produce(batch("a"), topic="r", acks=1), 9)) == [(0, 0)]
        assert log_of(replicated, topic="r").high_watermark == 0

    def test_the_wait_ends_with_the_timeout(self, replicated: BrokerHarness) -> None:
        waiting = replicated.begin(produce(batch("a"), topic="r", timeout_ms=50), 9)
        replicated.clock.advance(49)
        assert not waiting.done
        replicated.clock.advance(1)
        assert parts(waiting.value) == [(Error.REQUEST_TIMED_OUT, -1)]

    def test_a_producer_that_is_gone_is_not_waited_with(self, replicated: BrokerHarness) -> None:
        """Its timeout is the client's choice: weeks, for each connection that was opened."""
        waiting = replicated.begin(produce(batch("a"), topic="r"), 9)
        assert replicated.broker.replicas.produce_purgatory.count == 1
        replicated.connection.closed.complete(None)
        assert replicated.broker.replicas.produce_purgatory.count == 0
        assert not waiting.done

    def test_a_retry_waits_like_the_first(self, replicated: BrokerHarness) -> None:
        request = produce(
            batch("a", producer_id=9, producer_epoch=0, base_sequence=0), topic="r", timeout_ms=50
        )
        replicated.begin(request, 9)
        retry = replicated.begin(request, 9)
        assert not retry.done
        self.catch_up(replicated, n2=1, n3=1)
        assert parts(retry.value) == [(Error.NONE, 0)]

    def test_too_few_in_sync_replicas_refuse_before_the_append(
        self, replicated: BrokerHarness
    ) -> None:
        replicated.commit(
            PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, isr=(1,), leader=1)
        )
        answer = replicated.ask(produce(batch("a"), topic="r"), 9)
        assert parts(answer) == [(Error.NOT_ENOUGH_REPLICAS, -1)]
        assert log_of(replicated, topic="r").log_end_offset == 0

    def test_a_shrunken_isr_after_the_append_is_an_error(self, replicated: BrokerHarness) -> None:
        waiting = replicated.begin(produce(batch("a"), topic="r"), 9)
        self.catch_up(replicated, n2=1)
        partition = replicated.broker.replicas.partition("r", 0)
        assert partition.log is not None
        partition.log.advance_high_watermark(1)
        replicated.commit(PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, isr=(1,)))
        assert parts(waiting.value) == [(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)]

    def test_losing_the_leadership_ends_the_wait(self, replicated: BrokerHarness) -> None:
        waiting = replicated.begin(produce(batch("a"), topic="r"), 9)
        replicated.commit(PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, leader=2))
        assert parts(waiting.value) == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]

    @pytest.mark.parametrize(
        ("version", "error"), [(9, Error.UNKNOWN_TOPIC_OR_PARTITION), (13, Error.UNKNOWN_TOPIC_ID)]
    )
    def test_deletion_ends_the_wait(
        self, replicated: BrokerHarness, version: int, error: Error
    ) -> None:
        request = produce(batch("a"), topic="" if version == 13 else "r", topic_id=OTHER_ID)
        waiting = replicated.begin(request, version)
        replicated.commit(RemoveTopicRecord(topic_id=OTHER_ID))
        assert parts(waiting.value) == [(error, -1)]


def test_a_topic_that_flushes_each_record_answers_after_the_flush(harness: BrokerHarness) -> None:
    harness.add_topic("safe", OTHER_ID, flush_messages="1")
    assert parts(harness.ask(produce(batch("a"), topic="safe"), 9)) == [(Error.NONE, 0)]
    assert log_of(harness, topic="safe").recovery_point == 1


def test_a_disk_failure_takes_the_log_dir_offline(harness: BrokerHarness) -> None:
    harness.disk.faults.append(Fault(operation="append", number=errno.EIO))
    answer = harness.ask(produce(batch("a"), batch("b")), 9)
    assert parts(answer) == [(Error.KAFKA_STORAGE_ERROR, -1)] * 2
    harness.disk.faults.clear()
    # The log directory stays offline until the broker restarts.
    assert parts(harness.ask(produce(batch("a")), 9)) == [(Error.KAFKA_STORAGE_ERROR, -1)]
