"""Fetch returns the records that are there, waits for others, and returns errors.

Method: real logs on a disk in memory; requests and responses pass the codec of their version.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending
from ottla.base.turns import at_once
from ottla.broker.api.k01_fetch import API, PARTITIONS_PER_STEP, handle
from ottla.broker.ports import Listener
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.records.compression import Codec
from ottla.records.record import iter_records
from ottla.testing.disk import Fault
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

from ..harness import START_MS, TOPIC_ID, BrokerHarness, batch, received

OTHER_ID = Uuid(b"o" * 16)
COMMITTED = 1


def want(*offsets: int, topic: str = "t", topic_id: Uuid = NO_UUID, **how: Any) -> FetchTopic:
    """Request partitions from 0 on, at these offsets; `how` applies to each."""
    return FetchTopic(
        topic="" if topic_id != NO_UUID else topic,
        topic_id=topic_id,
        partitions=tuple(
            FetchPartition(
                partition=index,
                fetch_offset=offset,
                **({"partition_max_bytes": 1_000_000} | how),
            )
            for index, offset in enumerate(offsets)
        ),
    )


def fetch(*topics: FetchTopic, **how: Any) -> FetchRequest:
    return FetchRequest(
        **({"max_wait_ms": 0, "min_bytes": 1, "topics": topics, "session_epoch": -1} | how)
    )


def values(part: Any) -> list[str]:
    """Return the values of the records in a partition of a response."""
    found: list[str] = []
    for record in iter_records(bytes(part.records)):
        assert record.value is not None
        found.append(bytes(record.value).decode())
    return found


def parts(answer: Any) -> list[Any]:
    return [part for topic in answer.responses for part in topic.partitions]


def errors(answer: Any) -> list[int]:
    return [part.error_code for part in parts(answer)]


@pytest.fixture
def harness() -> BrokerHarness:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=2)
    return harness


def append(harness: BrokerHarness, *batches: bytes, topic: str = "t", index: int = 0) -> None:
    for data in batches:
        result = harness.broker.replicas.append(topic, index, data)
        assert not isinstance(result, Pending)
        assert result.error is Error.NONE


@pytest.mark.parametrize("version", API.versions)
def test_every_version_reads(harness: BrokerHarness, version: int) -> None:
    append(harness, batch("a", "b"), batch("c"))
    by_id = version >= 13
    topic = want(0, 0, topic_id=TOPIC_ID if by_id else NO_UUID)
    answer = harness.ask(fetch(topic), version)
    assert (answer.error_code, answer.session_id) == (Error.NONE, 0)
    (notified,) = answer.responses
    assert (notified.topic, notified.topic_id) == (("", TOPIC_ID) if by_id else ("t", NO_UUID))
    first, second = notified.partitions
    assert values(first) == ["a", "b", "c"]
    assert values(second) == []
    assert (first.partition_index, first.high_watermark, first.last_stable_offset) == (0, 3, 3)
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.preferred_read_replica == -1
    assert first.aborted_transactions is None


def test_reading_begins_with_the_batch_that_holds_the_offset(harness: BrokerHarness) -> None:
    append(harness, batch("a", "b"), batch("c"))
    (part,) = parts(harness.ask(fetch(want(1)), 12))
    assert values(part) == ["a", "b", "c"]
    (part,) = parts(harness.ask(fetch(want(2)), 12))
    assert values(part) == ["c"]


class TestSizes:
    """max_bytes, of partition and response; the first batch comes whatever its size."""

    def test_the_first_batch_exceeds_every_limit(self, harness: BrokerHarness) -> None:
        append(harness, batch("a" * 500), index=0)
        append(harness, batch("b" * 500), index=1)
        answer = harness.ask(fetch(want(0, 0, partition_max_bytes=10), max_bytes=10), 12)
        assert [len(part.records) > 500 for part in parts(answer)] == [True, False]
        assert parts(answer)[1].high_watermark == 1  # Told, though there was no room.

    def test_the_response_is_filled_in_order(self, harness: BrokerHarness) -> None:
        append(harness, batch("a" * 500), index=0)
        append(harness, batch("b" * 500), index=1)
        size = len(batch("a" * 500))
        answer = harness.ask(fetch(want(0, 0), max_bytes=size + 100), 12)
        assert [len(part.records) for part in parts(answer)] == [size, 0]
        answer = harness.ask(fetch(want(0, 0), max_bytes=2 * size), 12)
        assert [len(part.records) for part in parts(answer)] == [size, size]

    def test_a_partition_gives_no_more_than_its_limit(self, harness: BrokerHarness) -> None:
        append(harness, batch("a"), batch("b"))
        size = len(batch("a"))
        answer = harness.ask(fetch(want(0, partition_max_bytes=size + 5)), 12)
        assert len(parts(answer)[0].records) == size + 5

    def test_the_broker_has_a_limit_of_its_own(self) -> None:
        harness = BrokerHarness({"fetch.max.bytes": "1024"})
        harness.add_broker()
        harness.add_topic()
        append(harness, *(batch("a" * 400) for _ in range(5)))
        answer = harness.ask(fetch(want(0)), 12)
        assert len(parts(answer)[0].records) == 1024


class TestWaiting:
    """Long polls: min_bytes, max_wait_ms, and all that ends them early."""

    def begin(
        self, harness: BrokerHarness, *topics: FetchTopic, version: int = 12, **how: Any
    ) -> Any:
        request = fetch(*(topics or (want(0, 0),)), **({"max_wait_ms": 500} | how))
        return harness.begin(request, version)

    def test_an_append_wakes_a_fetch(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        assert not waiting.done
        append(harness, batch("a"), index=1)
        assert [values(part) for part in parts(waiting.value)] == [[], ["a"]]
        assert harness.broker.replicas.fetch_reader.consumer_purgatory.count == 0

    def test_a_fetch_takes_what_there_is_when_its_time_is_up(self, harness: BrokerHarness) -> None:
        append(harness, batch("a"))
        waiting = self.begin(harness, min_bytes=1_000)
        harness.clock.advance(499)
        assert not waiting.done
        harness.clock.advance(1)
        assert values(parts(waiting.value)[0]) == ["a"]

    def test_bytes_of_all_partitions_count(self, harness: BrokerHarness) -> None:
        size = len(batch("a"))
        waiting = self.begin(harness, min_bytes=2 * size)
        append(harness, batch("a"), index=0)
        assert not waiting.done
        append(harness, batch("b"), index=1)
        assert [values(part) for part in parts(waiting.value)] == [["a"], ["b"]]

    def test_what_is_there_already_is_not_waited_for(self, harness: BrokerHarness) -> None:
        append(harness, batch("a"))
        assert self.begin(harness).done

    def test_a_fetch_of_nothing_is_answered(self, harness: BrokerHarness) -> None:
        assert harness.begin(fetch(max_wait_ms=500), 12).done

    def test_an_error_is_answered_at_once(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness, want(0), want(0, topic="nowhere"))
        assert errors(waiting.value) == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]

    @pytest.mark.parametrize(
        ("version", "error"), [(12, Error.UNKNOWN_TOPIC_OR_PARTITION), (13, Error.UNKNOWN_TOPIC_ID)]
    )
    def test_deletion_ends_a_wait(self, harness: BrokerHarness, version: int, error: Error) -> None:
        topic = want(0, 0, topic_id=TOPIC_ID if version >= 13 else NO_UUID)
        waiting = self.begin(harness, topic, version=version)
        harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
        assert error in errors(waiting.value)

    def test_losing_the_leadership_ends_a_wait(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness, version=10)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
        assert errors(waiting.value) == [Error.NOT_LEADER_OR_FOLLOWER, Error.NONE]

    def test_a_consumer_that_may_read_from_followers_gets_the_new_epoch(
        self, harness: BrokerHarness
    ) -> None:
        waiting = self.begin(harness, want(0, 0, current_leader_epoch=0), version=11)
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
        assert errors(waiting.value) == [Error.FENCED_LEADER_EPOCH, Error.NONE]

    def test_nothing_is_read_for_a_client_that_left(self, harness: BrokerHarness) -> None:
        ctx = harness.context(1, 12)
        from ottla.broker.api import k01_fetch

        pending = k01_fetch.handle(ctx, fetch(want(0), max_wait_ms=500))
        ctx.connection.closed.complete(None)
        append(harness, batch("a"))
        assert not pending.done
        assert harness.broker.replicas.fetch_reader.consumer_purgatory.count == 0

    def test_all_partitions_of_one_produce_request_are_seen(self, harness: BrokerHarness) -> None:
        waiting = self.begin(harness)
        replicas = harness.broker.replicas
        replicas.append_all(
            [(replicas.partition("t", 0), batch("a")), (replicas.partition("t", 1), batch("b"))],
            acks=1,
            timeout_ms=0,
        )
        assert [values(part) for part in parts(waiting.value)] == [["a"], ["b"]]


class TestOffsetsAndEpochs:
    """Positions that the log does not have, and leaders that are not the one meant."""

    @pytest.mark.parametrize("offset", [-1, 4, 100])
    def test_out_of_range(self, harness: BrokerHarness, offset: int) -> None:
        append(harness, batch("a", "b", "c"))
        (part,) = parts(harness.ask(fetch(want(offset)), 12))
        assert (part.error_code, part.high_watermark) == (Error.OFFSET_OUT_OF_RANGE, -1)

    def test_below_the_log_start(self, harness: BrokerHarness) -> None:
        append(harness, batch("a", "b", "c"))
        harness.broker.replicas.partition("t", 0).leader_log().delete_records(2)
        assert errors(harness.ask(fetch(want(1)), 12)) == [Error.OFFSET_OUT_OF_RANGE]
        (part,) = parts(harness.ask(fetch(want(2)), 12))
        assert (part.error_code, part.log_start_offset) == (Error.NONE, 2)

    def test_what_is_not_committed_is_not_read(self, harness: BrokerHarness) -> None:
        harness.add_topic("r", OTHER_ID, replicas=(1, 2), isr=(1, 2))
        harness.broker.replicas.append("r", 0, batch("a"), acks=1)
        (part,) = parts(harness.ask(fetch(want(0, topic="r")), 12))
        assert (part.error_code, part.high_watermark, values(part)) == (Error.NONE, 0, [])
        # Between high watermark and log end there is nothing yet, but nothing wrong either.
        (part,) = parts(harness.ask(fetch(want(1, topic="r")), 12))
        assert (part.error_code, values(part)) == (Error.NONE, [])

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [(-1, Error.NONE), (0, Error.FENCED_LEADER_EPOCH), (1, Error.NONE),
         (2, Error.UNKNOWN_LEADER_EPOCH)],
    )  # fmt: skip
    def test_leader_epochs(self, harness: BrokerHarness, epoch: int, error: Error) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        answer = harness.ask(fetch(want(0, current_leader_epoch=epoch)), 12)
        assert errors(answer) == [error]

    def test_a_fenced_fetcher_gets_the_leader(self, harness: BrokerHarness) -> None:
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        topic = want(0, topic_id=TOPIC_ID, current_leader_epoch=0)
        answer = harness.ask(fetch(topic), 16)
        leader = parts(answer)[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (1, 1)
        assert [(node.node_id, node.port) for node in answer.node_endpoints] == [(1, 9091)]

    def test_a_fetcher_whose_log_diverges_gets_the_diverging_epoch(
        self, harness: BrokerHarness
    ) -> None:
        append(harness, batch("a", "b"))
        harness.commit(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1))
        append(harness, batch("c"))
        # It holds three records of epoch 0, this log two.
        (part,) = parts(harness.ask(fetch(want(3, last_fetched_epoch=0)), 12))
        assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (
            Error.NONE,
            0,
            2,
        )
        (part,) = parts(harness.ask(fetch(want(2, last_fetched_epoch=0)), 12))
        assert (part.diverging_epoch.epoch, values(part)) == (-1, ["c"])

    def test_an_epoch_that_is_not_known_is_out_of_range(self, harness: BrokerHarness) -> None:
        append(harness, batch("a"))
        answer = harness.ask(fetch(want(1, last_fetched_epoch=7)), 12)
        assert errors(answer) == [Error.OFFSET_OUT_OF_RANGE]

    def test_unknown_topics_and_partitions(self, harness: BrokerHarness) -> None:
        harness.add_broker(2)
        harness.add_topic("far", OTHER_ID, leader=2, replicas=(2,), isr=(2,))
        answer = harness.ask(
            fetch(want(0, topic_id=Uuid(b"x" * 16)), want(0, 0, topic_id=OTHER_ID)), 13
        )
        assert errors(answer) == [
            Error.UNKNOWN_TOPIC_ID,
            Error.NOT_LEADER_OR_FOLLOWER,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    @pytest.mark.parametrize(
        ("epoch", "error"), [(0, Error.UNKNOWN_LEADER_EPOCH), (-1, Error.NOT_LEADER_OR_FOLLOWER)]
    )
    def test_replicas_are_not_known_here(
        self, harness: BrokerHarness, epoch: int, error: Error
    ) -> None:
        topic = want(0, topic_id=TOPIC_ID, current_leader_epoch=epoch)
        assert errors(harness.ask(fetch(topic, replica_id=2), 13)) == [error]
        request = fetch(topic, replica_state=ReplicaState(replica_id=2, replica_epoch=2))
        assert errors(harness.ask(request, 17)) == [error]


@pytest.mark.parametrize("replica_id", [-1, 2])
def test_what_is_in_remote_storage_only_is_no_next_local_record(replica_id: int) -> None:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_broker(2)
    harness.add_topic(replicas=(1, 2), isr=(1,))
    append(harness, *(batch(str(number)) for number in range(6)))
    log = harness.broker.replicas.partition("t", 0).leader_log()
    log.offsets.log_start_offset, log.offsets.local_log_start_offset = 2, 4
    found = [
        errors(harness.ask(fetch(want(offset), replica_id=replica_id), 12))[0]
        for offset in (1, 2, 3, 4)
    ]
    # A consumer's fetch would read remote storage, which this broker does not have.
    moved = Error.OFFSET_MOVED_TO_TIERED_STORAGE
    if replica_id < 0:
        moved = Error.REPLICA_NOT_AVAILABLE
    assert found == [Error.OFFSET_OUT_OF_RANGE, moved, moved, Error.NONE]
    follower = harness.broker.replicas.partition("t", 0).followers[2]
    assert follower.log_end_offset == (4 if replica_id == 2 else -1), "3 is no log end here"


class TestSessions:
    """Sessions through the whole handler; their rules are tested beside their module."""

    def open(self, harness: BrokerHarness, *topics: FetchTopic) -> int:
        answer = harness.ask(fetch(*(topics or (want(0, 0),)), session_epoch=0), 12)
        assert answer.session_id > 0
        return int(answer.session_id)

    def again(
        self, harness: BrokerHarness, session: int, epoch: int, *topics: FetchTopic, **how: Any
    ) -> Any:
        return harness.ask(fetch(*topics, session_id=session, session_epoch=epoch, **how), 12)

    def test_only_changed_partitions_are_returned(self, harness: BrokerHarness) -> None:
        session = self.open(harness)
        assert parts(self.again(harness, session, 1)) == []
        append(harness, batch("a"), index=1)
        answer = self.again(harness, session, 2)
        assert answer.session_id == session
        (part,) = parts(answer)
        assert (part.partition_index, values(part)) == (1, ["a"])
        moved = FetchTopic(
            topic="t",
            partitions=(FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1_000),),
        )
        assert parts(self.again(harness, session, 3, moved)) == []

    def test_partitions_with_records_go_to_the_end(self, harness: BrokerHarness) -> None:
        size = len(batch("a"))
        for index in (0, 1):
            append(harness, batch("a"), index=index)
        session = self.open(harness)
        # Room for one batch, and no position moves: each partition gets its turn.
        turns = [
            [part.partition_index for part in parts(answer) if part.records]
            for answer in (
                self.again(harness, session, 1 + turn, max_bytes=size) for turn in range(4)
            )
        ]
        assert turns == [[0], [1], [0], [1]]

    def test_a_wait_within_a_session(self, harness: BrokerHarness) -> None:
        session = self.open(harness)
        waiting = harness.begin(fetch(session_id=session, session_epoch=1, max_wait_ms=500), 12)
        assert not waiting.done
        append(harness, batch("a"))
        (part,) = parts(waiting.value)
        assert values(part) == ["a"]

    def test_forgotten_partitions_are_not_returned(self, harness: BrokerHarness) -> None:
        session = self.open(harness)
        append(harness, batch("a"), index=1)
        forgotten = (ForgottenTopic(topic="t", partitions=(1,)),)
        assert parts(self.again(harness, session, 1, forgotten_topics_data=forgotten)) == []

    def test_session_errors_are_top_level_errors(self, harness: BrokerHarness) -> None:
        session = self.open(harness)
        for number, epoch, error in (
            (session + 1, 1, Error.FETCH_SESSION_ID_NOT_FOUND),
            (session, 9, Error.INVALID_FETCH_SESSION_EPOCH),
        ):
            answer = self.again(harness, number, epoch)
            assert (answer.error_code, answer.session_id, parts(answer)) == (error, 0, [])
        answer = harness.ask(fetch(session_id=session, session_epoch=1), 13)
        assert answer.error_code == Error.FETCH_SESSION_TOPIC_ID_ERROR

    def test_an_overtaken_fetch_pins_nothing(self, harness: BrokerHarness) -> None:
        session = self.open(harness)
        parked = harness.begin(fetch(session_id=session, session_epoch=1, max_wait_ms=500), 12)
        self.again(harness, session, 2)
        append(harness, batch("a"))
        assert parked.value.error_code == Error.INVALID_FETCH_SESSION_EPOCH
        # A pinned file would stay open when its log is closed.
        log = harness.broker.replicas.partition("t", 0).leader_log()
        log.close()
        assert len(harness.log_dirs.ports.files) == 0

    def test_the_cache_has_as_many_slots_as_configured(self) -> None:
        harness = BrokerHarness({"max.incremental.fetch.session.cache.slots": "1"})
        harness.add_broker()
        harness.add_topic(partitions=2)
        self.open(harness)
        assert harness.ask(fetch(want(0, 0), session_epoch=0), 12).session_id == 0


class TestOldClients:
    """What they cannot read or understand is put in words that they know."""

    def test_a_topic_that_is_deleted_between_two_steps(self) -> None:
        harness = BrokerHarness()
        harness.add_broker()
        harness.add_topic(partitions=2 * PARTITIONS_PER_STEP)
        harness.add_topic("gone", OTHER_ID)
        append(harness, batch("a"), topic="gone")
        request = fetch(want(0, topic="gone"), want(*[0] * 2 * PARTITIONS_PER_STEP))
        steps = handle.steps(harness.context(1, 9), request)
        for _ in range(4):  # After the third the request is known, then partitions are read.
            next(steps)
        harness.commit(RemoveTopicRecord(topic_id=OTHER_ID))
        response = received(at_once(steps), 9)
        assert errors(response)[:2] == [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NONE]
        harness.broker.shutdown()
        assert len(harness.log_dirs.ports.files) == 0

    def test_zstd_topics_need_version_10(self, harness: BrokerHarness) -> None:
        harness.add_topic("z", OTHER_ID, compression_type="zstd")
        append(harness, batch("a", codec=Codec.ZSTD), topic="z")
        request = fetch(want(0, topic="z"))
        assert errors(harness.ask(request, 9)) == [Error.UNSUPPORTED_COMPRESSION_TYPE]
        assert errors(harness.ask(request, 10)) == [Error.NONE]

    @pytest.mark.parametrize(
        ("version", "error"), [(5, Error.NOT_LEADER_OR_FOLLOWER), (6, Error.KAFKA_STORAGE_ERROR)]
    )
    def test_a_disk_failure(self, harness: BrokerHarness, version: int, error: Error) -> None:
        append(harness, batch("a"))
        partition = harness.broker.replicas.partition("t", 0)
        harness.broker.replicas.storage_failed(partition, OSError(5, "broken"))
        assert errors(harness.ask(fetch(want(0, 0)), version)) == [error, error]


def test_a_read_failure_takes_the_log_dir_offline(harness: BrokerHarness) -> None:
    append(harness, batch("a"), batch("b"))
    harness.disk.faults.append(Fault(operation="read_at"))
    # Only the log's latest batches can be found without reading.
    answer = harness.ask(fetch(want(0)), 12)
    assert errors(answer) == [Error.KAFKA_STORAGE_ERROR]
    assert harness.broker.replicas.partition("t", 0).log is None


def test_readers_of_committed_records_get_a_list_of_aborted_transactions(
    harness: BrokerHarness,
) -> None:
    append(harness, batch("a"))
    (part,) = parts(harness.ask(fetch(want(0), isolation_level=COMMITTED), 12))
    assert (part.aborted_transactions, values(part)) == ((), ["a"])
    (part,) = parts(harness.ask(fetch(want(1), isolation_level=COMMITTED), 12))
    assert (part.aborted_transactions, values(part)) == ((), [])


def test_readers_of_committed_records_stop_before_an_open_transaction(
    harness: BrokerHarness,
) -> None:
    append(harness, batch("a"))
    log = harness.broker.replicas.partition("t", 0).leader_log()
    log.append_as_leader(
        batch("b", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=0,
        now_ms=START_MS,
    )
    log.advance_high_watermark(2)
    (part,) = parts(harness.ask(fetch(want(0), isolation_level=COMMITTED), 12))
    assert (part.high_watermark, part.last_stable_offset, values(part)) == (2, 1, ["a"])
    (part,) = parts(harness.ask(fetch(want(0)), 12))
    assert values(part) == ["a", "b"]


def test_the_controllers_listener_is_the_quorums(harness: BrokerHarness) -> None:
    harness.ask(fetch(want(0)), 12, listener=Listener.CONTROLLER)
    assert len(harness.quorum.asked) == 1
