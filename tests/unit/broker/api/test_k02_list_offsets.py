"""ListOffsets finds the ends of a log and the first record of a time, up to what is committed.

Method: real logs on a disk in memory; requests and responses pass the codec of their version.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.broker.api.k02_list_offsets import API
from ottla.log.validation import EXPANDED_BYTES_MIN
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.records.batch import parse_header
from ottla.records.builder import seal
from ottla.records.compression import Codec, compress
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from ..harness import START_MS, TOPIC_ID, BrokerHarness, batch

OTHER_ID = Uuid(b"o" * 16)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
PENDING = -6
COMMITTED = 1


def ask(
    harness: BrokerHarness,
    timestamp: int,
    version: int = 10,
    *,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    **how: Any,
) -> tuple[int, int, int, int]:
    """Return (error, offset, timestamp, leader epoch) for one partition."""
    partition = ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    request = ListOffsetsRequest(
        **({"replica_id": -1} | how),
        topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),),
    )
    (part,) = harness.ask(request, version).topics[0].partitions
    return part.error_code, part.offset, part.timestamp, part.leader_epoch


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic()
    harness.broker.replicas.append("t", 0, batch("a", timestamp=START_MS))
    harness.broker.replicas.append("t", 0, batch("b", "c", timestamp=START_MS + 20))
    harness.broker.replicas.append("t", 0, batch("d", timestamp=START_MS + 10))
    return harness


@pytest.mark.parametrize("version", API.versions)
def test_every_version_returns_the_log_start_and_end(harness: BrokerHarness, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert ask(harness, LATEST, version) == (Error.NONE, 4, -1, epoch)
    assert ask(harness, EARLIEST, version) == (Error.NONE, 0, -1, epoch)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [(0, 0, 0), (START_MS, 0, 0), (START_MS + 1, 1, 20), (START_MS + 20, 1, 20)],
)
def test_the_first_record_at_or_after_a_time(
    harness: BrokerHarness, timestamp: int, offset: int, found_ms: int
) -> None:
    assert ask(harness, timestamp) == (Error.NONE, offset, START_MS + found_ms, 0)


def test_no_record_that_late(harness: BrokerHarness) -> None:
    assert ask(harness, START_MS + 21) == (Error.NONE, -1, -1, -1)


def test_the_record_with_the_largest_timestamp(harness: BrokerHarness) -> None:
    assert ask(harness, MAX_TIMESTAMP) == (Error.NONE, 1, START_MS + 20, 0)
    harness.add_topic("empty", OTHER_ID)
    assert ask(harness, MAX_TIMESTAMP, topic="empty") == (Error.NONE, -1, -1, -1)


def test_the_start_follows_deletions(harness: BrokerHarness) -> None:
    harness.broker.replicas.partition("t", 0).leader_log().delete_records(2)
    assert ask(harness, EARLIEST)[:2] == (Error.NONE, 2)
    assert ask(harness, EARLIEST_LOCAL)[:2] == (Error.NONE, 2)


def test_the_bounds_of_both_tiers(harness: BrokerHarness) -> None:
    log = harness.broker.replicas.partition("t", 0).leader_log()
    log.reconfigure(replace(log.config, remote_storage=True, local_retention_bytes=0))
    log.roll(START_MS)
    log.remote_copied_to(3)
    log.delete_records(1)
    log.flush_now()
    log.expire_segments(START_MS)
    assert ask(harness, EARLIEST) == (Error.NONE, 1, -1, 0)
    assert ask(harness, EARLIEST_LOCAL) == (Error.NONE, 4, -1, 0)
    assert ask(harness, LATEST_TIERED) == (Error.NONE, 3, -1, 0)


def test_there_is_no_remote_tier(harness: BrokerHarness) -> None:
    assert ask(harness, LATEST_TIERED) == (Error.NONE, -1, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (PENDING, 10), (-7, 11)],
)
def test_what_a_version_does_not_know_is_refused(
    harness: BrokerHarness, timestamp: int, version: int
) -> None:
    assert ask(harness, timestamp, version)[0] == Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(0, Error.FENCED_LEADER_EPOCH), (1, Error.NONE), (2, Error.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs(harness: BrokerHarness, epoch: int, error: Error) -> None:
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
    assert ask(harness, LATEST, epoch=epoch)[0] == error


def test_only_leaders_answer(harness: BrokerHarness) -> None:
    assert ask(harness, LATEST, topic="nowhere")[0] == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(harness, LATEST, index=7)[0] == Error.UNKNOWN_TOPIC_OR_PARTITION
    harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    assert ask(harness, LATEST)[0] == Error.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_is_named_twice_is_refused(harness: BrokerHarness) -> None:
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(partition, partition)),)
    )
    answer = harness.ask(request, 7)
    assert [part.error_code for part in answer.topics[0].partitions] == [42, 42]


def test_a_time_beyond_what_is_committed_finds_nothing(harness: BrokerHarness) -> None:
    harness.add_topic("r", OTHER_ID, replicas=(1, 2), isr=(1, 2))
    harness.broker.replicas.append("r", 0, batch("a"), acks=1)
    assert ask(harness, LATEST, topic="r")[:2] == (Error.NONE, 0)
    assert ask(harness, START_MS, topic="r")[:2] == (Error.NONE, -1)
    # A replica, or a tool that says it is one, sees the whole log.
    assert ask(harness, LATEST, topic="r", replica_id=-2)[:2] == (Error.NONE, 1)


def test_an_open_transaction_ends_what_is_committed(harness: BrokerHarness) -> None:
    log = harness.broker.replicas.partition("t", 0).leader_log()
    log.append_as_leader(
        batch("e", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=START_MS,
    )
    log.advance_high_watermark(5)
    assert ask(harness, LATEST)[1] == 5
    assert ask(harness, LATEST, isolation_level=COMMITTED)[1] == 4


class TestAfterAnElection:
    """The high watermark of a new leader may lag behind where its epoch began (KIP-207)."""

    @pytest.fixture
    def elected(self, harness: BrokerHarness) -> BrokerHarness:
        harness.add_topic("r", OTHER_ID, replicas=(1, 2), isr=(1, 2))
        harness.broker.replicas.append("r", 0, batch("a"), acks=1)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=OTHER_ID, leader=1))
        return harness

    @pytest.mark.parametrize("timestamp", [LATEST, START_MS, START_MS + 99])
    def test_what_depends_on_it_is_not_available(
        self, elected: BrokerHarness, timestamp: int
    ) -> None:
        assert ask(elected, timestamp, topic="r")[0] == Error.OFFSET_NOT_AVAILABLE
        assert ask(elected, timestamp, 4, topic="r")[0] == Error.LEADER_NOT_AVAILABLE

    def test_the_start_is(self, elected: BrokerHarness) -> None:
        assert ask(elected, EARLIEST, topic="r")[0] == Error.NONE

    def test_replicas_are_answered(self, elected: BrokerHarness) -> None:
        assert ask(elected, LATEST, topic="r", replica_id=2)[:2] == (Error.NONE, 1)


def begin(harness: BrokerHarness, timestamp: int) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="t", partitions=(partition,))
    answer = harness.begin(ListOffsetsRequest(replica_id=-1, topics=(topic,)), 10)
    return answer.map(lambda found: found.topics[0].partitions[0])


def test_records_are_looked_into_by_a_worker(harness: BrokerHarness) -> None:
    harness.workers.inline = False
    answers = [
        begin(harness, START_MS + 10),
        begin(harness, MAX_TIMESTAMP),
        begin(harness, START_MS + 99),
    ]
    assert [begin(harness, ends).done for ends in (LATEST, EARLIEST)] == [True, True]
    assert [answer.done for answer in answers] == [False, False, True]
    harness.workers.run()
    assert [(answer.value.error_code, answer.value.offset) for answer in answers] == [
        (Error.NONE, 1),
        (Error.NONE, 1),
        (Error.NONE, -1),
    ]


def test_only_who_leads_in_the_end_answers(harness: BrokerHarness) -> None:
    harness.workers.inline = False
    answer = begin(harness, START_MS)
    harness.commit(
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2, replicas=[1, 2], isr=[2])
    )
    harness.workers.run()
    assert answer.value.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert answer.value.offset == -1


def test_a_log_that_goes_while_it_is_searched(harness: BrokerHarness) -> None:
    harness.workers.inline = False
    answer = begin(harness, START_MS)
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    harness.workers.run()
    assert answer.value.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_that_expands_too_far_is_an_error(harness: BrokerHarness) -> None:
    """Only a log from before such batches were refused has one."""
    packed = compress(Codec.ZSTD, bytes(EXPANDED_BYTES_MIN + 1))
    header = parse_header(batch("a", timestamp=START_MS + 50))
    bomb = seal(header._replace(attributes=Codec.ZSTD, base_offset=4), packed)
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    log.append_as_follower(bytearray(bomb), now_ms=START_MS)
    log.advance_high_watermark(5)
    assert ask(harness, START_MS + 50)[:2] == (Error.MESSAGE_TOO_LARGE, -1)
    assert ask(harness, START_MS + 20)[:2] == (Error.NONE, 1)


def test_partitions_are_looked_up_one_after_the_other() -> None:
    """A lookup holds a file open, and a request may name all partitions there are."""
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=50)
    for index in range(50):
        harness.broker.replicas.append("t", index, batch("a", timestamp=START_MS + index))
    harness.workers.inline = False
    partitions = tuple(
        ListOffsetsPartition(partition_index=index, timestamp=START_MS) for index in range(50)
    )
    topics = (ListOffsetsTopic(name="t", partitions=partitions),)
    answer = harness.begin(ListOffsetsRequest(replica_id=-1, topics=topics), 10)
    assert harness.broker.replicas.batch_work.waiting == 1
    harness.workers.run()
    found = answer.value.topics[0].partitions
    assert [(each.partition_index, each.offset, each.timestamp) for each in found] == [
        (index, 0, START_MS + index) for index in range(50)
    ]
